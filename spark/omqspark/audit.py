"""The audit: is every message accounted for, in order, once, and is the archive itself whole?

    crc            bytes of archive files are damaged, cut, foreign, newer or cannot be read
    missing_file   a number between the first and the last file is not there
    gap            LSNs are missing inside a file or between two that follow each other

and what findings.py says of messages. Damage, a missing file or a gap may be the cause of other
findings: a message whose end stood there is called lost. `uncertain` then says so, of the verdict
as a whole: look at the damage first.

What is judged ends with the last file in the tables (`data_to`). `not_judged` says what was left
out and why: "clean" is the verdict on the rest only. What is wrong with files was found when they
were read, and comes from the manifest; files that could not be read are looked at again. Messages
that had ended at the last audit are not looked at again (audited.py). More than memory has room for
is looked at in steps, without Spark (audit_steps.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from omq.base.clock import NS_PER_S
from omq.format.archive import ArchiveHeader
from omqtools.omqspark import parquet, plan
from omqtools.omqspark.audited import (
    EXAMPLES_MAX,
    Audited,
    Basis,
    Judged,
    earlier,
    judged,
    some_of,
)
from omqtools.omqspark.findings import lost, message_findings, out_of_order
from omqtools.omqspark.ids import SCHEMA, ids
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.manifest import Manifest, missing
from omqtools.omqspark.options import FAIL_ON
from omqtools.omqspark.pool import Beside, beside
from omqtools.omqspark.session import Later

KINDS: Final = FAIL_ON
ATTEMPTS_MAX: Final = 3
Finding = dict[str, Any]


def file_findings(known: Manifest, passed_over: Sequence[Finding]) -> tuple[list[Finding],
                                                                            dict[str, int]]:
    """What is wrong with files: some findings, and how many there are of each kind."""
    gaps = known.lsn_gaps()
    counts = {"crc": 0, "gap": len(gaps), "missing_file": 0}
    for each in passed_over:
        counts[each["kind"]] = counts.get(each["kind"], 0) + 1
    found = [*passed_over, *gaps[:EXAMPLES_MAX]]
    room = EXAMPLES_MAX
    for first, last in missing(list(known.files)):
        counts["missing_file"] += last - first + 1
        shown = range(first, min(last + 1, first + room))
        found += [{"kind": "missing_file", "file": number} for number in shown]
        room -= len(shown)
    for batch in known.batches:
        found += batch.findings
        for kind, count in batch.found.items():
            counts[kind] = counts.get(kind, 0) + count
    return found, counts


def passed_over(known: Manifest, archive: str) -> tuple[list[Finding], list[int]]:
    """Files that are there and not in the tables: those without a valid head, or with another than
    the file had when it was read, as findings, and numbers of those that the next run will read."""
    items = [item for item in plan.listing(archive) if item.number not in known.files
             or not known.files[item.number].listed_as(item.size, item.modified_ns)]
    found, waiting = [], []
    for item, header in plan.heads(archive, items, bytes.fromhex(known.uuid)):
        record = known.files.get(item.number)
        if isinstance(header, ArchiveHeader):
            if record is None:
                waiting.append(item.number)
            elif not record.is_of(header, item.size):
                found.append({"kind": "replaced", "file": item.number, "detail": "it is another "
                              "file than the one in the tables; run --incremental takes it"})
        else:
            found.append({"kind": "crc", "file": item.number, "detail": plan.bad_text(header)})
    return found, waiting


def audit(lake: Lake, archive: str, *, pool: Path | None, attempts_max: int = ATTEMPTS_MAX,
          say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """The verdict: counts by kind, examples, what was judged, and what not. `say` hears how far
    one is that goes in steps."""
    known = lake.known()
    with ids(lake) if pool is not None else nullcontext() as keep:
        there: str | None = None
        beside_it = Beside()
        if pool is not None and keep is not None:
            last = max((record.last_lsn for record in known.files.values()), default=0)
            beside_it = beside(pool, bytes.fromhex(known.uuid), max(known.files), last, keep)
            keep.close()
            there = None if beside_it.unknown else keep.where
        found = None
        for before in (earlier(lake, known, attempts_max), Audited(attempts_max)):
            found = _judged(lake, known, before, there, beside_it.checkpoint, say)
            if found is not None:
                break
    assert found is not None, "what looks at everything looks at nothing twice"
    unknown = beside_it.unknown if pool is not None else "no --pool was given"
    found.now.keep(lake)
    return _verdict(known, archive, found, unknown, pool=pool is not None)


def _judged(lake: Lake, known: Manifest, before: Audited, there: str | None,
            checkpoint: int | None, say: Callable[[str], None]) -> Judged | None:
    """What messages say; None: everything must be looked at. `there`: a folder of the QPoolIds
    that are in the pool or ended after the archive."""
    frames = _frames(lake, known, before)
    if isinstance(lake.engine, Later) and lake.engine.in_steps(frames):
        from omqtools.omqspark.audit_steps import in_steps

        return in_steps(lake, lake.engine, known, before, there, checkpoint, say)
    with lake.told_by(frames):
        basis = Basis(lake, known, before)
        if basis.totals.comes_back:
            return None
        rows = message_findings(basis.messages, before.attempts_max).unionByName(
            out_of_order(basis.lines, basis.before_turns))
        if there is not None:
            rows = rows.unionByName(lost(
                basis.messages, parquet.streamed(lake.spark, there, SCHEMA), checkpoint))
        final, still = some_of(rows, few=lake.few)
        return Judged(judged(known, before, basis.totals, final, basis.turns()), basis.totals,
                      still)


def _verdict(known: Manifest, archive: str, found: Judged, unknown: str, *, pool: bool
             ) -> dict[str, Any]:
    """`unknown`: why it is not said who is lost; "": it is."""
    over, later = passed_over(known, archive)
    findings, counted = file_findings(known, over)
    not_judged = _before(known)
    if later:
        not_judged["files"] = f"not in the tables yet: {_some(later)}; run --incremental"
    if unknown:
        not_judged["lost"] = unknown
    counts = dict.fromkeys(KINDS, 0) | counted
    for each in (found.now.counts, found.still.counts):
        for kind, count in each.items():
            counts[kind] += count
    uncertain = any(counts[kind] for kind in ("crc", "replaced", "missing_file", "gap"))
    now, totals = found.now, found.totals
    return {"clean": not any(counts.values()), "counts": counts,
            "findings": findings + now.findings + found.still.findings,
            "messages": now.ended + totals.open, "ended": now.ended,
            "puts": now.puts + totals.open_puts, "open": totals.open, "files": len(known.files),
            "pool": pool, "uncertain": uncertain,
            "judged": [kind for kind in KINDS if kind not in not_judged],
            "not_judged": not_judged, **_span(known)}


def _frames(lake: Lake, known: Manifest, before: Audited) -> int:
    """How many are looked at."""
    new = {number for batch in known.batches[len(before.batches):] for number in batch.files}
    return sum(known.files[number].frames for number in new) + parquet.rows_in(
        lake.path("open", known.current))


def _before(known: Manifest) -> dict[str, str]:
    """What the first file follows: it was pruned, or has not come yet."""
    first = known.files[min(known.files)]
    if not first.follows_lsn:
        return {}
    return {"before": f"the tables begin with file {first.number}, behind LSN {first.follows_lsn}"}


def _some(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:10]))
    return text if len(numbers) <= 10 else f"{text} and {len(numbers) - 10} more"


def _span(known: Manifest) -> dict[str, Any]:
    """When the audit is made, and from when to when its data are (UTC)."""
    whole = [record for record in known.files.values() if record.frames]
    return {"audited": datetime.now(UTC).isoformat(timespec="seconds"),
            "data_from": _iso(min((r.time_min for r in whole), default=0)),
            "data_to": _iso(max((r.time_max for r in whole), default=0)),
            "last_lsn": max((r.last_lsn for r in whole), default=0)}


def _iso(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).isoformat()
