# SPDX-License-Identifier: MIT OR Apache-2.0
"""A line for the shell."""
import subprocess


def sh(line, good=True):
    """What it printed. Where it fails, and is to be good, that and its errors are the exception's
    text."""
    done = subprocess.run(line, shell=True, check=False, capture_output=True, text=True)
    if good and done.returncode:
        raise RuntimeError(f"{line}: {done.stdout}{done.stderr}")
    return done.stdout
