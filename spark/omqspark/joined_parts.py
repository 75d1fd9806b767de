"""The parts of the answers of days of before as one each: a part of `omq-spark compact`.

A day has up to PARTS_MAX parts, one of each batch that told something of it, and nothing adds to it
when it is over. They merge by sums and extremes, whoever does it (answer_tables.py); DuckDB does,
within MEMORY. The new part has the number of a merged batch, which counts already: no run will take
it.

In the middle of a crash: the index of the current batch names the new parts when it is renamed,
after them. Those of before stay while an index that is kept names them (out_directory.py).
"""

from __future__ import annotations

from typing import Any, Final

from omqtools.omqspark import parquet
from omqtools.omqspark.duck import Session
from omqtools.omqspark.engine import columnar
from omqtools.omqspark.gold import ANSWERS
from omqtools.omqspark.out_directory import Out

MEMORY: Final = "1g"


def join_parts(lake: Out, current: int, number: int) -> int:
    """Days of tables that have one part now, which is called `number`; `current`: the batch whose
    index says so then."""
    index, joined = lake.index(current), 0
    with columnar():
        for answer in ANSWERS:
            state = index.state.get(answer.name, {})
            days = [day for day, parts in state.items() if len(parts) > 1]
            if not days:
                continue
            own: Any = Session(MEMORY)
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
