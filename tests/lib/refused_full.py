# SPDX-License-Identifier: MIT OR Apache-2.0
"""A BPF program that the kernel refuses to a full driver (tests/lib/refuse.c): of the CPU's the
optional ones cost one thing each, of the others any one makes `up` take the stock driver and say
why; a link likewise. After each row `down` leaves nothing."""
import glob
import os
import subprocess

from live import RESERV, ROOT, check, not_late, refuse
from putby import PARKED, set_aside

CHCPURES = "threads cannot change their queue or their parameters by fcntl"
# Of the CPU's programs: what `status` says where the driver goes on without.
OPTIONAL = {
    "rc_fcntl": CHCPURES,
    "rc_unmounted": CHCPURES,
    "rc_received": "the request of a thread ends only when it sleeps",
    "rc_fork": "begins in q0",
    "rc_exited": "lists of processes that end",
    "rc_execed": "by its former number",
}
KINDS = {"trampoline": ("rc_fcntl", "rc_unmounted", "rc_received"),
         "tp_btf": ("rc_fork", "rc_exited", "rc_execed")}
ESSENTIAL = ("rc_call", "rc_select_cpu", "rc_enqueue", "rc_dispatch", "rc_set_weight", "rc_init_task", "rc_enable",
             "rc_disable", "rc_exit_task", "rc_cgroup_init", "rc_cgroup_exit", "rc_cgroup_move", "rc_cgroup_set_weight",
             "rc_cgroup_set_bandwidth", "rc_cgroup_set_idle", "rc_cpu_online", "rc_cpu_offline", "rc_init", "rc_exit")
NEVER = {"rc_fcntl_locked", "rc_quiescent"}  # loaded under lockdown only, or before 6.19
LINK = ("rn_enqueue", "rn_dequeue", "rn_init", "rn_reset", "rn_destroy", "rn_setup", "rn_edit", "rn_sample",
        "rn_sample_one", "rn_carry", "rn_do")
LACKS = "refuses the qdisc's programs"
INTERFACE = "refused0"
PINS = "/sys/fs/bpf/reserv"


def reserv(*words):
    return subprocess.run([RESERV, *words], capture_output=True, text=True, timeout=300)


def left():
    pins = [os.path.join(at, name) for at, _, names in os.walk(PINS) for name in names]
    with open("/sys/kernel/sched_ext/state", encoding="ascii") as file:
        state = file.read().strip()
    qdisc = subprocess.run(["tc", "qdisc", "show", "dev", INTERFACE], capture_output=True, text=True).stdout
    mounts = [line for line in open("/proc/mounts", encoding="utf-8") if "fuse.reserv" in line]
    return pins + mounts + ([state] if state != "disabled" else []) + (["qdisc " + qdisc] if "noqueue" not in qdisc else [])


def row(words, up, driver, says, unload=True):
    """One start with these refused: which driver it takes, and what status says then."""
    if unload:
        reserv("down", "--unload")  # or what is put by would need no load
    refuse(words)
    out = reserv("up", *up)
    refuse("")
    status = not_late(lambda: reserv("status").stdout)
    what = f"{words or 'nothing'} refused"
    good = not out.returncode and says in status and f"{driver}" in status
    check(good, f"{what}: up by {driver}, and why is said", "" if good else (out.stderr[-300:], status))
    check("panic" not in out.stderr, f"{what}: no panic")
    made = reserv("mk", "a")
    check(not made.returncode, f"{what}: a queue is made", made.stderr)
    reserv("down")
    check(not left(), f"{what}: down leaves nothing", left())
    return status


def programs(name):
    """By the object itself, without copies (bpf/hook.h)."""
    found = max(glob.glob(f"{ROOT}/target/release/build/reserv-plane-*/out/{name}.bpf.o"), key=os.path.getmtime)
    told = subprocess.run(["readelf", "-sW", found], capture_output=True, text=True, check=True).stdout
    sections = subprocess.run(["readelf", "-SW", found], capture_output=True, text=True, check=True).stdout
    text = next(line.split("]")[0].split("[")[1].strip() for line in sections.splitlines() if " .text " in line)
    words = (line.split() for line in told.splitlines())
    names = {w[7] for w in words if len(w) == 8 and w[3:5] == ["FUNC", "GLOBAL"] and w[6] != text}
    return {n[:-2] if n[-2:] in ("_2", "_3") else n for n in names}


def table(optional, essential, link):
    """`optional`: words to refuse, each with the keys of OPTIONAL that it costs."""
    subprocess.run(["ip", "link", "add", INTERFACE, "type", "dummy"], check=True)
    subprocess.run(["ip", "link", "set", INTERFACE, "up"], check=True)
    cpu, net = programs("cpu"), programs("net")
    check(cpu == {*OPTIONAL, *ESSENTIAL, *NEVER}, "each program of the CPU has a row", cpu ^ {*OPTIONAL, *ESSENTIAL, *NEVER})
    check(net == set(LINK), "each program of a link has a row", net ^ set(LINK))
    link_too = ("--net", INTERFACE, "--rate", "100mbit")
    said = row("", link_too, "cpu.driver full", f"{INTERFACE}.driver full", unload=False)
    told = [lost for lost in (*OPTIONAL.values(), LACKS) if lost in said]
    check(not told, "with nothing refused nothing is told as lost", told)
    with set_aside():
        of_the_cpu(optional, essential)
    # A link's other programs, those of tags, are as they were put by above.
    check(any(name.startswith("net-") for name in os.listdir(PARKED)), "a link's are put by", os.listdir(PARKED))
    for name in link:
        with set_aside("net-"):
            row(name, ("--driver", "stock", *link_too), f"{INTERFACE}.driver stock", LACKS, unload=False)
    subprocess.run(["ip", "link", "del", INTERFACE], check=True)


def of_the_cpu(optional, essential):
    for words, names in optional.items():
        said = row(words, (), "cpu.driver full", OPTIONAL[names[0]])
        silent = [OPTIONAL[name] for name in names if OPTIONAL[name] not in said]
        check(not silent, f"{words}: all that is lost is told", silent)
    for name in essential:
        row(name, (), "cpu.driver stock", "the kernel refuses the program")
    first = "rc_cgroup_init"  # what is loaded before it is loaded in vain
    refuse(first)
    out = reserv("up", "--driver", "full")
    refuse("")
    check(out.returncode and f"the kernel refuses the program {first}" in out.stderr,
          "who asks for the full driver is told which program was refused", out.stderr[-300:])
    check(not left(), "and nothing is left", left())
