"""Puts of several links that come together: one request; each link hears its own fates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from omq.base.errors import QueueFull
from omq.ipc.wire.outgoing import Outgoing
from omq.services.amqp import joined_puts as module
from omq.services.amqp.joined_puts import JoinedPuts
from omq.services.amqp.putter import Fate, PutResult

FULL = QueueFull(queue="A", limit=1)


def batch(*bodies: bytes, file: Any = None) -> list[Any]:
    return [(Outgoing(body=body), file) for body in bodies]


class Putters:
    """What they were asked for; bodies that begin so have a fate of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[tuple[tuple[str, ...], list[bytes]]] = []
        monkeypatch.setattr(module, "put_batch", self._put_batch)

    def _put_batch(self, native: object, queues: tuple[str, ...], some: Any) -> list[PutResult]:
        bodies = [message.body for message, _ in some]
        self.requests.append((queues, bodies))
        told: list[PutResult] = []
        for body in bodies:
            if body == b"breaks":
                raise ZeroDivisionError
            fate = {b"later": Fate.LATER, b"doubt": Fate.IN_DOUBT, b"refused": Fate.REFUSED
                    }.get(body, Fate.PUT)
            told.append(PutResult(fate, FULL if fate is Fate.LATER else None))
            if fate in (Fate.LATER, Fate.IN_DOUBT):
                break
        return told

    async def put(self, work: Callable[[Any], list[PutResult]]) -> list[PutResult]:
        return work(None)


def fates(putters: Putters, *batches: tuple[tuple[str, ...], list[Any]], most: int = 10
          ) -> list[list[Fate] | BaseException]:
    async def run() -> list[Any]:
        company = JoinedPuts(putters.put, most)
        return list(await asyncio.gather(*(company.put(*each) for each in batches),
                                         return_exceptions=True))

    return [told if isinstance(told, BaseException) else [each.fate for each in told]
            for told in asyncio.run(run())]


@pytest.fixture
def putters(monkeypatch: pytest.MonkeyPatch) -> Putters:
    return Putters(monkeypatch)


def test_one_request_for_those_of_one_turn(putters: Putters) -> None:
    told = fates(putters, (("A",), batch(b"1", b"2")), (("B",), batch(b"3")),
                 (("A",), batch(b"refused", b"5")))
    assert putters.requests == [(("A",), [b"1", b"2", b"refused", b"5"]), (("B",), [b"3"])]
    assert told == [[Fate.PUT] * 2, [Fate.PUT], [Fate.REFUSED, Fate.PUT]]


def test_no_more_than_a_request_has_room_for(putters: Putters) -> None:
    fates(putters, *((("A",), batch(b"x", b"y")) for _ in range(4)), most=5)
    assert [len(bodies) for _, bodies in putters.requests] == [4, 4]
    fates(putters, (("A",), batch(*[b"x"] * 7)), most=5)
    assert len(putters.requests[-1][1]) == 7, "what one link brings is not divided here"


def test_what_is_slow_goes_alone(putters: Putters) -> None:
    fates(putters, (("A",), batch(b"1")), (("A",), batch(b"file", file=object())),
          (("A", "B"), batch(b"both")), (("A",), batch(b"2")))
    assert sorted(bodies for _, bodies in putters.requests) == [
        [b"1", b"2"], [b"both"], [b"file"]]


def test_who_stands_behind_one_that_is_not_taken(putters: Putters) -> None:
    """It waits as that does; behind one in doubt it is tried again by itself."""
    assert fates(putters, (("A",), batch(b"1", b"later")), (("A",), batch(b"2"))) == [
        [Fate.PUT, Fate.LATER], [Fate.LATER]]
    assert fates(putters, (("A",), batch(b"doubt")), (("A",), batch(b"2"))) == [
        [Fate.IN_DOUBT], []]


def test_an_error_is_everybodys(putters: Putters) -> None:
    told = fates(putters, (("A",), batch(b"1")), (("A",), batch(b"breaks")))
    assert [type(each) for each in told] == [ZeroDivisionError] * 2
