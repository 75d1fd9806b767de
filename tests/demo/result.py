"""The end of a run in words: verdict, figures, what is wrong, and where things lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.demo.feed import FeedCounts
from tests.demo.live import Queues, queue_table
from tests.demo.verify import Findings

_LISTED_MAX = 20  # of each kind of fault: a screenful


@dataclass(slots=True)
class Result:
    """Everything that the end of a run is told from."""

    base: Path
    feed: FeedCounts
    findings: Findings
    recipients: int
    expected: int
    feed_s: float
    total_s: float
    queues: Queues | None
    problems: list[str] = field(default_factory=list)
    kept: bool = True

    @property
    def good(self) -> bool:
        """The verdict."""
        return self.findings.good and not self.problems


def as_lines(result: Result) -> Iterator[str]:
    """What is printed at the end."""
    feed, findings = result.feed, result.findings
    yield ""
    yield from _faults(result)
    yield from queue_table(result.queues)
    yield ""
    yield f"messages    {feed.accepted} accepted of {feed.total}, {result.recipients} recipients"
    yield (
        f"arrived     {findings.copies} copies and {findings.reports} reports"
        f" of {result.expected} expected"
    )
    yield f"in          {_rate(feed.accepted, result.feed_s)} messages/s in {result.feed_s:.1f} s"
    out = findings.copies + findings.reports
    yield f"out         {_rate(out, result.total_s)} deliveries/s in {result.total_s:.1f} s"
    doubt = f"{feed.in_doubt} in doubt, {feed.refused} refused"
    yield f"feeder      {feed.postponed} postponed, {doubt}"
    if result.kept:
        yield f"spool       {result.base / 'spool'} (Maildirs in mail/, logs in logs/)"
        yield f"sent, sink  {result.base / 'sent'}, {result.base / 'sink'}"
    yield ""
    yield _verdict(result)


def _verdict(result: Result) -> str:
    if result.good:
        return "OK: every recipient has every message exactly once, byte for byte"
    lists = result.findings.faults()
    counts = [f"{len(faults)} {name}" for name, faults in lists.items() if faults]
    if result.problems:
        counts.append(f"{len(result.problems)} problems")
    return "FAILED: " + ", ".join(counts)


def _faults(result: Result) -> Iterator[str]:
    """The first few of each kind of fault."""
    lists = {"problems": result.problems, **result.findings.faults()}
    lists["in doubt, not counted"] = result.findings.doubtful
    for name, faults in lists.items():
        if not faults:
            continue
        yield f"{name} ({len(faults)}):"
        yield from (f"  {fault}" for fault in faults[:_LISTED_MAX])
        if len(faults) > _LISTED_MAX:
            yield f"  and {len(faults) - _LISTED_MAX} more"
        yield ""


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:.1f}" if seconds > 0 else "-"
