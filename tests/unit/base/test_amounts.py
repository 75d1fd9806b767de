"""Durations, counts and sizes for people."""

from __future__ import annotations

import math

import pytest

from omq.base.amounts import counted, duration, number, size


@pytest.mark.parametrize(("seconds", "text"), [
    (-0.010323027000595175, "0 s"), (-5.0, "0 s"), (0.0, "0 s"), (0.0213, "21 ms"), (1.0, "1 s"),
    (4.25, "4.2 s"), (60.0, "60 s"), (119.4, "119 s"), (120.0, "2 min"), (7260.0, "2.0 h"),
    (172_800.0, "2 days"), (3e7, "347 days"), (math.inf, "an unknown time"),
    (math.nan, "an unknown time")])
def test_a_duration_is_short_and_never_negative(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts_sizes_and_numbers() -> None:
    assert [counted(1, "message"), counted(2500, "message"), counted(2, "entry", "entries")] == [
        "1 message", "2,500 messages", "2 entries"]
    assert [size(1), size(512), size(1536), size(3 << 30)] == [
        "1 byte", "512 bytes", "1.5 KiB", "3.0 GiB"]
    assert [number(3.0), number(1234), number(0.25), number(1 / 3), number(math.nan)] == [
        "3", "1,234", "0.25", "0.33", "unknown"]
