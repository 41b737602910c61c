# SPDX-License-Identifier: MIT OR Apache-2.0
"""The second class's part of the requests, by its share."""
from harness.disks import judge_fraction as judge, plot_fraction as plot, rows, two_classes as measure

__all__ = ["judge", "measure", "plot", "rows"]
