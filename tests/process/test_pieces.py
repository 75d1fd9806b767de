"""Bodies that are put and read in pieces."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.ipc.client import bodies
from tests.process.instance import Instance
from tests.process.processes import WAIT_S

PIECE = b"0123456789abcdef" * 4096
COUNT = 20


def large() -> Iterator[bytes]:
    for i in range(COUNT):
        yield PIECE if i % 5 else b""


WHOLE = b"".join(large())


def containers(instance: Instance) -> list[Path]:
    """Those that are in use; empty ones are made ahead."""
    return [path for path in (instance.root / "data").rglob("*")
            if path.is_file() and path.stat().st_size]


@pytest.mark.parametrize("owns", [True, False])
def test_in_pieces_and_whole(omq_instance: Instance, monkeypatch: pytest.MonkeyPatch, *,
                             owns: bool) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        if not owns:  # as for a user who is not the spool's owner
            monkeypatch.setattr(c._link, "owns", False)
            monkeypatch.setattr(c._link, "trusted", False)
        said = omq.Outgoing(properties={"a": "b"}, priority=7)
        first = c.put_pieces("A", large(), said)
        c.put_pieces("A", io.BytesIO(WHOLE[:300_000]), said)
        c.put_pieces(["A", "B"], [b"sm", b"all"])
        c.put_pieces("B", ())
        with c.reader("A") as reader:
            (one,) = reader.next(1, WAIT_S)
            assert (one.message_id, one.size, one.priority, one.properties) == (
                first, len(WHOLE), 7, {"a": "b"})
            got = list(one.pieces())
            assert b"".join(got) == WHOLE == one.body
            assert max(map(len, got)) <= bodies.PIECE_BYTES
            (two,) = reader.next(1, WAIT_S)
            assert b"".join(two.pieces()) == WHOLE[:300_000]
            (three,) = reader.next(1, WAIT_S)
            assert list(three.pieces()) == [b"small"]
            one.done()
            two.done()
            three.done()
        assert [row.body for row in c.browse("B")] == [b"small", b""]


def breaking() -> Iterator[bytes]:
    yield from large()
    raise ZeroDivisionError


def test_nothing_is_put_when_the_pieces_break_off(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        with pytest.raises(ZeroDivisionError):
            c.put_pieces("A", breaking())
        assert list(c.browse("A")) == []
        assert containers(omq_instance) == []


def test_too_many_pieces(omq_instance: Instance) -> None:
    omq_instance.queues("[*]\n\n[A]\nmax_length = 400000\n\n[B]\n")
    omq_instance.start()
    with omq_instance.connect() as c:
        with pytest.raises(omq.MessageTooLong):
            c.put_pieces("A", large())
        assert containers(omq_instance) == []


@pytest.mark.parametrize(("given", "said"), [
    (b"bytes", None), ("text", None), (7, None), ([b"x", "y"], None), ([b"x"], b"no message"),
    ([b"x"], omq.Outgoing(b"a body"))])
def test_what_is_no_piece(omq_instance: Instance, given: Any, said: Any) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        with pytest.raises(omq.BadArgument) as told:
            c.put_pieces("A", given, said)
        assert ("pieces" if said is None else "outgoing") in str(told.value)
        assert list(c.browse("A")) == []


def test_a_damaged_body_is_known_behind_its_last_piece(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_pieces("A", large())
        (path,) = containers(omq_instance)
        with path.open("r+b") as file:
            file.seek(100)
            file.write(b"?")
        with c.reader("A") as reader:
            (message,) = reader.next(1, WAIT_S)
            got = []
            with pytest.raises(omq.BodyDamaged):
                for piece in message.pieces():
                    got.append(piece)
            assert sum(map(len, got)) == len(WHOLE)
            path.unlink()
            with pytest.raises(omq.BodyUnavailable):
                list(message.pieces())
            message.done()
