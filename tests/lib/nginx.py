# SPDX-License-Identifier: MIT OR Apache-2.0
"""One nginx with sites of its own in a folder of its own: Debian's program, the module of this
tree; and what it talks to: an upstream in HTTP and FastCGI, a client of HTTP/2. Nothing of the
machine's own server is touched."""
import os
import pwd
import signal
import socket
import socketserver
import struct
import subprocess
import threading

from apache import HERE, Apache
from live import ROOT

NGINX = os.environ.get("NGINX_PROGRAM", "/usr/sbin/nginx")
MODULE = os.environ.get("NGINX_MODULE") or os.path.join(
    os.environ.get("RESERV_TEST_BIN", os.path.join(ROOT, "target", "release")), "ngx_http_reserv_module.so")
CONFIG = """\
{load}
daemon off;
user www-data;
worker_processes {n};
pid {root}/pid;
error_log {root}/error.log notice;
{main}
events {{
    worker_connections 256;
}}
http {{
    log_format all "$server_name $status {variables} $uri";
    access_log {root}/access.log all;
    root {root};
    types {{ text/plain txt; text/html shtml; }}
    keepalive_requests 1000000;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    gzip_http_version 1.0;
    gzip_proxied any;
    gzip_min_length 0;
{sites}
}}
"""
VARIABLES = "$reserv_share $reserv_cpu_us"


class Nginx(Apache):
    def __init__(self, root, port, workers=1, module=True, variables=VARIABLES):
        self.root, self.port, self.workers, self.process = root, port, workers, None
        self.load, self.variables = f"load_module {MODULE};" if module else "", variables if module else "- -"
        os.makedirs(root, exist_ok=True)
        os.chmod(root, 0o755)
        os.chown(root, pwd.getpwnam("www-data").pw_uid, -1)
        self.conf = f"{root}/nginx.conf"
        for log in "error.log", "access.log":
            self.file(log, b"")

    def configure(self, sites, main="", name="nginx.conf"):
        """`sites`: what stands in the http block, with @ROOT@, @PORT@ and @TLS@, @H2@: other ports."""
        for word, value in ("ROOT", self.root), ("PORT", self.port), ("TLS", self.port + 100), ("H2", self.port + 200), ("ALONE", self.port + 300), \
                ("HTTP", self.port + 400), ("FCGI", self.port + 500), ("SHORT", self.port + 600), ("HERE", HERE):
            sites = sites.replace(f"@{word}@", str(value))
        self.file(name, CONFIG.format(load=self.load, n=self.workers, root=self.root, main=main, variables=self.variables, sites=sites).encode())

    def configtest(self, sites, main=""):
        self.configure(sites, main, "try.conf")
        out = subprocess.run([NGINX, "-t", "-c", f"{self.root}/try.conf"], capture_output=True, text=True)
        return out.returncode, out.stderr

    def begun(self):
        return self.text("error.log").count("start worker process ")

    def start(self, *prefix):
        was = self.begun()
        with open(f"{self.root}/error.log", "ab") as out:
            self.process = subprocess.Popen([*prefix, NGINX, "-c", self.conf], stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0)
        self.until(lambda: self.begun() == was + self.workers)
        return self

    def reload(self):
        """Until the workers of before have ended."""
        was, begun = set(self.children()), self.begun()
        self.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.begun() == begun + self.workers and not was & set(self.children()))


class Upstream:
    """Answers in HTTP or FastCGI: `pieces` of text, each when the one before has been read."""

    def __init__(self, port, fastcgi=False, pieces=6, piece=b"lorem ipsum dolor sit amet " * 600):
        outer = self
        self.asked = 0

        class Handler(socketserver.StreamRequestHandler):
            def http(self):
                length = 0
                line = self.rfile.readline()
                while line not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                    line = self.rfile.readline()
                self.rfile.read(length)
                if not line:
                    return False
                outer.asked += 1
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(pieces):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    threading.Event().wait(0.01)
                self.wfile.write(b"0\r\n\r\n")
                return True

            def record(self):
                head = self.rfile.read(8)
                if len(head) < 8:
                    return None
                _, kind, number, length, pad, _ = struct.unpack(">BBHHBB", head)
                self.rfile.read(length + pad)
                return kind, number, length

            def fcgi(self):
                while True:
                    got = self.record()
                    if got is None:
                        return False
                    if got[0] == 5 and got[2] == 0:  # the end of the body
                        break
                outer.asked += 1
                for text in (b"Content-Type: text/plain\r\n\r\n", *[piece] * pieces):
                    self.wfile.write(struct.pack(">BBHHBB", 1, 6, got[1], len(text), 0, 0) + text)
                    threading.Event().wait(0.01)
                self.wfile.write(struct.pack(">BBHHBB", 1, 3, got[1], 8, 0, 0) + bytes(8))
                return False

            def handle(self):
                while self.fcgi() if fastcgi else self.http():
                    pass

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True
            request_queue_size = 64

        self.server = Server((HERE, port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class H2:
    """One connection of HTTP/2, without TLS or over `wrapped`, and streams of any hosts on it."""

    def __init__(self, port, wrap=lambda s: s):
        self.sock = socket.create_connection((HERE, port), timeout=60)
        self.sock = wrap(self.sock)
        self.file = self.sock.makefile("rb")
        self.next = 1
        # No flow control that one would notice.
        self.sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0, struct.pack(">HI", 4, 0x7fffffff)) +
                          self.frame(8, 0, 0, struct.pack(">I", 0x7fff0000)))

    @staticmethod
    def frame(kind, flags, stream, data):
        return struct.pack(">I", len(data))[1:] + struct.pack(">BBI", kind, flags, stream) + data

    def frames(self, host, path, body=None, headers=()):
        """Those of a request; they are not sent."""
        block = b""
        fields = [(":method", "GET" if body is None else "POST"), (":scheme", "http"), (":path", path), (":authority", host), *headers]
        for name, value in fields:
            block += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        stream, self.next = self.next, self.next + 2
        parts = [body[at:at + 16384] for at in range(0, len(body), 16384)] if body else []
        return [self.frame(1, 4 if parts else 5, stream, block), *[self.frame(0, n == len(parts) - 1, stream, part) for n, part in enumerate(parts)]]

    def answers(self, count):
        """Waits for the ends of so many streams."""
        while count:
            head = self.file.read(9)
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            data = self.file.read(length)
            if kind in (0, 1) and flags & 1:
                count -= 1
            if kind in (3, 7):
                raise RuntimeError(f"HTTP/2: frame {kind}: {data}")

    def all(self, *requests):
        self.sock.sendall(b"".join(frame for r in requests for frame in self.frames(*r)))
        self.answers(len(requests))

    def close(self):
        self.file.close()
        self.sock.close()
