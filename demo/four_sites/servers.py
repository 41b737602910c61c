# SPDX-License-Identifier: MIT OR Apache-2.0
"""The companies' servers, one for all or one for each; and Apache as such a server: Debian's
program and modules, configuration of our own in a scratch folder, ports of our own on 127.0.0.1 (or
a link's address). No service of the machine is touched."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable, Sequence

from . import access_log

APACHE = "/usr/sbin/apache2"
MODULES = Path("/usr/lib/apache2/modules")
ROOT = Path(__file__).resolve().parent.parent.parent
START_S_MAX = 60.0
STOP_S_MAX = 30.0

CONFIG = """\
ServerRoot "{root}"
DefaultRuntimeDir "{root}"
ServerName {name}.test
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
# As Debian's own: a request looks for no .htaccess.
<Directory "/">
    AllowOverride None
</Directory>
LogLevel error
ErrorLog "{root}/error.log"
LogFormat "{log_format}" demo
{sites}
"""
A_LOG = 'CustomLog "{root}/access.log" demo'
#: What makes one server of several sites divide the CPU among them: docs/apache.md.
MODULE_OF_SITES = """\
LoadModule reserv_module {module}
ReservEngine {engine}
# Each site has a log of its own.
"""
VIRTUAL_HOST = """\
<VirtualHost {address}:{port}>
    ServerName {host}
    ReservShare {share}
    CustomLog "{root}/access.log" demo
</VirtualHost>
"""


class ServerError(Exception):
    """A server did not start, answer or stop; with the end of its log."""


def module(name: str = "mod_reserv.so", installed: Sequence[Path] = (MODULES,)) -> Path | None:
    """A server's module: what `make build` left in this tree, else the installed one."""
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    return next((path / name for path in (built, *installed) if (path / name).exists()), None)


def worker() -> pwd.struct_passwd:
    """Who serves requests."""
    return pwd.getpwnam("www-data") if os.getuid() == 0 else pwd.getpwuid(os.getuid())


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
    """A server, of one site or of several."""

    def __init__(self, name: str, address: str, port: int, scratch: Path):
        self.name, self.address, self.port = name, address, port
        self.root = scratch / name
        self.root.mkdir(mode=0o755)
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        """What starts it, in the foreground."""
        raise NotImplementedError

    def start(self, cpu: int, prefix: Sequence[str]) -> None:
        """Start on `cpu`; `prefix` is the command that puts it into its reservation, or empty."""
        output = (self.root / "output.log").open("ab")
        # A process group of its own, because Apache ends by a signal to its whole group; not a
        # session of its own, which would be an autogroup of its own.
        self.process = subprocess.Popen(
            [*prefix, *self.command()], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            process_group=0, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        output.close()

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

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


class Apache(Server):
    """Apache, with a process for each request."""

    def __init__(self, name: str, address: str, port: int, scratch: Path, cgi: Path, slots: int):
        super().__init__(name, address, port, scratch)
        self._cgi, self._slots = cgi, slots

    def configure(self, sites: str) -> None:
        """`sites`: where the requests are logged, and what the sites have of their own."""
        user = worker()
        log_format = access_log.FORMAT.replace('"', '\\"')
        self.config = self.root / "apache2.conf"
        self.config.write_text(CONFIG.format(
            root=self.root, address=self.address, name=self.name, port=self.port,
            user=user.pw_name, group=f"#{user.pw_gid}", modules=MODULES, slots=self._slots,
            cgi=self._cgi, log_format=log_format, sites=sites))

    def command(self) -> Sequence[str]:
        return [APACHE, "-DFOREGROUND", "-d", str(self.root), "-f", str(self.config)]


class Site:
    """The site of one company, on a server that may have others. `length`: of an answer, where it
    is known. `headers`: what its clients ask with."""

    def __init__(self, number: int, server: Server, log_folder: Path, page: str = "/numbers",
                 length: int | None = 1024, headers: Sequence[str] = (),
                 parse: Callable[[str], access_log.Request] = access_log.parse):
        self.number, self.server = number, server
        self.page, self.length, self.headers = page, length, headers
        (log_folder / "access.log").touch()
        self.log = access_log.Tail(log_folder / "access.log", parse)

    @property
    def host(self) -> str:
        """By which name the clients ask for it."""
        return f"site{self.number}"

    @property
    def url(self) -> str:
        return f"http://{self.server.address}:{self.server.port}{self.page}"

    def wait_ready(self) -> None:
        """Until it has answered one request in full."""
        deadline = time.monotonic() + START_S_MAX
        while True:
            if self.server.ended():
                raise ServerError(f"the server of site {self.number} ended at once: {self.server.last_words()}")
            try:
                self._one_request()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ServerError(f"the server of site {self.number} does not answer: {error}; "
                                      f"{self.server.last_words()}") from error
                time.sleep(0.05)

    def _one_request(self) -> None:
        with socket.create_connection((self.server.address, self.server.port), timeout=START_S_MAX) as s:
            lines = [f"GET {self.page} HTTP/1.0", f"Host: {self.host}", *self.headers, "", ""]
            s.sendall("\r\n".join(lines).encode())
            reply = b"".join(iter(lambda: s.recv(65536), b""))
        head, _, body = reply.partition(b"\r\n\r\n")
        whole = len(body) == self.length if self.length else body
        if b" 200 " not in head.split(b"\r\n")[0] or not whole:
            raise ServerError(f"site {self.number} answers {head[:200]!r} and {len(body)} bytes: {self.server.last_words()}")


def of_its_own(number: int, port: int, scratch: Path, cgi: Path, slots: int, address: str = "127.0.0.1",
               page: str = "/numbers", length: int = 1024) -> Site:
    """A site with a server of its own."""
    server = Apache(f"site{number}", address, port, scratch, cgi, slots)
    server.configure(A_LOG.format(root=server.root))
    return Site(number, server, server.root, page, length)


def of_one_server(count: int, port: int, scratch: Path, cgi: Path, slots: int, engine: bool,
                  share: Callable[[str], str] = str, address: str = "127.0.0.1",
                  page: str = "/numbers", length: int = 1024) -> list[Site]:
    """Sites of one server; with `engine` each is served in a container: `share` of its name."""
    server = Apache("server", address, port, scratch, cgi, slots)
    sites, hosts = [], ""
    for number in range(1, count + 1):
        folder = server.root / f"site{number}"
        folder.mkdir(mode=0o755)
        made = Site(number, server, folder, page, length)
        sites.append(made)
        hosts += VIRTUAL_HOST.format(address=address, port=port, host=made.host,
                                     share=share(made.host), root=folder)
    server.configure(MODULE_OF_SITES.format(module=module(), engine="On" if engine else "Off") + hosts)
    return sites


def prepare_scratch(cgi: Path, scratch: Path) -> Path:
    """Make the scratch folder readable for the servers' user and put the CGI program there."""
    scratch.chmod(0o755)
    target = scratch / "numbers"
    shutil.copyfile(cgi, target)
    target.chmod(0o755)
    return target
