# SPDX-License-Identifier: MIT OR Apache-2.0
"""The clients: real wrk processes in closed loops, one request per connection, off the servers'
CPU."""

import json
import os
import signal
import subprocess
from pathlib import Path

from .servers import Site

SCRIPT = Path(__file__).resolve().parent.parent / "closed_loop.lua"
STOP_S_MAX = 60.0


class ClientError(Exception):
    """wrk did not run or did not report."""


class Clients:
    """Some clients of one site, from start to stop."""

    def __init__(self, of: Site, count: int, cpus: set[int], spread_s: float, prefix: tuple[str, ...] = ()):
        self.site = of.number - 1
        self.count = count
        env = {**os.environ, "STAGGER_MS": str(round(spread_s * 1000)), "CLIENTS": str(count)}
        command = [*prefix, "wrk", "--threads", "1", "--connections", str(count), "--duration", "2h", "--timeout", "40s",
                   *(f"--header={line}" for line in (f"Host: {of.host}", *of.headers)),
                   "--script", str(SCRIPT), of.url]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cpus))

    def check(self) -> None:
        if self.process.poll() is not None:
            raise ClientError(f"wrk of site {self.site + 1} ended early: {self.process.stdout.read()[-400:]}")

    def interrupt(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def result(self) -> dict[str, int]:
        """What wrk counted; after `interrupt`."""
        try:
            output, _ = self.process.communicate(timeout=STOP_S_MAX)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            self.process.communicate()
            raise ClientError(f"wrk of site {self.site + 1} did not stop") from error
        for line in output.splitlines():
            if line.startswith("RESULT "):
                return json.loads(line.removeprefix("RESULT "))
        raise ClientError(f"wrk of site {self.site + 1} gave no result: {output[-400:]}")

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
