# SPDX-License-Identifier: MIT OR Apache-2.0
"""One PHP-FPM with pools of its own in a folder of its own: Debian's program, the extension of this
tree; and a client of FastCGI. Nothing of the machine's own server is touched."""
import contextlib
import glob
import os
import pwd
import signal
import socket
import struct
import subprocess
import time

from live import ROOT

FPM = (sorted(glob.glob("/usr/sbin/php-fpm*")) or [""])[0]
EXTENSION = os.path.join(os.environ.get("RESERV_TEST_BIN", os.path.join(ROOT, "target", "release")), "php_reserv.so")
GLOBAL = "[global]\nerror_log = {root}/fpm.log\n"
POOL = """
[{name}]
user = www-data
group = www-data
listen = {root}/{name}.sock
listen.mode = 0666
pm = static
pm.max_children = {children}
{more}
"""


def record(kind, data):
    return struct.pack(">BBHHBB", 1, kind, 1, len(data), 0, 0) + data


def pair(name, value):
    return struct.pack(">II", len(name) | 1 << 31, len(value) | 1 << 31) + name + value


class Fpm:
    """`pools`: name, number of workers, more lines. `settings`: those of php.ini."""

    def __init__(self, root, pools, settings, extension=True):
        self.root, self.process, self.workers = root, None, sum(children for _, children, _ in pools)
        for folder in root, f"{root}/www":
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, 0o755)
        self.log = f"{root}/php.log"
        with open(self.log, "wb"):
            pass
        os.chown(self.log, pwd.getpwnam("www-data").pw_uid, -1)
        with open(f"{root}/fpm.conf", "w", encoding="ascii") as file:
            file.write(GLOBAL.format(root=root) + "".join(POOL.format(name=n, root=root, children=c, more=m) for n, c, m in pools))
        self.settings = {"error_log": self.log, **({"extension": EXTENSION} if extension else {}), **settings}

    def command(self, *more, **settings):
        words = [word for key, value in {**self.settings, **settings}.items() for word in ("-d", f"{key}={value}")]
        return [FPM, "-n", *words, "-y", f"{self.root}/fpm.conf", *more]

    def script(self, name, text):
        with open(f"{self.root}/www/{name}", "w", encoding="ascii") as file:
            file.write(text)

    def said(self):
        """The extension's lines so far."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return [line for line in file.read().splitlines() if " reserv: " in line]

    def begun(self):
        try:
            with open(f"{self.root}/fpm.log", encoding="utf-8", errors="replace") as file:
                return file.read().count("ready to handle connections")
        except FileNotFoundError:
            return 0

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or self.process.poll() is not None:
                with open(f"{self.root}/fpm.log", encoding="utf-8") as file:
                    raise RuntimeError(f"{self.root}: not within {seconds} s\n{file.read()}")
            time.sleep(0.02)

    def start(self):
        was = self.begun()
        self.process = subprocess.Popen(self.command("-F"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until(lambda: self.begun() > was and len(self.children()) == self.workers)
        return self

    def reload(self):
        """Until the workers of before have ended."""
        was, begun = set(self.children()), self.begun()
        self.process.send_signal(signal.SIGUSR2)
        self.until(lambda: self.begun() > begun and len(self.children()) == self.workers and not was & set(self.children()))

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def sent(self, script, container=None, pool="www", body=b"", over=None, keep=False, **params):
        """A connection over which a request was sent: a new one, or `over` one that was kept."""
        more = {"RESERV_CONTAINER": container} if container is not None else {}
        params = {"SCRIPT_FILENAME": f"{self.root}/www/{script}", "REQUEST_METHOD": "POST" if body else "GET", "SERVER_PROTOCOL": "HTTP/1.1",
                  "CONTENT_LENGTH": str(len(body)), "CONTENT_TYPE": "application/x-www-form-urlencoded" if body else "", "DOCUMENT_ROOT": f"{self.root}/www", **more, **params}
        text = b"".join(pair(k.encode(), v.encode()) for k, v in params.items())
        parts = [body[at:at + 60000] for at in range(0, len(body), 60000)]
        to = over or socket.socket(socket.AF_UNIX)
        if not over:
            to.settimeout(120)
            to.connect(f"{self.root}/{pool}.sock")
        to.sendall(record(1, b"\0\1%c\0\0\0\0\0" % keep) + record(4, text) + record(4, b"") + b"".join(record(5, p) for p in parts) + record(5, b""))
        return to

    @staticmethod
    def answer(to):
        """The status of the answer, and its text; 0: there was none, or its worker died."""
        out = b""
        with contextlib.suppress(ConnectionResetError):
            while head := to.recv(8, socket.MSG_WAITALL):
                _, kind, _, length, pad, _ = struct.unpack(">BBHHBB", head)
                data = to.recv(length + pad, socket.MSG_WAITALL)[:length] if length + pad else b""
                out += data if kind == 6 else b""
                if kind == 3:
                    break
        head, _, text = out.partition(b"\r\n\r\n")
        status = head.partition(b"Status: ")[2][:3]
        return int(status or 200) if head else 0, text

    def ask(self, *args, **more):
        with contextlib.closing(self.sent(*args, **more)) as to:
            return self.answer(to)
