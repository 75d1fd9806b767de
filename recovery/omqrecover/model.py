"""What a scan finds: one `Found` each, with the row of the decision table that covers it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from omq.format.findings import Finding
from omqtools.omqrecover.cases import Case, Place, Row, Source, Verdict, decide


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

    @property
    def row(self) -> Row:
        return decide(self.case, self.source, self.place)

    @classmethod
    def of(cls, case: Case, directory: str, finding: Finding, source: Source = Source.NONE
           ) -> Found:
        """From a decoder's finding."""
        return cls(case, f"{directory}/{finding.file}", finding.reason, finding.offset,
                   finding.length, finding.record, 0, finding.lsn, source)

    def fields(self) -> dict[str, Any]:
        """For JSON; `from_fields` reads it back."""
        out = asdict(self)
        out |= {"case": self.case.name, "source": self.source.name, "place": self.place.name}
        return out

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Found:
        """KeyError, ValueError or TypeError for what is no finding."""
        values = dict(fields)
        values["case"] = Case[values["case"]]
        values["source"] = Source[values["source"]]
        values["place"] = Place[values["place"]]
        return cls(**values)


def worst(found: list[Found]) -> Verdict:
    """The verdict over all findings."""
    order = (Verdict.LOSS, Verdict.UNKNOWN, Verdict.REPAIR)
    verdicts = {each.row.verdict for each in found}
    return next((verdict for verdict in order if verdict in verdicts), Verdict.NORMAL)
