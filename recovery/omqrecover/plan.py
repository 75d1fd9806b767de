"""The plan: what would be done about each finding, for one spool in one state, as a file.

    plan := header line (JSON), finding line (JSON) *

The header has the spool's uuid and its stamp: checkpoint and end of the journal when the plan was
made. A manager that starts opens a new journal file, so a spool that has been used since is
noticed. The decisions themselves are not in the file: they are those of the table in
cases.py, so a plan cannot ask for anything that the table would not do.

Errors: Damaged for a file that is not a plan, NewerFormat, PlanOutdated, InputUnreadable.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from omq.base.errors import Damaged, DiskError, InputUnreadable, NewerFormat, PlanOutdated
from omq.base.paths import SpoolPaths
from omq.core.judge.finding import Found
from omq.storage.files import read_file
from omqtools.omqrecover.archive import all_numbers, open_archived
from omqtools.omqrecover.control_survey import read_control
from omqtools.omqrecover.journal_survey import noted
from omqtools.omqrecover.survey import Survey

FORMAT: Final = 1
PLAN_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Stamp:
    """The state of a spool, as far as a manager's start would change it."""

    uuid: str
    generation: int  # of poolctrl; 0 = no valid slot
    checkpoint_lsn: int
    checkpoint_journal: int  # file in which it goes on
    journal: int  # highest number of a journal file, archived ones too
    end_lsn: int  # last LSN in that file
    noted: int = 0  # newest journal file that journal/newest names

    @classmethod
    def of(cls, paths: SpoolPaths, uuid: bytes) -> Stamp:
        control = read_control(paths, uuid).control
        numbers = [(n, d) for d in (paths.archive, paths.journal) for n in all_numbers(d)]
        number, directory = max(numbers, key=lambda pair: pair[0], default=(0, paths.journal))
        last = 0
        if number:
            scan = open_archived(directory, number).scan(uuid, 0, 0, None)
            for block in scan:
                last = block.header.last_lsn
        return cls(uuid.hex(), control.generation if control else 0, control.lsn if control else 0,
                   control.journal if control else 0, number, last, noted(paths, uuid))


@dataclass(frozen=True, slots=True)
class Plan:
    """See the module. `highest_lsn`, `next_qpool`: where numbers go on, for a new journal file."""

    stamp: Stamp
    time_ns: int
    highest_lsn: int
    next_qpool: int
    findings: list[Found] = field(default_factory=list)

    @classmethod
    def of(cls, made: Survey, time_ns: int) -> Plan:
        return cls(Stamp.of(made.paths, made.uuid), time_ns, made.highest_lsn, made.next_qpool,
                   made.found)

    def encode(self) -> bytes:
        head = {"omqrecover": FORMAT, "stamp": asdict(self.stamp), "time_ns": self.time_ns,
                "highest_lsn": self.highest_lsn, "next_qpool": self.next_qpool}
        lines = [head, *({"decision": found.row.action.value} | found.fields()
                         for found in self.findings)]
        return "".join(json.dumps(line) + "\n" for line in lines).encode()

    @property
    def name(self) -> str:
        """Short and unique: the folder in quarantine/ is called after it."""
        return blake2b(self.encode(), digest_size=6).hexdigest()


def load_plan(path: Path) -> Plan:
    """A saved plan."""
    try:
        data = read_file(path.absolute(), PLAN_BYTES_MAX)
    except FileNotFoundError as error:
        raise InputUnreadable(file=path, reason="there is no such file") from error
    except DiskError as error:
        raise InputUnreadable(file=path, reason=str(error)) from error
    return decode_plan(data, path)


def decode_plan(data: bytes, path: Path) -> Plan:
    """Damaged with the line, NewerFormat."""
    lines = data.decode("utf-8", "replace").splitlines()
    findings: list[Found] = []
    try:
        head = json.loads(lines[0])
        if int(head["omqrecover"]) > FORMAT:
            raise NewerFormat(file=path, version=head["omqrecover"], known=FORMAT)
        stamp = Stamp(**head["stamp"])
        for line in lines[1:]:
            fields: dict[str, Any] = json.loads(line)
            del fields["decision"]
            findings.append(Found.from_fields(fields))
        return Plan(stamp, int(head["time_ns"]), int(head["highest_lsn"]), int(head["next_qpool"]),
                    findings)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        reason = f"line {len(findings) + 1} or the next is not that of a plan: {error}"
        raise Damaged(file=path, offset=0, reason=reason) from error


def check_stamp(plan: Plan, now: Stamp, *, begun: bool, new_file: int) -> None:
    """Refuse a spool that is another one, or has changed. `begun`: this plan was begun and cut; it
    may have moved the checkpoint and made journal file `new_file` itself."""
    if now.uuid != plan.stamp.uuid:
        raise PlanOutdated(reason=f"it is for the instance {plan.stamp.uuid}")
    if begun:
        if now.journal > new_file:
            raise PlanOutdated(reason=f"a manager has run since: journal file {now.journal}")
    elif now != plan.stamp:
        pairs = zip(asdict(plan.stamp).items(), asdict(now).values(), strict=True)
        changed = ", ".join(f"{name} {was} -> {value}" for (name, was), value in pairs
                            if was != value)
        raise PlanOutdated(reason=f"the spool has changed since ({changed})")
