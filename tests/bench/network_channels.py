"""Channels beside native puts: throughput by batch size, with and without delay of the line.

N persistent messages of 100 bytes wait on a transmission queue; the clock runs from the start of
channel.sender's line until the last of them is on its queue at the other side, on one machine. The
delay is made by a process between the two that holds each piece of bytes for half of it on either
way (netem's shape without its need of a kernel module).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omq import Outgoing
from tests.bench.peers.processes import pause
from tests.process.amqp_world import SERVER
from tests.process.bad_line import Weather, bad_line
from tests.process.channel_world import SENDER, Side, sides
from tests.process.instance import MANAGER

BODY = bytes(100)
SIZES = (1, 10, 50, 500)
DELAYS_MS = (0, 20)


@contextmanager
def delayed(port: int, delay_s: float, log: Path) -> Iterator[int]:
    """A port that leads to this one, later."""
    if not delay_s:
        yield port
        return
    with bad_line(port, Weather(delay_s=delay_s), log) as through:
        yield through.port


def run(count: int, tell: Callable[[str], object]) -> None:
    """All sizes and delays."""
    with tempfile.TemporaryDirectory() as folder, sides(
            Path(folder), "WEST", "EAST", clean=False) as (west, east):
        port = east.serve()
        began = time.monotonic()
        with west.connect() as native:
            native.put_many("A", [Outgoing(BODY)] * count)
        native_rate = count / (time.monotonic() - began)
        tell(f"native put_many of 100: {native_rate:.0f}/s")
        west.drain("A")
        for delay_ms in DELAYS_MS:
            with delayed(port, delay_ms / 1000, Path(folder) / "line") as through:
                for size in SIZES:
                    few = min(count, max(100, 40 * size))
                    _measured(west, east, through, size, few, delay_ms, native_rate, tell)


def _measured(west: Side, east: Side, port: int, size: int, count: int, delay_ms: int,
              native_rate: float, tell: Callable[[str], object]) -> None:
    west.channel("EAST", port, batchsize=str(size))
    west.remote("FAR", "EAST", "A")
    with west.connect() as native:
        native.put_many("FAR", [Outgoing(BODY)] * count)
    west.start(SENDER)
    west.until(lambda: east.depth("A"))
    had, began, before = east.depth("A"), time.monotonic(), _spent(west, east)
    while east.depth("A") < count:  # a look costs both sides: seldom
        pause(0.02)
    wall, spent = time.monotonic() - began, _spent(west, east)
    rate = (count - had) / wall if wall else 0.0
    tell(f"channel, batch {size:3}, delay {delay_ms:2} ms: {rate:6.0f}/s, "
         f"{rate / native_rate:.3f} of native; us a message: " + " ".join(
             f"{name} {(now - was) / max(1, count - had) * 1e6:.0f}"
             for name, now, was in zip(("sender", "server", "managers"), spent, before,
                                       strict=True)))
    west.stop(SENDER)
    east.drain("A")


def _spent(west: Side, east: Side) -> tuple[float, float, float]:
    def of(side: Side, program: str) -> float:
        pid = side.children[program].pid
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / 100

    return of(west, SENDER), of(east, SERVER), of(west, MANAGER) + of(east, MANAGER)
