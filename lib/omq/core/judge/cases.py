"""The decision table: what is found x what history knows x the right place -> verdict and action.

One row covers one case, for the sources and places that it names (empty: all). `decide` looks rows
up; tests show that every combination has exactly one row and that lib/omq/docs/RECOVERY.md holds
what `table_lines` renders. A new case is a member of `Case` and its rows, nothing else.

The start, omqcheck and omqrecover judge by this table and no other. Start and omqcheck do not read
history: where only history can tell, they say UNKNOWN (`Found.verdict`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Case(Enum):
    """What the scan can find. The value is its name in listings, JSON and saved plans."""

    CONTROL_CUT = "slot of poolctrl as a cut checkpoint leaves it"
    CONTROL_SLOT = "one slot of poolctrl damaged"
    CONTROL_LOST = "no valid slot of poolctrl"
    CONTROL_FOREIGN = "poolctrl of another instance"
    CONTROL_OLD = "poolctrl older than the pool"
    DOUBLE_WRITE_CUT = "checkpoint to be finished"
    DOUBLE_WRITE_FOREIGN = "double-write file of another instance"
    NEWER = "written by a newer omq"
    TORN_TAIL = "torn tail of the journal"
    JOURNAL_BLOCK = "damaged place in the journal"
    JOURNAL_GAP = "journal file or LSNs missing"
    JOURNAL_POSITION = "journal file of the checkpoint missing"
    JOURNAL_NEWEST = "newest journal file missing or emptied"
    JOURNAL_NO_NOTE = "note of the newest journal file missing"
    JOURNAL_NO_FOLLOWER = "archived journal file without the one after it"
    JOURNAL_HEADER = "header of a journal file damaged"
    JOURNAL_CUT = "journal file shorter than it was made"
    JOURNAL_RENAMED = "journal file under another name"
    JOURNAL_FOREIGN = "journal file of another instance"
    JOURNAL_ARCHIVED = "journal file after the checkpoint is in archive/"
    JOURNAL_BEHIND = "the journal ends before the checkpoint"
    POOL_FILE_MISSING = "pool file missing"
    POOL_FILE_DIFFERS = "pool file other than the checkpoint left it"
    POOL_FILE_HEADER = "header of a pool file damaged"
    POOL_FILE_RENAMED = "pool file under another name"
    POOL_FILE_FOREIGN = "no pool file of this instance"
    POOL_FILE_CUT = "pool file ends inside a record"
    RECORD_DAMAGED = "pool record damaged"
    RECORD_MISSING = "pool record missing"
    RECORD_OLD = "pool record older than the checkpoint says"
    RECORD_ENDED = "pool record of a message that has ended"
    RECORD_DUPLICATE = "two records of one message: the older"
    RECORD_STRAY = "continuation record without its first"
    BODY_DAMAGED = "body missing or damaged"
    CONTAINER_DAMAGED = "container missing or damaged"
    CONTAINER_ORPHAN = "container that no message names"
    STORE_DAMAGED = "damaged place in a store file"
    STORE_FOREIGN = "no store file of this instance"


class Source(Enum):
    """What journal and archive know of that which is damaged."""

    WHOLE = "whole"  # everything, from its birth to the end of the journal: no loss
    PART = "part"  # something, but LSNs are missing: its last state is not certain
    NONE = "none"  # nothing


class Place(Enum):
    """Whether the name or slot where it belongs is free."""

    FREE = "free"
    TAKEN = "taken"


class Verdict(Enum):
    """What a finding means for the messages."""

    NORMAL = "normal"  # what a crash leaves; the next start does the rest
    REPAIR = "repairable"  # damage that costs no message
    UNKNOWN = "unknown"  # history that could tell whether something is lost is missing
    LOSS = "loss"  # something that was acknowledged is not there any more, or may not be


class Action(Enum):
    """What `apply` does."""

    LEAVE = "leave"
    SAVE = "save a copy"
    CLEAR = "clear the slot"
    REBUILD = "rebuild from history"
    HEADER = "write the header"
    CUT = "cut the file"
    SET_ASIDE = "move to quarantine"
    RENAME = "give it its name"
    FETCH = "move back to journal/"
    BODY = "name the copy of the body"
    CONTROL = "write poolctrl"
    NEXT = "make the next journal file"
    COUNT = "count again"
    GO_ON = "go on in a new journal file"
    SKIP = "go on in the next journal file that is there"
    REFUSE = "none"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; empty tuples stand for every source and place."""

    case: Case
    verdict: Verdict
    action: Action
    why: str
    sources: tuple[Source, ...] = ()
    places: tuple[Place, ...] = ()

    def covers(self, case: Case, source: Source, place: Place) -> bool:
        return (case is self.case and (not self.sources or source in self.sources)
                and (not self.places or place in self.places))


C, V, A = Case, Verdict, Action
_WHOLE, _PART, _NONE = (Source.WHOLE,), (Source.PART,), (Source.NONE,)
_NOT_WHOLE = (Source.PART, Source.NONE)
_FREE, _TAKEN = (Place.FREE,), (Place.TAKEN,)

TABLE: tuple[Row, ...] = (
    Row(C.CONTROL_CUT, V.NORMAL, A.LEAVE,
        "the other slot counts; the next checkpoint writes this one"),
    Row(C.CONTROL_SLOT, V.REPAIR, A.SAVE,
        "the other slot counts; the next checkpoint writes this one"),
    Row(C.CONTROL_LOST, V.REPAIR, A.SAVE,
        "the start redoes the whole journal that is kept", _WHOLE),
    Row(C.CONTROL_LOST, V.LOSS, A.CONTROL,
        "a checkpoint at the highest LSN of the pool; names of queues from the archive", _PART),
    Row(C.CONTROL_LOST, V.LOSS, A.CONTROL,
        "the same; no names of queues are left: they become LOST3, LOST4 ...", _NONE),
    Row(C.CONTROL_FOREIGN, V.LOSS, A.REFUSE,
        "the pool is not this instance's: restore the right one, or use 'rebuild'"),
    Row(C.CONTROL_OLD, V.REPAIR, A.COUNT,
        "the start redoes the journal from the older checkpoint, which changes nothing twice"),
    Row(C.DOUBLE_WRITE_CUT, V.NORMAL, A.LEAVE, "the start writes its images again"),
    Row(C.DOUBLE_WRITE_FOREIGN, V.REPAIR, A.SET_ASIDE, "nothing of this instance is in it"),
    Row(C.NEWER, V.REPAIR, A.REFUSE, "no damage: use the newer omq"),
    Row(C.TORN_TAIL, V.NORMAL, A.LEAVE, "no client was promised what is in it"),
    Row(C.JOURNAL_BLOCK, V.REPAIR, A.SAVE,
        "its frames are in the pool already; recovery goes on after it", _WHOLE),
    Row(C.JOURNAL_BLOCK, V.LOSS, A.SAVE,
        "its frames are lost; recovery goes on after it", _NOT_WHOLE),
    Row(C.JOURNAL_GAP, V.REPAIR, A.LEAVE, "its frames are in the pool already", _WHOLE),
    Row(C.JOURNAL_GAP, V.LOSS, A.LEAVE,
        "recovery goes on after the gap: put the file back if you have it", _NOT_WHOLE),
    Row(C.JOURNAL_POSITION, V.REPAIR, A.LEAVE, "everything that was in it is in the pool", _WHOLE),
    Row(C.JOURNAL_POSITION, V.LOSS, A.SKIP,
        "what it held after the checkpoint is lost: put it back if you have it", _PART),
    Row(C.JOURNAL_POSITION, V.LOSS, A.GO_ON,
        "all after the checkpoint is lost: put the files back if you have them", _NONE),
    Row(C.JOURNAL_HEADER, V.REPAIR, A.SAVE, "its blocks are read all the same"),
    Row(C.JOURNAL_NEWEST, V.REPAIR, A.LEAVE, "its frames are in the pool already", _WHOLE),
    Row(C.JOURNAL_NEWEST, V.UNKNOWN, A.NEXT,
        "what was acknowledged last was in it: put it back if you have it", _NOT_WHOLE),
    Row(C.JOURNAL_NO_NOTE, V.REPAIR, A.LEAVE, "the next start writes it",
        (Source.WHOLE, Source.PART)),
    Row(C.JOURNAL_NO_NOTE, V.UNKNOWN, A.NEXT,
        "no journal file is there either: put the files back if you have them", _NONE),
    Row(C.JOURNAL_NO_FOLLOWER, V.UNKNOWN, A.NEXT,
        "what came after it is in no file: put the files back if you have them"),
    Row(C.JOURNAL_CUT, V.REPAIR, A.LEAVE, "its frames are in the pool already", _WHOLE),
    Row(C.JOURNAL_CUT, V.UNKNOWN, A.NEXT,
        "it is the last one: what was after its end cannot be told from what was never written",
        _NOT_WHOLE),
    Row(C.JOURNAL_RENAMED, V.REPAIR, A.RENAME, "its header says which it is", (), _FREE),
    Row(C.JOURNAL_RENAMED, V.REPAIR, A.SET_ASIDE, "the right one is there", (), _TAKEN),
    Row(C.JOURNAL_FOREIGN, V.REPAIR, A.SET_ASIDE, "nothing of this instance is in it"),
    Row(C.JOURNAL_ARCHIVED, V.REPAIR, A.FETCH,
        "the pool comes from an older backup: redo needs this file; a file of its name is moved "
        "to quarantine", (Source.WHOLE, Source.PART)),
    Row(C.JOURNAL_ARCHIVED, V.LOSS, A.FETCH, "the same; LSNs before it are missing", _NONE),
    Row(C.JOURNAL_BEHIND, V.REPAIR, A.LEAVE,
        "an orderly end: everything that the newer file had is in the pool", _WHOLE),
    Row(C.JOURNAL_BEHIND, V.LOSS, A.GO_ON,
        "the journal comes from an older backup: what came after the checkpoint is lost, numbers "
        "go on above the highest known", _NOT_WHOLE),
    Row(C.POOL_FILE_MISSING, V.REPAIR, A.REBUILD, "its records are made again", _WHOLE),
    Row(C.POOL_FILE_MISSING, V.LOSS, A.REBUILD, "the records that are known are made again", _PART),
    Row(C.POOL_FILE_MISSING, V.LOSS, A.LEAVE, "its messages are lost", _NONE),
    Row(C.POOL_FILE_DIFFERS, V.REPAIR, A.COUNT, "history says what each record must be", _WHOLE),
    Row(C.POOL_FILE_DIFFERS, V.LOSS, A.COUNT,
        "records are missing, older or others, and history does not know all of them: what is "
        "there is served", _NOT_WHOLE),
    Row(C.POOL_FILE_HEADER, V.REPAIR, A.HEADER, "its records stand alone"),
    Row(C.POOL_FILE_RENAMED, V.REPAIR, A.RENAME, "its header says which it is", (), _FREE),
    Row(C.POOL_FILE_RENAMED, V.REPAIR, A.SET_ASIDE, "the right one is there", (), _TAKEN),
    Row(C.POOL_FILE_FOREIGN, V.REPAIR, A.SET_ASIDE, "no message of this instance is in it"),
    Row(C.POOL_FILE_CUT, V.REPAIR, A.CUT, "a record that is not whole is none"),
    Row(C.RECORD_DAMAGED, V.REPAIR, A.REBUILD,
        "the record is made again; a slot that history says is free is cleared", _WHOLE),
    Row(C.RECORD_DAMAGED, V.LOSS, A.REBUILD,
        "the last state that is known; the message may come twice", _PART),
    Row(C.RECORD_DAMAGED, V.LOSS, A.CLEAR, "what it was is not known", _NONE),
    Row(C.RECORD_MISSING, V.REPAIR, A.REBUILD, "the record is made again", _WHOLE),
    Row(C.RECORD_MISSING, V.UNKNOWN, A.LEAVE,
        "LSNs are missing: it may have ended there, so it is not brought back", _NOT_WHOLE),
    Row(C.RECORD_OLD, V.REPAIR, A.REBUILD, "the record is made again", _WHOLE),
    Row(C.RECORD_OLD, V.UNKNOWN, A.LEAVE, "LSNs are missing: it stays as it is", _NOT_WHOLE),
    Row(C.RECORD_ENDED, V.REPAIR, A.CLEAR, "history has its end: it must not be redelivered"),
    Row(C.RECORD_DUPLICATE, V.REPAIR, A.CLEAR, "the higher LSN wins"),
    Row(C.RECORD_STRAY, V.REPAIR, A.CLEAR, "nothing leads to it"),
    Row(C.BODY_DAMAGED, V.REPAIR, A.BODY, "the PUT frame has it", _WHOLE),
    Row(C.BODY_DAMAGED, V.LOSS, A.SAVE,
        "no copy: the message stays, its reader gets BodyDamaged", _NOT_WHOLE),
    Row(C.CONTAINER_DAMAGED, V.LOSS, A.LEAVE,
        "no copy: the message stays, its reader gets BodyUnavailable"),
    Row(C.CONTAINER_ORPHAN, V.REPAIR, A.SET_ASIDE, "the put that it was made for never came"),
    Row(C.STORE_DAMAGED, V.REPAIR, A.SAVE, "live bodies in it are findings of their own"),
    Row(C.STORE_FOREIGN, V.REPAIR, A.SET_ASIDE, "nothing of this instance is in it"),
)


REFUSED: frozenset[Case] = frozenset({
    C.CONTROL_FOREIGN, C.CONTROL_LOST, C.CONTROL_OLD, C.JOURNAL_ARCHIVED, C.JOURNAL_BEHIND,
    C.JOURNAL_CUT, C.JOURNAL_FOREIGN, C.JOURNAL_NEWEST, C.JOURNAL_NO_NOTE, C.JOURNAL_POSITION,
    C.JOURNAL_RENAMED, C.NEWER, C.POOL_FILE_DIFFERS, C.POOL_FILE_MISSING})  # fmt: skip
"""A start that meets one of these refuses the spool, unless everything is in the pool or in the
journal that it redoes (Source.WHOLE). Of all else it says what it is, and serves the rest."""


def decide(case: Case, source: Source, place: Place) -> Row:
    """The row that covers the combination; there is exactly one."""
    return next(row for row in TABLE if row.covers(case, source, place))


def combinations() -> Iterator[tuple[Case, Source, Place]]:
    """All of them."""
    return ((case, source, place) for case in Case for source in Source for place in Place)


def table_lines() -> list[str]:
    """The table as Markdown, as RECOVERY.md holds it."""
    lines = ["| found | history | its place | verdict | `apply` | why |",
             "|---|---|---|---|---|---|"]
    for row in TABLE:
        cells = (row.case.value, _names(row.sources), _names(row.places), row.verdict.value,
                 row.action.value, row.why)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _names(members: tuple[Source, ...] | tuple[Place, ...]) -> str:
    return ", ".join(member.value for member in members)
