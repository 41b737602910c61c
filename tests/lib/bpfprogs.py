# SPDX-License-Identifier: MIT OR Apache-2.0
"""The programs that are loaded, as bpf(2) tells them."""
import ctypes
import os
import struct

libc = ctypes.CDLL(None)


def bpf(command, form, *values):
    """bpf(2): its answer, and the attributes as it leaves them."""
    attributes = ctypes.create_string_buffer(struct.pack(form, *values), 144)
    return libc.syscall(321, command, attributes, 144), attributes.raw


def misses():
    """How often each program was left out, by its number and name."""
    found, number = {}, 0
    while True:
        failed, attributes = bpf(11, "=I", number)  # BPF_PROG_GET_NEXT_ID
        if failed:
            return found
        number = struct.unpack_from("=I", attributes, 4)[0]
        fd, _ = bpf(13, "=I", number)  # BPF_PROG_GET_FD_BY_ID
        if fd < 0:
            continue
        told = ctypes.create_string_buffer(256)  # struct bpf_prog_info
        bpf(15, "=IIQ", fd, 232, ctypes.addressof(told))  # BPF_OBJ_GET_INFO_BY_FD
        os.close(fd)
        found[number, told.raw[64:80].split(b"\0")[0].decode()] = struct.unpack_from("=Q", told.raw, 208)[0]
