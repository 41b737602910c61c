#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""watch.py SCHEDULER COMMAND...: runs a command in a new queue below a scheduler node, and says
what it received.

    ./watch.py cpu/web make -j8
"""
import os
import subprocess
import sys

import reserv


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: watch.py SCHEDULER COMMAND...")
    parent, command = sys.argv[1], sys.argv[2:]
    try:
        share, queue = reserv.newqueue(parent)
        os.write(share, b"100\n")
        child = subprocess.Popen(command, preexec_fn=lambda: reserv.chcpures(queue))
        code = child.wait()
        print(f"{queue}: {reserv.stat(queue).service_ns / 1e9:.3f} s of CPU time")
        os.close(share)
        try:
            reserv.delete(queue, reserv.FLUSH)
        except (reserv.NotFound, reserv.Stale):
            pass  # Collected: nothing referred to it any more.
    except reserv.Error as e:
        sys.exit(f"watch.py: {e.strerror}")
    sys.exit(code)


main()
