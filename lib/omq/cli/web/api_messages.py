"""Messages and settlements as the REST interface gets them.

Errors: BadRequest, and what omq.Outgoing says of what can be no message (BadArgument, BadProperty).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from omq.base import limits
from omq.base.errors import BadArgument, BadRequest
from omq.cli.web.deliveries import COUNT_MAX
from omq.cli.web.request_body import JSON, figure, properties, read_json, text, unknown_keys
from omq.cli.web.settlements import Order
from omq.ipc.client.message import Message
from omq.ipc.wire import arguments
from omq.ipc.wire.outgoing import Outgoing

KEY: Final = "Idempotency-Key"
ENDS: Final = ("done", "fail", "release", "defer", "touch", "move", "reply")
SAID: Final = ("priority", "properties", "persistent", "correlation_id", "message_id", "expiry_s",
               "reply_to", "delay_s", "group_id", "unique_key")
QUERY: Final = {"priority": int, "expiry_s": float, "delay_s": float, "correlation_id": str,
                 "message_id": str, "reply_to": str, "group_id": str, "unique_key": str}
"""What the query may say of a body that is sent as it is."""
_FORMS: Final = ("application/octet-stream", "application/x-www-form-urlencoded")
"""Content types that say nothing about a body: what clients send by default."""
_DELAY_MAX_S: Final = 366 * 86400
_DELIVERY_MAX: Final = 64
"""Letters of the name of a delivery: of a thousand that wait each has some."""


def _content(found: dict[str, Any]) -> bytes:
    if "body_base64" not in found:
        return text(found, "body").encode()
    try:
        return base64.b64decode(text(found, "body_base64"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(reason="body_base64 is not base64") from error


def message_of(found: Any, key: str = "") -> Outgoing:
    """Of JSON. BadRequest, BadArgument and so on: what cannot be."""
    known = {"body", "body_base64", *SAID}
    if not isinstance(found, dict) or not found.keys() <= known:
        raise BadRequest(reason=f"a message is an object with the keys {', '.join(sorted(known))}"
                         f"{unknown_keys(found, known)}")
    properties(found, "properties")
    said = {name: found[name] for name in SAID if name in found}
    if key and not said.get("message_id"):
        said.setdefault("unique_key", key)
    return _made(_content(found), said)


def _made(body: bytes, said: dict[str, Any]) -> Outgoing:
    try:
        if isinstance(said.get("priority"), str):
            said["priority"] = arguments.priority(said["priority"])
        return Outgoing(body, **said)
    except (TypeError, ValueError) as error:
        raise BadArgument(argument="the request", value="so", rule=str(error)) from error


def _raw(request: web.Request, body: bytes, key: str) -> Outgoing:
    """A body as it is; the query says the rest."""
    said: dict[str, Any] = {}
    for name, value in request.query.items():
        kind = QUERY.get(name)
        if kind is None:
            raise BadRequest(reason=f"the query may have {', '.join(QUERY)}")
        try:
            said[name] = kind(value)
        except ValueError as error:
            raise BadRequest(reason=f"{name} is a number") from error
    if key and not said.get("message_id"):
        said.setdefault("unique_key", key)
    kept = {"amqp.content-type": request.content_type}
    if request.content_type in _FORMS:
        kept = {}
    if (coding := request.headers.get("Content-Encoding", "")):
        kept["amqp.content-encoding"] = coding
    if kept:
        said["properties"] = kept
    return _made(body, said)


def messages_of(request: web.Request, data: bytes) -> tuple[list[Outgoing], bool]:
    """What is to be put; whether it is a list."""
    key = request.headers.get(KEY, "").strip().strip('"')
    if request.content_type != JSON:
        return [_raw(request, data, key)], False
    found = read_json(data)
    if isinstance(found, dict) and "messages" in found:
        listed = found["messages"]
        if len(found) != 1 or not isinstance(listed, list) or not (
                1 <= len(listed) <= limits.BATCH_MAX):
            raise BadRequest(reason=f"messages is a list of 1 to {limits.BATCH_MAX}, and stands "
                             "alone")
        return [message_of(each, f"{key}/{at}" if key else "")
                for at, each in enumerate(listed)], True
    return [message_of(found, key)], False


def listed(found: dict[str, Any], key: str) -> list[Any]:
    value = found.get(key, [])
    if not isinstance(value, list) or len(value) > COUNT_MAX:
        raise BadRequest(reason=f"{key} is a list of {COUNT_MAX} at most")
    return value


def order_of(found: Any) -> Order:
    """What a request orders for a delivery. BadRequest."""
    known = ("delivery", "end", "seconds", "reason", "to", "body", "body_base64", "properties",
             "progress")
    if not isinstance(found, dict) or not found.keys() <= set(known):
        raise BadRequest(reason=f"a settlement is an object with the keys {', '.join(known)}")
    delivery, end = text(found, "delivery"), text(found, "end", "done")
    if len(delivery) > _DELIVERY_MAX:
        raise BadRequest(reason="delivery is a name that a get has given")
    if end not in ENDS:
        raise BadRequest(reason=f"end is one of {', '.join(ENDS)}")
    seconds = figure(found, "seconds", 0.0, _DELAY_MAX_S)
    progress = text(found, "progress")
    reason, to, content = text(found, "reason"), text(found, "to"), _content(found)
    said, late = properties(found, "properties"), "seconds" in found
    carried: dict[str, Callable[[Message], Any]] = {
        "done": Message.done, "release": Message.release,
        "touch": lambda message: message.touch(progress),
        "fail": lambda message: message.fail(reason, seconds if late else None),
        "defer": lambda message: message.defer(seconds, reason),
        "move": lambda message: message.move(to),
        "reply": lambda message: message.reply(content, properties=said)}
    mark = hash((end, seconds, late, reason, to, content, str(said)))
    return Order(delivery, carried[end], touches=end == "touch", to=to if end == "move" else "",
                 replies=end == "reply", mark=mark)
