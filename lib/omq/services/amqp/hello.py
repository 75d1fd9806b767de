"""What a server of AMQP says of itself: in `open` (ISO 19464 part 2, 2.7.1) and in `begin` (2.7.2).

    open     product, version, platform; capabilities: a link without an address (targets), a delay
             by annotation (translation)
    begin    handle-max: so many links there may be, less one

The library says 2^31-1 for handle-max and has no call for another number; so it is written into the
bytes of the frame, where it is the last field.
"""

from __future__ import annotations

import platform
from typing import Any, Final

from proton import Connection, Transport, symbol

import omq

CAPABILITIES: Final = ("ANONYMOUS-RELAY", "DELAYED_DELIVERY")
_BEGIN: Final = b"\x00\x53\x11"
_ALL_HANDLES: Final = b"\x70\x7f\xff\xff\xff"
_HEAD: Final = 8
"""Of a frame; a protocol header is as long."""


def introduce(connection: Connection, container: str) -> None:
    """Before it is opened."""
    said: dict[Any, Any] = {
        symbol("product"): "omq", symbol("version"): omq.__version__,
        symbol("platform"): f"Python {platform.python_version()}"}
    connection.container, connection.properties = container, said
    connection.offered_capabilities = [*map(symbol, CAPABILITIES)]


def begun(engine: Transport, session: Any, links_max: int) -> bytes:
    """Open a session; what goes out with it, and before it: so it begins where a frame does."""
    before = _all_of(engine)
    session.open()
    return before + bounded(_all_of(engine), links_max)


def _all_of(engine: Transport) -> bytes:
    """What waits to go out."""
    out = bytearray()
    while (size := engine.pending()) > 0 and (data := engine.peek(size)):
        out += data
        engine.pop(len(data))
    return bytes(out)


def bounded(data: bytes, links_max: int) -> bytes:
    """Whole frames that go out, those of `begin` with as many handles as there may be links."""
    out, at = bytearray(data), 0
    if out.startswith(b"AMQP"):
        at = _HEAD
    while at + _HEAD <= len(out):
        size, body = int.from_bytes(out[at : at + 4], "big"), at + 4 * out[at + 4]
        ends = at + size
        assert size >= _HEAD and ends <= len(out), "a frame is cut"
        if out.startswith(_BEGIN, body, ends) and out.endswith(_ALL_HANDLES, body, ends):
            out[ends - 4 : ends] = (links_max - 1).to_bytes(4, "big")
        at = ends
    return bytes(out)
