"""An opened message as text: options r and a.

The original showed the records of a mail message. The field names are kept where a message here has
such a field; `(DN)` stood for the form of the address and is left out. Everything that a submitter
may choose is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from omq.base.clock import iso_time, seed_time
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.core.index_rows import EntryRow
from omq.core.stored import StoredMessages, message_id
from omq.format.index import EntryState
from omqdump.handles import Opened

_WIDTH: Final = 17
_VALUE_CHARACTERS_MAX: Final = 4096
_BODY_LINE_CHARACTERS_MAX: Final = 1 << 20


def body_of(paths: SpoolPaths, opened: Opened) -> bytes:
    """The bytes of the body, checked."""
    if opened.body is not None or opened.row is None:
        return opened.body or b""
    stored = StoredMessages(paths)
    try:
        return stored.body(opened.row.message, opened.stored)
    finally:
        stored.close()


def _id_of(opened: Opened, uuid: bytes) -> str:
    if opened.row is not None:
        return message_id(opened.stored, uuid, opened.row.message.qpool).hex()
    given = opened.stored.descriptor.message_id
    return given.hex() if any(given) else ""


def lines(opened: Opened, queues: Sequence[EntryRow], uuid: bytes, body: bytes | None
          ) -> Iterator[str]:
    """r."""
    descriptor, row = opened.stored.descriptor, opened.row
    yield ""
    yield f"Msg File = {escape(opened.source)}"
    if row is not None:
        message = row.message
        record = "NONE" if message.record is None else f"{message.file}QP:{message.record}"
        yield "Access Count = 1"
        yield f"QPoolId = {message.qpool}"
        yield f"Pool Record = {record}"
    yield ""
    yield _field("HEADER", f"{opened.priority} {'persistent' if opened.persistent else 'volatile'}"
                 f" 0x{descriptor.flags:X} 0x{descriptor.report:X}")
    creator = _quoted(descriptor.application.decode('ascii', 'backslashreplace'))
    yield _field("CREATOR", creator + (f" {row.message.pid}" if row else ""))
    yield _field("MSG_INT_ID", f"{_quoted(_id_of(opened, uuid))} "
                 f"{_quoted(_hex(descriptor.correlation_id))}")
    if row is not None:
        yield _field("CREATE_DATE", seed_time(row.message.created_ns))
    if descriptor.expiry:
        yield _field("EXPIRY", seed_time(descriptor.expiry))
    if opened.reply_to:
        yield _field("REPLY_TO", _quoted(opened.reply_to))
    size = len(opened.body) if opened.body is not None else descriptor.body
    yield _field("CONTENT_FILE", f"{size} {_quoted(opened.stored.container)}")
    for name, value in opened.stored.properties.items():
        yield _field("PROPERTY", f"{_quoted(name)} {_quoted(value)}")
    for entry in queues:
        yield _field("QUEUE", f"{_quoted(entry.queue)} {entry.priority} {entry.state.name.lower()} "
                     f"{entry.attempts} {entry.sequence} {seed_time(entry.submitted_ns)}"
                     + (f" {seed_time(entry.until_ns)}" if entry.state is EntryState.DEFERRED
                        else ""))
    if body is not None:
        yield ""
        for line in body.removesuffix(b"\n").split(b"\n"):
            yield escape(line.removesuffix(b"\r"), _BODY_LINE_CHARACTERS_MAX)


def _field(name: str, text: str) -> str:
    return f"{name:<{_WIDTH}}{text}"


def _quoted(text: str) -> str:
    return f'"{escape(text, _VALUE_CHARACTERS_MAX)}"'


def _hex(identifier: bytes) -> str:
    return identifier.hex() if any(identifier) else ""


def record(opened: Opened, queues: Sequence[EntryRow], uuid: bytes, body: bytes | None
           ) -> dict[str, Any]:
    """The JSON object of r: a contract, keys are only added."""
    descriptor, row = opened.stored.descriptor, opened.row
    found: dict[str, Any] = {
        "handle": opened.handle, "source": opened.source, "message_id": _id_of(opened, uuid),
        "qpool_id": None if row is None else row.message.qpool,
        "correlation_id": _hex(descriptor.correlation_id),
        "priority": opened.priority, "persistent": opened.persistent,
        "size": len(opened.body) if opened.body is not None else descriptor.body,
        "container": opened.stored.container, "reply_to": opened.reply_to,
        "application": descriptor.application.decode("ascii", "replace"),
        "created": None if row is None else iso_time(row.message.created_ns),
        "expiry": iso_time(descriptor.expiry) if descriptor.expiry else None,
        "properties": opened.stored.properties,
        "queues": [{"queue": entry.queue, "state": entry.state.name.lower(),
                    "priority": entry.priority, "failed_attempts": entry.attempts}
                   for entry in queues]}
    if body is not None:
        try:
            found["body"] = body.decode()
        except UnicodeDecodeError:
            found["body_base64"] = base64.b64encode(body).decode("ascii")
    return found


def opened_table(messages: Iterable[Opened]) -> Iterator[str]:
    """a: a line an opened message."""
    yield f"{'Handle':<8}{'QPoolId':<12}{'Queue':<17}{'State':<10}{'LSN':<12}Item Ref"
    for opened in messages:
        row = opened.row
        if row is None:
            yield f"{opened.handle:<8}{'NONE':<12}{'NONE':<17}{'file':<10}{'NONE':<12}" \
                  f"{escape(opened.source)}"
        else:
            yield (f"{opened.handle:<8}{row.message.qpool:<11} {row.queue:<16} "
                   f"{row.state.name.lower():<9} {row.message.lsn:<11} {row.message.item_ref}")


def opened_record(opened: Opened) -> dict[str, Any]:
    """The JSON object of a."""
    row = opened.row
    return {"handle": opened.handle, "source": opened.source,
            "qpool_id": None if row is None else row.message.qpool,
            "queue": None if row is None else row.queue,
            "state": None if row is None else row.state.name.lower(),
            "lsn": None if row is None else row.message.lsn}
