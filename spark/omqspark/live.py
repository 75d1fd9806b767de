"""The events of an instance while it runs: its archive files, what waits to be archived, and the
journal that is being written, as one sequence. Nothing is written, no lock is taken.

A journal file of number N is in one of three places: journal/N.jnl while it is written or not yet
retired, archive/N.jnl until the archiver has been there, archive/N.oma from then on. It keeps its
LSNs, so a `Position` holds over these moves: all frames of files up to `file` with an LSN up to
`lsn` have come out; `at` saves the search in a journal file and may be 0.

Invariants:
1. What comes out is durable. Of the newest file that is up to the manager's own word in the index;
   where no index can be read, up to what later blocks say, or all if the journal ends in order. A
   file with another after it is complete: that one says where it ends.
2. Each LSN comes out once, ascending. What a recovery declared void never does.
3. Damage below the durable LSN comes out as rows with `bad`, as from an archive. So does a file
   that is missing between two that are there: what moves is in one of its places at any instant, so
   that file is gone (`archive = delete`, or an operator), and nobody would wait for it in vain.

A file may move while it is looked at: it is looked for again, in all three places.
Errors: NoArchive (nothing there), ArchivePruned (it was removed before it was read), OffsetUnknown
(the position is of another spool), SpoolMissing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from omq.base.errors import ArchivePruned, ManagerUnavailable, NoArchive, OffsetUnknown
from omq.base.paths import SpoolPaths
from omq.core.index.view import IndexView
from omq.format.archive import HEADER, ArchiveHeader, decode_header
from omq.format.findings import Finding, Kind
from omq.format.frame_rules import BY_NUMBER
from omq.format.journal import FILE_HEADER, FRAME, FileHeader, decode_file_header
from omq.storage.archive import archive_name
from omq.storage.archive_names import names_and_parts
from omq.storage.files import read_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_follower import JournalFollower
from omq.storage.journal_reader import load_file
from omq.storage.journal_scan import Block, FileScan
from omq.storage.spool import open_spool
from omqtools.omqspark import columns, decode, plan
from omqtools.omqspark.decode import Filter
from omqtools.omqspark.stream_waits import Waiting, missing_text

LOOKS: Final = 3  # for a file that has just moved
READ_BYTES: Final = 64 << 20  # of the live journal in one look
BATCH_FRAMES: Final = 64 * 1024
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Position:
    """See the module."""

    file: int
    at: int
    lsn: int

    def encode(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Piece:
    """Frames of one file with LSNs above `after` up to `to`, both of them ends of blocks; `at`:
    where to begin in a journal file; up to `known` all must be there. `gap`: the files that are
    missing in front of it, first and last number; none: zeros."""

    number: int
    at: int
    after: int
    to: int
    known: int
    gap: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a file says. `last_lsn`: 0 for a journal file."""

    follows_number: int
    follows_lsn: int
    last_lsn: int


class Live:
    """See the module. Holds plain values only, so it travels to workers."""

    def __init__(self, spool: str) -> None:
        found = open_spool(Path(spool))
        self.root, self.uuid = found.paths.root, found.uuid

    @property
    def paths(self) -> SpoolPaths:
        return SpoolPaths(self.root)

    def numbers(self) -> list[int]:
        """Of the files there are, wherever they are."""
        paths = self.paths
        return sorted({*numbers_in(paths.journal), *numbers_in(paths.archive),
                       *numbers_in(paths.archive, ".oma")})

    def begin(self) -> Position:
        """Before the first frame that is there. NoArchive."""
        numbers = self.numbers()
        if not numbers:
            raise NoArchive(path=self.root)
        return Position(numbers[0], 0, 0)

    def end(self, start: Position, *, files_max: int = 0, up_to: int = 1 << 62,
            wait: Waiting | None = None) -> Position:
        """How far one can read from `start`: at most `files_max` files (0: all there are), not
        above the LSN `up_to`. `wait`: not over a missing file; it hears of that. ArchivePruned,
        OffsetUnknown."""
        return self._looked(start.file, lambda: self._end(start, files_max or 1 << 40, up_to, wait))

    def _end(self, start: Position, files_max: int, up_to: int, wait: Waiting | None) -> Position:
        numbers = self._from(start)
        position = start if numbers[0] == start.file else Position(numbers[0], 0, start.lsn)
        for number, following in pairwise(numbers):
            head = self._read_head(following)
            if not files_max or (head and head.follows_lsn > up_to):
                return position
            before = head.follows_number if head else following - 1
            if before != number and wait is not None:
                wait.tell(number + 1, before, following)
                return position
            ends = head.follows_lsn if head else 0  # damage: the reader of that file says so
            position = Position(following, 0, max(position.lsn, ends))
            files_max -= 1
        return self._newest(position, up_to) if files_max else position

    def _from(self, start: Position) -> list[int]:
        """The files there are from a position on, at least one. That of the position itself may be
        gone when all of it has come out. ArchivePruned, OffsetUnknown."""
        there = self.numbers()
        numbers = [number for number in there if number >= start.file]
        if not numbers:
            raise OffsetUnknown(number=start.file, path=self.root, newest=max(there, default=0))
        if numbers[0] != start.file:
            head = self._read_head(numbers[0])
            if head is None or head.follows_lsn > start.lsn:
                raise ArchivePruned(number=start.file, oldest=numbers[0])
        return numbers

    def _newest(self, position: Position, up_to: int) -> Position:
        """In the file that no other follows yet."""
        if (self.paths.archive / archive_name(position.file)).exists():
            head = self._read_head(position.file)
            return Position(position.file, 0, max(position.lsn, head.last_lsn if head else 0))
        if not (self.paths.journal / file_name(position.file)).exists():
            return position  # it waits for the archiver; then its end is known
        durable = min(up_to, self.durable(position))
        follower = JournalFollower(self.paths, self.uuid, position.file, position.at, position.lsn)
        try:
            while follower.read(durable, READ_BYTES):
                pass
            return Position(follower.number, follower.offset, max(position.lsn, follower.last_lsn))
        finally:
            follower.close()

    def durable(self, position: Position) -> int:
        """The LSN up to which the newest file is on the disk for good."""
        try:
            with IndexView.attach(self.paths) as view:
                return view.counters()["durable_lsn"]
        except ManagerUnavailable:
            pass  # nobody runs, or this user may not look: the journal itself says less
        scan = FileScan(load_file(self.paths.journal / file_name(position.file)), position.file,
                        self.uuid, start=position.at, after=position.lsn)
        last = deque(scan, 1)
        ended = bool(last) and BY_NUMBER[int(last[0].frames["type"][-1])].stops
        return last[0].header.last_lsn if ended else scan.known

    def _read_head(self, number: int) -> Head | None:
        """None: it is damaged, or not ours."""
        archived = self.paths.archive / archive_name(number)
        if archived.exists():
            found = decode_header(read_file(archived, HEADER.size))
            if isinstance(found, ArchiveHeader) and (found.uuid, found.number) == (
                    self.uuid, number):
                return Head(found.follows_number, found.follows_lsn, found.last_lsn)
            return None
        header = decode_file_header(read_file(self._journal(number), FILE_HEADER.size))
        if isinstance(header, FileHeader) and (header.uuid, header.number) == (self.uuid, number):
            return Head(header.follows_number, header.follows_lsn, 0)
        return None

    def _journal(self, number: int) -> Path:
        kept = self.paths.archive / file_name(number)
        return kept if kept.exists() else self.paths.journal / file_name(number)

    def _looked(self, number: int, look: Callable[[], Result]) -> Result:
        """Again, if a file has moved meanwhile. ArchivePruned: one is nowhere (`number`, if the
        system does not say which)."""
        for _ in range(LOOKS):
            try:
                return look()
            except FileNotFoundError as error:
                name = Path(str(error.filename)).stem
                number = int(name) if name.isdigit() else number
        raise self._gone(number)

    def _gone(self, number: int) -> ArchivePruned:
        return ArchivePruned(number=number, oldest=min(self.numbers(), default=0))

    def pieces(self, start: Position, end: Position) -> list[Piece]:
        """What is between two positions, by file. ArchivePruned, OffsetUnknown."""
        return self._looked(start.file, lambda: self._pieces(start, end))

    def _pieces(self, start: Position, end: Position) -> list[Piece]:
        numbers = [number for number in self._from(start) if number <= end.file]
        heads = {number: self._read_head(number) for number in numbers[1:]}
        out, to, known = [], end.lsn, end.lsn
        for number, earlier in zip(reversed(numbers), (*numbers[-2::-1], None), strict=True):
            head = heads.get(number)
            before = head.follows_number if head else number - 1
            gap = (earlier + 1, before) if earlier is not None and earlier != before else (0, 0)
            if to > start.lsn:
                out.append(Piece(number, start.at if number == start.file else 0, start.lsn, to,
                                 known, gap))
            # With a gap nothing says how far the one before it goes.
            known = head.follows_lsn if head and gap == (0, 0) else 0
            to = head.follows_lsn if head else max(to, end.lsn)
        return out[::-1]

    def batches(self, piece: Piece, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The events of a piece, from wherever its file is now. ArchivePruned."""
        if piece.gap != (0, 0):
            told = Finding(Kind.GAP, missing_text(*piece.gap), file_name(piece.gap[0]))
            yield columns.bad_batch("events", names, [plan.bad_text(told)], -1)
        archived = self.paths.archive / archive_name(piece.number)
        if not archived.exists():
            try:
                yield from self._of_journal(piece, names)
                return
            except FileNotFoundError as error:
                if not archived.exists():
                    raise self._gone(piece.number) from error
        yield from self._of_archive(archived, piece, names)

    def _of_archive(self, path: Path, piece: Piece, names: list[str]) -> Iterator[pa.RecordBatch]:
        listed = [plan.Listed(piece.number, str(path), path.stat().st_size)]
        filters = [Filter("lsn", ">", piece.after), Filter("lsn", "<=", piece.to)]
        for splits in plan.splits(plan.heads(str(path.parent), listed, self.uuid), 1 << 40):
            yield from decode.event_batches(splits, names, filters, str(path.parent))

    def _of_journal(self, piece: Piece, names: list[str]) -> Iterator[pa.RecordBatch]:
        path = self._journal(piece.number)
        scan = FileScan(load_file(path), piece.number, self.uuid, name=path.name, start=piece.at,
                        after=piece.after if piece.at else 0, known=piece.known, limit=piece.to)
        blocks, count = [], 0
        for block in scan:
            if block.header.last_lsn > piece.after:
                blocks.append(block)
                count += block.header.count
            if count >= BATCH_FRAMES:
                yield from self._rows(scan, blocks, piece, names)
                blocks, count = [], 0
        yield from self._rows(scan, blocks, piece, names)
        bad = [*scan.findings]
        if scan.end is not None and scan.end.kind in (Kind.FOREIGN, Kind.NEWER):
            bad.append(scan.end)
        if bad:
            yield columns.bad_batch("events", names, [plan.bad_text(f) for f in bad], piece.number)

    def _rows(self, scan: FileScan, blocks: Sequence[Block], piece: Piece, names: list[str]
              ) -> Iterator[pa.RecordBatch]:
        if not blocks:
            return
        found: list[Finding] = []
        texts, parts = names_and_parts(list(blocks), found)
        frames = FRAME.joined([block.frames for block in blocks])
        fields: dict[str, Any] = {name: frames[name].astype(width)
                                  for name, width in columns.fields_of(names).items()}
        epoch = scan.header.epoch if scan.header else 0
        yield columns.event_batch(fields, len(frames), columns.Beside(parts, texts), names,
                                  piece.number, epoch)
        if found:
            yield columns.bad_batch("events", names, [plan.bad_text(f) for f in found],
                                    piece.number)

