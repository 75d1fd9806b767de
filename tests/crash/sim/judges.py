"""Three judges of one spool: the start, omqcheck and omqrecover must say the same of it.

Each state is judged by all three, with the code that they run, and compared with what the instance
knew when it ended:

    1. start and omqcheck have the same findings, in the same places; what a refusal names omqcheck
       finds too
    2. silent is silent: where the start says nothing, omqrecover finds nothing but at places that
       only it reads (`deep`), and the other way round
    3. of a spool that is served whole nobody says that something is lost, but where frames behind
       the checkpoint are gone: what they were nobody knows
    4. where messages are missing or changed all three say so; what history has is repairable
    5. of one finding the verdict is the same, or UNKNOWN to those who do not read history
    6. each message whose body is gone counts one

The states: those of the absence layer; each bit of the last block of a clean stop, and of the heads
of the slots of `newest` and poolctrl; and random bits of all files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from omq.base.errors import Exit, OmqError
from omq.core.judge.cases import Case, Source, Verdict
from omq.core.judge.finding import Found, worst
from omq.core.judge.redo_findings import of_records, once
from omq.core.load.missing_bodies import missing_bodies
from omq.core.load.offline_index import read_files
from omq.format.journal import NEWEST_AT
from omq.format.poolctrl import SLOT_BYTES, newest
from omq.storage import durable
from omq.storage.spool import open_spool
from omqtools.omqrecover.survey import survey
from tests.crash.sim.absence import (
    _LEFT_OUT,
    Ended,
    Fault,
    Files,
    _served,
    faults,
    mounted,
    unknowable,
)
from tests.crash.sim.disk import SimDisk
from tests.crash.sim.life import PATHS, ROOT, START_NS, recover_into

_BODIES: Final = (Case.BODY_DAMAGED, Case.CONTAINER_DAMAGED)
_DEEP: Final = (*_BODIES, Case.CONTAINER_ORPHAN, Case.STORE_DAMAGED, Case.STORE_FOREIGN)
_FRAMES: Final = (Case.JOURNAL_BLOCK, Case.JOURNAL_GAP)
_PAGE: Final = 4096
_HEADS: Final = 64  # bytes of a slot of which every bit is tried
_RANDOM: Final = 40  # bits of one spool


@dataclass(slots=True)
class Judged:
    """What the three say. `refused`: the text of the start's refusal; `served`: what it serves, as
    the absence layer says it."""

    start: list[Found] = field(default_factory=list)
    refused: str = ""
    served: str = ""
    check: list[Found] = field(default_factory=list)
    scan: list[Found] = field(default_factory=list)
    deep: list[Found] = field(default_factory=list)  # of the scan, where nobody else reads


def judged(ended: Ended, fault: Fault, template: SimDisk) -> Judged | None:
    """All three, each on a disk of its own; None: instance.json is what is wrong."""
    files = {path: data for path, data in {**ended.files, **fault.changes}.items()
             if data is not None}
    durable.use(mounted(files, template))
    try:
        uuid = open_spool(PATHS.root).uuid
    except OmqError:
        return None
    out = Judged()
    out.scan = _bad(survey(PATHS, uuid, lambda text: None).found)
    control = newest(files.get(f"{ROOT}/msgpool/poolctrl", b""))[0]
    first = control.journal if control is not None else 0
    out.deep = [each for each in out.scan if _deep(each, first)]
    out.check = _bad(read_files(PATHS, START_NS).judged)
    try:
        found, core, _ = recover_into(mounted(files, template), ended.settings, START_NS)
        out.start = _bad(once([*found.recovered.judged, *of_records(found.loaded.findings),
                               *missing_bodies(core, PATHS)]))
        out.served = _served(found, ended)
    except OmqError as error:
        assert error.exit_code in (Exit.DATA, Exit.CONFIG, Exit.NO_INPUT), error
        out.refused = str(error)
    return out


def _bad(found: list[Found]) -> list[Found]:
    return [each for each in found if each.row.verdict is not Verdict.NORMAL]


def _deep(each: Found, first: int) -> bool:
    """Is it at a place that a start does not read? It reads the journal from the file of the
    checkpoint on, and of the store no more than sizes."""
    folder, _, name = each.file.partition("/")
    if each.case in _DEEP:
        return True
    if each.case in _FRAMES and each.source is Source.PART:
        return False  # it reaches behind the checkpoint, wherever it begins
    if folder == "archive":
        return each.case is not Case.JOURNAL_ARCHIVED
    if each.case is Case.JOURNAL_GAP and each.source is Source.WHOLE:
        return True
    number = name.removesuffix(".jnl")
    return folder == "journal" and number.isdigit() and int(number) < first


def disagreement(said: Judged, *, absent: bool, blind: bool) -> str:
    """What they do not agree about; empty: they do. `absent`: the fault took something away, so
    what bodies it cost is seen by all. `blind`: nobody can know of it."""
    places = [{(each.case, each.file) for each in found} for found in (said.start, said.check)]
    shallow = [each for each in said.scan if each not in said.deep]
    if not said.refused and places[0] != places[1]:
        return f"start {places[0]}, omqcheck {places[1]}"
    for each in said.check:
        if said.refused and each.refused and each.case is not Case.NEWER \
                and each.reason not in said.refused:
            return f"the refusal does not name {each}: {said.refused}"
    files = [each for each in said.check if each.case not in _BODIES]
    if bool(files) != bool(shallow):
        return f"omqcheck {files}, omqrecover {shallow}"
    if said.refused and not any(each.refused or each.file in said.refused
                                for each in said.check):
        return f"refused, and omqcheck finds no reason: {said.refused}"
    verdict = worst(said.scan)
    frames = any(each.case in _FRAMES and each.source is Source.PART for each in said.scan)
    if said.served == "served" and verdict in (Verdict.LOSS, Verdict.UNKNOWN) and not frames:
        return f"served whole, and omqrecover says {verdict.value}: {said.scan}"
    if said.served not in ("", "served", "bodies") and not blind \
            and (verdict is Verdict.NORMAL or not said.start):
        return f"omqrecover says {verdict.value}, the start {said.start} of: {said.served}"
    if said.served == "bodies" and not any(each.case in _BODIES for each in said.scan):
        return f"bodies are missing, and omqrecover says nothing: {said.scan}"
    return _verdicts(said) or _counts(said, absent=absent)


def _verdicts(said: Judged) -> str:
    known = {(each.case, each.file): each for each in said.scan}
    for each in said.check:
        other = known.get((each.case, each.file))
        if other is not None and each.case not in _BODIES \
                and each.seen not in (other.row.verdict, Verdict.UNKNOWN):
            return f"omqcheck says {each.seen.value} of {other}"
    return ""


def _counts(said: Judged, *, absent: bool) -> str:
    seen = sum(each.count for each in said.check if each.case in _BODIES)
    scanned = sum(each.count for each in said.scan if each.case in _BODIES)
    if (seen > scanned and not said.refused) or (absent and seen != scanned):
        return f"{seen} bodies are gone to omqcheck, {scanned} to omqrecover"
    return ""


def judge_all(ended: Ended, states: Iterator[Fault] | list[Fault], template: SimDisk
              ) -> tuple[int, list[str]]:
    """How many states were judged, and what there is no agreement about."""
    count, wrong = 0, []
    for fault in states:
        said = judged(ended, fault, template)
        if said is None:
            continue
        count += 1
        text = disagreement(said, absent=fault.kind in ("absent", "emptied"),
                            blind=unknowable(ended, fault) or _like_torn(ended, fault))
        if text:
            wrong.append(f"{ended.name}: {fault}: {text}")
    return count, wrong


def _like_torn(ended: Ended, fault: Fault) -> bool:
    """After a kill a damaged last block looks like one that the kill has cut."""
    last = max(path for path in ended.files if "/journal/0" in path)
    return ended.name.endswith("killed") and fault.path == last and fault.kind.startswith("bit")


def absences(ended: Ended, other: Files, seed: int) -> Iterator[Fault]:
    """The states of the absence layer, and the whole one."""
    yield Fault("", "none", {})
    yield from faults(ended, other, Random(seed))


def flipped(ended: Ended, path: str, at: int, bit: int) -> Fault:
    """One bit of a file is another one."""
    data = bytearray(ended.files[path])
    data[at] ^= 1 << bit
    return Fault(path, f"bit {bit} of byte {at}", {path: bytes(data)})


Place = tuple[str, int, int]  # path, byte, bit


def tail(ended: Ended) -> list[Place]:
    """Each bit of the last block of the journal, which is the STOP, of its padding one a line; of
    the heads of the slots of `newest` and poolctrl."""
    path = max(path for path in ended.files if "/journal/0" in path)
    control = newest(ended.files[f"{ROOT}/msgpool/poolctrl"])[0]
    assert control is not None and control.offset, "an orderly end"
    begin = control.offset - _PAGE
    used = begin + len(ended.files[path][begin : control.offset].rstrip(b"\0"))
    note, slots = f"{ROOT}/journal/newest", f"{ROOT}/msgpool/poolctrl"
    padding = [(path, at, at % 8) for at in range(used, control.offset, 64)]
    whole = [(path, at) for at in range(begin, used)]
    whole += [(note, slot + at) for slot in (0, NEWEST_AT) for at in range(_HEADS)]
    whole += [(slots, slot + at) for slot in (0, SLOT_BYTES) for at in range(_HEADS)]
    return padding + [(*byte, bit) for byte in whole for bit in range(8)]


def anywhere(ended: Ended, random: Random) -> Iterator[Fault]:
    """Random bits of what is not zero, of all files."""
    paths = [path for path, data in sorted(ended.files.items())
             if data.rstrip(b"\0") and not any(part in path for part in _LEFT_OUT)]
    for _ in range(_RANDOM):
        path = random.choice(paths)
        yield flipped(ended, path, random.randrange(len(ended.files[path].rstrip(b"\0"))),
                      random.randrange(8))
