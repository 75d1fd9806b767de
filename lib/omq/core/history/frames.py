"""What the journal and its archive say of messages: frames, in order, with the names they need.

Files are read one after another, retired and archived ones first, two in memory; a frame is looked
at by numpy before anything is made of it, so a year of files costs reading them and little more.
Names of queues are at the start of each file, those of readers where they registered.

Invariants: 1. nothing is written; 2. blocks that recovery declared void do not come out; 3. what
cannot be read is in `findings`, and the rest comes out.
Errors: SpoolMissing, SpoolOwner, DiskError for a file that cannot be opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from omq.base.arrays import Vector, distinct
from omq.base.errors import DiskError
from omq.base.names import escape, id_bytes, message_id_text
from omq.base.paths import SpoolPaths
from omq.core.engine.state import SPECIAL_QUEUES
from omq.core.redo.changes import Unusable, checked, targets
from omq.format.archive import BODIES_MAGIC, NameKind, Section
from omq.format.findings import Finding
from omq.format.frame_rules import BY_NUMBER, RULES, About, Comes, Payload, Rule, mask, parts_at
from omq.format.journal import FILE_HEADER, At, FileHeader, FrameType, decode_file_header
from omq.format.message import (
    DESCRIPTOR,
    LAST_IN_GROUP,
    NO_ID,
    PART,
    Descriptor,
    Part,
    group_said,
    pack_parts,
)
from omq.storage.archive import BODIES_SUFFIX, FRAMES_SUFFIX, archive_name
from omq.storage.archive_file import ArchiveFile, open_archive, rebuild, rebuild_without_bodies
from omq.storage.archive_names import texts
from omq.storage.files import File, open_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import load_file
from omq.storage.journal_scan import Block, FileScan
from omq.storage.spool import open_spool

Choose = Callable[[Vector], Vector]
_NAMED: Final = mask(lambda rule: rule.payload in (Payload.NAME, Payload.ORDER))
_ORDERS: Final = mask(lambda rule: rule.about is About.OPERATOR)
_MAKES: Final = mask(lambda rule: rule.makes)
_LEAVES: Final = mask(lambda rule: rule.leaves)
_TEXT_PARTS: Final = 1024  # a payload that is a text is not longer than so many queue parts
_KINDS: Final = {int(kind): kind for kind in FrameType}


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's order, from its OPERATOR frame."""

    lsn: int
    time_ns: int
    uid: int
    pid: int
    command: str
    reason: str
    things: str = "messages"  # what its frame counts
    done: int | None = None  # messages that its order changed; None: it orders none


@dataclass(frozen=True, slots=True)
class Happening:
    """One frame, with names. Times are wall clock ns."""

    kind: FrameType
    lsn: int
    time_ns: int
    qpool: int
    queue: str
    flags: int
    priority: int
    size: int
    attempt: int
    reason: int
    argument: int
    lease: int
    pid: int
    uid: int
    client: str
    targets: tuple[str, ...] = ()
    text: str = ""  # a reason, or the evidence of a POISON
    parent: int = 0  # QPoolId of the message whose move made this one
    group: str = ""  # of a birth: the group that it belongs to, as text
    group_sequence: int = 0  # its number in it, 0: none
    last_in_group: bool = False
    command: Command | None = None
    file: str = ""

    @property
    def rule(self) -> Rule:
        """What such a frame means."""
        return RULES[self.kind]


@dataclass(slots=True)
class History:
    """The files of one spool. `read` may be called again."""

    paths: SpoolPaths
    progress: Callable[[int], None] = lambda done: None  # told how many bytes of files were read
    findings: list[Finding] = field(default_factory=list)
    queues: dict[int, str] = field(default_factory=dict)
    clients: dict[int, str] = field(default_factory=dict)
    commands: dict[int, Command] = field(default_factory=dict)  # of the block under way
    _texts: dict[int, bytes] = field(default_factory=dict)  # of the archive file under way

    def read(self, choose: Choose) -> Iterator[Happening]:
        """The frames that `choose` picks: it gets frame headers and gives a mask."""
        for block in self.learned():
            for row in np.flatnonzero(choose(block.frames)).tolist():
                found = self._happening(block, block.frames[row].item())
                if found is not None:
                    yield found

    def learned(self) -> Iterator[Block]:
        """The blocks, for who counts by columns: the names that each brings are known."""
        self.findings.clear()
        self.queues, epoch = dict(SPECIAL_QUEUES), 0
        for block in self.blocks():
            if block.header.epoch != epoch:  # numbers of clients begin anew with each manager
                epoch, self.clients = block.header.epoch, {}
            named = _NAMED[block.frames["type"]]
            if named.any():
                self._learn(block, np.flatnonzero(named))
            yield block
            self.commands.clear()

    def targets_of(self, block: Block, row: int) -> tuple[str, ...]:
        """The queues that the frame in this row of a block puts its message on."""
        found = self._happening(block, block.frames[row].item())
        own = (found.queue,) if found and found.rule.makes and found.queue else ()
        return (found.targets if found else ()) or own

    def queue_name(self, number: int) -> str:
        """The name of a queue, `#n` where none was told; 0: none."""
        return self.queues.get(number, f"#{number}") if number else ""

    def of_message(self, qpool: int) -> Iterator[Happening]:
        """Everything that happened to one message."""
        return self.read(lambda frames: frames["qpool"] == qpool)

    def of_family(self, known: set[int], key: int = 0) -> Iterator[Happening]:
        """Everything that happened to these messages, to those put with an id of this hash
        (`put_with_id`; 0: none), and to all that moves and units of work made of them, of those,
        and so on. `known` grows as they are found; one pass, as what is made stands behind what it
        is made of."""

        def choose(frames: Vector) -> Vector:
            if key:
                known.update(frames["qpool"][put_with_id(frames, key)].tolist())
            while True:
                mine = np.isin(frames["qpool"], list(known))
                units = frames["unit"][mine & _LEAVES[frames["type"]]]
                born = (_MAKES[frames["type"]] & (frames["unit"] != 0)
                        & np.isin(frames["unit"], units))
                new = set(frames["qpool"][born].tolist()) - known
                if not new:
                    return np.asarray(mine)
                known.update(new)

        return self.read(choose)

    def orders(self) -> Iterator[Happening]:
        """The operator commands themselves."""
        return self.read(lambda frames: _ORDERS[frames["type"]])

    def blocks(self) -> Iterator[Block]:
        """All valid blocks that are not void, file by file; their payloads by `_payload`."""
        uuid = open_spool(self.paths.root).uuid
        numbers = sorted({*numbers_in(self.paths.archive), *numbers_in(self.paths.journal),
                          *archived_numbers(self.paths)})
        loaded = self._load(numbers[0]) if numbers else None
        read = 0
        for number, following in zip(numbers, [*numbers[1:], 0], strict=True):
            now, loaded = loaded, self._load(following) if following else None
            if now is None:
                continue
            read += len(now.data)
            self.progress(read)
            limit = None
            if loaded is not None:
                header = decode_file_header(loaded.data[: FILE_HEADER.size])
                limit = header.follows_lsn if isinstance(header, FileHeader) else None
            scan = FileScan(now.data, number, uuid, name=file_name(number), limit=limit)
            self._texts = now.payloads
            yield from scan
            self.findings += scan.findings

    def _load(self, number: int) -> ArchivedFile | None:
        """A file of the journal, retired or archived."""
        for folder in (self.paths.journal, self.paths.archive):
            try:
                return ArchivedFile(load_file(folder / file_name(number)))
            except FileNotFoundError:
                continue
        found = read_archived(self.paths, number)
        if isinstance(found, Finding):
            self.findings.append(found)
            return None
        return found

    def _payload(self, block: Block, frame: tuple[Any, ...]) -> bytes:
        """A frame's payload; of an archive without bodies what was kept of it."""
        kept = self._texts.get(frame[At.LSN])
        if kept is None:
            return block.payload(frame[At.OFFSET], frame[At.LENGTH])
        at = parts_at(frame[At.TYPE], frame[At.FLAGS])
        return kept if at < 0 else kept[DESCRIPTOR.size - at :]

    def _learn(self, block: Block, rows: Vector) -> None:
        for row in rows.tolist():
            frame = block.frames[row].item()
            raw = self._payload(block, frame)
            about = BY_NUMBER[frame[At.TYPE]].about
            if about is About.QUEUE:
                self.queues[frame[At.QUEUE]] = escape(raw)
            elif about is About.READER:
                self.clients[frame[At.CLIENT]] = escape(raw)
            else:
                self.commands[frame[At.LSN]] = _command(frame, raw, _carried_out(block, frame))

    def _happening(self, block: Block, frame: tuple[Any, ...]) -> Happening | None:
        kind = _KINDS.get(frame[At.TYPE])
        if kind is None:
            return None
        rule = RULES[kind]
        raw = self._payload(block, frame)[: DESCRIPTOR.size + PART.size * max(
            frame[At.PARTS], 0 if rule.makes else _TEXT_PARTS)]  # a body is of no interest
        group, number = _group(rule, frame, raw)
        return Happening(
            kind=kind, lsn=frame[At.LSN], time_ns=frame[At.TIME], qpool=frame[At.QPOOL],
            queue=self.queue_name(frame[At.QUEUE]), flags=frame[At.FLAGS],
            priority=frame[At.PRIORITY], size=frame[At.SIZE], attempt=frame[At.ATTEMPT],
            reason=frame[At.REASON], argument=frame[At.ARGUMENT], lease=frame[At.LEASE],
            pid=frame[At.PID], uid=frame[At.UID], client=self.clients.get(frame[At.CLIENT], ""),
            targets=self._targets(rule, frame, raw),
            text=escape(raw, 4096) if rule.payload is Payload.TEXT else "",
            parent=_parent(block, frame) if rule.makes else 0,
            group=message_id_text(group) if any(group) else "",
            group_sequence=number & LAST_IN_GROUP - 1, last_in_group=bool(number & LAST_IN_GROUP),
            command=self.commands.get(frame[At.LSN] if rule.about is About.OPERATOR
                                      else frame[At.UNIT]),
            file=file_name(block.number))

    def _targets(self, rule: Rule, frame: tuple[Any, ...], raw: bytes) -> tuple[str, ...]:
        if rule.comes is Comes.TARGET:
            return (self.queue_name(frame[At.TARGET]),) if frame[At.TARGET] else ()
        at = parts_at(frame[At.TYPE], frame[At.FLAGS])
        if rule.makes and len(raw) >= at + frame[At.PARTS] * PART.size:
            ends = range(at, at + frame[At.PARTS] * PART.size, PART.size)
            return tuple(self.queue_name(PART.unpack_from(raw, at)[0]) for at in ends)
        if rule.payload is not Payload.QUEUES:
            return ()
        try:
            return tuple(self.queue_name(part[0]) for part in targets(frame, checked(frame, raw)))
        except Unusable:
            return ("(damaged)",)


def put_with_id(frames: Vector, key: int | Vector) -> Vector:
    """Mask of the births of messages with one of these keys (id_hash of their given id)."""
    return np.asarray(_MAKES[frames["type"]] & np.isin(frames["lease"], key))


def _command(frame: tuple[Any, ...], raw: bytes, done: int | None) -> Command:
    things = ""
    try:
        words = json.loads(raw)
        command, reason = str(words["command"]), str(words["reason"])
        things = str(words.get("things", ""))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        command, reason = escape(raw), ""
    return Command(frame[At.LSN], frame[At.TIME], frame[At.UID], frame[At.PID],
                   escape(command, 512), escape(reason, 512), escape(things, 32) or "messages",
                   done)


def _carried_out(block: Block, frame: tuple[Any, ...]) -> int | None:
    """How many messages an order changed: its frames have it as `unit`, all in one block
    (core.engine.operate). None: it has no unit of its own, as what is only noted."""
    if frame[At.UNIT] != frame[At.LSN]:
        return None
    mine = (block.frames["unit"] == frame[At.LSN]) & (block.frames["qpool"] != 0)
    return len(distinct(block.frames["qpool"][mine]))


def _group(rule: Rule, frame: tuple[Any, ...], raw: bytes) -> tuple[bytes, int]:
    """Group id and number of a birth; nothing of other frames, and where the message is away."""
    if (not rule.makes or len(raw) < DESCRIPTOR.size
            or parts_at(frame[At.TYPE], frame[At.FLAGS]) != DESCRIPTOR.size):
        return NO_ID, 0
    return group_said(raw)


def _parent(block: Block, frame: tuple[Any, ...]) -> int:
    """The message whose move made this one, or the first that its unit of work took (0: it took
    none): a unit of work is in one block."""
    unit = frame[At.UNIT]
    if not unit:
        return 0
    rows = np.flatnonzero((block.frames["lsn"] == unit) & _LEAVES[block.frames["type"]])
    return int(block.frames[int(rows[0])]["qpool"]) if len(rows) else 0


_NAMES: Final = (NameKind.QUEUE, NameKind.READER, NameKind.TEXT)


@dataclass(slots=True)
class ArchivedFile:
    """The bytes of a journal file, and payloads by LSN where its own are gone."""

    data: bytes | memoryview
    payloads: dict[int, bytes] = field(default_factory=dict)


def archived_numbers(paths: SpoolPaths) -> list[int]:
    """Numbers of the archive files there are."""
    found = [path.stem for path in paths.archive.glob(f"*{FRAMES_SUFFIX}")]
    return sorted(int(stem) for stem in found if len(stem) == 10 and stem.isdigit())


def read_archived(paths: SpoolPaths, number: int) -> ArchivedFile | Finding | None:
    """A journal file back out of its archive, for tools; also when its bodies were dropped. Without
    the bodies the payloads are zeros: names, texts, groups and queues then come from the rows that
    the archiver took out of them (`texts`: LSN -> payload), so a history can be told all the same.
    What cannot be read is a Finding, None when there is no archive file."""
    name = archive_name(number)
    try:
        frames = open_file(paths.archive / name)
    except (FileNotFoundError, DiskError):
        return None
    bodies = _open(paths, number)
    try:
        oma = open_archive(frames, name)
        if isinstance(oma, Finding):
            return oma
        omb = None
        if bodies is not None:
            opened = open_archive(bodies, archive_name(number, BODIES_SUFFIX), BODIES_MAGIC)
            omb = None if isinstance(opened, Finding) else opened
        whole = rebuild(oma, omb)
        if not isinstance(whole, Finding):
            return ArchivedFile(whole)
        oma.findings.clear()
        data = rebuild_without_bodies(oma)
        return data if isinstance(data, Finding) else ArchivedFile(data, _payloads(oma))
    finally:
        frames.close()
        if bodies is not None:
            bodies.close()


def _open(paths: SpoolPaths, number: int) -> File | None:
    try:
        return open_file(paths.archive / archive_name(number, BODIES_SUFFIX))
    except (FileNotFoundError, DiskError):
        return None


def _payloads(oma: ArchiveFile) -> dict[int, bytes]:
    names = oma.rows(Section.NAMES)
    found = {lsn: text.encode() for kind in _NAMES
             for (lsn, _), text in texts(names, kind).items()}
    parts: dict[int, list[Part]] = {}
    for row in oma.rows(Section.PARTS):
        parts.setdefault(int(row["lsn"]), []).append(
            Part(int(row["queue"]), int(row["priority"]), 0, int(row["until"])))
    groups = {lsn: (id_bytes(text) or b"", number)
              for (lsn, number), text in texts(names, NameKind.GROUP).items()}
    for lsn in parts.keys() | groups.keys():
        group, number = groups.get(lsn, (b"", 0))
        head = Descriptor(group_id=group, group_sequence=number)
        found[lsn] = head.encode() + pack_parts(parts.get(lsn, []))
    return found
