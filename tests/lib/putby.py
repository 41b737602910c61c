# SPDX-License-Identifier: MIT OR Apache-2.0
"""Of programs that `down` puts by: where they stand, and what an `up` costs the guest."""
import contextlib
import os
import subprocess
import time

from live import RESERV, phase, tell_log

BPFFS = "/sys/fs/bpf"
PARKED = f"{BPFFS}/reserv-parked"
ASIDE = "aside-"


@contextlib.contextmanager
def set_aside(plane=""):
    """Within it nothing is put by, as after a boot: the next `up` loads all programs. What was put
    by before, and the maps that it shares (crates/plane/src/work.rs), has another name meanwhile,
    so that the next suite in this guest finds it; a load costs what a boot does. `plane`: that of
    this one only (`net-`)."""
    if plane:
        moved = [f"reserv-parked/{name}" for name in os.listdir(PARKED) if name.startswith(plane)]
    else:
        moved = [name for name in os.listdir(BPFFS) if name.startswith(("reserv-parked", "reserv-work-"))]
    places = [(f"{BPFFS}/{name}", f"{BPFFS}/{ASIDE}{os.path.basename(name)}") for name in moved]
    for place, aside in places:
        os.rename(place, aside)
    yield
    if not plane:
        subprocess.run([RESERV, "down", "--unload"], capture_output=True, check=False)
    for place, aside in places:
        os.rename(aside, place)


def worked():
    """Seconds for which tasks have had the only processor. What interrupts take while it idles is
    not in it; ticks, by which /proc/stat counts, do not tell that from work. The longer a guest
    waits for this machine's file server, the more of it there is."""
    with open("/proc/schedstat", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("cpu0 "))
    return int(line.split()[7]) / 1e9


def timed(*words):
    """Seconds for which the guest was busy."""
    with phase(words[0]):
        begin, before = time.monotonic(), worked()
        out = subprocess.run([RESERV, *words], capture_output=True, text=True, timeout=300)
        took, busy = time.monotonic() - begin, worked() - before
    if out.returncode:
        tell_log()
        raise RuntimeError(f"{words}: {out.stderr}")
    print(f"# {' '.join(words)}: {took:.2f} s, idle {took - busy:.2f} s of it", flush=True)
    return busy


def parked():
    return sorted(name.split("@")[0] for name in os.listdir(PARKED)) if os.path.exists(PARKED) else []


def links():
    """Pins by which something of the kernel's calls a program."""
    return [name for _, _, names in os.walk("/sys/fs/bpf") for name in names if name.startswith("link-")]
