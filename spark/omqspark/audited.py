"""What earlier audits have judged, so that the next one looks at what is new.

    OUT/audited.json    the batches that were judged, and what was found in them

A message that has ended, and a hand-out, is judged once. What is open is judged each time: it is as
much as there is in the queues. Whether a hand-out was in order depends on those before it: of each
line (findings.LINE) that has somebody waiting, `turns` keeps the latest arrival that was handed
out.

A QPoolId that returns behind its end is a finding that needs both rows: ids grow, so an id of
the time that was judged, in a message that was born (or has no birth) later, makes the audit look
at everything (`comes_back`). And such findings are not kept: then everything is looked at each
time.

What is kept holds for these batches, that limit of attempts and this version; else the audit begins
anew. In the middle of a crash: the file appears by rename, after the verdict's rows; without it
the next audit judges the same batches again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from omqtools.omqspark import columns, parquet
from omqtools.omqspark.derived import told
from omqtools.omqspark.engine import F
from omqtools.omqspark.findings import LINE, chosen, in_turn, latest, lines
from omqtools.omqspark.lake import Lake, lives
from omqtools.omqspark.manifest import Manifest
from omqtools.omqspark.out_directory import AUDITED

VERSION: Final = 1
TURNS_MAX: Final = 100_000
"""Lines in which somebody waits; with more of them nothing is kept."""
FINDINGS_MAX: Final = 1000
EXAMPLES_MAX: Final = 100
COMES_BACK: Final = ("duplicated", "resurrected")
MESSAGES: Final = ("qpool bigint, born_lsn bigint, producer_pid bigint, persistent boolean, "
                   "puts bigint, ends bigint, end_lsn bigint, behind_end_lsn bigint, "
                   "attempts_max int")
STAYS: Final = ("qpool bigint, queue int, priority int, arrived_lsn bigint, given_lsn bigint, "
                "until_s bigint, put_off bigint, gives bigint, first_epoch bigint, "
                "given_epoch bigint")
"""The columns that are looked at: nothing else is read."""
TURN: Final = "queue int, priority int, producer_pid bigint, latest bigint"


@dataclass
class Audited:
    """See the module. Of messages that have ended in `batches`: how many, their births, the lowest
    and highest QPoolId born in them; `findings`: some of those that `counts` counts."""

    attempts_max: int
    batches: list[int] = field(default_factory=list)
    last_lsn: int = 0
    born_min: int = 0
    born_max: int = 0
    ended: int = 0
    puts: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    turns: list[list[int]] = field(default_factory=list)
    version: int = VERSION

    def keep(self, lake: Lake) -> None:
        """For the next audit."""
        if len(self.turns) <= TURNS_MAX and not any(self.counts.get(kind) for kind in COMES_BACK):
            lake.put(AUDITED, (json.dumps(asdict(self)) + "\n").encode())
        elif lake.get(AUDITED) is not None:
            lake.put(AUDITED, b"{}\n")


def earlier(lake: Lake, known: Manifest, attempts_max: int) -> Audited:
    """What was judged; nothing, where it does not hold any more."""
    told = json.loads(lake.get(AUDITED) or b"{}")
    if told.get("version") == VERSION and told["attempts_max"] == attempts_max:
        found = Audited(**told)
        if found.batches == [batch.number for batch in known.batches][: len(found.batches)]:
            return found
    return Audited(attempts_max)


@dataclass(frozen=True)
class Totals:
    """Of some messages: how many have ended and with how many puts, how many are open, the lowest
    and highest QPoolId of a birth (0: none), and whether one comes back (see the module)."""

    ended: int = 0
    puts: int = 0
    open: int = 0
    open_puts: int = 0
    born_min: int = 0
    born_max: int = 0
    comes_back: bool = False

    @classmethod
    def of(cls, messages: DataFrame, before: Audited) -> Totals:
        ended, born = F.col("ended") == 1, F.when(F.col("born_lsn").isNotNull(), F.col("qpool"))
        again = F.col("qpool").between(before.born_min, before.born_max) & ~F.coalesce(
            F.col("born_lsn") <= before.last_lsn, F.lit(False))  # noqa: FBT003
        row = messages.agg(
            F.count_if(ended), F.sum(F.when(ended, F.col("puts"))),
            F.count_if(~ended), F.sum(F.when(~ended, F.col("puts"))),
            F.min(born), F.max(born), F.bool_or(again)).first()
        assert row is not None
        ended_, puts, open_, open_puts, lowest, highest = (int(x or 0) for x in row[:6])
        return cls(ended_, puts, open_, open_puts, lowest, highest,
                   comes_back=bool(before.batches and row[6]))

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.ended + other.ended, self.puts + other.puts, self.open + other.open,
            self.open_puts + other.open_puts,
            min(filter(None, (self.born_min, other.born_min)), default=0),
            max(self.born_max, other.born_max), self.comes_back or other.comes_back)


def judged(known: Manifest, before: Audited, totals: Totals, final: FindingCounts,
           turns: list[list[int]]) -> Audited:
    """All that was judged with this."""
    return Audited(
        before.attempts_max, [batch.number for batch in known.batches],
        max((record.last_lsn for record in known.files.values()), default=0),
        min(filter(None, (before.born_min, totals.born_min)), default=0),
        max(before.born_max, totals.born_max), before.ended + totals.ended,
        before.puts + totals.puts, dict(Counter(before.counts) + Counter(final.counts)),
        [*before.findings, *final.findings][:FINDINGS_MAX], turns)


class FindingCounts(NamedTuple):
    """How many findings there are of each kind, and some of them."""

    counts: dict[str, int]
    findings: list[dict[str, Any]]


class Judged(NamedTuple):
    """What an audit has found in messages: `now` of all that is final, `still` in what is open."""

    now: Audited
    totals: Totals
    still: FindingCounts


class Basis:
    """The rows that an audit looks at: `messages` that ended behind what was judged, and the open
    ones; `lines`: hand-outs after it, `before_turns`: the latest arrivals before these."""

    def __init__(self, lake: Lake, known: Manifest, before: Audited) -> None:
        batches = known.batches[len(before.batches):]
        numbers = [batch.number for batch in batches]
        self.messages = told(lives(lake, "messages", MESSAGES, numbers, known.current),
                             "messages", "last_lsn")
        self._stays = lives(lake, "stays", STAYS, numbers, known.current)
        files = [number for batch in batches for number in batch.files]
        given = self._stays.where(F.col("given_lsn") > before.last_lsn)
        events = (lake.rows("bronze", known, files) if files else parquet.rows(
            lake.spark, [], columns.ddl("events")))
        self.lines = in_turn(lines(given, self.messages), chosen(events))
        self.before_turns = parquet.rows(
            lake.spark, before.turns, TURN) if before.turns else None
        self.totals = Totals.of(self.messages, before)

    def turns(self) -> list[list[int]]:
        """Of each line in which somebody waits the latest arrival that was handed out."""
        if not self.totals.open:
            return []
        found = latest(self.lines, self.before_turns).join(
            waiting(self._stays, self.messages), list(LINE), "left_semi").limit(TURNS_MAX + 1)
        return [[int(value) for value in row] for row in found.collect()]


def waiting(stays: DataFrame, messages: DataFrame) -> DataFrame:
    """The lines in which somebody waits, any number of times."""
    return stays.where("ended = 0 AND given_lsn IS NULL").join(
        messages.select("qpool", "producer_pid"), "qpool").select(*LINE)


def some_of(rows: DataFrame, *, few: bool) -> tuple[FindingCounts, FindingCounts]:
    """Findings: of what is final, and of what may still change. To keep the rows costs more than to
    find few of them twice, if there are any at all."""
    rows = rows if few else rows.persist()
    counts: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for row in rows.groupBy("final", "kind").count().collect():
        counts[not row["final"]][row["kind"]] = row["count"]
    final, still = (FindingCounts(each, [
        row.asDict() for kind in each for row in rows.where(
            (F.col("kind") == kind) & (F.col("final") == (each is counts[0]))).drop("final")
        .orderBy("lsn").limit(EXAMPLES_MAX).collect()]) for each in counts)
    if not few:
        rows.unpersist()
    return final, still


def merged(parts: Sequence[FindingCounts]) -> FindingCounts:
    """Those of several steps as one."""
    counts, by_kind = Counter[str](), dict[str, list[dict[str, Any]]]()
    for part in parts:
        counts.update(part.counts)
        for each in part.findings:
            by_kind.setdefault(each["kind"], []).append(each)
    return FindingCounts(dict(counts), [each for kind in by_kind for each in sorted(
        by_kind[kind], key=lambda each: int(each["lsn"]))[:EXAMPLES_MAX]])
