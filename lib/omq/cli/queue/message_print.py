"""Prints messages to standard output: the bare body, or one JSON object a line.

Bodies go out byte for byte with nothing between them, for pipes and files. To a terminal every line
is made safe to show first, and a body always ends its line. JSON lines have the body as text in
"body" where it is UTF-8, else as base64 in "body_base64".

Invariants: 1. a message is done only after its bytes have left this process; 2. messages printed by
several readers do not mix: the turn is a record lock, which the kernel takes back from a reader
that is killed while it prints.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omq.base import clock, event_log, events
from omq.base.errors import BodyDamaged, BodyUnavailable
from omq.base.event_log import EventLog
from omq.cli.common import shown
from omq.services.readers.runner import HeldMessage
from omq.services.readers.service import Message


class MessagePrinter:
    """Made before the readers are forked: they share its turn."""

    def __init__(self, log: EventLog, *, as_json: bool) -> None:
        self._log = log
        self._as_json = as_json
        self._turn = os.memfd_create("turn", os.MFD_CLOEXEC)

    def __call__(self, message: HeldMessage) -> None:
        """Print and finish the message. BrokenPipeError when nobody reads on."""
        try:
            data = self._render(message)
        except (BodyUnavailable, BodyDamaged) as error:
            message.fail(str(error))
            self._log.event(events.BODY_DAMAGED, event_log.ERROR, queue=message.queue,
                            qpool_id=message.qpool_id, reason=str(error))
            return
        with self._its_turn():
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        message.done()

    def close(self) -> None:
        os.close(self._turn)

    def _render(self, message: Message) -> bytes:
        if self._as_json:
            return json.dumps(record(message)).encode() + b"\n"
        return shown(message.body) if sys.stdout.isatty() else message.body

    @contextmanager
    def _its_turn(self) -> Iterator[None]:
        fcntl.lockf(self._turn, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._turn, fcntl.LOCK_UN)


def record(message: Message) -> dict[str, Any]:
    """A message for programs."""
    found: dict[str, Any] = {
        "message_id": message.message_id,
        "qpool_id": message.qpool_id,
        "queue": message.queue,
        "priority": message.priority,
        "attempts": message.attempts,
        "defers": message.defers,
        "redelivered": message.redelivered,
        "put_time": clock.iso_time(message.put_time_ns),
        "correlation_id": message.correlation_id.hex(),
        "size": message.size,
        "properties": dict(message.texts),
    }
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode("ascii")
    return found
