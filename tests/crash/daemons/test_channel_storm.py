"""A million messages over channels between three instances, on bad lines, with 70 kills: each once
and in order. Part of `make crash` (OMQ_CRASH_LONG=1); the short one is in
tests/process/test_channel_lines.py. OMQ_STORM_MESSAGES: so many instead."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.process.amqp_world import needs_proton

needs_proton()

from tests.process.channel_storm import Size, storm  # noqa: E402

COUNT = int(os.environ.get("OMQ_STORM_MESSAGES", "1000000"))

pytestmark = pytest.mark.skipif(
    not os.environ.get("OMQ_CRASH_LONG"),
    reason="a million messages are part of `make crash` (OMQ_CRASH_LONG=1)")


def test_a_million_messages(tmp_path: Path) -> None:
    seed = int(time.time())
    size = Size(messages=COUNT, batch=500, window=8000, kills=70, cut_bytes=2_000_000,
                stall_bytes=3_000_000, stall_s=0.3, dark_bytes=200_000_000, dark_s=150.0,
                heartbeat_s=30)
    told = storm(tmp_path, size, seed)
    print(f"seed {seed}: {COUNT} messages in {told.seconds:.0f} s, {told.kills} kills "
          f"({dict(told.victims)}), lines cut {told.cuts} times, dark for {size.dark_s:.0f} s "
          f"{told.dark} times; {dict(told.kinds)} came, the "
          f"persistent ones once and in order; EAST's reader got {told.again} again")
    assert told.kills == 70 and told.cuts >= COUNT // 20_000
