"""What is found in a spool: one `Found` each, with the row of the decision table that covers it.

    lost for certain    verdict LOSS       what may be lost    verdict UNKNOWN
    what to do          row.action and row.why: omqrecover does it

The same finding has the same case, file and place for the start, omqcheck and omqrecover. What only
history can tell (`source`) omqrecover fills in; to the others it is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from omq.core.judge.cases import REFUSED, Case, Place, Row, Source, Verdict, decide
from omq.format.findings import Finding, Kind


@dataclass(frozen=True, slots=True)
class Found:
    """One finding: where it is, what it is, and what decides."""

    case: Case
    file: str  # below the spool, like msgpool/3QP
    reason: str
    offset: int = 0
    length: int = 0
    record: int = -1
    qpool: int = 0
    lsn: int = 0
    source: Source = Source.NONE
    place: Place = Place.FREE
    target: str = ""  # where it belongs, for what is renamed or fetched
    count: int = 1  # places, or messages whose body it is

    @property
    def row(self) -> Row:
        return decide(self.case, self.source, self.place)

    @property
    def seen(self) -> Verdict:
        """The verdict of one who has not read history: where that may have it all, UNKNOWN."""
        verdict = self.row.verdict
        best = decide(self.case, Source.WHOLE, self.place).verdict
        return Verdict.UNKNOWN if verdict is Verdict.LOSS and best is not Verdict.LOSS else verdict

    @property
    def refused(self) -> bool:
        """Does a start refuse the spool for it?"""
        return self.case in REFUSED and self.source is not Source.WHOLE

    @property
    def finding(self) -> Finding:
        """As a start reports it and sets it aside."""
        kind = Kind.CORRUPT if self.length else Kind.GAP
        if self.row.verdict is Verdict.NORMAL:
            kind = Kind.TORN
        return Finding(kind, self.reason, PurePath(self.file).name, self.offset, self.length,
                       self.record, self.lsn, self.count)

    @classmethod
    def of(cls, case: Case, directory: str, finding: Finding, source: Source = Source.NONE
           ) -> Found:
        """From a decoder's finding."""
        return cls(case, f"{directory}/{finding.file}", finding.reason, finding.offset,
                   finding.length, finding.record, 0, finding.lsn, source, count=finding.count)

    def fields(self) -> dict[str, Any]:
        """For JSON; `from_fields` reads it back."""
        out = asdict(self)
        out |= {"case": self.case.name, "source": self.source.name, "place": self.place.name}
        return out

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Found:
        """KeyError, ValueError or TypeError for what is not a finding."""
        values = dict(fields)
        values["case"] = Case[values["case"]]
        values["source"] = Source[values["source"]]
        values["place"] = Place[values["place"]]
        return cls(**values)


def worst(found: Iterable[Found]) -> Verdict:
    """The verdict over all findings."""
    return worst_of(each.row.verdict for each in found)


def worst_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of these."""
    order = (Verdict.LOSS, Verdict.UNKNOWN, Verdict.REPAIR)
    there = {*verdicts}
    return next((verdict for verdict in order if verdict in there), Verdict.NORMAL)
