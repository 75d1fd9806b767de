"""Channels over bad lines: cut at each frame of the protocol, in it, before and behind it; and a
small storm of cuts, stalls, dark lines and kills over three instances (channel_storm)."""

from __future__ import annotations

from pathlib import Path

from tests.process.amqp_world import SERVER, needs_proton
from tests.process.bad_line import BACK, HEADER, THERE, Cut, bad_line
from tests.process.channel_world import SENDER, sides
from tests.waiting import until

needs_proton()

from tests.process.channel_storm import KINDS, Size, storm  # noqa: E402

MECHANISMS, INIT, OUTCOME = 0x40, 0x41, 0x44
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION = range(0x10, 0x16)
STEPS = (
    (THERE, HEADER, 1), (BACK, HEADER, 1), (BACK, MECHANISMS, 1), (THERE, INIT, 1),
    (BACK, OUTCOME, 1), (THERE, HEADER, 2), (BACK, HEADER, 2), (THERE, OPEN, 1), (BACK, OPEN, 1),
    (THERE, BEGIN, 1), (BACK, BEGIN, 1), (THERE, ATTACH, 1), (BACK, ATTACH, 1), (BACK, FLOW, 1),
    (THERE, TRANSFER, 1), (THERE, TRANSFER, 2), (THERE, TRANSFER, 3), (THERE, TRANSFER, 4),
    (BACK, DISPOSITION, 1), (BACK, DISPOSITION, 2))
SHARES = (0.0, 0.5, 1.0)
"""Of a frame that pass: none, half, all of it and nothing behind it."""


def test_a_line_that_is_cut_at_each_frame(tmp_path: Path) -> None:
    """One connection each. Batches of two messages by themselves: the third transfer is of another
    batch while the first may be under way."""
    plan = [Cut(*step, share) for step in STEPS for share in SHARES]
    with sides(tmp_path, "WEST", "EAST") as (west, east):
        log = tmp_path / "line"
        with bad_line(east.serve(), plan, log) as line:
            west.channel("EAST", line.port, batchsize="2", transferlimit="0", short_retries="1000")
            west.remote("FAR", "EAST", "A")
            west.start(SENDER)
            count = 0

            def all_cut() -> bool:
                """The channel has something to send at each of its connections."""
                nonlocal count
                if west.depth("EAST") < 20:
                    west.put("FAR", count, 20)
                    count += 20
                return log.exists() and len(log.read_text().splitlines()) == len(plan)

            until(all_cut, lambda: log.read_text() + "\n".join(map(str, west.events()[-8:])))
            west.until(lambda: not west.in_doubt() and not west.depth("EAST"))
            assert east.numbers("A") == list(range(count))
        assert log.read_text().splitlines() == [
            f"{cut.way} {cut.kind:#x} {cut.nth} {cut.share}" for cut in plan]
        west.stop(SENDER)
        east.stop(SERVER)


def test_a_storm_over_three_instances(tmp_path: Path) -> None:
    told = storm(tmp_path, Size(
        messages=1400, batch=20, window=400, kills=7, cut_bytes=30_000, stall_bytes=40_000,
        stall_s=0.2, dark_bytes=200_000, dark_s=3.0, heartbeat_s=1), seed=1)
    assert told.kills == 7 and told.cuts > 3, told
    assert all(told.kinds[kind] for kind in KINDS), told
