# SPDX-License-Identifier: MIT OR Apache-2.0
"""A process as a container runtime leaves it: another uid, a user and mount name space of its own
(and, if asked, all others but the network's), no capabilities, no new privileges, and a seccomp
filter that knows system calls by number only.

    outcome = in_jail(function, *args)      # what the function returned, as text; how it died
                                            otherwise
"""
import ctypes
import json
import os
import struct

UID = 1000
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP = 0x00020000, 0x10000000, 0x20000000, 0x08000000, 0x04000000, 0x02000000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 22, 38, 4, 24
# What container runtimes refuse by default (x86-64): mount, umount2, swapon, init_module,
# kexec_load, bpf, perf_event_open, open_by_handle_at, setns.
REFUSED = (165, 166, 167, 175, 246, 321, 298, 304, 308)


def call(name, *args):
    """A C function that answers -1 and errno."""
    ctypes.set_errno(0)
    got = getattr(libc, name)(*args)
    if got < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return got


def seccomp():
    """Refuses REFUSED with EPERM and lets everything else pass."""
    load, equal, answer, allow = 0x20, 0x15, 0x00050001, 0x7fff0000
    lines = [struct.pack("HBBI", load, 0, 0, 0)]
    for at, number in enumerate(REFUSED):
        lines.append(struct.pack("HBBI", equal, len(REFUSED) - at, 0, number))
    lines += [struct.pack("HBBI", 6, 0, 0, allow), struct.pack("HBBI", 6, 0, 0, answer)]
    program = ctypes.create_string_buffer(b"".join(lines))
    header = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(program))
    call("prctl", PR_SET_SECCOMP, 2, header, 0, 0)


def enter(root_inside, numbers=False):
    """root_inside: it is root, with all capabilities, in its own user name space; else it has none
    anywhere. numbers: in pid, ipc, uts and cgroup name spaces of its own too, with a /proc of its
    own; who calls it waits outside and ends with it."""
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    # As after an exec: its own files in /proc are its own.
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("unshare", CLONE_NEWUSER | CLONE_NEWNS | (CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP if numbers else 0))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {UID} 1"), ("gid_map", f"0 {UID} 1")):
        with open("/proc/self/" + name, "w", encoding="ascii") as file:
            file.write(text)
    if numbers:
        inside = os.fork()
        if inside:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1]) & 0xff)
        call("mount", b"proc", b"/proc", b"proc", 0, None)
    if not root_inside:
        # capset(2), version 3: nothing effective, permitted or inheritable.
        call("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("IIIIII", 0, 0, 0, 0, 0, 0))
    seccomp()


def in_child(before, function, *args):
    """What a function answers in a child process (JSON), after `before()`; the text of its
    exception otherwise."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            before()
            answer = function(*args)
        except BaseException as e:  # noqa: BLE001 - the child says what happened and ends
            answer = {"exception": repr(e)}
        with os.fdopen(writing, "w") as out:
            json.dump(answer, out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        text = answers.read()
    status = os.waitpid(pid, 0)[1]
    return json.loads(text) if text else {"exception": f"status {status:#x}"}
