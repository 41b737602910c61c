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
not find it. `from reserv import *` leaves out open() and set(): they are reserv.open() and
reserv.set(). """

from __future__ import annotations

import ctypes
import errno
import os
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Callable, List, Optional, Protocol, Tuple, Type, Union,
                    overload, runtime_checkable)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

# Without open and set, which are names of Python's own.
__all__ = [
    "Error", "NotRunning", "NotFound", "Denied", "Exists", "NoProcess", "Stale", "Stat",
    "Params", "REFUSE", "DRAIN", "FLUSH", "version", "mount", "path", "open_container", "bind",
    "unbind", "bound", "slot", "slot_free", "work", "Pool", "Activity", "chcpures", "cpures",
    "tag", "tag_thread", "set_params", "get_params", "set_queue", "get_queue", "listen_for",
    "listens_for", "pread", "pwrite", "get_default", "get_cdefault", "set_default",
    "set_cdefault", "newqueue", "newsched", "mkqueue", "mksched", "delete", "move", "get",
    "reweight", "set_collect", "get_collect", "stat",
]

REFUSE, DRAIN, FLUSH = 0, 1, 2
# Of an answer; what does not fit is asked for again.
ROOM = 512


@runtime_checkable
class HasFileno(Protocol):
    """A file, a socket."""

    def fileno(self) -> int:
        """Its descriptor."""


# A path of a node; a descriptor; a value of a file.
Name = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
File = Union[int, HasFileno]
Value = Union[str, bytes, int, float]


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


_KINDS: dict[int, type[Error]] = {
    errno.ENODEV: NotRunning, errno.ENOTCONN: NotRunning, errno.ECONNABORTED: NotRunning,
    errno.ESTALE: Stale, errno.ENOENT: NotFound, errno.EACCES: Denied, errno.EPERM: Denied,
    errno.EEXIST: Exists, errno.ESRCH: NoProcess}


class _Numbers(ctypes.Structure):
    """One of the library's structures that grow: it is told how large this one is."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{field[0]}={getattr(self, field[0])}" for field in self._fields_)
        return f"{type(self).__name__}({fields})"


class Params(_Numbers):
    """What a thread asks of its queue's class; 0: not set. weight is in thousandths."""

    weight: int
    priority: int
    period_ns: int
    budget_ns: int
    deadline_ns: int
    _fields_ = [("weight", ctypes.c_uint32), ("priority", ctypes.c_uint32),
                ("period_ns", ctypes.c_uint64), ("budget_ns", ctypes.c_uint64),
                ("deadline_ns", ctypes.c_uint64)]


class Stat(_Numbers):
    """Counters of a node and what is below it; 0 where its resource or the library has none."""

    weight_share_ppm: int
    effective_share_ppm: int
    service_ns: int
    runnable: int
    queued: int
    running: int
    members: int
    throttled: int
    throttled_ns: int
    draining: int
    minimum_ns: int
    guarantee_ns: int
    threads_short: int
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "weight_share_ppm", "effective_share_ppm", "service_ns", "runnable", "queued", "running",
        "members", "throttled", "throttled_ns", "draining", "minimum_ns", "guarantee_ns",
        "threads_short")]


class _PoolParams(ctypes.Structure):
    _fields_ = [("share", ctypes.c_char_p), ("flags", ctypes.c_uint64)]


def _load() -> ctypes.CDLL:
    # One with another number has another binary interface.
    name = os.environ.get("RESERV_LIBRARY") or "libreserv.so.1"
    try:
        return ctypes.CDLL(name, use_errno=True)
    except OSError as e:
        text = f"libreserv is not installed ({e}); RESERV_LIBRARY names it where it is elsewhere"
        raise ImportError(text) from e


_library = _load()
_text, _size, _length = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_ssize_t
_int = _fd = _pid = ctypes.c_int
# What ctypes takes for the type of an argument or an answer.
_CType = Any


def _declare(name: str, answer: _CType, *arguments: _CType) -> Any:
    call: Any = getattr(_library, name)
    call.restype, call.argtypes = answer, arguments
    return call


_error = _declare("reserv_error", _text)
_version = _declare("reserv_version", _text)


def _failed() -> Error:
    number = ctypes.get_errno()
    return _KINDS.get(number, Error)(number, _error().decode(errors="replace"))


def _call(name: str, answer: _CType, *arguments: _CType) -> Callable[..., int]:
    """A call whose failure is an exception."""
    call = _declare(name, answer, *arguments)

    def checked(*values: Any) -> int:
        got: int = call(*values)
        if got >= 0:
            return got
        raise _failed()
    return checked


def _pointer(name: str, *arguments: _CType) -> Callable[..., int]:
    """A call that answers where something is."""
    call = _declare(name, ctypes.c_void_p, *arguments)

    def checked(*values: Any) -> int:
        got: Optional[int] = call(*values)
        if got:
            return got
        raise _failed()
    return checked


def _reader(name: str, *arguments: _CType) -> Callable[..., str]:
    """A call that fills a buffer."""
    call = _call(name, _length, *arguments, _text, _size)

    def read(*values: Any) -> str:
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


def _bytes(name: Name) -> bytes:
    text = os.fspath(name)
    raw = text if isinstance(text, bytes) else text.encode()
    if b"\0" in raw:
        raise ValueError(f"a zero byte in {text!r}")
    return raw


def _optional(name: Optional[Name]) -> Optional[bytes]:
    return None if name is None else _bytes(name)


def _value(value: Value) -> bytes:
    return _bytes(value if isinstance(value, (str, bytes)) else str(value))


def _share(share: Optional[Value]) -> Optional[bytes]:
    return None if share is None else _value(share)


def _number(file: File) -> int:
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
_pool_open = _pointer("reserv_pool_open_sized", _text, _int, ctypes.POINTER(_PoolParams), _size)
_pool_close = _call("reserv_pool_close", _int, ctypes.c_void_p)
_begin = _call("reserv_begin", _int, ctypes.c_void_p)
_end = _call("reserv_end", _int, ctypes.c_void_p, _int)
_tag = _call("reserv_tag", _int, _text, _pid)
_tag_thread = _call("reserv_tag_thread", _int, _text, _pid)
_set_params = _call("reserv_set_params_sized", _int, ctypes.POINTER(Params), _size)
_get_params = _call("reserv_get_params_sized", _int, ctypes.POINTER(Params), _size)
_set_queue = _call("reserv_set_queue", _int, _fd, _fd)
_set_queue_path = _call("reserv_set_queue_path", _int, _fd, _text)
_listen_for = _call("reserv_listen_for", _int, _fd, _text)
_listens_for = _reader("reserv_listens_for", _fd)
_pread = _call("reserv_pread", _length, _fd, ctypes.c_void_p, _size, ctypes.c_int64,
               ctypes.c_uint64)
_pwrite = _call("reserv_pwrite", _length, _fd, _text, _size, ctypes.c_int64, ctypes.c_uint64)
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
_stat = _call("reserv_stat_sized", _int, _text, ctypes.POINTER(Stat), _size)


def version() -> str:
    """Of the library."""
    text: bytes = _version()
    return text.decode()


def mount() -> str:
    """Where /reserv is."""
    return _mount()


def open(node: Name) -> int:  # noqa: A001 - as os.open is
    """A descriptor of a node's directory, for chcpures() and set_queue()."""
    return _open(_bytes(node))


def path(fd: File) -> str:
    """The path of the node that a descriptor of /reserv belongs to."""
    return _path(_number(fd))


def chcpures(queue: Union[Name, File]) -> None:
    """Tags the calling thread with a queue, by path or descriptor."""
    if isinstance(queue, (int, HasFileno)):
        _chcpures(_number(queue))
    else:
        _chcpures_path(_bytes(queue))


def open_container(container: Name) -> int:
    """A descriptor of a container's directory, for bind()."""
    return _open_container(_bytes(container))


def bind(container: Union[Name, File]) -> None:
    """The calling thread works for a container, by path or descriptor."""
    if isinstance(container, (int, HasFileno)):
        _bind(_number(container))
    else:
        _bind_path(_bytes(container))


def unbind() -> None:
    """The calling thread goes back to the queue that it had before."""
    _unbind()


def bound() -> str:
    """The container to which the calling thread is bound; "": to none."""
    return _bound()


def slot(container: Union[Name, File]) -> int:
    """A number of this process for a container, by path or descriptor: for work()."""
    if isinstance(container, (int, HasFileno)):
        return _slot(_number(container))
    return _slot_path(_bytes(container))


def slot_free(number: int) -> None:
    """Gives a number of slot() back."""
    _slot_free(number)


def work(number: int) -> None:
    """The calling thread works for the container of a slot; 0: for none. Seldom a system call."""
    _work(number)


class Activity:
    """What a thread works for until it ends; with Pool.begin(). For other threads, and between
    several activities, work(activity.slot)."""

    def __init__(self, pool: Optional[int]) -> None:
        self._pool, self._word = pool, _begin(pool)
        self.slot = self._word & 1023

    def end(self) -> None:
        """The container is free, and the thread works for what it did before."""
        _end(self._pool, self._word)

    def __enter__(self) -> Activity:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.end()


class Pool:
    """Containers for activities, made at once below a parent ("": they have none) and taken
    without a system call; all, or none is made. They go when it is closed or the process ends.
    overflow: all activities that find none free share one more; else that is EAGAIN."""

    def __init__(self, parent: Name, count: int, share: Optional[Value] = None,
                 overflow: bool = False) -> None:
        params = _PoolParams(_share(share), 1 if overflow else 0)
        self._at: Optional[int] = _pool_open(_bytes(parent), count, ctypes.byref(params),
                                             ctypes.sizeof(params))

    def begin(self) -> Activity:
        """The calling thread works for a container of its own; use with `with`."""
        return Activity(self._at)

    def close(self) -> None:
        """Not while activities go on (EBUSY)."""
        _pool_close(self._at)
        self._at = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


def cpures() -> str:
    """The calling thread's queue."""
    return _cpures()


def tag(queue: Name, pid: int) -> None:
    """Tags a process with all its threads."""
    _tag(_bytes(queue), pid)


def tag_thread(queue: Name, tid: int) -> None:
    """Tags one thread."""
    _tag_thread(_bytes(queue), tid)


def set_params(weight: int = 0, priority: int = 0, period_ns: int = 0, budget_ns: int = 0,
               deadline_ns: int = 0) -> None:
    """Sets what the calling thread asks of its queue's class, all of it."""
    params = Params(weight, priority, period_ns, budget_ns, deadline_ns)
    _set_params(ctypes.byref(params), ctypes.sizeof(params))


def get_params() -> Params:
    """What the calling thread asks of its queue's class."""
    params = Params()
    _get_params(ctypes.byref(params), ctypes.sizeof(params))
    return params


@overload
def pread(fd: File, size: int, offset: int, deadline_ns: int = 0) -> bytes: ...
@overload
def pread(fd: File, size: WriteableBuffer, offset: int, deadline_ns: int = 0) -> int: ...
def pread(fd: File, size: Union[int, WriteableBuffer], offset: int,
          deadline_ns: int = 0) -> Union[bytes, int]:
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


def pwrite(fd: File, data: ReadableBuffer, offset: int, deadline_ns: int = 0) -> int:
    """As os.pwrite, with a deadline as for pread(). What stays in the page cache is written later,
    without one."""
    raw = bytes(data)
    return _pwrite(_number(fd), raw, len(raw), offset, deadline_ns)


def set_queue(fd: File, queue: Union[Name, File]) -> None:
    """Tags an open file or socket with a queue, by path or descriptor."""
    if isinstance(queue, (int, HasFileno)):
        _set_queue(_number(fd), _number(queue))
    else:
        _set_queue_path(_number(fd), _bytes(queue))


def get_queue(fd: File, resource: Optional[Name] = None) -> str:
    """The queue of an open file or socket for a resource; without one, of a descriptor of /reserv
    its own node."""
    return _get_queue(_number(fd), _optional(resource))


def listen_for(fd: File, *clients: str) -> None:
    """A listening socket is for these clients from now on: "10.1.0.0/16", "not 10.0.0.0/8", "any",
    "none"; behind "at 80" at a port at which another socket is bound."""
    _listen_for(_number(fd), _bytes(" ".join(clients)))


def listens_for(fd: File) -> str:
    """For which clients a listening socket is: as it was said, or "none"."""
    return _listens_for(_number(fd))


@overload
def get_default(resource: None = None, pid: int = 0) -> List[str]: ...
@overload
def get_default(resource: Name, pid: int = 0) -> str: ...
def get_default(resource: Optional[Name] = None, pid: int = 0) -> Union[str, List[str]]:
    """The queue of a process (0: this one) for a resource; without one, those of all of them, in a
    list."""
    got = _get_default(pid, _optional(resource))
    return got.split() if resource is None else got


@overload
def get_cdefault(resource: None = None, pid: int = 0) -> List[str]: ...
@overload
def get_cdefault(resource: Name, pid: int = 0) -> str: ...
def get_cdefault(resource: Optional[Name] = None, pid: int = 0) -> Union[str, List[str]]:
    """The same of its child default list."""
    got = _get_cdefault(pid, _optional(resource))
    return got.split() if resource is None else got


def set_default(*queues: Name, pid: int = 0) -> None:
    """Sets the queues of a process (0: this one), at most one per resource; others keep theirs."""
    _set_default(pid, b" ".join(map(_bytes, queues)))


def set_cdefault(*queues: Name, pid: int = 0) -> None:
    """The same in its child default list."""
    _set_cdefault(pid, b" ".join(map(_bytes, queues)))


def _fresh(call: Callable[..., int], parent: Name) -> Tuple[int, str]:
    size = 1 << 16
    buffer = ctypes.create_string_buffer(size)
    fd = call(_bytes(parent), buffer, size)
    return fd, buffer.value.decode()


def newqueue(parent: Name) -> Tuple[int, str]:
    """Makes a numbered queue: a descriptor of its share file, and its path."""
    return _fresh(_newqueue, parent)


def newsched(parent: Name) -> Tuple[int, str]:
    """Makes a numbered scheduler node, as newqueue() does a queue."""
    return _fresh(_newsched, parent)


def mkqueue(node: Name, share: Optional[Value] = None) -> None:
    """Makes a queue by name."""
    _mkqueue(_bytes(node), _share(share))


def mksched(node: Name, share: Optional[Value] = None) -> None:
    """Makes a scheduler node by name."""
    _mksched(_bytes(node), _share(share))


def delete(node: Name, how: int = REFUSE) -> None:
    """Deletes a node; how is REFUSE, DRAIN or FLUSH."""
    _delete(_bytes(node), how)


def move(old: Name, new: Name) -> None:
    """Renames a node, or moves it."""
    _move(_bytes(old), _bytes(new))


def set(node: Name, file: Name, value: Value) -> None:  # noqa: A001 - the library's name
    """Writes a value to a file of a node: share, policy, class, cap, tune."""
    _set(_bytes(node), _bytes(file), _value(value))


def get(node: Name, file: Name) -> str:
    """What a file of a node says."""
    return _get(_bytes(node), _bytes(file))


def reweight(node: Name, share: Value) -> None:
    """Sets the share of a node: 24, "=25%"."""
    _reweight(_bytes(node), _value(share))


def set_collect(node: Union[Name, File], on: bool) -> None:
    """Whether a node, by path or descriptor, is collected when nothing refers to it."""
    if isinstance(node, (int, HasFileno)):
        _fset_collect(_number(node), on)
    else:
        _set_collect(_bytes(node), on)


def get_collect(node: Union[Name, File]) -> bool:
    """Reads what set_collect() sets."""
    if isinstance(node, (int, HasFileno)):
        return bool(_fget_collect(_number(node)))
    return bool(_get_collect(_bytes(node)))


def stat(node: Name) -> Stat:
    """The counters of a node."""
    counters = Stat()
    _stat(_bytes(node), ctypes.byref(counters), ctypes.sizeof(counters))
    return counters
