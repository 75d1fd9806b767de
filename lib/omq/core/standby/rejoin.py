"""A former primary becomes a standby of the one that was promoted, in place: without a copy.

Up to one LSN the two histories are one (storage.promotions). What this spool has above it is kept,
as a spool of its own to look at, and then taken away; the journal below it stays, and so do pool,
store and containers, if they have nothing of what is taken away:

1. `survey` finds the place in the journal, and refuses where a copy must be made (NeedsCopy): the
   pool has a checkpoint after that LSN; the journal cannot be read up to its end; a container is
   gone whose message is there again; the promotion is not noted.
2. `keep` copies the journal files with frames above the LSN to aside/TERM-LSN, a former primary's
   spool: 'omq standby aside --spool' names its messages, 'omqrecover extract' has their bodies.
3. `join` notes the place in journal/synced, then that this is a standby in instance.json. The next
   `omq standby follow` takes away what is above the mark, as it does after a crash.

What store files have after the LSN is written over when the new primary says so, or stays as space
that nothing names. Containers of messages that are set aside stay, for nobody removes any here.

Invariants: 1. nothing goes before its copy is durable, which its instance.json says; 2. `join` is
one write that counts: before it this is a former primary, and all of it can be done again.

In the middle of a crash: a copy without instance.json is made again. A mark in the journal of a
former primary says nothing to anybody: no manager starts there.

Needs the manager's and the pool's lock. Memory: one journal file. Errors: NeedsCopy; SpoolFull;
DiskError.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from omq.base.errors import NeedsCopy
from omq.base.paths import SpoolPaths
from omq.core.standby.aside import AGAIN, Aside, aside
from omq.format.findings import Kind
from omq.format.journal import FileHeader
from omq.format.standby import Synced
from omq.storage import durable, instance_file, poolctrl, spool
from omq.storage.files import create_file, open_file
from omq.storage.instance_file import Instance, Role
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import load_file, read_entry
from omq.storage.journal_scan import Block, FileScan
from omq.storage.mirror_start import adopt
from omq.storage.promotions import Promotion

_STEP: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Survey:
    """`mark`: where the two part, in this journal; `files`: those with frames above; `found`: what
    is set aside."""

    mark: Synced
    files: tuple[int, ...]
    found: Aside
    since: int


def fork(instance: Instance, told: tuple[Promotion, ...], root: Path) -> int:
    """The last LSN that this spool and a primary of those promotions have in common. NeedsCopy."""
    later = [each.lsn for each in told if each.term > instance.term]
    if not later:
        raise NeedsCopy(path=root, reason="the new primary does not know since which LSN its term "
                        "is")
    return later[0]


def survey(paths: SpoolPaths, instance: Instance, since: int) -> Survey:
    """Whether it can be done, and what: see the module. Nothing is written."""
    control, _ = poolctrl.load(paths)
    if control is None or control.uuid != instance.uuid:
        raise NeedsCopy(path=paths.msgpool, reason="its pool has no checkpoint of this instance")
    if control.lsn > since:
        raise NeedsCopy(path=paths.msgpool, reason=f"its checkpoint is at LSN {control.lsn}, and "
                        f"the new primary has the same up to LSN {since}")
    header = _file_of(paths, instance, since)
    last = _last(paths, instance, header, since)
    lsn = last.header.last_lsn if last is not None else header.first_lsn - 1
    if lsn < control.lsn:
        raise NeedsCopy(path=paths.journal / file_name(header.number), reason="it ends at LSN "
                        f"{lsn}, before the checkpoint at LSN {control.lsn}")
    found = aside(paths, since)
    if not found.complete and not found.short:
        raise NeedsCopy(path=paths.journal, reason=f"what would be set aside is not whole "
                        f"({found.why})")
    gone = [each for each in found.lines if each.state == AGAIN and each.to_idel]
    if gone:
        raise NeedsCopy(path=paths.data, reason=f"{len(gone)} messages ended here whose containers "
                        "are removed, and the new primary has them")
    crc = int.from_bytes(last.data[4:8], "little") if last is not None else 0
    mark = Synced(instance.uuid, 1, header.number, header.term, header.epoch,
                  last.offset + last.header.length if last is not None else header.page, lsn,
                  control.lsn, crc)
    files = tuple(each for each in numbers_in(paths.journal) if each >= header.number)
    return Survey(mark, files, found, since)


def _file_of(paths: SpoolPaths, instance: Instance, since: int) -> FileHeader:
    """The last file of the common history."""
    for number in reversed(numbers_in(paths.journal)):
        header = read_entry(paths, number, instance.uuid).header
        if header is None:
            raise NeedsCopy(path=paths.journal / file_name(number), reason="its header is damaged")
        if header.follows_lsn <= since and header.first_lsn <= since + 1:
            return header
    raise NeedsCopy(path=paths.journal, reason=f"it does not reach back to LSN {since}")


def _last(paths: SpoolPaths, instance: Instance, header: FileHeader, since: int) -> Block | None:
    """The last block of that file which both have."""
    path = paths.journal / file_name(header.number)
    scan = FileScan(load_file(path), header.number, instance.uuid, name=path.name, limit=since)
    last = deque(scan, maxlen=1)
    for each in scan.findings:
        if each.kind is not Kind.TORN:
            raise NeedsCopy(path=path, reason=each.reason)
    return last[0] if last else None


def place(paths: SpoolPaths, instance: Instance, since: int) -> Path:
    """Where what is above that LSN is kept."""
    return paths.root / "aside" / f"{instance.term}-{since}"


def keep(paths: SpoolPaths, instance: Instance, plan: Survey) -> Path:
    """Copy what is above the LSN, unless that is done; where it is. SpoolFull, DiskError."""
    kept = SpoolPaths(place(paths, instance, plan.since))
    if durable.status(kept.uuid) is not None:
        return kept.root
    durable.make_directory(kept.root.parent)
    spool.make_directories(kept)
    for number in plan.files:
        _copy(paths.journal / file_name(number), kept.journal / file_name(number))
    durable.sync_directory(kept.journal)
    instance_file.write(kept, replace(instance, role=Role.FORMER))  # now it counts
    return kept.root


def _copy(source: Path, target: Path) -> None:
    file, made = open_file(source), create_file(target, replace=True)
    try:
        size = file.size()
        for at in range(0, size, _STEP):
            made.write([file.read(min(_STEP, size - at), at)], at, new=True)
        made.sync_all(new=True)
    finally:
        file.close()
        made.close()


def join(paths: SpoolPaths, instance: Instance, plan: Survey, member: str, primary: str
         ) -> Instance:
    """From now on it is a standby: see the module. What instance.json says."""
    adopt(paths, instance.uuid, plan.mark)
    made = replace(instance, role=Role.STANDBY, member=member, primary=primary)
    instance_file.write(paths, made)
    return made
