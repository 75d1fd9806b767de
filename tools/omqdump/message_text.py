"""An opened message as text: options r and a.

The layout is the original's: the files of the message, then a line a field, `NAME (DN) values`. A
field that a message here cannot have is left out; values that mean nothing here are 0 or empty:

    TF File, Attach File    the container of a large body      TF Info Flags  descriptor flags
    HEADER        priority, 1 persistent, queues it is on, 0, flags, report options, 1, 0
    CREATOR       0, pid of the submitter, 0 0 0 0, sender of a mail or application
    MSG_INT_ID    0, message id, correlation id                CONTENT_FILE   size, size, CRC-32C
    RECIPIENT     flags 0, 0, 1, queue, "", recipient there    PROPERTY       name, value
    ROUTE_TRACE   put on the queue, state, queue, priority, state, failed attempts, LSN, when due

Everything that a submitter may choose is escaped.
"""

from __future__ import annotations

import base64
import email.policy
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from email.parser import BytesHeaderParser
from typing import Any, Final

from omq import codec
from omq.base.clock import NS_PER_S, iso_time
from omq.base.errors import OmqError
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.core.index.item_refs import brief
from omq.core.index.rows import EntryRow
from omq.core.look.stored import StoredMessages, message_id
from omq.format.index import EntryState
from omq.services.mail.mail_message import FROM as _FROM
from omq.services.mail.mail_message import TO as _TO
from omqtools.omqdump.handles import Opened

_WIDTH: Final = 17
_VALUE_CHARACTERS_MAX: Final = 4096
_BODY_LINE_CHARACTERS_MAX: Final = 1 << 20
_HEAD_BYTES_MAX: Final = 1 << 16


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


def lines(opened: Opened, queues: Sequence[EntryRow], uuid: bytes, body: bytes | None,
          subject: str) -> Iterator[str]:
    """r. `subject`: of a mail; empty: it has none."""
    yield ""
    yield from _files(opened)
    yield ""
    yield from _header(opened, uuid, len(queues), subject)
    for name, value in opened.stored.properties.items():
        yield _field("PROPERTY", f"{_quoted(name)} {_quoted(value)}")
    for entry in queues:
        for address in opened.stored.properties.get(f"{_TO}.{entry.queue}", "").split("\n"):
            yield _field("RECIPIENT", f'0x0 0 1 {_quoted(entry.queue)} "" {_quoted(address)}')
    for entry in queues:
        due = f" {_date(entry.until_ns)}" if entry.state is EntryState.DEFERRED else ""
        yield _field("ROUTE_TRACE", f"{_date(entry.submitted_ns)} {entry.state.value} "
                     f"{_quoted(entry.queue)} {entry.priority} {entry.state.name.lower()} "
                     f"{entry.attempts} {entry.sequence}{due}")
    if body is not None:
        yield ""
        decoded = codec.shown(body, opened.stored.properties)
        body = body if decoded is None else decoded.encode()
        for line in body.removesuffix(b"\n").split(b"\n"):
            yield escape(line.removesuffix(b"\r"), _BODY_LINE_CHARACTERS_MAX)


def _files(opened: Opened) -> Iterator[str]:
    row, container = opened.row, escape(opened.stored.container)
    yield f"Msg File = {escape(opened.source)}"
    yield f"Access Count = {0 if row is None else 1}"
    yield f"TF File = {container}".rstrip()
    yield f"TF Info Flags = {opened.stored.descriptor.flags}"
    yield "Filter Route ="
    if container:
        yield f"Attach File #1 = {container}"
    if row is not None:
        message = row.message
        record = "NONE" if message.record is None else f"{message.file}QP:{message.record}"
        yield f"QPoolId = {message.qpool}"
        yield f"Pool Record = {record}"


def _header(opened: Opened, uuid: bytes, queues: int, subject: str) -> Iterator[str]:
    """The fields of the message as a whole."""
    descriptor, row = opened.stored.descriptor, opened.row
    size = len(opened.body) if opened.body is not None else descriptor.body
    yield _field("HEADER", f"{opened.priority} {int(opened.persistent)} {queues} 0 "
                 f"0x{descriptor.flags:X} 0x{descriptor.report:X} 1 0x0")
    creator = opened.stored.properties.get(_FROM) or descriptor.application.decode(
        "ascii", "backslashreplace")
    yield _field("CREATOR", f"0 {row.message.pid if row else 0} 0 0 0 0 {_quoted(creator)} "
                 '"" ""')
    if subject:
        yield _field("SUBJECT", f'{_quoted(subject)} "" "IA5" "" ""')
    if row is not None:
        yield _field("CREATE_DATE", _date(row.message.created_ns))
    yield _field("MSG_INT_ID", f"0 {_quoted(_id_of(opened, uuid))} "
                 f"{_quoted(_hex(descriptor.correlation_id))}")
    if any(descriptor.group_id):
        last = " last" if descriptor.last else ""
        yield _field("GROUP", f"{_quoted(_hex(descriptor.group_id))} {descriptor.number}{last}")
    expiry = descriptor.expiry if row is None else row.message.expiry_ns
    if expiry:
        yield _field("EXPIRY", _date(expiry))
    if opened.reply_to:
        yield _field("REPLY_TO", _quoted(opened.reply_to))
    if row is not None:
        yield _field("ITEM_CREATE_DATE", _date(row.message.created_ns))
    crc = row.message.crc if row is not None else 0
    yield _field("CONTENT_FILE", f'{size} {size} 0x{crc:X} 0 0 {_quoted(opened.stored.container)} '
                 '"" "" "" "" "" "IA5"')


def _date(wall_ns: int) -> str:
    """`99/5/6 15:50.26+60`: local time and its distance from UTC in minutes."""
    then = time.localtime(wall_ns // NS_PER_S)
    return (f"{then.tm_year % 100:02}/{then.tm_mon}/{then.tm_mday} {then.tm_hour}:"
            f"{then.tm_min:02}.{then.tm_sec:02}{then.tm_gmtoff // 60:+}")


def subject_of(paths: SpoolPaths, opened: Opened) -> str:
    """The subject of a mail, from the head of its body; empty for another message, or when its body
    cannot be read (what r shows else does not need it)."""
    if _FROM not in opened.stored.properties:
        return ""
    try:
        head = body_of(paths, opened)[:_HEAD_BYTES_MAX]
    except OmqError:
        return ""
    found = BytesHeaderParser(policy=email.policy.compat32).parsebytes(head)["Subject"]
    return "" if found is None else " ".join(str(found).split())


def _field(name: str, text: str) -> str:
    return f"{name:<{_WIDTH}}(DN) {text}"


def _quoted(text: str) -> str:
    return f'"{escape(text, _VALUE_CHARACTERS_MAX)}"'


def _hex(identifier: bytes) -> str:
    return identifier.hex() if any(identifier) else ""


def record(opened: Opened, queues: Sequence[EntryRow], uuid: bytes, body: bytes | None
           ) -> dict[str, Any]:
    """The JSON object of r: a contract, keys are only added."""
    descriptor, row = opened.stored.descriptor, opened.row
    expiry = descriptor.expiry if row is None else row.message.expiry_ns
    found: dict[str, Any] = {
        "handle": opened.handle, "source": opened.source, "message_id": _id_of(opened, uuid),
        "qpool_id": None if row is None else row.message.qpool,
        "correlation_id": _hex(descriptor.correlation_id),
        "group_id": _hex(descriptor.group_id), "group_sequence": descriptor.number,
        "last_in_group": descriptor.last,
        "priority": opened.priority, "persistent": opened.persistent,
        "size": len(opened.body) if opened.body is not None else descriptor.body,
        "container": opened.stored.container, "reply_to": opened.reply_to,
        "application": descriptor.application.decode("ascii", "replace"),
        "created": None if row is None else iso_time(row.message.created_ns),
        "expiry": iso_time(expiry) if expiry else None,
        "properties": opened.stored.properties,
        "queues": [{"queue": entry.queue, "state": entry.state.name.lower(),
                    "priority": entry.priority, "failed_attempts": entry.attempts}
                   for entry in queues]}
    if body is not None:
        try:
            found["body"] = body.decode()
        except UnicodeDecodeError:
            found["body_base64"] = base64.b64encode(body).decode("ascii")
        decoded = codec.shown(body, opened.stored.properties)
        if decoded is not None:
            found["decoded"] = json.loads(decoded)
    return found


def opened_table(messages: Iterable[Opened]) -> Iterator[str]:
    """a: a line an opened message."""
    yield f"{'Handle':<8}{'QPoolId':<10}{'Queue':<17}{'State':<9}{'LSN':<11}Item Ref"
    for opened in messages:
        row = opened.row
        if row is None:
            yield f"{opened.handle:<8}{'NONE':<10}{'NONE':<17}{'file':<9}{'NONE':<11}" \
                  f"{escape(opened.source)}"
        else:
            yield (f"{opened.handle:<7} {row.message.qpool:<9} {row.queue:<16} "
                   f"{row.state.name.lower():<8} {row.message.lsn:<10} "
                   f"{brief(row.message.item_ref)}")


def opened_record(opened: Opened) -> dict[str, Any]:
    """The JSON object of a."""
    row = opened.row
    return {"handle": opened.handle, "source": opened.source,
            "qpool_id": None if row is None else row.message.qpool,
            "queue": None if row is None else row.queue,
            "state": None if row is None else row.state.name.lower(),
            "lsn": None if row is None else row.message.lsn}
