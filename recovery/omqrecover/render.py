"""What the operator reads: counts, findings with their decisions, one verdict; or JSON lines.

A JSON line has `part` (a count) or `finding` (the name of the case); the last one has `verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from omq.base.errors import Exit
from omq.base.names import escape
from omq.core.judge.cases import Case, Verdict
from omq.core.judge.finding import Found, worst
from omq.storage.instance_file import Role
from omqtools.omqrecover.survey import Survey

SHOWN_MAX: Final = 5
"""Findings of one case shown as text; JSON and a saved plan have all."""
EXITS: Final = {Verdict.NORMAL: Exit.OK, Verdict.REPAIR: Exit.NO, Verdict.UNKNOWN: Exit.DATA,
                Verdict.LOSS: Exit.DATA}
CLEAN: Final = {
    Role.PRIMARY: "clean: start the instance",
    Role.STANDBY: "clean: a standby, which 'omq standby follow' goes on with",
    Role.FORMER: "clean: it can be looked at; no queue manager starts on a former primary, or on a "
                 "copy that was restored to look at",
}
ADVICE: Final = {
    Verdict.REPAIR: "repairable: no message is lost; 'omqrecover plan' says what would be done",
    Verdict.UNKNOWN: "history unknown: whether anything is lost cannot be told from what is here; "
                     "look for the missing files first",
    Verdict.LOSS: "loss: something that was acknowledged is missing; look for a better copy first",
}


def text_lines(made: Survey, role: Role) -> Iterator[str]:
    """Counts and findings. `role`: of the spool."""
    for line in made.lines:
        facts = ", ".join(f"{key} {value}" for key, value in line.items()
                          if key not in ("part", "name") and value is not None)
        yield f"{line['part']:<13} {escape(str(line['name'])):<30} {facts}"
    yield f"{'messages':<13} {'alive at the next start':<30} {len(made.live)}"
    yield ""
    yield from finding_lines(made.found, role)


def finding_lines(found: list[Found], role: Role) -> Iterator[str]:
    """Findings, worst first, each with what apply does; many of one case are counted."""
    order = {Verdict.LOSS: 0, Verdict.UNKNOWN: 1, Verdict.REPAIR: 2, Verdict.NORMAL: 3}
    total = Counter(each.case for each in found)
    shown: Counter[Case] = Counter()
    for each in sorted(found, key=lambda each: order[each.row.verdict]):
        shown[each.case] += 1
        if shown[each.case] > SHOWN_MAX:
            continue
        row = each.row
        yield f"{row.verdict.value}: {_place(each)}: {row.case.value}"
        yield f"    {escape(each.reason, 300)}"
        yield f"    {row.action.value}: {row.why}"
        if shown[each.case] == SHOWN_MAX < total[each.case]:
            yield f"    ... and {total[each.case] - SHOWN_MAX} more of these"
    verdict = worst(found)
    advice = CLEAN[role] if verdict is Verdict.NORMAL else ADVICE[verdict]
    yield f"{len(found)} findings; {advice}" if found else advice


def _place(each: Found) -> str:
    where = escape(each.file)
    if each.record >= 0:
        return f"{where} record {each.record}"
    return f"{where} offset {each.offset:#x}" if each.length else where


def json_records(made: Survey) -> Iterator[dict[str, Any]]:
    """One object a line."""
    yield from made.lines
    yield {"part": "messages", "name": "alive", "live": len(made.live)}
    for each in made.found:
        yield finding_record(each)
    yield verdict_record(made.found)


def finding_record(each: Found) -> dict[str, Any]:
    """A finding with its decision."""
    fields = each.fields()
    return {"finding": fields.pop("case").lower(), **fields, "verdict": each.row.verdict.value,
            "action": each.row.action.value, "why": each.row.why}


def verdict_record(found: list[Found]) -> dict[str, Any]:
    counts = Counter(each.row.verdict.value for each in found)
    return {"verdict": worst(found).value, "findings": len(found), **counts}
