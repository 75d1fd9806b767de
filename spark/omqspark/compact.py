"""Many small batches become few: `omq-spark compact`.

An hourly run leaves files of each table for each hour. Batches whose state is not kept any more
(all but the last SNAPSHOTS_KEPT) cannot be gone back to one by one: a late file makes all of them
void, or none. So those that follow each other become one, up to ROWS_MAX messages and stays; one
that has as many already is not written again, so a table is rewritten once, not at each call.

Of the last ones, too, the newest become one, as far as they have RECENT_FRAMES events together:
Parquet files of a few thousand rows are mostly descriptions of themselves. Their states go, but
that of the newest, with which the next run goes on; that of the batch before them is kept, so a
file that comes late makes so many events more be told again, at most, which takes some seconds.

Of the answers a day has up to PARTS_MAX parts, one of each batch that told something of it, and
nothing adds to it when it is over. They merge by sums and extremes, whoever does it
(answer_tables.py); DuckDB does. One part of a day is left (`_join_parts`).

Only where the rows lie changes: the same rows, in one file a day, of events and names as well.
Earlier versions of the tables stay readable for `--keep-days`, as those of a run do; then their
files are removed, and what killed runs left. Files of events go at once: they have no versions, and
a `biography` that reads them meanwhile ends with what is missing and is asked again.

In the middle of a crash: the merged batch has a number of its own, and counts when current.json
names it; then come the commits (tables.py), which the next run makes good. The index of the
current batch names joined parts of answers when it is renamed, after them. `audited.json` follows
last: while it names batches that are no more, an audit judges everything once more.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from omqtools.omqspark import parquet, plan, tables
from omqtools.omqspark.bronze import TaskFiles
from omqtools.omqspark.duck import Session
from omqtools.omqspark.engine import columnar
from omqtools.omqspark.gold import ANSWERS
from omqtools.omqspark.lake import EVENTS_OF
from omqtools.omqspark.manifest import Batch, Manifest
from omqtools.omqspark.out_directory import AUDITED, LIVES, SNAPSHOTS_KEPT, STATES, Out
from omqtools.omqspark.pipeline import EXAMPLES_MAX
from omqtools.omqspark.table_logs import trim

ROWS_MAX: Final = 10_000_000
"""Of one merged batch: 1 GB, which this process writes alone, without Spark."""
RECENT_FRAMES: Final = 250_000
"""Of recent batches that become one."""
JOINED_MEMORY: Final = "1g"
"""DuckDB's, for the answers of days of before."""


def compact(lake: Out, keep_days: float, *, rows_max: int = ROWS_MAX) -> dict[str, Any]:
    """Merge, and remove what no version of the last `keep_days` names; what was done."""
    known = lake.known()
    tables.commit(lake, known)  # of a run that was killed before it could
    rows = dict.fromkeys((batch.number for batch in known.batches), 0)
    for name in LIVES:
        for each in tables.files(tables.table(lake, name)):
            rows[int(each.values["batch"])] += each.rows
    merged: dict[int, list[int]] = {}
    old = max(0, len(known.batches) - SNAPSHOTS_KEPT)
    for group in [*groups(known.batches[:old], rows, rows_max),
                  *recent(known, old, set(lake.snapshots()), _judged(lake))]:
        number, parts = known.next_number, [batch.number for batch in group]
        for name in LIVES:
            _write(lake, name, parts, number)
        _events(lake, known, {file for batch in group for file in batch.files}, number)
        if parts[-1] == known.current:
            _state(lake, parts[-1], number)
        at = known.batches.index(group[0])
        known.batches[at : at + len(group)] = [_one(group, number)]
        merged[number] = parts
    if merged:
        lake.publish(known)
        tables.commit(lake, known, same_rows=True)
        _join_parts(lake, known.current, max(merged))
        lake.publish(known)  # parts that no index names go
        _audited(lake, merged)
    return {"merged": {str(number): parts for number, parts in merged.items()},
            "batches": len(known.batches),
            "removed_files": tables.vacuum(lake, keep_days, left=True) + trim(lake, keep_days)}


def groups(batches: Sequence[Batch], rows: dict[int, int], rows_max: int) -> list[list[Batch]]:
    """Batches that follow each other and are to be one: two at least, not more rows than that."""
    found: list[list[Batch]] = [[]]
    room = rows_max
    for batch in batches:
        if rows[batch.number] > room:
            found.append([])
            room = rows_max
        found[-1].append(batch)
        room -= rows[batch.number]
    return [group for group in found if len(group) > 1]


def recent(known: Manifest, old: int, states: Collection[int], judged: Collection[int]
           ) -> list[list[Batch]]:
    """Of the batches from place `old` on the newest that have few events together, if they are
    several. The batch before them has its state in `states`, or there is none; where an audit was
    made all were `judged`: the next one would begin anew."""
    group, room = list[Batch](), RECENT_FRAMES
    for batch in reversed(known.batches[old:]):
        if judged and batch.number not in judged:
            continue
        room -= sum(known.files[file].frames for file in batch.files)
        if room < 0:
            break
        group.insert(0, batch)
    while group:
        at = known.batches.index(group[0])
        if not at or (at > old and known.batches[at - 1].number in states):
            break
        group.pop(0)
    return [group] if len(group) > 1 else []


def _state(lake: Out, newest: int, number: int) -> None:
    """The state at the end of the newest batch is that of the one that it becomes a part of."""
    for table in STATES:
        fs, path = plan.filesystem(lake.path(table, number))
        fs.create_dir(path)
        fs.delete_dir_contents(path)
        for info in parquet.files_of(lake.path(table, newest)):
            fs.copy_file(info.path, f"{path}/{info.base_name}")
    lake.put_index(number, lake.index(newest))


def _write(lake: Out, name: str, old: Iterable[int], number: int) -> None:
    """What ended in these batches, a file a day, file by file: one is in memory."""
    batches = {str(batch) for batch in old}
    found = tables.table(lake, name)
    schema = pa.schema([field.remove_metadata() for field in pa.schema(
        found.schema().to_arrow()) if field.name not in tables.BY_LIFE])
    days: dict[str, list[str]] = {}
    for each in sorted(tables.files(found), key=lambda each: int(each.values["batch"])):
        if each.values["batch"] in batches:
            days.setdefault(f"ended={each.values['ended']}/day={each.values['day']}", []).append(
                f"{lake.path(name)}/{each.path}")
    for folder, paths in days.items():
        parquet.joined(paths, f"{lake.path(name, number)}/{folder}", schema)


def _events(lake: Out, known: Manifest, files: set[int], number: int) -> None:
    """Events and names of these files, as one batch of them; `known` says so then."""
    where: dict[int, list[int]] = {}
    for file in sorted(files):
        where.setdefault(known.files[file].batch, []).append(file)
    if len(where) < 2:
        return
    for name, kind in EVENTS_OF.items():
        fs, path = plan.filesystem(lake.path(name, number))
        fs.create_dir(path)
        fs.delete_dir_contents(path)
        task = TaskFiles(lake.path(name, number), 0, kind)
        for batch, mine in where.items():
            for day, rows in parquet.pieces(lake.path(name, batch), "day"):
                kept = rows.filter(pc.is_in(rows["file"], pa.array(mine, pa.int32())))
                if len(kept):
                    task.add(day, kept)
        task.close()
    for file in files:
        known.take(replace(known.files[file], batch=number))


def _join_parts(lake: Out, current: int, number: int) -> int:
    """Days of tables that have one part now, which is called `number`: a merged batch's, which
    counts already, so no run will take it. `current`: the batch whose index says so then. The parts
    of before stay while an index that is kept names them (out_directory.py)."""
    index, joined = lake.index(current), 0
    with columnar():
        for answer in ANSWERS:
            state = index.state.get(answer.name, {})
            days = [day for day, parts in state.items() if len(parts) > 1]
            if not days:
                continue
            own: Any = Session(JOINED_MEMORY)
            paths = [f"{lake.part(answer.name, batch)}/day={day}" for day in days
                     for batch in state[day]]
            rows = parquet.load(own, paths, base=lake.part(answer.name))
            parquet.save(answer.merged([rows]), lake.part(answer.name, number), ("day",), few=True)
            own.close()
            state.update({day: [number] for day in days})
            joined += len(days)
    if joined:
        lake.put_index(current, index)
    return joined


def _one(group: Sequence[Batch], number: int) -> Batch:
    counts: dict[str, int] = {}
    for batch in group:
        for kind, count in batch.found.items():
            counts[kind] = counts.get(kind, 0) + count
    findings = [one for batch in group for one in batch.findings]
    return Batch(number, [file for batch in group for file in batch.files],
                 findings[:EXAMPLES_MAX], counts)


def _judged(lake: Out) -> set[int]:
    """The batches that an audit has judged."""
    return set(json.loads(lake.get(AUDITED) or b"{}").get("batches", []))


def _audited(lake: Out, merged: dict[int, list[int]]) -> None:
    """What was judged is judged under the new numbers."""
    told = json.loads(lake.get(AUDITED) or b"{}")
    judged: list[int] = told.get("batches", [])
    for number, old in merged.items():
        if set(old) <= set(judged):
            judged[judged.index(old[0]) : judged.index(old[-1]) + 1] = [number]
    if judged:
        lake.put(AUDITED, (json.dumps(told) + "\n").encode())
