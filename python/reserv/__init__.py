# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reservations for programs: libreserv in Python.

    import reserv
    reserv.mkqueue("cpu/web/site1", "=25%")
    reserv.chcpures("cpu/web/site1")        # the calling thread
    print(reserv.stat("cpu/web/site1").service_ns)

Queues and nodes are named by paths, "cpu/web/site1" or "/reserv/cpu/web/site1". Where a descriptor
is wanted, anything with fileno() will do. Errors are OSErrors whose strerror names the word that
was wrong and what would be right: Error, and of it NotRunning (ENODEV, ENOTCONN: there is no
Reserv, or reservd is not running), Stale (ESTALE: the node is gone), and those that also are
FileNotFoundError, PermissionError and so on.

No build step: the C library is called through ctypes. RESERV_LIBRARY names it where the loader does
not find it. """

import ctypes
import ctypes.util
import errno
import os

__all__ = [
    "Error", "NotRunning", "NotFound", "Denied", "Exists", "NoProcess", "Stale", "Stat", "Params", "REFUSE", "DRAIN", "FLUSH", "version", "mount",
    "open", "path", "open_container", "bind", "unbind", "bound", "slot", "slot_free", "work", "chcpures", "cpures", "tag", "tag_thread", "set_params", "get_params", "set_queue", "get_queue", "pread", "pwrite", "get_default", "get_cdefault",
    "set_default", "set_cdefault", "newqueue", "newsched", "mkqueue", "mksched", "delete", "move", "set", "get", "reweight", "set_collect", "get_collect",
    "stat",
]

REFUSE, DRAIN, FLUSH = 0, 1, 2
# Of an answer; what does not fit is asked for again.
ROOM = 512


class Error(OSError):
    """A call that failed. Nothing has changed."""


class NotRunning(Error):
    """There is no Reserv, or reservd is not running."""


class Stale(Error):
    """The node is gone."""


class NotFound(Error, FileNotFoundError):
    """No such node, file or resource."""


class Denied(Error, PermissionError):
    """No right."""


class Exists(Error, FileExistsError):
    """The name is taken."""


class NoProcess(Error, ProcessLookupError):
    """No such process or thread."""


_KINDS = {errno.ENODEV: NotRunning, errno.ENOTCONN: NotRunning, errno.ECONNABORTED: NotRunning, errno.ESTALE: Stale, errno.ENOENT: NotFound,
          errno.EACCES: Denied, errno.EPERM: Denied, errno.EEXIST: Exists, errno.ESRCH: NoProcess}


class Params(ctypes.Structure):
    """What a thread asks of its queue's class; 0: not set. weight is in thousandths."""

    _fields_ = [("weight", ctypes.c_uint32), ("priority", ctypes.c_uint32), ("period_ns", ctypes.c_uint64), ("budget_ns", ctypes.c_uint64),
                ("deadline_ns", ctypes.c_uint64)]

    def __repr__(self):
        return _shown(self)


class Stat(ctypes.Structure):
    """Counters of a node and what is below it."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "weight_share_ppm", "effective_share_ppm", "service_ns", "runnable", "queued", "running", "members", "throttled", "throttled_ns", "draining",
        "minimum_ns", "guarantee_ns", "threads_short")]

    def __repr__(self):
        return _shown(self)


def _shown(structure):
    fields = ", ".join(f"{name}={getattr(structure, name)}" for name, _ in structure._fields_)
    return f"{type(structure).__name__}({fields})"


def _load():
    named = os.environ.get("RESERV_LIBRARY")
    tried = [named] if named else ["libreserv.so.0", ctypes.util.find_library("reserv")]
    for name in filter(None, tried):
        try:
            return ctypes.CDLL(name, use_errno=True)
        except OSError as e:
            why = str(e)
    raise ImportError(f"libreserv is not installed ({why}); RESERV_LIBRARY names it where it is elsewhere")


_library = _load()
_text, _fd, _size, _pid, _int = ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int, ctypes.c_int
_length = ctypes.c_ssize_t


def _declare(name, answer, *arguments):
    call = getattr(_library, name)
    call.restype, call.argtypes = answer, arguments
    return call


_error = _declare("reserv_error", _text)
_version = _declare("reserv_version", _text)


def _call(name, answer, *arguments):
    """A call whose failure is an exception."""
    call = _declare(name, answer, *arguments)

    def checked(*values):
        got = call(*values)
        if got >= 0:
            return got
        number = ctypes.get_errno()
        raise _KINDS.get(number, Error)(number, _error().decode(errors="replace"))
    return checked


def _reader(name, *arguments):
    """A call that fills a buffer."""
    call = _call(name, _length, *arguments, _text, _size)

    def read(*values):
        size = ROOM
        while True:
            buffer = ctypes.create_string_buffer(size)
            try:
                length = call(*values, buffer, size)
                return buffer.raw[:length].decode()
            except Error as e:
                if e.errno != errno.ERANGE or size > 1 << 24:
                    raise
                size *= 8
    return read


def _bytes(text):
    text = os.fspath(text)
    raw = text if isinstance(text, bytes) else str(text).encode()
    if b"\0" in raw:
        raise ValueError(f"a zero byte in {text!r}")
    return raw


def _optional(text):
    return None if text is None else _bytes(text)


def _number(file):
    return file if isinstance(file, int) else file.fileno()


_mount = _reader("reserv_mount")
_open = _call("reserv_open", _int, _text)
_path = _reader("reserv_path", _fd)
_chcpures = _call("reserv_chcpures", _int, _fd)
_chcpures_path = _call("reserv_chcpures_path", _int, _text)
_cpures = _reader("reserv_cpures")
_open_container = _call("reserv_open_container", _int, _text)
_bind = _call("reserv_bind", _int, _fd)
_bind_path = _call("reserv_bind_path", _int, _text)
_unbind = _call("reserv_unbind", _int)
_bound = _reader("reserv_bound")
_slot = _call("reserv_slot", _int, _fd)
_slot_path = _call("reserv_slot_path", _int, _text)
_slot_free = _call("reserv_slot_free", _int, _int)
_work = _call("reserv_work", _int, _int)
_tag = _call("reserv_tag", _int, _text, _pid)
_tag_thread = _call("reserv_tag_thread", _int, _text, _pid)
_set_params = _call("reserv_set_params", _int, ctypes.POINTER(Params))
_get_params = _call("reserv_get_params", _int, ctypes.POINTER(Params))
_set_queue = _call("reserv_set_queue", _int, _fd, _fd)
_set_queue_path = _call("reserv_set_queue_path", _int, _fd, _text)
_pread = _call("reserv_pread", _length, _fd, ctypes.c_void_p, _size, ctypes.c_int64, ctypes.c_uint64)
_pwrite = _call("reserv_pwrite", _length, _fd, ctypes.c_char_p, _size, ctypes.c_int64, ctypes.c_uint64)
_get_queue = _reader("reserv_get_queue", _fd, _text)
_get_default = _reader("reserv_get_default", _pid, _text)
_get_cdefault = _reader("reserv_get_cdefault", _pid, _text)
_set_default = _call("reserv_set_default", _int, _pid, _text)
_set_cdefault = _call("reserv_set_cdefault", _int, _pid, _text)
_newqueue = _call("reserv_newqueue", _int, _text, _text, _size)
_newsched = _call("reserv_newsched", _int, _text, _text, _size)
_mkqueue = _call("reserv_mkqueue", _int, _text, _text)
_mksched = _call("reserv_mksched", _int, _text, _text)
_delete = _call("reserv_delete", _int, _text, _int)
_move = _call("reserv_move", _int, _text, _text)
_set = _call("reserv_set", _int, _text, _text, _text)
_get = _reader("reserv_get", _text, _text)
_reweight = _call("reserv_reweight", _int, _text, _text)
_set_collect = _call("reserv_set_collect", _int, _text, _int)
_get_collect = _call("reserv_get_collect", _int, _text)
_fset_collect = _call("reserv_fset_collect", _int, _fd, _int)
_fget_collect = _call("reserv_fget_collect", _int, _fd)
_stat = _call("reserv_stat", _int, _text, ctypes.POINTER(Stat))


def _is_descriptor(thing):
    return isinstance(thing, int) or hasattr(thing, "fileno")


def version():
    """Of the library."""
    return _version().decode()


def mount():
    """Where /reserv is."""
    return _mount()


def open(node):  # noqa: A001 - as os.open is
    """A descriptor of a node's directory, for chcpures() and set_queue()."""
    return _open(_bytes(node))


def path(fd):
    """The path of the node that a descriptor of /reserv belongs to."""
    return _path(_number(fd))


def chcpures(queue):
    """Tags the calling thread with a queue, by path or descriptor."""
    if _is_descriptor(queue):
        _chcpures(_number(queue))
    else:
        _chcpures_path(_bytes(queue))


def open_container(container):
    """A descriptor of a container's directory, for bind()."""
    return _open_container(_bytes(container))


def bind(container):
    """The calling thread works for a container, by path or descriptor."""
    if _is_descriptor(container):
        _bind(_number(container))
    else:
        _bind_path(_bytes(container))


def unbind():
    """The calling thread goes back to the queue that it had before."""
    _unbind()


def bound():
    """The container to which the calling thread is bound; "": to none."""
    return _bound()


def slot(container):
    """A number of this process for a container, by path or descriptor: for work()."""
    return _slot(_number(container)) if _is_descriptor(container) else _slot_path(_bytes(container))


def slot_free(number):
    """Gives a number of slot() back."""
    _slot_free(number)


def work(number):
    """The calling thread works for the container of a slot; 0: for none. Seldom a system call."""
    _work(number)


def cpures():
    """The calling thread's queue."""
    return _cpures()


def tag(queue, pid):
    """Tags a process with all its threads."""
    _tag(_bytes(queue), pid)


def tag_thread(queue, tid):
    """Tags one thread."""
    _tag_thread(_bytes(queue), tid)


def set_params(weight=0, priority=0, period_ns=0, budget_ns=0, deadline_ns=0):
    """Sets what the calling thread asks of its queue's class, all of it."""
    _set_params(ctypes.byref(Params(weight, priority, period_ns, budget_ns, deadline_ns)))


def get_params():
    """What the calling thread asks of its queue's class."""
    params = Params()
    _get_params(ctypes.byref(params))
    return params


def pread(fd, size, offset, deadline_ns=0):
    """As os.pread; its requests are due so long after they come to the disk (8 ms to 1023 ms; 0: as
    the queue's are). For O_DIRECT pass aligned memory (an mmap) in place of the size: it is filled,
    and the answer is how many bytes."""
    if isinstance(size, int):
        buffer = ctypes.create_string_buffer(size)
        length = _pread(_number(fd), buffer, size, offset, deadline_ns)
        return buffer.raw[:length]
    with memoryview(size) as view:
        into = (ctypes.c_char * view.nbytes).from_buffer(view)
        try:
            return _pread(_number(fd), into, view.nbytes, offset, deadline_ns)
        finally:
            del into


def pwrite(fd, data, offset, deadline_ns=0):
    """As os.pwrite, with a deadline as for pread(). What stays in the page cache is written later,
    without one."""
    data = bytes(data)
    return _pwrite(_number(fd), data, len(data), offset, deadline_ns)


def set_queue(fd, queue):
    """Tags an open file or socket with a queue, by path or descriptor."""
    if _is_descriptor(queue):
        _set_queue(_number(fd), _number(queue))
    else:
        _set_queue_path(_number(fd), _bytes(queue))


def get_queue(fd, resource=None):
    """The queue of an open file or socket for a resource; without one, of a descriptor of /reserv
    its own node."""
    return _get_queue(_number(fd), _optional(resource))


def get_default(resource=None, pid=0):
    """The queue of a process (0: this one) for a resource; without one, those of all of them, in a
    list."""
    got = _get_default(pid, _optional(resource))
    return got.split() if resource is None else got


def get_cdefault(resource=None, pid=0):
    """The same of its child default list."""
    got = _get_cdefault(pid, _optional(resource))
    return got.split() if resource is None else got


def set_default(*queues, pid=0):
    """Sets the queues of a process (0: this one), at most one per resource; others keep theirs."""
    _set_default(pid, b" ".join(map(_bytes, queues)))


def set_cdefault(*queues, pid=0):
    """The same in its child default list."""
    _set_cdefault(pid, b" ".join(map(_bytes, queues)))


def _fresh(call, parent):
    size = 1 << 16
    buffer = ctypes.create_string_buffer(size)
    fd = call(_bytes(parent), buffer, size)
    return fd, buffer.value.decode()


def newqueue(parent):
    """Makes a numbered queue: a descriptor of its share file, and its path."""
    return _fresh(_newqueue, parent)


def newsched(parent):
    """Makes a numbered scheduler node, as newqueue() does a queue."""
    return _fresh(_newsched, parent)


def mkqueue(node, share=None):
    """Makes a queue by name."""
    _mkqueue(_bytes(node), None if share is None else _bytes(str(share)))


def mksched(node, share=None):
    """Makes a scheduler node by name."""
    _mksched(_bytes(node), None if share is None else _bytes(str(share)))


def delete(node, how=REFUSE):
    """Deletes a node; how is REFUSE, DRAIN or FLUSH."""
    _delete(_bytes(node), how)


def move(old, new):
    """Renames a node, or moves it."""
    _move(_bytes(old), _bytes(new))


def set(node, file, value):  # noqa: A001 - the library's name
    """Writes a value to a file of a node: share, policy, class, cap, tune."""
    _set(_bytes(node), _bytes(file), _bytes(str(value)))


def get(node, file):
    """What a file of a node says."""
    return _get(_bytes(node), _bytes(file))


def reweight(node, share):
    """Sets the share of a node: 24, "=25%"."""
    _reweight(_bytes(node), _bytes(str(share)))


def set_collect(node, on):
    """Whether a node, by path or descriptor, is collected when nothing refers to it."""
    if _is_descriptor(node):
        _fset_collect(_number(node), on)
    else:
        _set_collect(_bytes(node), on)


def get_collect(node):
    """Reads what set_collect() sets."""
    return bool(_fget_collect(_number(node)) if _is_descriptor(node) else _get_collect(_bytes(node)))


def stat(node):
    """The counters of a node."""
    counters = Stat()
    _stat(_bytes(node), ctypes.byref(counters))
    return counters
