# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs that do what they are told, line by line, each over a connection of its own (agent.c,
holder.c)."""
import os
import socket

#: For one that is told to do something.
PATIENCE = 60


class Told:
    """Whoever has connected, by the last of the numbers that he said of himself."""

    def __init__(self, scratch):
        self.listener, self.where, self.of = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), scratch + "/s", {}
        self.listener.bind(self.where)
        self.listener.listen(64)
        self.listener.settimeout(PATIENCE)

    def come(self):
        """The numbers of the next."""
        s, _ = self.listener.accept()
        s.settimeout(PATIENCE)
        numbers = [int(word) for word in s.recv(64).split()]
        self.of[numbers[-1]] = s
        return numbers

    def told(self, number, line):
        """What he answers."""
        self.of[number].send(line.encode())
        return int(self.of[number].recv(64))

    def close(self):
        self.listener.close()
        os.unlink(self.where)
