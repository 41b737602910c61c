# SPDX-License-Identifier: MIT OR Apache-2.0
"""Live progress. What measures tells how far it is; what the user sees is made where the real time
runs, because an emulated guest's seconds are not the user's."""

import sys
import time
from typing import IO, Callable

#: Begins a line of the guest's part that is meant for the outer part, not for the user.
MARK = "\x01"


class Shown:
    """Prints for a person: one line per point with the time left; on a terminal also a line that
    moves."""

    def __init__(self, out: IO[str] = sys.stdout):
        self.out = out
        self.moves = out.isatty()
        self.began = time.monotonic()

    def _print(self, text: str, end: str) -> None:
        print("\r\x1b[K" * self.moves + text, end=end, file=self.out, flush=True)

    def line(self, text: str) -> None:
        self._print(text, "\n")

    def moving(self, text: str) -> None:
        if self.moves:
            self._print(f"    {text}", "")

    def point(self, text: str, fraction: float) -> None:
        elapsed = time.monotonic() - self.began
        minutes, seconds = divmod(round(elapsed * (1 - fraction) / fraction), 60)
        self._print(f"  {100 * fraction:3.0f} %  {text}  (about {minutes}:{seconds:02d} left)", "\n")


class Passed:
    """Passes everything on to whoever reads our output with `relay`."""

    def line(self, text: str) -> None:
        print(text, flush=True)

    def moving(self, text: str) -> None:
        print(f"{MARK}moving {text}", flush=True)

    def point(self, text: str, fraction: float) -> None:
        print(f"{MARK}point {fraction:.4f} {text}", flush=True)


class Part:
    """A part of a whole: its own end is `begin + size` of it."""

    def __init__(self, of: "Shown | Passed", begin: float, size: float):
        self.of, self.begin, self.size = of, begin, size

    def line(self, text: str) -> None:
        self.of.line(text)

    def moving(self, text: str) -> None:
        self.of.moving(text)

    def point(self, text: str, fraction: float) -> None:
        self.of.point(text, self.begin + self.size * fraction)

    def counted(self, points: int) -> Callable[[str], None]:
        """For who does so many points of equal length and says each when it is done."""
        done = 0

        def said(text: str) -> None:
            nonlocal done
            done += 1
            self.point(text, done / points)
        return said


Progress = Shown | Passed | Part


def relay(lines: IO[str], shown: Shown) -> None:
    """Shows what a `Passed` wrote, until its end."""
    for raw in lines:
        text = raw.rstrip("\r\n")
        if not text.startswith(MARK):
            shown.line(text)
            continue
        kind, _, rest = text[len(MARK):].partition(" ")
        if kind == "moving":
            shown.moving(rest)
        elif kind == "point":
            fraction, _, words = rest.partition(" ")
            shown.point(words, float(fraction))
