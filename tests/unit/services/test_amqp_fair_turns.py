"""A connection of amqp.server has its turn, then the others: however much came on one line, and
whatever it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")
pytest.importorskip("pamqp", reason="the extra `amqp`: pamqp")

from omq.amqp.connection import Connection
from omq.base.settings import Settings
from omq.services.amqp import session as of_1_0
from omq.services.amqp091 import line as of_0_9_1
from tests.process.amqp_frames import NULL, OPENED, ZERO, frame, u32

MANY = 5


class Turn:
    """One turn of the event loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class FakeLine:
    """A transport; `waits`: bytes that its peer does not read."""

    def __init__(self) -> None:
        self.reads, self.waits, self.said = True, 0, b""

    def stopped(self) -> bool:
        return not self.reads

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def get_write_buffer_size(self) -> int:
        return self.waits

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.said += data


def host() -> Any:
    return SimpleNamespace(policy=SimpleNamespace(settings=Settings()), draining=False)


def made_1_0(line: FakeLine) -> of_1_0.Session:
    made = of_1_0.Session(host())
    made._line = line  # type: ignore[assignment]
    made._engine = Connection(max_frame_size=4096)
    return made


class Heard(of_0_9_1.Line):
    """Counts frames."""

    heard = 0

    def _frame(self) -> bool:
        self.heard += 1
        return False

    def _came(self) -> None: ...
    def _late(self) -> None: ...
    def _look_on(self) -> None: ...
    def _broke(self, reason: str) -> None: ...
    def forced(self, code: int, reason: str) -> None: ...

    def _behind(self) -> bool:
        return False


def test_of_amqp_1_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """With turns that are over at once: an event each, and the line is not read meanwhile."""
    async def run() -> None:
        line = FakeLine()
        session = made_1_0(line)
        monkeypatch.setattr(of_1_0, "TURN_S", -1.0)
        monkeypatch.setattr(of_1_0, "_FRAMES_MAX", 1)
        begins = [frame(0x11, NULL, ZERO, b"\x70" + u32(99), b"\x70" + u32(99))
                  for _ in range(MANY)]
        for channel, each in enumerate(begins, 1):
            begins[channel - 1] = each[:7] + bytes((channel,)) + each[8:]
        session.data_received(OPENED + b"".join(begins))
        assert session._engine is not None
        turns = 0
        while not line.reads:
            turns += 1
            session.kick()  # what others make of it meanwhile is no turn
            assert len(session._engine.sessions) <= turns
            await Turn()
        assert len(session._engine.sessions) == MANY + 1 <= turns
        for timer in (session._timer, session._ending):
            if timer is not None:
                timer.cancel()

    asyncio.run(run())


def test_of_amqp_0_9_1(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        line = FakeLine()
        session = Heard(host(), "x", line)  # type: ignore[arg-type]
        monkeypatch.setattr(of_0_9_1, "TURN_S", -1.0)
        session.data_received(b"\x08\0\0\0\0\0\0\xce" * MANY)
        for turn in range(1, MANY + 1):
            assert (session.heard, line.reads) == (turn, False)
            session.look()  # what others make of it meanwhile is no turn
            assert session.heard == turn
            await Turn()
        assert line.reads and session.heard == MANY
        session._timer.cancel()

    asyncio.run(run())


def test_a_line_that_is_not_read_is_not_read_and_not_silent() -> None:
    """Of AMQP 1.0. While its client reads something its line is not for idle."""
    async def run() -> None:
        line = FakeLine()
        session = made_1_0(line)
        session.data_received(OPENED)
        engine = session._engine
        assert engine is not None and not line.stopped()
        line.waits = Settings().amqp_outgoing_bytes_max + 1
        session.kick()
        assert line.stopped()
        engine.idle_s = 60.0
        engine.tick(0.0)
        session._written = 100_000_000
        for now in (50.0, 100.0, 150.0):  # it reads, slowly
            line.waits -= 1000
            session._look_at_line()
            engine.tick(now)
        finished = [engine.finished]
        for now in (160.0, 220.0):
            session._look_at_line()
            engine.tick(now)
        assert [*finished, engine.finished] == [False, True]
        line.waits = 0
        session._stop_or_read(engine)
        assert not line.stopped()
        assert session._timer is not None
        session._timer.cancel()

    asyncio.run(run())
