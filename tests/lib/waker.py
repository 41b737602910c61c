#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""waker.py SOCKET: gives a guest its power back whenever that goes off, until the guest ends.

SOCKET is QEMU's monitor (vm/run: VM_MONITOR); it may be there only later. The guest's own clock
cannot be relied on for this: where the machine is busy, its alarm may come before the power is off,
and there is no other."""
import json
import os
import socket
import sys
import time

DARK = 1  # seconds without power
path = sys.argv[1]
while not os.path.exists(path):
    time.sleep(0.1)
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(path)

    def say(command):
        connection.sendall(json.dumps({"execute": command}).encode() + b"\n")

    say("qmp_capabilities")
    for line in connection.makefile("rb"):
        said = json.loads(line)
        if "error" in said:
            sys.exit(f"waker: {said['error']}")
        if said.get("event") == "SUSPEND":
            time.sleep(DARK)
            say("system_wakeup")
        elif said.get("event") == "WAKEUP":
            print("woken", flush=True)
