"""Messages as files: o writes an opened one, i and O open one from files.

    FILE        the body, byte for byte
    FILE.json   {"omq_message": 1, "size", "crc32c", "priority", "persistent", "properties",
                "correlation_id", "message_id", "reply_to", "expiry_ns", "group_id",
                "group_sequence", "last_in_group", "source"}

Without FILE.json a file is a body alone, of normal priority. O also opens every item reference that
a listing shows (`~/data/0000005/000084u`, `~/journal/7:4224`): the message that lies there, with
its properties, whether it is on a queue or not any more; a container that no message names is a
body alone. A message that is read gets a new id when it is put; where it came from stays in
FILE.json.

Errors: InputUnreadable, BodyDamaged (FILE is not what FILE.json says), BadItemRef, BadRequest,
FileNotWritten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from omq.base.checksum import crc32c
from omq.base.errors import BadItemRef, BadRequest, BodyDamaged, DiskError, InputUnreadable
from omq.base.limits import BODY_BYTES_MAX, PRIORITY_NORMAL
from omq.base.names import check_priority, escape
from omq.core.index.item_refs import place_of
from omq.core.index.rows import MessageRow
from omq.core.index.view import IndexView
from omq.core.look.stored import Stored, StoredMessages, message_id
from omq.format.message import LAST_IN_GROUP, Descriptor
from omq.format.pool import RecordFlag
from omq.format.property_values import carried
from omq.storage import containers
from omq.storage.files import read_file
from omqtools.omqdump import message_text
from omqtools.omqdump.handles import Opened
from omqtools.omqdump.option_desk import Desk
from omqtools.omqdump.text_file import dump_path, write_bytes

VERSION: Final = 1
_DEFAULT: Final = "/tmp/omqmsg"
_SIDE_BYTES_MAX: Final = 1 << 20
_ID_BYTES: Final = 24


def output(desk: Desk) -> None:
    """o: write an opened message to files."""
    opened = desk.opened()
    answer = desk.answers.ask(f"Msg File Name ({_DEFAULT}):", _DEFAULT)
    body = message_text.body_of(desk.sources.paths, opened)
    path = dump_path(desk.sources.paths, answer)
    side = json.dumps(_facts(opened, body, desk.sources.uuid), indent=1) + "\n"
    write_bytes(path, [body])
    write_bytes(dump_path(desk.sources.paths, answer + ".json"), [side.encode()])
    if desk.json:
        desk.record({"handle": opened.handle, "file": str(path), "bytes": len(body)})


def _facts(opened: Opened, body: bytes, uuid: bytes) -> dict[str, Any]:
    descriptor, row = opened.stored.descriptor, opened.row
    given = descriptor.message_id
    known = message_id(opened.stored, uuid, row.message.qpool) if row else given
    return {
        "omq_message": VERSION, "size": len(body), "crc32c": f"{crc32c(body):08x}",
        "priority": opened.priority, "persistent": opened.persistent,
        "properties": opened.stored.properties,
        "correlation_id": descriptor.correlation_id.rstrip(b"\0").hex(),
        "message_id": known.hex() if any(known) else "", "reply_to": opened.reply_to,
        "expiry_ns": descriptor.expiry, "group_id": descriptor.group_id.rstrip(b"\0").hex(),
        "group_sequence": descriptor.number, "last_in_group": descriptor.last,
        "source": {"item_ref": opened.source, "queue": row.queue if row else "",
                   "qpool_id": row.message.qpool if row else 0}}


def input_files(desk: Desk) -> None:
    """i: open a message from files; p puts it."""
    answer = desk.answers.ask(f"Msg File Name ({_DEFAULT}):", _DEFAULT)
    _announce(desk, _from_files(desk, Path(answer)))


def open_file(desk: Desk) -> None:
    """O: the same, or what an item reference names."""
    answer = desk.answers.ask(f"Msg File Name ({_DEFAULT}):", _DEFAULT)
    if not answer.startswith("~/"):
        _announce(desk, _from_files(desk, Path(answer)))
        return
    found = by_reference(desk, answer)
    _announce(desk, _container(desk, answer) if found is None else found)


def by_reference(desk: Desk, ref: str) -> Opened | None:
    """The message whose listing shows this reference, else the one that lies there; None: a
    container that no message on a queue names."""
    where = place_of(ref)
    messages = StoredMessages(desk.sources.paths)
    try:
        with desk.sources.index() as view:
            names = view.queue_names()
            row = _row_of(view, ref, where)
            if row is not None:
                found = messages.read(row)
                entry = next(iter(view.of_message(row.qpool)), None)
            elif where is not None:
                row, found = messages.at(*where)
                entry = None
                desk.note("no message on a queue lies there; its CRC is not known")
            else:
                return None
        body = messages.body(row, found)
    finally:
        messages.close()
    reply_to = found.descriptor.reply_to
    return Opened(desk.handles.free(), found, ref, None, body,
                  PRIORITY_NORMAL if entry is None else entry.priority, row.persistent,
                  names[reply_to] if 0 < reply_to < len(names) else "")


def _row_of(view: IndexView, ref: str, where: tuple[int, int] | None) -> MessageRow | None:
    if where is not None:
        word, offset = where
        rows = view.messages_where(
            lambda column: (column("m_location") == word) & (column("m_offset") == offset)
            & (column("m_qpool") != 0))
    else:
        rows = view.messages_where(
            lambda column: (column("m_flags") & int(RecordFlag.CONTAINER) != 0)
            & (column("m_qpool") != 0))
    return next((row for row in rows if where is not None or row.item_ref == ref), None)


def _container(desk: Desk, ref: str) -> Opened:
    try:
        file = containers.open_item(desk.sources.paths, ref)
    except FileNotFoundError as error:
        raise InputUnreadable(file=escape(ref), reason="there is no such container") from error
    try:
        body = file.read(BODY_BYTES_MAX, 0)
    finally:
        file.close()
    stored = Stored(Descriptor(), {}, body, "")
    return Opened(desk.handles.free(), stored, ref, None, body)


def _announce(desk: Desk, opened: Opened) -> None:
    desk.handles.add(opened)
    if desk.json:
        desk.record({"handle": opened.handle, "source": opened.source,
                     "size": len(opened.body or b"")})
    else:
        desk.out.write(f"Msg Handle = {opened.handle}\n")


def _from_files(desk: Desk, path: Path) -> Opened:
    body = _bytes_of(path, BODY_BYTES_MAX)
    side = path.with_name(path.name + ".json")
    handle = desk.handles.free()
    if not side.is_file():
        return Opened(handle, Stored(Descriptor(), {}, body, ""), str(path), None, body)
    try:
        return _with_facts(handle, path, body, json.loads(_bytes_of(side, _SIDE_BYTES_MAX)))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadRequest(reason=f"{escape(str(side))} does not describe a message: "
                         f"{escape(str(error))}") from error


def _with_facts(handle: int, path: Path, body: bytes, facts: dict[str, Any]) -> Opened:
    if int(facts["omq_message"]) != VERSION:
        raise BadRequest(reason=f"{escape(str(path))}.json has version {facts['omq_message']!r}")
    expected, got = int(str(facts["crc32c"]), 16), crc32c(body)
    if (expected, int(facts["size"])) != (got, len(body)):
        raise BodyDamaged(qpool_id=0, where=escape(str(path)), expected=expected, got=got)
    correlation = bytes.fromhex(str(facts["correlation_id"]))
    group = bytes.fromhex(str(facts.get("group_id", "")))
    if len(correlation) > _ID_BYTES or len(group) > _ID_BYTES:
        raise BadItemRef(ref=escape(str(path)), reason="correlation and group ids have 24 bytes")
    number = int(facts.get("group_sequence", 0)) & LAST_IN_GROUP - 1
    properties = dict(carried(
        {str(name): str(value) for name, value in dict(facts["properties"]).items()}))
    descriptor = Descriptor(correlation_id=correlation.ljust(_ID_BYTES, b"\0"),
                            expiry=int(facts["expiry_ns"]),
                            group_id=group.ljust(_ID_BYTES, b"\0"),
                            group_sequence=number | (
                                LAST_IN_GROUP if facts.get("last_in_group") else 0))
    return Opened(handle, Stored(descriptor, properties, body, ""), str(path), None, body,
                  check_priority(int(facts.get("priority", PRIORITY_NORMAL))),
                  bool(facts["persistent"]), str(facts["reply_to"]))


def _bytes_of(path: Path, bytes_max: int) -> bytes:
    try:
        return read_file(path.absolute(), bytes_max)
    except FileNotFoundError as error:
        raise InputUnreadable(file=escape(str(path)), reason="there is no such file") from error
    except DiskError as error:
        raise InputUnreadable(file=escape(str(path)), reason=str(error.fields["reason"])) from error
    except ValueError as error:
        raise InputUnreadable(file=escape(str(path)), reason=escape(str(error))) from error
