"""What a request to the REST interface says: its bytes, within the memory there is, and its JSON.

Errors: BadRequest; ConsoleBusy and HTTPRequestEntityTooLarge before a byte of the body is read.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from omq.base.errors import BadRequest
from omq.cli.web.console import caller_of, console_of
from omq.format.property_values import Value


@asynccontextmanager
async def sent(request: web.Request) -> AsyncIterator[bytes]:
    """The body of a request, which is memory until the end of the block. One that does not say its
    length is reckoned as the largest."""
    console = console_of(request)
    most = console.settings.web_request_bytes_max
    size = request.content_length
    if size is None:
        size = most if request.body_exists else 0
    if size > most:
        raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=size)
    with console.budget.room(caller_of(request).name, size):
        yield await request.read()


def read_json(data: bytes) -> Any:
    """BadRequest."""
    try:
        found = json.loads(data or b"{}")
        if b"\\u" in data:  # half a pair of UTF-16 can be written so, and is no text
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as error:
        raise BadRequest(reason="the request is no JSON") from error


async def asked(request: web.Request, *known: str) -> dict[str, Any]:
    """The JSON object of a request, with no other keys than these. BadRequest."""
    async with sent(request) as data:
        found = read_json(data)
    if not isinstance(found, dict) or not found.keys() <= set(known):
        raise BadRequest(reason=f"the request is an object with the keys {', '.join(known)}")
    return found


def text(found: dict[str, Any], key: str, default: str = "") -> str:
    """BadRequest."""
    value = found.get(key, default)
    if not isinstance(value, str):
        raise BadRequest(reason=f"{key} is a text")
    return value


def truth(found: dict[str, Any], key: str) -> bool | None:
    """True, False, or None: nothing is said. BadRequest."""
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
