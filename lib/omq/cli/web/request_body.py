"""What a request to the REST interface says: its bytes, within the memory there is, and its JSON.

Errors: BadRequest; ConsoleBusy and HTTPRequestEntityTooLarge before a byte of the body is read.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from omq.base.errors import BadRequest
from omq.base.names import escape
from omq.cli.web.console import caller_of, console_of
from omq.format.property_values import Value

JSON: Final = "application/json"


_JSON_COST: Final = 4
"""What JSON takes besides its bytes, once it is objects, in times of these: as many texts as there
are in a message with properties; small objects in a list take more, but are refused at once."""


@asynccontextmanager
async def sent(request: web.Request) -> AsyncIterator[bytes]:
    """The body of a request, which is memory until the end of the block. One that does not say its
    length is reckoned as the largest."""
    console = console_of(request)
    if is_json(request) and request.headers.get("Content-Encoding", "identity") != "identity":
        raise web.HTTPUnsupportedMediaType(reason="JSON is sent as it is, in no Content-Encoding")
    most = console.settings.web_request_bytes_max
    size = request.content_length
    if size is None:
        size = most if request.body_exists else 0
    if size > most:
        raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=size)
    cost = size if not is_json(request) else min(
        size * _JSON_COST, max(size, console.settings.web_user_memory_bytes_max // 2))
    with console.budget.room(caller_of(request).name, cost):
        yield await request.read()


def is_json(request: web.Request) -> bool:
    """Whether the body is JSON: all are but the body of one message."""
    return request.content_type == JSON or not request.path.endswith("/messages")


def read_json(data: bytes) -> Any:
    """BadRequest."""
    try:
        found = json.loads(data or b"{}")
        if b"\\u" in data:  # half a pair of UTF-16 can be written so, and is not a text
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as error:
        raise BadRequest(reason="the request is not JSON") from error


async def asked(request: web.Request, *known: str) -> dict[str, Any]:
    """The JSON object of a request, with no other keys than these. BadRequest."""
    async with sent(request) as data:
        return object_of(data, *known)


def object_of(data: bytes, *known: str) -> dict[str, Any]:
    """The same of its bytes."""
    found = read_json(data)
    if not isinstance(found, dict) or not found.keys() <= set(known):
        raise BadRequest(reason=f"the request is an object with the keys {', '.join(known)}"
                         f"{unknown_keys(found, set(known))}")
    return found


def unknown_keys(found: Any, known: set[str]) -> str:
    """What else somebody has sent, in words."""
    if not isinstance(found, dict):
        return ", not a list or a value"
    first = min(found.keys() - known)
    return f"; {escape(first, 64)!r} is not one of them"


def text(found: dict[str, Any], key: str, default: str = "") -> str:
    """BadRequest."""
    value = found.get(key, default)
    if not isinstance(value, str):
        raise BadRequest(reason=f"{key} is a text")
    return value


def truth(found: dict[str, Any], key: str) -> bool | None:
    """True, False, or None: the key is absent. BadRequest."""
    value = found.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(reason=f"{key} is true or false")
    return value


def figure(found: dict[str, Any], key: str, default: float, most: float) -> float:
    """BadRequest."""
    value = found.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise BadRequest(reason=f"{key} is a number up to {most:g}")
    return float(value)


def texts(found: dict[str, Any], key: str) -> dict[str, str]:
    """An object of texts. BadRequest."""
    value = found.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise BadRequest(reason=f"{key} is an object of texts")
    return value


def properties(found: dict[str, Any], key: str) -> dict[str, Value]:
    """An object of texts, numbers and truth. BadRequest."""
    value = found.get(key, {})
    if not isinstance(value, dict) or not all(
            isinstance(each, str | int | float) for each in value.values()):
        raise BadRequest(reason=f"{key} is an object of texts, numbers, true and false")
    return value
