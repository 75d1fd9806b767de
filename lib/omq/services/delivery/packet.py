"""What the scheduler and a channel process say to each other: one packet each way a message.

    to the process      head: {"peer", "recipients", ...}, body: the text
    to the scheduler    head: what became of it (Report), no body

A packet is the length of its head in four bytes, the head as JSON and the body, over a socket that
keeps packets apart. What is longer than a packet may be travels as a sealed memory file next to an
empty packet. So nobody waits for a process that does not read.

Errors: OSError of the socket; ClosedError when the other side has closed.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Final

PACKET_BYTES_MAX: Final = 16 * 1024
"""The default send buffer of the kernel holds a dozen of them."""
_LENGTH_BYTES: Final = 4
_FILE: Final = b"file"


class ClosedError(Exception):
    """The other side is gone."""


def send(to: socket.socket, head: dict[str, Any], body: bytes = b"") -> None:
    """One packet."""
    text = json.dumps(head).encode("ascii")
    parts = (len(text).to_bytes(_LENGTH_BYTES, "little"), text, body)
    if _LENGTH_BYTES + len(text) + len(body) <= PACKET_BYTES_MAX:
        to.sendmsg(parts)
        return
    file = os.memfd_create("omq-mlist", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(file), "wb") as writing:
            for part in parts:
                writing.write(part)
        socket.send_fds(to, [_FILE], [file])
    finally:
        os.close(file)


def receive(come_from: socket.socket) -> tuple[dict[str, Any], bytes]:
    """One packet: head and body. Waits as the socket does."""
    data, files, _, _ = socket.recv_fds(come_from, PACKET_BYTES_MAX, 1)
    if not data:
        raise ClosedError
    for file in files:
        with os.fdopen(file, "rb") as reading:
            reading.seek(0)
            data = reading.read()
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    head = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + length])
    return head, data[_LENGTH_BYTES + length :]
