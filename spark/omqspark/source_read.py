"""What one read of the data source asks for: table, columns, mode, files; and its tasks.

Errors: BadRequest (no such table or column, a mode that there is not, NOT NULL where it cannot be
promised), NoArchive, MixedArchives; Damaged with FAILFAST.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from omq.base.errors import BadRequest, Damaged
from omq.format.archive import ArchiveHeader
from omq.format.findings import Finding, Kind
from omqtools.omqspark import columns, decode, plan
from omqtools.omqspark.decode import Filter
from omqtools.omqspark.manifest import missing
from omqtools.omqspark.plan import Listed, Split
from omqtools.omqspark.stream_waits import missing_text

FAILFAST: Final = "FAILFAST"
MODES: Final = ("PERMISSIVE", FAILFAST)  # as Spark's own sources name them


@dataclass
class Task(InputPartition):
    """What one task reads; `bad`: findings of the planning itself."""

    splits: list[Split] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def schema(options: Any) -> StructType:
    """What the options ask for."""
    table = _table(options)
    chosen = [name.strip() for name in options.get("columns", "").split(",")]
    names = _known(table, [name for name in chosen if name]) or list(columns.TABLES[table])
    return from_arrow_schema(columns.arrow_schema(
        table, names, set(names) - columns.SPARSE if _fails_fast(options) else ()))


def _table(options: Any) -> str:
    table = str(options.get("table", "events"))
    if table not in columns.TABLES:
        raise BadRequest(reason=f"table {table!r}: there are {', '.join(columns.TABLES)}")
    return table


def _known(table: str, names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in columns.TABLES[table]]
    if unknown:
        raise BadRequest(reason=f"table {table} has no column {', '.join(unknown)}")
    return names


def _fails_fast(options: Any) -> bool:
    mode = str(options.get("mode", MODES[0])).upper()
    if mode not in MODES:
        raise BadRequest(reason=f"mode {mode}: there are {' and '.join(MODES)}; to leave out "
                                "the rows about damage, use WHERE bad IS NULL")
    return mode == FAILFAST


class Work:
    """What all readers share: it travels to the workers, so it holds plain values only.
    `never_null`: columns that Spark was told to be so."""

    def __init__(self, options: dict[str, str], names: list[str],
                 never_null: Collection[str] = ()) -> None:
        self.where = options.get("path", "")
        self.table = _table(options)
        self.names = _known(self.table, names)
        self.fails_fast = _fails_fast(options)
        self.never_null = frozenset(never_null)
        self.filters: list[Filter] = []
        self.split_bytes = int(options.get("splitbytes", options.get("splitBytes",
                                                                     plan.SPLIT_BYTES)))
        self.first = int(options.get("first", 0))
        self.last = int(options.get("last", 1 << 40))
        self.files_max = int(options.get("maxfilespertrigger",
                                         options.get("maxFilesPerTrigger", 0)))
        late = "false" if "spool" in options else "true"  # what is missing in a spool is gone
        self.wait_for_missing = str(options.get(
            "waitformissing", options.get("waitForMissing", late))).lower() != "false"
        told = [name for name in never_null if not self.fails_fast or name in columns.SPARSE]
        if told:
            raise BadRequest(reason=f"{', '.join(told)}: NOT NULL is declared for columns that may "
                                    f"be null; with mode {FAILFAST} only "
                                    f"{', '.join(sorted(columns.SPARSE))} may")

    @classmethod
    def of(cls, options: dict[str, str], schema: StructType) -> Work:
        """For what Spark asks for."""
        return cls(options, schema.fieldNames(),
                   [each.name for each in schema if not each.nullable])

    def listing(self) -> list[Listed]:
        found = plan.listing(self.where)
        return [item for item in found if self.first <= item.number <= self.last]

    def tasks(self, items: Sequence[Listed], after: int | None = None) -> list[Task]:
        """Of some files; `after`: the number that they follow, of a stream."""
        found = plan.heads(self.where, items)
        tasks = [Task(splits) for splits in plan.splits(found, self.split_bytes)]
        valid = [item.number for item, header in found if isinstance(header, ArchiveHeader)]
        gaps = missing(valid if after is None else [after, *valid])
        if valid and 0 < self.first < valid[0]:  # what `first` promised
            gaps = [(self.first, valid[0] - 1), *gaps]
        bad = [plan.bad_text(Finding(Kind.GAP, missing_text(*gap), f"{gap[0]:010d}.oma"))
               for gap in gaps]
        if bad:
            tasks.append(Task([], bad))
        return tasks

    def read(self, batches: Callable[[list[str]], Iterator[pa.RecordBatch]]
             ) -> Iterator[pa.RecordBatch]:
        """Batches of some columns as the mode says; in a worker of Spark."""
        _settle()
        if not self.fails_fast:
            yield from batches(self.names)
            return
        schema = columns.arrow_schema(self.table, self.names, self.never_null)
        with_bad = self.names if "bad" in self.names else [*self.names, "bad"]
        for batch in batches(with_bad):
            bad = batch.column("bad")
            if bad.null_count < len(bad):
                told = json.loads(next(text for text in bad.to_pylist() if text))
                raise Damaged(file=told["path"], offset=told["offset"], reason=told["reason"])
            yield pa.RecordBatch.from_arrays(batch.columns[: len(self.names)], schema=schema)

    def batches(self, task: Task | None, names: list[str] | None = None
                ) -> Iterator[pa.RecordBatch]:
        """What a task reads; `names`: in place of its own."""
        if task is None:  # an empty plan becomes one partition without a value
            return
        names = self.names if names is None else names
        if task.bad:
            yield columns.bad_batch(self.table, names, task.bad, -1)
        if self.table == "events":
            yield from decode.event_batches(task.splits, names, self.filters, self.where)
        elif self.table == "blocks":
            yield from decode.block_batches(task.splits, names, self.where)
        else:
            yield from decode.name_batches(task.splits, names, self.where)


def _settle() -> None:
    """Spark collects garbage behind each task, and looks at all modules of its worker again: twenty
    milliseconds, a third of a small task. What is there at the first task stays anyway."""
    if not gc.get_freeze_count():
        gc.freeze()
