"""Carry a plan out. It may be killed at any point and run again: the result is the same.

Order: 1. the plan goes to quarantine/repair-NAME: the repair has begun; 2. files are moved away,
renamed, fetched, their headers written, damaged bytes copied; 3. a checkpoint that was cut is
finished, then records are changed in batches that are whole or not at all; 4. a new
journal file, and poolctrl, if it must be; poolctrl says what the pool files hold now; 5. the mark
that it is done.

Every file is copied before it is changed. Each step finds out itself whether it is done.

Errors: PlanOutdated, LossNotAccepted, NotRepairable before anything is changed; DiskError and
SpoolFull in between: run it again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from omq.base.errors import LossNotAccepted, NotRepairable
from omq.base.paths import SpoolPaths
from omq.core.judge.cases import Action, Verdict
from omq.core.judge.finding import Found
from omq.storage import durable
from omq.storage.pool import PoolFiles
from omqtools.omqrecover.control_survey import read_control
from omqtools.omqrecover.history import Progress
from omqtools.omqrecover.originals import Originals
from omqtools.omqrecover.plan import Plan, Stamp, check_stamp
from omqtools.omqrecover.record_repairs import RecordRepair, Result
from omqtools.omqrecover.repairs import (
    REPAIRS,
    Workshop,
    go_on,
    new_journal_number,
    next_file,
    recount,
    skip,
)

ORDER: Final = (Action.SET_ASIDE, Action.RENAME, Action.FETCH, Action.HEADER, Action.CUT,
                Action.SAVE, Action.LEAVE, Action.COUNT)  # fmt: skip
RECORDS: Final = (Action.CLEAR, Action.REBUILD, Action.BODY)
LAST: Final = (Action.CONTROL, Action.GO_ON)
ON: Final = (Action.SKIP,)
BEHIND: Final = (Action.NEXT,)


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done, by action, and what could not be."""

    counts: dict[str, int]
    refused: list[str]
    folder: str
    already: bool = False


def apply(paths: SpoolPaths, uuid: bytes, plan: Plan, progress: Progress, *, accept_loss: bool
          ) -> Applied:
    """The caller holds the manager's and the pool's lock."""
    originals = Originals(paths, plan.name)
    folder = originals.folder.relative_to(paths.root).as_posix()
    if originals.done:
        return Applied({}, [], folder, already=True)
    shop = Workshop(paths, uuid, plan, originals, progress)
    number = new_journal_number(shop)
    check_stamp(plan, Stamp.of(paths, uuid), begun=originals.begun, new_file=number)
    _refuse(plan.findings, accept_loss=accept_loss)
    originals.begin(plan.encode())
    for action in ORDER:
        for found in plan.findings:
            if found.row.action is action:
                durable.step("recover.before_step", paths.root)
                REPAIRS[action](shop, found)
    result = _records(shop)
    durable.step("recover.before_control", paths.root)
    actions = {found.row.action for found in plan.findings}
    if not actions.isdisjoint(ON):
        skip(shop)
    if not actions.isdisjoint(LAST):
        go_on(shop, number)
    elif not actions.isdisjoint(BEHIND):
        next_file(shop, number)
    if plan.findings:
        recount(shop)
    counts = Counter(found.row.action.value for found in plan.findings)
    counts["records rebuilt"] = result.rebuilt
    originals.finish("".join(f"{line}\n" for line in result.refused))
    return Applied(dict(counts), result.refused, folder)


def _records(shop: Workshop) -> Result:
    findings = [found for found in shop.plan.findings if found.row.action in RECORDS]
    if not findings:
        return Result()
    pool = PoolFiles(shop.paths, shop.uuid)
    try:
        pool.recover_double_write(read_control(shop.paths, shop.uuid).control, refuse=False)
        repair = RecordRepair(shop.paths, shop.uuid, pool, shop.originals, shop.progress)
        return repair.run(findings)
    finally:
        pool.close()


def _refuse(findings: list[Found], *, accept_loss: bool) -> None:
    for found in findings:
        if found.row.action is Action.REFUSE:
            raise NotRepairable(what=f"{found.file}: {found.reason}", reason=found.row.why)
    losses = [found for found in findings if found.row.verdict in (Verdict.LOSS, Verdict.UNKNOWN)]
    losses.sort(key=lambda found: found.row.verdict is Verdict.UNKNOWN)
    if losses and not accept_loss:
        first = losses[0]
        raise LossNotAccepted(what=f"{len(losses)} findings mean loss, or that it cannot be ruled "
                                   f"out, the first: {first.file}: "
                                   f"{first.case.value}: {first.reason}")
