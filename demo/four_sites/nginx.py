# SPDX-License-Identifier: MIT OR Apache-2.0
"""The companies' nginx, one for all: Debian's program with one worker, configuration of our own in
a scratch folder, a port of our own. nginx starts no programs, so what a request costs is the
worker's own work: a page of random words, compressed anew for each."""

import os
import random
from pathlib import Path
from typing import Sequence

from . import access_log, servers
from .servers import Server, Site

NGINX = "/usr/sbin/nginx"
NAME = "ngx_http_reserv_module.so"
INSTALLED = (Path("/usr/local/lib/nginx/modules"), Path("/usr/lib/nginx/modules"))
#: Compressing so much takes some ms, so that a window of two seconds holds several rounds of 104
#: clients: nginx logs no time that a connection waited before it was accepted.
PAGE_BYTES = 32 * 1024

CONFIG = """\
load_module {module};
daemon off;
user {user};
worker_processes 1;
pid {root}/pid;
error_log {root}/error.log warn;
events {{
    worker_connections {slots};
}}
http {{
    reserv {engine};
    log_format demo "{log_format}";
    keepalive_timeout 0;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    types {{ text/plain txt; }}
    gzip on;
    gzip_comp_level 9;
    gzip_types text/plain;
    # To the one client of HTTP/1.0, which asks whether the server is ready.
    gzip_http_version 1.0;
{sites}
}}
"""
SERVER = """\
    server {{
        listen {address}:{port}{backlog};
        server_name {host};
        reserv_share {host};
        root {root};
        access_log {log} demo;
    }}
"""


def module() -> Path | None:
    """nginx's."""
    return servers.module(NAME, INSTALLED)


class Nginx(Server):
    """A server of several sites."""

    def __init__(self, address: str, port: int, scratch: Path):
        super().__init__("server", address, port, scratch)
        for log in ("error.log", "output.log"):
            (self.root / log).touch()

    def configure(self, sites: str, slots: int, engine: bool) -> None:
        user = servers.worker()
        # Its folders for what is too large for memory are made by the workers' user.
        os.chown(self.root, user.pw_uid, -1)
        self.config = self.root / "nginx.conf"
        self.config.write_text(CONFIG.format(
            root=self.root, module=module(), user=user.pw_name, engine="on" if engine else "off",
            slots=slots + 16, log_format=access_log.NGINX_FORMAT, sites=sites))

    def command(self) -> Sequence[str]:
        return [NGINX, "-p", str(self.root), "-c", str(self.config)]


def sites(count: int, port: int, scratch: Path, slots: int, engine: bool,
          address: str = "127.0.0.1", document: tuple[str, int] | None = None) -> list[Site]:
    """Sites of one server; with `engine` each is served in the container of its name. `document`:
    what is asked for, by its path and length, instead of a page that is compressed."""
    server = Nginx(address, port, scratch)
    dice = random.Random(1)
    many = range(PAGE_BYTES // 6)
    page = " ".join("".join(dice.choices("etaoinshrdlu", k=dice.randint(2, 9))) for _ in many)
    (server.root / "page.txt").write_text(page[:PAGE_BYTES])
    made, blocks = [], ""
    for number in range(1, count + 1):
        folder = server.root / f"site{number}"
        folder.mkdir(mode=0o755)
        asked = (*document, ()) if document else ("/page.txt", None, ("Accept-Encoding: gzip",))
        made.append(Site(number, server, folder, *asked, access_log.parse_nginx))
        # The four have one socket; nginx takes its options once.
        backlog = " backlog=256" if number == 1 else ""
        blocks += SERVER.format(address=server.address, port=port, host=made[-1].host,
                                root=server.root, log=folder / "access.log", backlog=backlog)
    server.configure(blocks, slots, engine)
    return made
