# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the kernel has of BPF, as bpf(2) tells: programs, maps, links."""
import ctypes
import os
import struct

PINS = "/sys/fs/bpf/reserv"
libc = ctypes.CDLL(None)


def bpf(command, form, *values):
    """bpf(2): its answer, and the attributes as it leaves them."""
    attributes = ctypes.create_string_buffer(struct.pack(form, *values), 144)
    return libc.syscall(321, command, attributes, 144), attributes.raw


def ids(command=11):
    """Of all there are: programs (11, BPF_PROG_GET_NEXT_ID), maps (12), links (31)."""
    number = 0
    while True:
        failed, attributes = bpf(command, "=I", number)
        if failed:
            return
        number = struct.unpack_from("=I", attributes, 4)[0]
        yield number


def told_of(listed, opened, size):
    """What the kernel tells of all objects of a kind, by their numbers: BPF_*_GET_NEXT_ID,
    BPF_*_GET_FD_BY_ID, and as many bytes of struct bpf_*_info."""
    for number in ids(listed):
        fd, _ = bpf(opened, "=I", number)
        if fd < 0:
            continue
        told = ctypes.create_string_buffer(256)
        bpf(15, "=IIQ", fd, size, ctypes.addressof(told))  # BPF_OBJ_GET_INFO_BY_FD
        os.close(fd)
        yield number, told.raw


def name_in(told, at):
    return told[at:at + 16].split(b"\0")[0].decode()


def maps():
    """Their names."""
    return (name_in(told, 24) for _, told in told_of(12, 14, 128))


def misses():
    """How often each program was left out, by its number and name."""
    return {(number, name_in(told, 64)): struct.unpack_from("=Q", told, 208)[0]
            for number, told in told_of(11, 13, 232)}


def entries(name):
    """Of a pinned hash map whose keys are addresses."""
    path = ctypes.create_string_buffer(f"{PINS}/{name}".encode())
    fd, _ = bpf(7, "=Q", ctypes.addressof(path))  # BPF_OBJ_GET
    if fd < 0:
        raise OSError(f"no map {name}")
    key, following, count = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8), 0
    while not bpf(4, "=I4xQQ", fd, ctypes.addressof(key) if count else 0, ctypes.addressof(following))[0]:  # BPF_MAP_GET_NEXT_KEY
        key.raw, count = following.raw, count + 1
    os.close(fd)
    return count
