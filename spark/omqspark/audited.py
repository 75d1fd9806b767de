"""What earlier audits have judged, so that the next one looks at what is new.

    OUT/audited.json    the batches that were judged, and what was found in them

A message that has ended, and a hand-out, is judged once. What is open is judged each time: it is as
much as there is in the queues. Whether a hand-out was in order depends on those before it: of each
line (findings.LINE) that has somebody waiting, `turns` keeps the latest arrival that was handed
out.

A QPoolId that comes again behind its end is a finding that needs both rows: ids grow, so an id of
the time that was judged, in a message that was born (or has no birth) later, makes the audit look
at everything (`comes_back`). And such findings are not kept: then everything is looked at each
time.

What is kept holds for these batches, that limit of attempts and this version; else the audit begins
anew. In the middle of a crash: the file appears by rename, behind the verdict's rows; without it
the next audit judges the same batches again.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from omqtools.omqspark import columns, parquet
from omqtools.omqspark.derived import told
from omqtools.omqspark.engine import F
from omqtools.omqspark.findings import LINE, chosen, lines
from omqtools.omqspark.lake import Lake, lives
from omqtools.omqspark.manifest import Manifest
from omqtools.omqspark.out import AUDITED

VERSION: Final = 1
TURNS_MAX: Final = 100_000
"""Lines in which somebody waits; with more of them nothing is kept."""
FINDINGS_MAX: Final = 1000
COMES_BACK: Final = ("duplicated", "resurrected")
MESSAGES: Final = ("qpool bigint, born_lsn bigint, producer_pid bigint, persistent boolean, "
                   "puts bigint, ends bigint, end_lsn bigint, behind_end_lsn bigint, "
                   "attempts_max int")
STAYS: Final = ("qpool bigint, queue int, priority int, arrived_lsn bigint, given_lsn bigint, "
                "until_s bigint, put_off bigint, gives bigint, first_epoch bigint, "
                "given_epoch bigint")
"""The columns that are looked at: nothing else is read."""
_TURN: Final = "queue int, priority int, producer_pid bigint, latest bigint"


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


class Basis:
    """The rows that an audit looks at: `messages` that ended behind what was judged, and the open
    ones; `lines`: hand-outs behind it, `turns`: the latest arrivals before these. `open`,
    `open_puts`: how many; `comes_back`: see the module."""

    def __init__(self, lake: Lake, known: Manifest, before: Audited) -> None:
        self._known, self._spark = known, lake.spark
        batches = known.batches[len(before.batches):]
        numbers = [batch.number for batch in batches]
        self.messages = told(lives(lake, "messages", MESSAGES, numbers, known.current),
                             "messages", "last_lsn")
        self._stays = lives(lake, "stays", STAYS, numbers, known.current)
        files = [number for batch in batches for number in batch.files]
        given = self._stays.where(F.col("given_lsn") > before.last_lsn)
        events = (lake.rows("bronze", known, files) if files else parquet.rows(
            self._spark, [], columns.ddl("events")))
        self.lines = lines(given, self.messages, chosen(events))
        self.turns = parquet.rows(self._spark, before.turns, _TURN) if before.turns else None
        ended, born = F.col("ended") == 1, F.when(F.col("born_lsn").isNotNull(), F.col("qpool"))
        again = F.col("qpool").between(before.born_min, before.born_max) & ~F.coalesce(
            F.col("born_lsn") <= before.last_lsn, F.lit(False))  # noqa: FBT003
        row = self.messages.agg(
            F.count_if(ended), F.sum(F.when(ended, F.col("puts"))),
            F.count_if(~ended), F.sum(F.when(~ended, F.col("puts"))),
            F.min(born), F.max(born), F.bool_or(again)).first()
        assert row is not None
        self._ended, self._puts, self.open, self.open_puts, *self._born = (
            int(x or 0) for x in row[:6])
        self.comes_back = bool(before.batches) and bool(row[6])

    def audited(self, before: Audited, counts: dict[str, int], findings: list[dict[str, Any]]
                ) -> Audited:
        """All that was judged with this."""
        records = self._known.files.values()
        return Audited(
            before.attempts_max, [batch.number for batch in self._known.batches],
            max((record.last_lsn for record in records), default=0),
            min(filter(None, (before.born_min, self._born[0])), default=0),
            max(before.born_max, self._born[1]), before.ended + self._ended,
            before.puts + self._puts, dict(Counter(before.counts) + Counter(counts)),
            [*before.findings, *findings][:FINDINGS_MAX], self._waiting_lines())

    def _waiting_lines(self) -> list[list[int]]:
        if not self.open:
            return []
        senders = self.messages.select("qpool", "producer_pid")
        waiting = self._stays.where("ended = 0 AND given_lsn IS NULL").join(senders, "qpool")
        latest = self.lines.groupBy(*LINE).agg(F.max("arrived_lsn").alias("latest"))
        if self.turns is not None:
            latest = latest.unionByName(self.turns).groupBy(*LINE).agg(
                F.max("latest").alias("latest"))
        found = latest.join(waiting, list(LINE), "left_semi").limit(TURNS_MAX + 1)
        return [[int(value) for value in row] for row in found.collect()]
