# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bytes of two floods of datagrams over time, without and with weights."""
from harness.floods import experiment

measure, judge, rows, plot = experiment((200, 1400))
