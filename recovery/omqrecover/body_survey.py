"""Bodies: is the payload of every live message where its record says, and as it was submitted?

Payloads are read where they lie and compared with the CRC that the submitter computed; a container
is read too. Then the other way round: containers that no message names, store files that are not
ours or are damaged.

A message on no queue waits for idel.server, which removes the container before the record: there
nothing is found about it. Containers are called orphans only when every message is known.

Errors: DiskError.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from omq.base.arrays import Rows
from omq.base.checksum import crc32c
from omq.base.errors import BadItemRef, BodyUnavailable, DiskError
from omq.base.paths import SpoolPaths
from omq.core.judge.cases import Case, Source
from omq.core.judge.finding import Found
from omq.format import message as message_format
from omq.format.findings import Finding, Kind
from omq.format.frame_rules import mask
from omq.format.location import LocationKind, location, number_of
from omq.format.pool import RecordFlag
from omq.storage import durable
from omq.storage.containers import open_item
from omq.storage.journal import file_name as journal_name
from omq.storage.journal_scan import Block
from omq.storage.payloads import PayloadReader, payload_paths
from omq.storage.recycled_containers import is_spare
from omq.storage.store import file_name, scan_store_file, store_numbers

REPORT_EVERY: Final = 50_000
_CHUNK: Final = 1 << 20
_MAKES: Final = mask(lambda rule: rule.makes)


@dataclass(slots=True)
class BodyState:
    """What was read."""

    found: list[Found] = field(default_factory=list)
    refs: set[str] = field(default_factory=set)  # containers that live messages name
    bodies: int = 0
    containers: int = 0
    damaged: dict[int, int] = field(default_factory=dict)  # QPoolId -> CRC wanted
    lines: list[dict[str, Any]] = field(default_factory=list)


def read_bodies(paths: SpoolPaths, live: Rows, progress: Callable[[str], None]) -> BodyState:
    """The payloads of the live messages (columns as pool_survey.COLUMNS), in the order in which
    they lie in their files."""
    state = BodyState()
    reader = PayloadReader(paths)
    names = ("qpool", "location", "offset", "length", "body_crc", "flags", "parts", "size")
    ordered = live[np.lexsort((live["offset"], live["location"]))]
    columns = [ordered[name].tolist() for name in names]
    try:
        for done, row in enumerate(zip(*columns, strict=True)):
            if done % REPORT_EVERY == 0 and done:
                progress(f"reading bodies: {done} of {len(ordered)}")
            _one(paths, reader, row, state)
    finally:
        reader.close()
    return state


def _one(paths: SpoolPaths, reader: PayloadReader, row: tuple[int, ...], state: BodyState) -> None:
    qpool, word, offset, length, crc, flags, parts, _ = row
    state.bodies += 1
    try:
        data = reader.read(word, offset, length, qpool)
        reason = "" if crc32c(data) == crc else f"payload of message {qpool} fails its CRC"
    except BodyUnavailable as error:
        data, reason = b"", str(error)
    if reason:
        where = payload_paths(paths, word)
        name = f"{where[0].parent.name}/{where[0].name}" if where else f"location {word:#010x}"
        state.damaged[qpool] = crc
        state.found.append(Found(Case.BODY_DAMAGED, name, reason, offset, length, -1, qpool))
    elif flags & RecordFlag.CONTAINER:
        _container(paths, qpool, data, parts, state)


def _container(paths: SpoolPaths, qpool: int, payload: bytes, parts: int, state: BodyState) -> None:
    decoded = message_format.decode(payload)
    if isinstance(decoded, Finding):
        state.found.append(Found(Case.BODY_DAMAGED, f"message {qpool}", decoded.reason,
                                 qpool=qpool))
        return
    ref = payload[decoded.body_at :].decode("ascii", "replace")
    state.refs.add(ref)
    state.containers += 1
    reason = _container_reason(paths, ref, decoded.descriptor)
    if reason and parts:
        state.found.append(Found(Case.CONTAINER_DAMAGED, ref.removeprefix("~/"),
                                 f"message {qpool}: {reason}", qpool=qpool))


def _container_reason(paths: SpoolPaths, ref: str, wanted: message_format.Descriptor) -> str:
    """What is wrong with a container; '' when it is as it was submitted."""
    try:
        file = open_item(paths, ref)
    except FileNotFoundError:
        return "it is missing"
    except BadItemRef as error:
        return str(error)
    try:
        size = file.size()
        if size != wanted.body:
            return f"it has {size} bytes instead of {wanted.body}"
        crc = 0
        for at in range(0, size, _CHUNK):
            crc = crc32c(file.read(min(_CHUNK, size - at), at), crc)
    except DiskError as error:
        return str(error)
    finally:
        file.close()
    return "" if crc == wanted.body_crc else "it fails its CRC"


def find_copies(blocks: Iterator[Block], state: BodyState) -> dict[int, tuple[int, int]]:
    """Where history has the payload of each damaged body, whole: QPoolId -> word, offset."""
    wanted = np.array(sorted(state.damaged), dtype="<u8")
    out: dict[int, tuple[int, int]] = {}
    for block in blocks:
        puts = np.flatnonzero(_MAKES[block.frames["type"]]
                              & np.isin(block.frames["qpool"], wanted))
        for frame in block.frames[puts]:
            qpool, at = int(frame["qpool"]), int(frame["offset"])
            if crc32c(block.payload(at, int(frame["length"]))) == state.damaged[qpool]:
                word = location(LocationKind.JOURNAL, block.number)
                out[qpool] = (word, block.payload_at + at)
    return out


def with_copies(found: list[Found], copies: dict[int, tuple[int, int]], coming: set[str]
                ) -> list[Found]:
    """Damaged bodies of which there is a copy, marked so. One that lies whole in a journal file
    which another repair brings to its place (`coming`) is not a finding."""
    out = []
    for each in found:
        copy = copies.get(each.qpool) if each.case is Case.BODY_DAMAGED else None
        if copy is not None and each.file in coming and each.offset == copy[1] \
                and each.file == _journal_name(copy[0]):
            continue
        if copy is not None:
            fields = each.fields() | {"source": Source.WHOLE.name,
                                      "target": f"{copy[0]}:{copy[1]}"}
            each = Found.from_fields(fields)
        out.append(each)
    return out


def _journal_name(word: int) -> str:
    return f"journal/{journal_name(number_of(word))}"


# files


def read_stores(paths: SpoolPaths, uuid: bytes, live: Rows, progress: Callable[[str], None]
                ) -> tuple[list[Found], list[dict[str, Any]]]:
    """Every store file: its entries, what of them is live, what is damaged."""
    found, lines = [], []
    for number in store_numbers(paths):
        progress(f"reading store/{file_name(number)}")
        entries, findings = scan_store_file(paths, number, uuid)
        used = int(np.count_nonzero(live["location"] == location(LocationKind.STORE, number)))
        lines.append({"part": "store file", "name": f"store/{file_name(number)}",
                      "entries": len(entries), "live": used})
        last = max((entry.end for entry in entries), default=0)
        for finding in findings:
            case = {Kind.FOREIGN: Case.STORE_FOREIGN, Kind.NEWER: Case.NEWER}.get(
                finding.kind, Case.STORE_DAMAGED)
            # After the last entry it is an append that was cut, which no location names.
            if case is not Case.STORE_DAMAGED or finding.offset < last:
                found.append(Found.of(case, "store", finding))
    return found, lines


def container_files(paths: SpoolPaths) -> Iterator[tuple[str, Path]]:
    """Item reference and path of every file under data/."""
    for directory in durable.list_directory(paths.data):
        for name in durable.list_directory(paths.data / directory):
            path = paths.data / directory / name
            status = durable.status(path)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                yield f"~/data/{directory}/{name}", path


def orphans(paths: SpoolPaths, refs: set[str]) -> tuple[list[Found], int]:
    """Containers that no message names, but for spares of an instance that was killed, which the
    next idel.server removes; how many containers there are."""
    found, count = [], 0
    for ref, _ in container_files(paths):
        count += 1
        if ref not in refs and not is_spare(paths, ref):
            found.append(Found(Case.CONTAINER_ORPHAN, ref.removeprefix("~/"),
                               "no message names it"))
    return found, count
