"""An audit of more than memory has room for: in steps, by DuckDB, without a JVM (ADR 0180).

    lost       what is open, by QPoolId, compared with the pool
    messages   messages and stays by QPoolId: what all rows of a message say; the hand-outs that
               must have come in their turn are written for the next kind of step
    order      these hand-outs by LSN; of each line the latest arrival goes on from step to step

A step looks at an interval of QPoolIds or LSNs in which there are as many rows as `--memory` has
room for (`Later.audit_rows`), so its size does not depend on that of the archive, and a message has
all its rows in one step, whatever files they are in. Only a single message with more stays than
that, or more lines with somebody waiting, takes more.

What a step found is kept until the audit has ended (audit_kept.py): one that was killed goes on
after the last step that had ended. The pool is another a moment later, so `lost` is looked at
first, and each time anew.

Errors: those of Arrow and DuckDB (failures.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.pandas.types import to_arrow_schema

from omq.format.frame_rules import GIVEN_OUT_OF_TURN, Argument, numbers
from omqtools.omqspark import parquet, plan
from omqtools.omqspark.audit_kept import Kept, at_work
from omqtools.omqspark.audited import (
    MESSAGES,
    STAYS,
    TURN,
    TURNS_MAX,
    Audited,
    FindingCounts,
    Judged,
    Totals,
    judged,
    merged,
    some_of,
    waiting,
)
from omqtools.omqspark.derived import told
from omqtools.omqspark.duck import Session
from omqtools.omqspark.engine import F, columnar
from omqtools.omqspark.findings import (
    LINE,
    in_turn,
    latest,
    lines,
    lost,
    message_findings,
    out_of_order,
)
from omqtools.omqspark.ids import SCHEMA as IDS
from omqtools.omqspark.intervals import Interval, between, intervals, scanned
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.manifest import Manifest

if TYPE_CHECKING:
    from omqtools.omqspark.session import Later

WAITS: Final = pa.schema([("queue", pa.int32()), ("priority", pa.int32()),
                          ("producer_pid", pa.int64())])
GIVEN: Final = pa.schema([("qpool", pa.int64()), *WAITS, ("arrived_lsn", pa.int64()),
                          ("given_lsn", pa.int64())])
CHOSEN: Final = pa.schema([("given_lsn", pa.int64())])
EVENTS: Final = "file int, type int, argument bigint, lsn bigint"
TURNS_HELD: Final = 100_000
"""Lines that are remembered from step to step without a look at whether anybody asks for them."""
Say = Callable[[str], None]


def in_steps(lake: Lake, engine: Later, known: Manifest, before: Audited, there: str | None,
             checkpoint: int | None, say: Say) -> Judged | None:
    """What is new, and what is open; None: everything must be looked at. `there`: the folder of
    the QPoolIds that are in the pool or ended after the archive."""
    rows = _Rows(lake, engine, known, before)
    gone = rows.lost(there, checkpoint) if there is not None else FindingCounts({}, [])
    key = [rows.batches, before.attempts_max, before.last_lsn, rows.rows_max]
    with at_work(lake, key) as kept:
        found = rows.messages(kept, say)
        totals = sum((each for each, _, _ in found), Totals())
        if totals.comes_back:
            return None
        order, turns = rows.order(kept, say)
        final = merged([*(each for _, each, _ in found), *order])
        still = merged([gone, *(each for _, _, each in found)])
    return Judged(judged(known, before, totals, final, turns), totals, still)


class _Rows:
    """The files of an audit, as its steps read them: `messages` and `stays` each of those that
    ended, and of the open ones."""

    def __init__(self, lake: Lake, engine: Later, known: Manifest, before: Audited) -> None:
        self._lake, self._known, self._before = lake, known, before
        self._memory, self.rows_max = engine.memory, engine.audit_rows
        new = known.batches[len(before.batches):]
        self._files = [number for batch in new for number in batch.files]
        self.batches = [[batch.number, batch.files] for batch in known.batches]
        self._messages, self._stays = (
            [_dataset(lake, [f"{lake.path(table, number)}/ended={ended}" for number in which], ddl)
             for ended, which in ((1, [batch.number for batch in new]), (0, [known.current]))]
            for table, ddl in (("messages", MESSAGES), ("stays", STAYS)))

    def lost(self, there: str, checkpoint: int | None) -> FindingCounts:
        """Who is open and nowhere."""
        fs, path = plan.filesystem(there)
        ids = ds.dataset(path, IDS, "parquet", filesystem=fs)
        found, waits = list[FindingCounts](), self._messages[1]
        for part in intervals([(waits, "qpool"), (ids, "qpool")], self.rows_max):
            with self._engine() as engine:
                rows = told(engine.createDataFrame(between(waits, "qpool", part)), "messages",
                            "last_lsn")
                found.append(some_of(lost(rows, engine.createDataFrame(
                    between(ids, "qpool", part)), checkpoint), few=True)[1])
        return merged(found)

    def messages(self, kept: Kept, say: Say) -> list[tuple[Totals, FindingCounts, FindingCounts]]:
        """Of each interval of QPoolIds what was found; writes `given` and `waiting`."""
        parts = kept.once("messages", lambda: intervals(
            [(each, "qpool") for each in (*self._messages, *self._stays)], self.rows_max))
        found = []
        for place, part in enumerate(parts):
            def look(part: Interval = part) -> tuple[Any, dict[str, pa.Table]]:
                with self._engine() as engine:
                    return self._message_step(engine, part)

            if not kept.has(f"messages-{place}"):
                say(f"audit: step {place + 1} of {len(parts)} of messages")
            totals, final, still = kept.step(f"messages-{place}", look)
            found.append((Totals(**totals), FindingCounts(*final), FindingCounts(*still)))
        return found

    def _message_step(self, engine: Any, part: Interval) -> tuple[Any, dict[str, pa.Table]]:
        messages = told(engine.createDataFrame(_both(self._messages, part)), "messages",
                        "last_lsn")
        stays = engine.createDataFrame(_both(self._stays, part))
        given = stays.where(F.col("given_lsn") > self._before.last_lsn)
        final, still = some_of(message_findings(messages, self._before.attempts_max), few=True)
        totals = asdict(Totals.of(messages, self._before))
        return [totals, final, still], {
            "given": lines(given, messages).toArrow(),
            "waiting": waiting(stays, messages).distinct().toArrow()}

    def order(self, kept: Kept, say: Say) -> tuple[list[FindingCounts], list[list[int]]]:
        """Of each interval of LSNs what was found; and the lines in which somebody waits."""
        for batch, files in self._by_bronze().items():
            def read(batch: int = batch, files: list[int] = files
                     ) -> tuple[Any, dict[str, pa.Table]]:
                return None, {"chosen": self._chosen(batch, files)}

            kept.step(f"chosen-{batch}", read)
        given, chosen = kept.dataset("given", GIVEN), kept.dataset("chosen", CHOSEN)
        waits = kept.dataset("waiting", WAITS)
        parts = kept.once("order", lambda: intervals(
            [(given, "given_lsn"), (chosen, "given_lsn")], self.rows_max))
        turns, found = _turns(self._before.turns), list[FindingCounts]()
        for place, part in enumerate(parts):
            def look(part: Interval = part, turns: pa.Table = turns, name: str = f"turns-{place}"
                     ) -> tuple[Any, dict[str, pa.Table]]:
                with self._engine() as engine:
                    mine = in_turn(*(engine.createDataFrame(between(each, "given_lsn", part))
                                     for each in (given, chosen)))
                    known = engine.createDataFrame(turns)
                    final = some_of(out_of_order(mine, known), few=True)[0]
                    now = engine.createDataFrame(latest(mine, known).toArrow())
                    if now.count() > TURNS_HELD:
                        now = _needed(engine, now, given, waits, part[1])
                    return final, {name: now.toArrow()}

            if not kept.has(f"order-{place}"):
                say(f"audit: step {place + 1} of {len(parts)} of the order")
            found.append(FindingCounts(*kept.step(f"order-{place}", look)))
            turns = kept.dataset(f"turns-{place}", turns.schema).to_table()
        with self._engine() as engine:
            last = engine.createDataFrame(turns).join(engine.streamed(waits), list(LINE),
                                                      "left_semi").limit(TURNS_MAX + 1)
            return found, [[int(value) for value in row] for row in last.collect()]

    def _by_bronze(self) -> dict[int, list[int]]:
        """Where the events of the files lie: batch -> files."""
        found: dict[int, list[int]] = {}
        for number in self._files:
            found.setdefault(self._known.files[number].batch, []).append(number)
        return found

    def _chosen(self, batch: int, files: list[int]) -> pa.Table:
        """LSNs of the hand-outs that say that they do not follow the order of arrival."""
        rows = _dataset(self._lake, [self._lake.path("bronze", batch)], EVENTS)
        mine = ds.field("file").isin(files) & (ds.field("argument") == GIVEN_OUT_OF_TURN) & (
            ds.field("type").isin(numbers(lambda rule: rule.argument is Argument.TURN)))
        return pa.concat_tables([CHOSEN.empty_table(), *(
            pa.table([piece["lsn"]], schema=CHOSEN) for piece in scanned(rows, ["lsn"], mine))])

    @contextmanager
    def _engine(self) -> Iterator[Any]:
        """A DuckDB for one step."""
        session = Session(self._memory)
        try:
            with columnar():
                yield session
        finally:
            session.close()


def _needed(engine: Any, turns: Any, given: ds.Dataset, waits: ds.Dataset, until: int) -> Any:
    """Of the lines known until an LSN those that a later step, or the next audit, asks for."""
    later = engine.streamed(given).where(
        (F.col("given_lsn") > until) & (F.col("arrived_lsn") <= until)).select(*LINE)
    return turns.join(later.union(engine.streamed(waits).select(*LINE)).distinct(), list(LINE),
                      "left_semi")


def _turns(rows: Sequence[Sequence[int]]) -> pa.Table:
    schema = to_arrow_schema(parquet.struct(TURN), timezone="UTC")
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows],
                                schema=schema)


def _both(sources: Sequence[ds.Dataset], part: Interval) -> pa.Table:
    """The rows of an interval, with `ended`."""
    pieces = [between(rows, "qpool", part) for rows in sources]
    return pa.concat_tables([piece.append_column(
        pa.field("ended", pa.int32()), pa.repeat(pa.scalar(ended, pa.int32()), len(piece)))
        for ended, piece in zip((1, 0), pieces, strict=True)])


def _dataset(lake: Lake, folders: Sequence[str], ddl: str) -> ds.Dataset:
    """Some columns of the files below some folders."""
    schema = to_arrow_schema(parquet.struct(ddl), timezone="UTC")
    paths = [info.path for folder in folders for info in parquet.files_of(folder)]
    if not paths:
        return ds.dataset(schema.empty_table())
    fs, _ = plan.filesystem(lake.out)
    return ds.dataset(paths, schema, "parquet", filesystem=fs)
