# SPDX-License-Identifier: MIT OR Apache-2.0
"""All requests that are served, by the second class's share, and without classes."""
from harness.disks import judge_total as judge, plot_total as plot, rows, two_classes as measure

__all__ = ["judge", "measure", "plot", "rows"]
