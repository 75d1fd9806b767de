"""What was unusual, in words: each sentence by a rule in this module, with the command that shows
more. Nothing else makes a sentence; if no rule says anything, one sentence says so, and up to when.
Of tables without a message it says that there was nothing to look at.

    audit       a kind of finding that is not zero, and whether it may be the cause of others; at
                the end what was not judged
    end         the data end more than AGE_S before the report is made, or later than that
    age         at the end of the data a queue's oldest message is older than AGE_S
    poison      messages went to POISON or to a dead-letter queue
    failing     of a queue's attempts more than FAILED_SHARE failed, and FAILED_MIN of them
    saturation  a queue's reader was busy more than BUSY_SHARE of SPAN_S or longer
    backlog     in the last hour a queue took in GROWTH times what left it, and is BACKLOG deep
    waiting     a queue's worst hour (p99) is WAIT_TIMES its median hour, and longer than WAIT_S
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pandas as pd

from omqtools.omqspark.topmost import Queues

AGE_S: Final = 3600.0
FAILED_SHARE, FAILED_MIN = 0.05, 10
BUSY_SHARE, SPAN_S = 0.9, 600.0
GROWTH, BACKLOG = 1.2, 100
WAIT_TIMES, WAIT_S = 10.0, 10.0
SENTENCES_MAX: Final = 5
"""Of one rule: with 300 queues a page of them says nothing."""
FOUND: Final = {
    "crc": ("damaged place in the archive", "damaged places in the archive"),
    "replaced": ("archive file that is not the one that was read",
                 "archive files that are not those that were read"),
    "missing_file": ("missing archive file", "missing archive files"),
    "gap": ("gap in the numbers of the journal", "gaps in the numbers of the journal"),
    "lost": ("lost message", "lost messages"),
    "duplicated": ("message that was put or ended twice", "messages that were put or ended twice"),
    "resurrected": ("message that came back after its end",
                    "messages that came back after their end"),
    "out_of_order": ("message handed out of turn", "messages handed out of turn"),
    "attempts": ("message with more attempts than allowed",
                 "messages with more attempts than allowed")}
"""What the audit's kinds are called: one, several."""
NOT_JUDGED: Final = {"files": "the newest files", "before": "what came before",
                     "since": "what came after the audit"}
"""What `not_judged` names besides kinds."""
Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Sentence:
    """`command` shows more; empty: nothing does."""

    text: str
    command: str = ""


def sentences(tables: Tables, queues: Queues, verdict: dict[str, Any] | None, *, end: datetime,
              now: datetime) -> list[Sentence]:
    """See the module. `end`: of the data; `now`: when the report is made (UTC)."""
    found = [*_audit(verdict), *_end(end, now)]
    empty = tables["queue_hour"].empty
    if empty:
        found.append(Sentence("These tables contain no messages, so there was nothing to "
                              "examine."))
    else:
        for rule in (_age, _poison, _failing, _saturation, _backlog, _waiting):
            said = list(rule(tables, queues))
            found += said[:SENTENCES_MAX]
            if len(said) > SENTENCES_MAX:
                found.append(Sentence(f"The same holds for {len(said) - SENTENCES_MAX} more "
                                      "queues."))
    left = not_judged(verdict) if verdict is not None else ""
    if not found:
        found.append(Sentence(f"Nothing was unusual up to {end:%d %b %Y %H:%M} (UTC), by the rules "
                              "of this summary" + (" and as far as it was judged." if left
                                                   else ".")))
    return [*found, *([Sentence(left, "audit.json says what was judged")] if left else ())]


def of_these(verdict: dict[str, Any] | None, last_lsn: int, files: int) -> dict[str, Any] | None:
    """The verdict, with what came into the tables after it as not judged."""
    if verdict is None or (verdict.get("last_lsn"), verdict.get("files")) == (last_lsn, files):
        return verdict
    since = (f"it judged {verdict.get('files', 0):,} files up to LSN {verdict.get('last_lsn', 0)}, "
             f"the tables have {files:,} up to LSN {last_lsn}; omq-spark audit judges them")
    return verdict | {"not_judged": {"since": since} | verdict.get("not_judged", {})}


def counted(kind: str, count: int) -> str:
    """How many of a kind, in words."""
    return f"{count:,} {words(kind)[count != 1]}"


def words(kind: str) -> tuple[str, str]:
    """One and several of a kind; of one that another version's audit has, its name."""
    plain = kind.replace("_", " ")
    return FOUND.get(kind, (plain, plain))


def not_judged(verdict: Mapping[str, Any]) -> str:
    """What the audit left out, and why; empty: nothing."""
    return " ".join(f"Not judged: {NOT_JUDGED.get(kind) or words(kind)[1]} ({why})."
                    for kind, why in verdict.get("not_judged", {}).items())


def seconds(value: float) -> str:
    """For people: 42 s, 7 min, 3.5 h, 12 days."""
    for size, word in ((172_800.0, "days"), (7200.0, "h"), (120.0, "min")):
        if value >= size:
            unit = {"days": 86_400.0, "h": 3600.0, "min": 60.0}[word]
            return f"{value / unit:.3g} {word}"
    return f"{value:.3g} s"


def _audit(verdict: dict[str, Any] | None) -> Iterator[Sentence]:
    if verdict is None:
        yield Sentence("No audit was made, so it is not known whether messages are missing.",
                       "omq-spark audit --out OUT --archive ARCHIVE --pool SPOOL")
        return
    for kind, count in verdict["counts"].items():
        if count:
            ids = [str(each["qpool"]) for each in verdict.get("findings", [])
                   if each["kind"] == kind and "qpool" in each]
            yield Sentence(f"The audit found {counted(kind, count)}.",
                           f"omqlog --message {ids[0]}" if ids else "audit.json lists them")
    if verdict.get("uncertain"):
        yield Sentence("The damaged or missing files may have caused other findings, and what "
                       "happened in them is not in the sentences and pictures below.",
                       "omq-spark run --incremental, once the files are there again")


def _end(end: datetime, now: datetime) -> Iterator[Sentence]:
    behind = (now - end).total_seconds()
    if behind > AGE_S:
        yield Sentence(f"The data end at {end:%d %b %Y %H:%M} (UTC), {seconds(behind)} before this "
                       "report was made: it does not cover what happened since.",
                       "omq-archive, then omq-spark refresh")
    elif behind < -AGE_S:
        yield Sentence(f"The newest event is of {end:%d %b %Y %H:%M} (UTC), {seconds(-behind)} "
                       "after this report was made: a clock was wrong, so ages and waits may be "
                       "wrong, too.", "omqlog")


def _age(tables: Tables, queues: Queues) -> Iterator[Sentence]:
    for row in tables["oldest"].itertuples():
        if row.age_s > AGE_S:
            what = (f"one message has been there for {seconds(row.age_s)}" if row.waiting == 1 else
                    f"the oldest of {row.waiting:,} messages has been there for "
                    f"{seconds(row.age_s)}")
            yield Sentence(f"On {queues.name(int(row.queue))} {what}.",
                           f"omqlog --message {row.qpool}")


def _poison(tables: Tables, queues: Queues) -> Iterator[Sentence]:
    rows = tables["poison"]
    for queue, part in rows[rows["poisoned"] > 0].groupby("queue"):
        count, worst = int(part["poisoned"].sum()), part.sort_values("poisoned").iloc[-1]
        yield Sentence(f"{count:,} messages of {queues.name(int(queue))} failed for good, most of "
                       f"them with the reader of pid {int(worst['reader_pid'] or 0)}.",
                       f"omqlog --message {int(worst['example'])}")


def _failing(tables: Tables, queues: Queues) -> Iterator[Sentence]:
    for queue, part in tables["queue_hour"].groupby("queue"):
        failed, tried = int(part["failed"].sum()), int(part["services"].sum())
        share = failed / max(1, tried + failed)
        if failed >= FAILED_MIN and share > FAILED_SHARE:
            name = queues.name(int(queue))
            yield Sentence(f"{share:.0%} of the attempts on {name} failed ({failed:,}).",
                           "omq-spark biography --out OUT --where 'failed > 0'")


def _saturation(tables: Tables, queues: Queues) -> Iterator[Sentence]:
    rows = tables["readers"]
    busy = rows[(rows["busy_share"] > BUSY_SHARE) & (rows["span_s"] >= SPAN_S)]
    for queue, part in busy.groupby("queue"):
        of = int((rows["queue"] == queue).sum())
        name = queues.name(int(queue))
        yield Sentence(f"{len(part)} of {of} readers of {name} had no time left "
                       f"({part['busy_share'].max():.0%} busy).",
                       f"omq-spark whatif --out OUT --readers {name}={of + 1}")


def _backlog(tables: Tables, queues: Queues) -> Iterator[Sentence]:
    minutes = tables["queue_minute"]
    late = minutes[minutes["minute"] > minutes["minute"].max() - pd.Timedelta(hours=1)]
    for queue, part in late.groupby("queue"):
        came, left = int(part["arrivals"].sum()), int(part["departures"].sum())
        deep = int(part.sort_values("minute").iloc[-1]["depth"])
        if deep >= BACKLOG and came > GROWTH * left:
            name = queues.name(int(queue))
            yield Sentence(f"{name} grows: {came:,} came in the last hour, {left:,} left; {deep:,} "
                           "wait.", "omq-spark advise --out OUT --wait-s 60")


def _waiting(tables: Tables, queues: Queues) -> Iterator[Sentence]:
    for queue, part in tables["queue_hour"].dropna(subset=["ready_wait_p99_s"]).groupby("queue"):
        worst = part.loc[part["ready_wait_p99_s"].idxmax()]
        usual = float(part["ready_wait_p99_s"].median())
        longest = worst["ready_wait_p99_s"]
        if longest > WAIT_S and longest > WAIT_TIMES * usual:
            yield Sentence(f"At {worst['hour']:%d %b %H:%M} one of 100 messages on "
                           f"{queues.name(int(queue))} waited {seconds(longest)} or "
                           f"longer, usually {seconds(usual)}.",
                           f"omq-spark advise --out OUT --wait-s 60 --day {worst['hour']:%Y-%m-%d}")
