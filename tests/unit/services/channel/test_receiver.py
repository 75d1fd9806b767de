"""What a channel that comes in can make its side hold."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from omq.base.settings import Settings
from omq.services.amqp.memory import Memory
from tests.process.amqp_world import needs_proton

needs_proton()

from omq.services.channel.greeting import CHANNEL, MANAGER, SPOOL  # noqa: E402
from omq.services.channel.receiver import ChannelLink, Inbox  # noqa: E402
from omq.services.channel.records import Record  # noqa: E402


class Line:
    """A link with some bytes that came, and the session that drops it."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.dropped: list[str] = []

    def recv(self) -> bytes:
        return self.came.pop(0) if self.came else b""

    def flow(self, _more: int) -> None:
        pass

    def drop(self, _link: Any, condition: str, _reason: str) -> None:
        self.dropped.append(condition)


def test_a_message_that_is_not_whole_is_in_the_reckoning() -> None:
    line, memory = Line(), Memory(1000, 1000)
    rated = SimpleNamespace(event=lambda *_, **__: None)
    link: Any = ChannelLink.__new__(ChannelLink)
    link._session = SimpleNamespace(drop=line.drop, peer="peer")
    link._link, link._user, link._over, link._asked = line, "west", False, None
    link._host = SimpleNamespace(memory=memory, rated=rated,
                                 policy=SimpleNamespace(settings=Settings()))
    link._inbox, link._parts, link._held, link._credit = Inbox(0), bytearray(), 0, 5000
    link._stirred = SimpleNamespace(set=lambda: None)
    part = SimpleNamespace(readable=True, aborted=False, partial=True, pending=600)
    ended = SimpleNamespace(readable=False, aborted=True, settle=lambda: None)
    for _ in range(3):
        line.came = [bytes(600)]
        link.delivered(part)
        assert memory.free("west") == 400
        link.delivered(ended)
        assert memory.free("west") == 1000
    line.came = [bytes(600), bytes(600)]
    link.delivered(part)
    assert line.dropped == ["amqp:resource-limit-exceeded"]


ASKED = Record("EAST", "WEST", "0" * 32, "west")


def world(**more: Any) -> tuple[Any, Any, Line]:
    """What a link of ASKED needs: a session, the host, the link that drops it."""
    line = Line()

    async def run(_work: Any) -> Any:
        raise RuntimeError("a mistake of ours")

    host = SimpleNamespace(
        channels={}, run=run, changed=asyncio.Event(), failed=lambda *_: None,
        rated=SimpleNamespace(event=lambda *_, **__: None), memory=Memory(1000, 1000),
        policy=SimpleNamespace(settings=SimpleNamespace(channels_max=9, **more),
                               allows=lambda *_: True))
    session = SimpleNamespace(host=host, user=SimpleNamespace(name="west"), gone=False,
                              drop=line.drop, peer="peer", kick=lambda: None)
    return host, session, line


def attached() -> Any:
    return SimpleNamespace(open=lambda: None, remote_properties={
        CHANNEL: ASKED.channel, MANAGER: ASKED.manager, SPOOL: ASKED.spool})


def test_a_link_that_fails_leaves_its_place() -> None:
    """Whatever is wrong besides: memory that is reckoned wrong, a log that cannot be written."""
    async def fails() -> None:
        def wrong(*_: Any) -> None:
            raise AssertionError("more was given back than was taken")

        host, session, _ = world(channel_connect_timeout_s=60)
        host.memory = SimpleNamespace(give=wrong)
        host.failed = wrong
        link = ChannelLink(session, attached())
        found = await asyncio.gather(link._task, return_exceptions=True)
        assert isinstance(found[0], AssertionError)
        assert not host.channels

    asyncio.run(fails())


def test_a_channel_does_not_wait_for_ever_for_its_earlier_line() -> None:
    """That one puts something, and its manager does not answer."""
    async def waits() -> None:
        host, session, line = world(channel_connect_timeout_s=0.01)
        stuck = ChannelLink.__new__(ChannelLink)
        stuck._over, stuck._free = True, asyncio.Event()
        host.channels[ASKED.key] = stuck
        link = ChannelLink(session, attached())
        await link._task
        assert line.dropped == ["amqp:resource-locked"]
        assert host.channels == {ASKED.key: stuck}

    asyncio.run(waits())
