"""A message of kombu as the body of a message of omq, and what of it omq itself can do.

    {"content-type": ..., "content-encoding": ..., "headers": {...}, "properties": {...}, "text": b}
    the body, as it was given

The first line is JSON, the body follows it untouched: `text` says whether it was one. So a task is
readable with omread and omqdump, and costs no base64. Priority, time of expiry, an ETA and whether
it is persistent go to the manager, which keeps to them itself.

Errors: BadEnvelope for a body that is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from kombu.utils.json import dumps, loads

from omq.base import limits
from omq.base.errors import BadEnvelope
from omq.ipc.wire.outgoing import Outgoing

Raw = dict[str, Any]
_TRANSIENT: Final = 1  # delivery_mode of AMQP
_SHOWN_BYTES: Final = 40
_PROPERTY_CHARACTERS: Final = 200
"""Of a task's name and id that become properties: enough for both, little compared with a task."""


def encode(message: Mapping[str, Any]) -> bytes:
    """The body of a message of omq."""
    body = message["body"]
    text = isinstance(body, str)
    head = {key: value for key, value in message.items() if key != "body"} | {"text": text}
    line = dumps(head).encode()
    return b"\n".join((line, body.encode() if text else bytes(body)))


def decode(body: bytes, queue: str, aside: str) -> Raw:
    """The message in a body; `aside`: where what is none is put."""
    line, found, rest = body.partition(b"\n")
    try:
        head = loads(line) if found else None
        if isinstance(head, dict) and isinstance(head.get("properties"), dict):
            text = head.pop("text", False)
            return {**head, "body": rest.decode() if text else rest}
    except (ValueError, UnicodeDecodeError):
        pass
    raise BadEnvelope(queue=queue, start=repr(body[:_SHOWN_BYTES]), aside=aside)


def outgoing(message: Mapping[str, Any], *, native_eta: bool, threshold: int) -> Outgoing:
    """The message of omq for one of kombu. `threshold`: a longer body cannot be transient."""
    properties, headers = message["properties"], message["headers"]
    body = encode(message)
    made = Outgoing(
        body=body, priority=_priority(properties.get("priority") or 0),
        persistent=properties.get("delivery_mode") != _TRANSIENT or len(body) > threshold,
        properties=_named(headers))
    if (expiration := properties.get("expiration")) is not None:
        made = replace(made, expiry_s=max(0.0, float(expiration) / 1000))  # AMQP: ms, as text
    eta = headers.get("eta") if native_eta else None
    if isinstance(eta, str) and (at := _moment(eta)) is not None:
        made = replace(made, at=at)
    return made


def _priority(said: Any) -> int:
    """As in AMQP: 9 is first, and what says nothing has 0."""
    return max(0, min(int(said), limits.PRIORITIES - 1))


def _named(headers: Mapping[str, Any]) -> dict[str, str]:
    """By these an operator finds a task: omqdump --where "task = 'shop.bill'"."""
    return {key: value[:_PROPERTY_CHARACTERS] for key in ("task", "id")
            if isinstance(value := headers.get(key), str) and value.isprintable()}


def _moment(text: str) -> datetime | None:
    """None: it is not a time, which is for the worker to say."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
