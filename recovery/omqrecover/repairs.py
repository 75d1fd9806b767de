"""The repairs of files: what `apply` does for each action but those on pool records.

Each is one step that may be cut before or after it and is then done, or found done, by the next
run: what was moved is gone from its old name, a header is written as it was planned.

Errors: DiskError, SpoolFull.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from omq.base.errors import NotRepairable
from omq.base.paths import SpoolPaths
from omq.core.judge.cases import Action
from omq.core.judge.finding import Found
from omq.core.judge.presence import note_newest
from omq.core.redo.windows import Windows
from omq.format.findings import Finding, Kind
from omq.format.journal import FileHeader
from omq.format.pool import PARTS_PER_RECORD, RECORD_BYTES, encode_file_header
from omq.format.poolctrl import PoolControl
from omq.storage import durable, poolctrl
from omq.storage.files import open_file, write_new_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.pool import PoolFiles
from omq.storage.quarantine import save_found
from omq.storage.spool import open_spool
from omqtools.omqrecover.archive import fetch, names_of
from omqtools.omqrecover.control_survey import read_control
from omqtools.omqrecover.history import History, Progress
from omqtools.omqrecover.originals import Originals
from omqtools.omqrecover.plan import Plan
from omqtools.omqrecover.rebuilt_records import Shadow

SKIPPED: Final = 1 << 24
"""LSNs and QPoolIds left out when a journal goes on after a loss: more than a manager gives between
two backups that anybody would put back, and nothing of 64 bits."""
SPECIAL: Final = frozenset({1, 2})  # IDEL and POISON have their numbers from the format
_PAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class Workshop:
    """What every repair needs."""

    paths: SpoolPaths
    uuid: bytes
    plan: Plan
    originals: Originals
    progress: Progress

    def path(self, name: str) -> Path:
        """The path of a finding's file; the names come from a scan, or from a saved plan, so they
        must not lead out of the spool."""
        path = self.paths.root / name
        assert ".." not in path.parts and path.is_relative_to(self.paths.root), name
        return path


def _leave(shop: Workshop, found: Found) -> None:
    del shop, found


def _save(shop: Workshop, found: Found) -> None:
    finding = Finding(Kind.CORRUPT, found.reason, Path(found.file).name, found.offset,
                      found.length, found.record, found.lsn)
    save_found(shop.paths, finding)


def _set_aside(shop: Workshop, found: Found) -> None:
    shop.originals.set_aside(shop.path(found.file))


def _rename(shop: Workshop, found: Found) -> None:
    source, target = shop.path(found.file), shop.path(found.target)
    if durable.status(source) is None:
        return
    if durable.status(target) is not None:  # two claimed the same name: the first has it
        shop.originals.set_aside(source)
    else:
        durable.rename(source, target)


def _fetch(shop: Workshop, found: Found) -> None:
    source, target = shop.path(found.file), shop.path(found.target)
    if durable.status(source) is None:
        return
    shop.originals.set_aside(target)
    if source.suffix == target.suffix:
        durable.rename(source, target)
        return
    number = int(target.stem)
    if not fetch(source.parent, number, target):
        raise NotRepairable(what=f"{source} cannot be read", reason="take it from a backup")
    for name in names_of(number)[1:]:
        shop.originals.set_aside(source.parent / name)


def _header(shop: Workshop, found: Found) -> None:
    path = shop.path(found.file)
    number = int(path.name.removesuffix("QP"))
    shop.originals.keep(path)
    file = open_file(path, "pool", write=True)
    try:
        file.write([encode_file_header(number, shop.uuid, shop.plan.time_ns)], 0)
        file.sync()
    finally:
        file.close()


def _cut(shop: Workshop, found: Found) -> None:
    path = shop.path(found.file)
    shop.originals.keep(path)
    file = open_file(path, "pool", write=True)
    try:
        whole = file.size() // RECORD_BYTES * RECORD_BYTES
        if whole < file.size():
            durable.step("pool.before_truncate", path)
            file.truncate(whole)
    finally:
        file.close()


def new_journal_number(shop: Workshop) -> int:
    """The number of the journal file that `go_on` and `next_file` make: the next one of the planned
    spool, also of one that is known to have been there."""
    planned = shop.plan.stamp
    return max(planned.journal, planned.checkpoint_journal, planned.noted) + 1


def next_file(shop: Workshop, number: int) -> None:
    """An empty journal file behind those that are there, which the start still redoes; its numbers
    begin far above all that is known."""
    plan = shop.plan
    write_epoch_file(shop.paths, FileHeader(
        shop.uuid, _epoch(shop) + 1, number, _PAGE, _PAGE, plan.highest_lsn + SKIPPED,
        max(plan.stamp.end_lsn, plan.stamp.checkpoint_lsn), plan.stamp.journal, plan.time_ns,
        plan.next_qpool + SKIPPED))


def recount(shop: Workshop) -> None:
    """poolctrl says what the pool files hold now: what was repaired, and what is served as it is
    because the operator has accepted it."""
    control = read_control(shop.paths, shop.uuid).control
    pool = PoolFiles(shop.paths, shop.uuid)
    try:
        pool.recover_double_write(control, refuse=False)
        pool.should_hold(None)
        contents = pool.contents()
        if control is not None and (pool.possible != [contents]
                                    or pool.checkpoint > control.generation + 1):
            shop.originals.keep(shop.paths.msgpool / poolctrl.NAME)
            poolctrl.store(shop.paths, replace(
                control, generation=pool.checkpoint, contents=contents,
                pool_files=len(pool.files())))
    finally:
        pool.close()


def go_on(shop: Workshop, number: int) -> None:
    """An empty journal file behind everything, whose numbers begin far above all that is known, and
    a checkpoint that points to it. The LSNs between are void."""
    control = read_control(shop.paths, shop.uuid).control
    plan = shop.plan
    if control is not None and control.journal == number:
        return  # done already
    lsn = control.lsn if control is not None else plan.highest_lsn
    epoch = _epoch(shop) + 1
    next_qpool = plan.next_qpool + SKIPPED
    write_epoch_file(shop.paths, FileHeader(
        shop.uuid, epoch, number, _PAGE, _PAGE, plan.highest_lsn + SKIPPED, lsn, plan.stamp.journal,
        plan.time_ns, next_qpool))
    names, definitions = (control.queues, control.definitions) if control else _names(shop)
    shop.originals.keep(shop.paths.msgpool / poolctrl.NAME)
    made = PoolControl(shop.uuid, 1, lsn, epoch, number, 0, next_qpool, plan.time_ns,
                       len(_pool_files(shop.paths)), names, definitions=definitions)
    if control is not None:
        made = replace(control, generation=control.generation + 1, epoch=epoch, journal=number,
                       offset=0, next_qpool=next_qpool, time_ns=plan.time_ns, flags=0)
    poolctrl.store(shop.paths, made)


def skip(shop: Workshop) -> None:
    """The checkpoint goes on in the next journal file that is there: the one that it names is gone,
    and what was in it is lost."""
    control = read_control(shop.paths, shop.uuid).control
    numbers = numbers_in(shop.paths.journal)
    later = [number for number in numbers if control is not None and number > control.journal]
    if control is None or control.journal in numbers or not later:
        return  # done already
    shop.originals.keep(shop.paths.msgpool / poolctrl.NAME)
    poolctrl.store(shop.paths, replace(
        control, generation=control.generation + 1, journal=later[0], offset=0, flags=0))


def write_epoch_file(paths: SpoolPaths, header: FileHeader) -> None:
    """A journal file that is a header and nothing else, of the spool's term; the same again does no
    harm."""
    path = paths.journal / file_name(header.number)
    if durable.status(path) is None:
        header = replace(header, term=open_spool(paths.root).instance.term)
        write_new_file(path, [header.encode()]).close()
    note_newest(paths, header.uuid)


def _epoch(shop: Workshop) -> int:
    """The highest epoch known; not that of the file which is being made."""
    history = History([shop.paths.archive, shop.paths.journal], shop.uuid, shop.progress)
    epochs = [h.epoch for f in history.files
              if (h := f.follows) and f.number <= shop.plan.stamp.journal]
    control = read_control(shop.paths, shop.uuid).control
    return max([*epochs, control.epoch if control else 0], default=0)


def _names(shop: Workshop) -> tuple[dict[int, str], dict[str, str]]:
    """Names and definitions of the queues: from history; a number without a name that the pool uses
    gets one."""
    shadow = Shadow(())
    for window in Windows(iter(History([shop.paths.archive, shop.paths.journal], shop.uuid,
                                       shop.progress))):
        shadow.apply(window)
    lost = {number: f"LOST{number}" for number in _queues_used(shop)}
    return lost | shadow.queues, shadow.definitions


def _queues_used(shop: Workshop) -> set[int]:
    """Numbers of the queues that messages of the pool are on, without the special ones."""
    pool = PoolFiles(shop.paths, shop.uuid, write=False)
    used: set[int] = set()
    try:
        for file in pool.files():
            for chunk in pool.scan(file):
                rows = chunk.records[chunk.live | chunk.more]
                listed = np.arange(PARTS_PER_RECORD) < rows["parts"][:, None]
                used.update(rows["parts_list"]["queue"][listed].tolist())
    finally:
        pool.close()
    return used - SPECIAL


def _pool_files(paths: SpoolPaths) -> list[str]:
    return [name for name in durable.list_directory(paths.msgpool) if name.endswith("QP")]


REPAIRS: dict[Action, Callable[[Workshop, Found], None]] = {
    Action.LEAVE: _leave, Action.SAVE: _save, Action.SET_ASIDE: _set_aside,
    Action.RENAME: _rename, Action.FETCH: _fetch, Action.HEADER: _header, Action.CUT: _cut,
    Action.COUNT: _leave,
}  # fmt: skip
"""By action; those of pool records are in record_repairs.py, GO_ON, SKIP, CONTROL and NEXT come
last. Everything is counted anew in the end, whatever the plan was."""

