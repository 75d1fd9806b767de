"""Bodies out of a dead spool: one file a body, one with everything else that is known of it.

    DIR/QPOOL.body    the body, byte for byte
    DIR/QPOOL.json    id, queues, priorities, states, times, properties, damage

What counts is what the next start would see: pool and journal, nothing is written in the spool. A
body that is damaged or gone is reported and leaves only its .json.

Errors: CANT_CREATE for the directory (FileNotWritten); DiskError of the spool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omq.base import clock
from omq.base.checksum import crc32c
from omq.base.errors import BodyUnavailable, DiskError, FileNotWritten, OmqError
from omq.base.paths import SpoolPaths
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.pool import Message, RecordFlag
from omq.storage import durable
from omq.storage.containers import read_item
from omq.storage.files import write_new_file
from omq.storage.payloads import PayloadReader
from omq.storage.pool_reader import PoolReader
from omqtools.omqrecover.conditions import Condition
from omqtools.omqrecover.survey import Survey

SPECIAL = {1: "IDEL", 2: "POISON"}


@dataclass(slots=True)
class Extracted:
    """How many messages were written, and the reasons of those whose body was not."""

    messages: int
    failed: list[str]


def messages_of(made: Survey) -> Iterator[Message]:
    """Every live message, by QPoolId."""
    source = made.redo.pool
    for qpool, file, record in sorted(made.live[["qpool", "file", "record"]].tolist()):
        changed = qpool in made.redo.dirty or qpool in made.redo.images
        found = made.redo.find(qpool, file, record) if changed else source.read_record(file, record)
        if isinstance(found, Message):
            yield found
    if isinstance(source, PoolReader):  # the survey closed it; reading opened it again
        source.close()


def extract(made: Survey, conditions: list[Condition], target: Path) -> Extracted:
    """Write the messages for which all conditions hold."""
    try:
        durable.make_directory(target)
    except OmqError as error:
        raise FileNotWritten(path=target, reason=str(error)) from error
    result = Extracted(0, [])
    reader = PayloadReader(made.paths)
    try:
        for message in messages_of(made):
            _one(made, reader, message, conditions, target, result)
    finally:
        reader.close()
    return result


def _one(made: Survey, reader: PayloadReader, message: Message, conditions: list[Condition],
         target: Path, result: Extracted) -> None:
    fields = _fields(made, message)
    payload, reason = _payload(reader, message)
    properties: dict[str, str] = {}
    body = b""
    if payload:
        body, properties, reason = _decoded(made.paths, message, payload, reason)
    shown = fields | {f"property.{name}": value for name, value in properties.items()}
    if not all(condition.holds(shown) for condition in conditions):
        return
    record = {**fields, "time": clock.iso_time(message.time_ns), "properties": properties,
              "body": f"{message.qpool}.body" if not reason else None}
    if reason:
        record["damage"] = reason
        result.failed.append(f"message {message.qpool}: {reason}")
    else:
        write_new_file(target / f"{message.qpool}.body", [body]).close()
    text = json.dumps(record, sort_keys=True, indent=1) + "\n"
    write_new_file(target / f"{message.qpool}.json", [text.encode()]).close()
    result.messages += 1


def _fields(made: Survey, m: Message) -> dict[str, Any]:
    names = made.redo.queues | SPECIAL
    given = m.flags & RecordFlag.HAS_ID
    identity = m.message_id if given else message_format.derived_id(made.uuid, m.qpool)
    parts = m.parts
    return {
        "qpool": m.qpool, "id": identity.hex(), "lsn": m.lsn, "size": m.size, "time": m.time_ns,
        "correlation": m.correlation_id.hex() if any(m.correlation_id) else None,
        "queue": [names.get(p.queue, f"queue {p.queue}").lower() for p in parts] or ["idel"],
        "priority": [p.priority for p in parts], "state": [p.state.name.lower() for p in parts],
        "attempts": [p.attempts for p in parts]}


def _payload(reader: PayloadReader, m: Message) -> tuple[bytes, str]:
    """The payload, and what is wrong with it."""
    try:
        data = reader.read(m.location, m.offset, m.length, m.qpool)
    except BodyUnavailable as error:
        return b"", str(error)
    return data, "" if crc32c(data) == m.crc else "its payload fails its CRC"


def _decoded(paths: SpoolPaths, m: Message, payload: bytes, reason: str
             ) -> tuple[bytes, dict[str, str], str]:
    """Body, properties, and what is wrong."""
    found = message_format.decode(payload)
    if isinstance(found, Finding):
        return b"", {}, reason or found.reason
    properties = message_format.decode_properties(payload[found.properties_at : found.body_at])
    named = {} if isinstance(properties, Finding) else properties
    body = payload[found.body_at :]
    if reason or not m.flags & RecordFlag.CONTAINER:
        return body, named, reason
    try:
        body = read_item(paths, body.decode("ascii", "replace"), m.size, m.qpool)
    except (BodyUnavailable, DiskError, OmqError) as error:
        return b"", named, str(error)
    return body, named, "" if crc32c(body) == found.descriptor.body_crc else "it fails its CRC"
