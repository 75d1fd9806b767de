"""The Message Pool's files as a checkpoint writes them (reading: omq.storage.pool_reader).

One writer (pool.writer, or recovery) at a time: whoever holds the lock of the pool.

A checkpoint writes in chunks. For each chunk: 1. the images go to the double-write file, synced;
2. they go in place; 3. EVERY pool file that was touched is synced. Only then may the caller move
the checkpoint in poolctrl.

Invariants:
1. No record is overwritten before its image is durable in the double-write file, and that file is
   not overwritten before the records of its last chunk are durable in place.
2. A pool file has a valid header and a durable name before the first record is written.
3. A cleared slot is 512 zeros. Trailing space is cut only after the last live record.
4. Each chunk carries what every pool file holds once it is in place (storage.pool_contents), so
   that a file that is absent, cut, older or another one's does not pass for what was written.

In the middle of a crash: before the end of 1 no record has changed; after it recovery writes the
whole chunk again. A full disk in 2 leaves the chunk pending: the next `write` finishes it first.

Errors: DiskError (latched), SpoolFull (the changes are to be written again; nothing is lost),
Damaged for a pool file that is not ours: SlotAllocator.exclude keeps messages out of it;
NeedsRepair at a start, where finishing a checkpoint would hide what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from omq.base import clock
from omq.base.errors import Damaged, NeedsRepair
from omq.base.paths import SpoolPaths
from omq.format.double_write import COUNT_MAX, FREE, DoubleWrite, Images, Standing
from omq.format.findings import Finding, Kind
from omq.format.pool import RECORD_BYTES, decode_file_header, encode_file_header
from omq.format.pool_contents import Content, Contents
from omq.format.poolctrl import PoolControl
from omq.storage import double_write, durable
from omq.storage.double_write import DoubleWriteFile
from omq.storage.files import File, write_new_file
from omq.storage.pool_contents import KeptContents
from omq.storage.pool_reader import PoolReader

DOUBLE_WRITE: Final = double_write.NAME
TAIL_RECORDS = 128  # read at once when looking for the end of what is used


class PoolFiles(PoolReader):
    """See the module. `findings` collects what recovery met in the double-write file, and files
    that turned out to be others than were written. `checkpoint`: generation of the poolctrl slot
    that makes what is written now count. `possible`: what the files may hold at a start, the
    likeliest first; empty where it is not known.

    `write`: False for tools that only look, and may have no right to do more."""

    def __init__(self, paths: SpoolPaths, uuid: bytes, *, write: bool = True) -> None:
        super().__init__(paths, uuid, write=write)
        self.findings: list[Finding] = []
        self.possible: list[Contents] = []
        self.checkpoint = 0
        self._checked: set[int] = set()  # files whose header says that they are ours
        self._kept = KeptContents()
        self._double_write = DoubleWriteFile(paths, uuid)
        self._pending: Images | None = None  # durable in the double-write file, not yet in place
        self._aside: frozenset[int] = frozenset()

    def _open_or_make(self, file: int) -> File:
        opened = self._open(file)
        if opened is not None and file not in self._checked and not opened.size():
            opened.close()  # emptied: like one that is gone, which `stage` has told
            opened = None
        if opened is None:
            header = encode_file_header(file, self._uuid, clock.wall_ns())
            opened = write_new_file(self._paths.msgpool / f"{file}QP", [header], "pool")
            self._files[file] = opened
        elif file not in self._checked:
            wrong = decode_file_header(opened.read(RECORD_BYTES, 0), file, self._uuid)
            if wrong is not None and wrong.kind is not Kind.CORRUPT:
                raise Damaged(file=opened.path, offset=0, reason=wrong.reason)
        self._checked.add(file)
        return opened

    def write(self, changes: Mapping[tuple[int, int], bytes | None]) -> None:
        """Make the changes durable: (file, record) -> 512 bytes, None to free the slot."""
        self.write_images(Images.of((file, record, FREE if image is None else image)
                                    for (file, record), image in changes.items()))

    def write_images(self, images: Images) -> None:
        """Make the records durable, zeros free a slot; all or nothing up to COUNT_MAX of them."""
        assert self._may_write
        self._place()  # what a full disk left undone
        images = self._without_aside(images.ascending())
        for first in range(0, len(images), COUNT_MAX):
            self._stage(images.part(first, first + COUNT_MAX))
            self._place()
        if len(images):
            self._double_write.settled()

    def leave(self, files: frozenset[int]) -> None:
        """Never write to these: they are missing, cut or others, and stay as they are for a repair
        (qm_dont_read_messages_at_start). What a checkpoint would have written there only history
        has then, so from then on no file that is put back is the right one: omqrecover makes it."""
        self._aside = files

    def _without_aside(self, images: Images) -> Images:
        if not self._aside:
            return images
        files = (images.slots >> 32).astype(np.int64)
        left = np.isin(files, np.array(sorted(self._aside), dtype=np.int64))
        self._kept.spoil(set(files[left].tolist()))
        return images if not left.any() else Images(images.slots[~left], images.data[~left])

    def contents(self) -> Contents | None:
        """What the files should hold, for poolctrl."""
        return self._kept.everything(self.files(), self._file_of)

    def count(self, file: int) -> Content:
        """What a file holds as it is."""
        return self._kept.count(file, self._file_of(file))

    def should_hold(self, contents: Contents | None) -> None:
        """Go on from there, whatever the files are; None: as they are."""
        self._kept.take(contents)
        if contents is not None:
            self._double_write.go_on_from(contents)

    def _file_of(self, file: int) -> File | None:
        opened = self._look(file)
        return opened if isinstance(opened, File) else None

    def _stage(self, images: Images) -> None:
        self._kept.everything(self.files(), self._file_of)
        made = self._kept.with_chunk(images, self._file_of, self._compare)
        self._double_write.stage(images, self.checkpoint, made.should)
        self._kept.commit(made)
        self._pending = images

    def _compare(self, file: int, found: Content) -> None:
        """A file is written to for the first time: is it what was left there?"""
        should = (self._kept.should or {}).get(file, Content())
        if not found.like(should):
            self.findings.append(Finding(Kind.GAP, differs(should, found), f"{file}QP"))

    def lost(self) -> list[Finding]:
        """Files that are gone from under their names, or shorter than what was left in them. Names
        and sizes alone: cheap enough for each checkpoint."""
        out = []
        for file, content in sorted((self._kept.should or {}).items()):
            found = durable.status(self._paths.msgpool / f"{file}QP") if content.used else None
            least = (content.slots + 1) * RECORD_BYTES
            if content.used and (found is None or found.st_size < least):
                reason = differs(content, None) if found is None else (
                    f"cut: {found.st_size} bytes, the last checkpoint left {least}")
                out.append(Finding(Kind.GAP, reason, f"{file}QP", lsn=content.lsn))
        return out

    def _place(self) -> None:
        """Write the pending chunk in place, neighbours together, and sync every file touched."""
        if not self._pending:
            return
        touched: dict[int, File] = {}
        for file, record, run in self._pending.runs():
            touched[file] = self._open_or_make(file)
            touched[file].write([run], (record + 1) * RECORD_BYTES, new=True)
        for opened in touched.values():
            opened.sync()
        self._pending = None

    def recover_double_write(self, control: PoolControl | None = None, *, refuse: bool = True
                             ) -> int:
        """At a start: settle the files and finish what a crash cut; how many records were written
        again. Idempotent; may itself be cut. `control`: the newest checkpoint. `possible` says what
        the files may hold now. NeedsRepair, unless a repair does not want it to `refuse`.

        The names first: a writer that was killed between a rename and the sync of the directory
        left files that the next one finds, and a power cut after it would not."""
        durable.sync_directory(self._paths.msgpool)
        found, stands = self._double_write.read()
        again = 0
        if isinstance(found, Finding):
            if found.kind not in (Kind.END, Kind.TORN):
                self.findings.append(replace(found, file=DOUBLE_WRITE))
        elif control is None or not 0 < found.checkpoint <= control.generation:
            if refuse:
                self._check_before(found)
            self._pending = self._without_aside(found.images.ascending())
            again = len(self._pending)
            self._place()
        self._double_write.replace_old()
        for file in self.files():
            opened = self._look(file)
            if isinstance(opened, File):  # any other is reported when it is scanned
                opened.settle()
        self.possible, self.checkpoint = possible_contents(control, stands)
        self.should_hold(self.possible[0] if self.possible else None)
        return again

    def _check_before(self, found: DoubleWrite) -> None:
        """Writing records into a file that is gone would make half a file that looks like one."""
        before = found.before.contents if found.before else {}
        for file in sorted(({*(found.images.slots >> 32).tolist()} - self._aside) & before.keys()):
            opened = self._file_of(file)
            size = opened.size() if opened is not None else 0
            if before[file].used and size < (before[file].slots + 1) * RECORD_BYTES:
                raise NeedsRepair(
                    path=self._paths.msgpool / f"{file}QP", command=f"omqrecover plan "
                    f"{self._paths.root}", reason=f"a checkpoint was cut, and before it there were "
                    f"{before[file].slots} slots in it; {size} bytes are there")

    def cut_tail(self, file: int) -> bool:
        """Cut the free slots at the end of a file, as the file itself shows them (all zero): never
        what somebody believes to be free. After the checkpoint that cleared them."""
        opened = self._open(file)
        if opened is None:
            return False
        live = max(0, opened.size() // RECORD_BYTES - 1)
        while live:
            step = min(live, TAIL_RECORDS)
            data = opened.read(step * RECORD_BYTES, (live - step + 1) * RECORD_BYTES)
            used = len(data.rstrip(b"\0"))
            if used:
                live = live - step + -(-used // RECORD_BYTES)
                break
            live -= step
        return self.truncate_tail(file, live)

    def truncate_tail(self, file: int, live_records: int) -> bool:
        """Cut the space behind slot `live_records` - 1; after the checkpoint that freed it."""
        opened = self._open(file)
        size = (live_records + 1) * RECORD_BYTES
        if opened is None or opened.size() <= size:
            return False
        durable.step("pool.before_truncate", opened.path)
        opened.truncate(size)
        return True

    def close(self) -> None:
        super().close()
        self._double_write.close()


def possible_contents(control: PoolControl | None, stands: Standing
                      ) -> tuple[list[Contents], int]:
    """What the pool files may hold, the likeliest first (none: it is not known), and the number of
    the checkpoint to come. The double-write file counts after the checkpoint of poolctrl; while
    the first chunk of a checkpoint is being written, what poolctrl says may still hold."""
    generation = control.generation if control is not None else 0
    later = [table for table in stands.tables if table.checkpoint > generation]
    coming = max([generation + 1, *(table.checkpoint for table in later)])
    if control is None:
        return [table.contents for table in stands.tables], coming
    possible = [table.contents for table in later]
    if not later or (not stands.sure and len(later) < 2):
        if control.contents is None:
            return [], coming
        possible.append(control.contents)
    return possible, coming


def differs(should: Content, found: Content | None) -> str:
    """What is wrong with a file, in words. None: there is no file."""
    left = f"{should.used} records up to LSN {should.lsn}"
    if found is None:
        return f"missing; the last checkpoint left {left} in it"
    return (f"not what the last checkpoint left ({left}): it holds {found.used}, up to LSN "
            f"{found.lsn}; an older copy, another file, cut, or records were overwritten")
