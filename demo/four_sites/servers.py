# SPDX-License-Identifier: MIT OR Apache-2.0
"""Four Apache servers, one per company: Debian's program and modules, configuration of our own in a
scratch folder, ports of our own on 127.0.0.1 (or a link's address). No service of the machine is
touched."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Sequence

from . import access_log

APACHE = "/usr/sbin/apache2"
MODULES = Path("/usr/lib/apache2/modules")
START_S_MAX = 60.0
STOP_S_MAX = 30.0

CONFIG = """\
ServerRoot "{root}"
DefaultRuntimeDir "{root}"
ServerName site{number}.test
Listen {address}:{port}
ListenBacklog 256
PidFile "{root}/apache2.pid"
User {user}
Group {group}
LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule alias_module {modules}/mod_alias.so
LoadModule cgi_module {modules}/mod_cgi.so

# One process per request, as Apache 1.3 had it. All that can be needed are there from the start.
StartServers {slots}
ServerLimit {slots}
MaxRequestWorkers {slots}
MinSpareServers 1
MaxSpareServers {slots}
MaxConnectionsPerChild 0
KeepAlive Off
Timeout 600

DocumentRoot "{root}"
ScriptAlias "/numbers" "{cgi}"
LogLevel error
ErrorLog "{root}/error.log"
LogFormat "{log_format}" demo
CustomLog "{root}/access.log" demo
"""


class ServerError(Exception):
    """A server did not start, answer or stop; with the end of its log."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


class Server:
    """The server of one company."""

    def __init__(self, number: int, port: int, scratch: Path, cgi: Path, slots: int, address: str = "127.0.0.1",
                 page: str = "/numbers", length: int = 1024):
        self.number = number
        self.port = port
        self.address, self.page, self.length = address, page, length
        self.root = scratch / f"site{number}"
        self.root.mkdir(mode=0o755)
        user = pwd.getpwnam("www-data") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
        log_format = access_log.FORMAT.replace('"', '\\"')
        config = CONFIG.format(root=self.root, address=address, number=number, port=port, user=user.pw_name, group=f"#{user.pw_gid}",
                               modules=MODULES, slots=slots, cgi=cgi, log_format=log_format)
        self.config = self.root / "apache2.conf"
        self.config.write_text(config)
        (self.root / "access.log").touch()
        self.log = access_log.Tail(self.root / "access.log")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}{self.page}"

    def start(self, cpu: int, prefix: Sequence[str]) -> None:
        """Start on `cpu`; `prefix` is the command that puts it into its reservation, or empty."""
        command = [*prefix, APACHE, "-DFOREGROUND", "-d", str(self.root), "-f", str(self.config)]
        output = (self.root / "output.log").open("ab")
        # A process group of its own, because Apache ends by a signal to its whole group; not a
        # session of its own, which would be an autogroup of its own.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                        process_group=0, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        output.close()

    def wait_ready(self) -> None:
        """Until it has answered one request in full."""
        deadline = time.monotonic() + START_S_MAX
        while True:
            if self.process is None or self.process.poll() is not None:
                raise ServerError(f"the server of site {self.number} ended at once: {self.last_words()}")
            try:
                self._one_request()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ServerError(f"the server of site {self.number} does not answer: {error}; "
                                      f"{self.last_words()}") from error
                time.sleep(0.05)

    def _one_request(self) -> None:
        with socket.create_connection((self.address, self.port), timeout=START_S_MAX) as s:
            s.sendall(f"GET {self.page} HTTP/1.0\r\n\r\n".encode())
            reply = b"".join(iter(lambda: s.recv(65536), b""))
        head, _, body = reply.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0] or len(body) != self.length:
            raise ServerError(f"site {self.number} answers {head[:200]!r} and {len(body)} bytes: {self.last_words()}")

    def last_words(self) -> str:
        text = ""
        for name in ("output.log", "error.log"):
            path = self.root / name
            if path.exists():
                text += path.read_text(errors="replace")
        return text.strip()[-600:] or "it wrote no reason"

    def stop(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None


def prepare_scratch(cgi: Path, scratch: Path) -> Path:
    """Make the scratch folder readable for the servers' user and put the CGI program there."""
    scratch.chmod(0o755)
    target = scratch / "numbers"
    shutil.copyfile(cgi, target)
    target.chmod(0o755)
    return target
