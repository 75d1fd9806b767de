"""A message of kombu as the body of one of omq, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("kombu", reason="the extra `celery` is not installed")

from omq.base.errors import BadEnvelope
from omq.tasks import envelope


def made(body: Any = "{}", **said: Any) -> dict[str, Any]:
    return {"body": body, "content-type": "application/json", "content-encoding": "utf-8",
            "headers": said.pop("headers", {}), "properties": {"delivery_info": {}, **said}}


@pytest.mark.parametrize("body", ["", "text\nof two lines", "ü", b"", b"\x80\n\x00bytes"])
def test_what_is_put_is_what_is_read(body: str | bytes) -> None:
    message = made(body, headers={"id": "1", "eta": None})
    assert envelope.decode(envelope.encode(message), "A", "B") == message


@pytest.mark.parametrize("body", [
    b"", b"\n", b"by hand", b"[]\n", b"{}\n", b'{"properties": 1}\n', b"\x80\n",
    b'{"properties": {}, "text": true}\n\x80'])
def test_what_is_none_is_said(body: bytes) -> None:
    with pytest.raises(BadEnvelope, match="queue A"):
        envelope.decode(body, "A", "B")


def test_what_the_manager_can_do_it_is_told() -> None:
    eta = "2040-01-01T00:00:00+00:00"
    out = envelope.outgoing(made(priority=7, expiration="1500", headers={
        "eta": eta, "task": "shop.bill", "id": "x" * 300}), native_eta=True, threshold=1000)
    assert (out.priority, out.expiry_s, out.persistent) == (7, 1.5, True)
    assert out.at == datetime(2040, 1, 1, tzinfo=UTC)
    assert out.properties == {"task": "shop.bill", "id": "x" * 200}


def test_what_says_nothing_is_first_of_nothing() -> None:
    out = envelope.outgoing(made(headers={"eta": "2040-01-01T00:00:00"}), native_eta=False,
                            threshold=1000)
    assert (out.priority, out.expiry_s, out.at, out.persistent) == (0, None, None, True)


def test_wrong_values_are_for_the_worker_to_say() -> None:
    out = envelope.outgoing(made(priority=99, headers={"eta": "tomorrow", "task": "a\nb"}),
                            native_eta=True, threshold=1000)
    assert (out.priority, out.at, out.properties) == (9, None, {})


def test_what_is_transient_may_be_lost_if_it_is_short() -> None:
    def persistent(size: int) -> bool | None:
        return envelope.outgoing(made("x" * size, delivery_mode=1), native_eta=True,
                                 threshold=1000).persistent

    assert persistent(10) is False and persistent(2000) is True
