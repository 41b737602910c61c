# SPDX-License-Identifier: MIT OR Apache-2.0
"""IPv4's TCP sockets of this name space, by the kernel's table."""
TIME_WAIT, LISTEN = "06", "0A"


def sockets():
    """The port here and the state of each."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return [(int(row[1].split(":")[1], 16), row[3]) for row in rows]
