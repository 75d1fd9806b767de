"""The answers as of a batch: the parts of what ended in it, and the days that it shows anew.

A day of a table is shown anew when something ended in it, when a stay that changed in this batch
tells something in it, or when a batch that has become void had shown it (`forced`). Minutes are
told by all that is there in them, so all days from the end of the batch before on are shown; in
those before nothing has changed: who is still there was told then as being there.

In the middle of a crash: everything lies in folders of this batch, which are overwritten when it is
done again; the index is written last, and counts when current.json names the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame

from omq.base.clock import NS_PER_S
from omqtools.omqspark import gold, parquet
from omqtools.omqspark.answer_tables import ALWAYS, PARTS_MAX, Answer, Basis, Index
from omqtools.omqspark.engine import F, is_columnar
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.readable_columns import at, named

ANSWERS_AT_ONCE: Final = 3  # each waits more than it works
DAY: Final = "{:%Y-%m-%d}"
DAYS: Final = ("day",)  # what parts and most answers are apart by


@dataclass(frozen=True)
class News:
    """What is new in a batch: time from `first_ns` on, frames after the LSN `behind`; days of each
    table that must be shown anew (`forced`)."""

    first_ns: int
    behind: int
    forced: Mapping[str, set[str]]

    @property
    def first_day(self) -> str:
        """The first whose minutes are shown anew."""
        own = DAY.format(datetime.fromtimestamp(self.first_ns // NS_PER_S, UTC))
        days: set[str] = {own, *self.forced.get("queue_minute", set())}
        return min(days)


@dataclass
class Telling:
    """The answers of one batch. `before`: what counted until then; `queues`: names."""

    lake: Lake
    number: int
    before: Index
    basis: Basis
    queues: DataFrame
    news: News

    def tell(self) -> Index:
        """Write parts and what is shown; what counts then, which is written last."""
        index = self.before.copy()
        changed = self._changed_days()
        with ThreadPoolExecutor(ANSWERS_AT_ONCE) as pool:  # nobody waits in DuckDB
            each = map if is_columnar() else pool.map
            list(each(lambda answer: self._tell(answer, index, changed), gold.ANSWERS))
        self.lake.put_index(self.number, index)
        return index

    def _of(self, ended: str, from_ns: int = 0) -> Basis:
        return replace(self.basis, stays=self.basis.stays.where(ended),
                       messages=self.basis.messages.where(ended), from_ns=from_ns)

    def _changed_days(self) -> dict[str, set[str]]:
        """Instant of a stay -> the days of those that changed and whose message is open."""
        found: dict[str, set[str]] = {"arrived_ns": set(), "left_ns": set()}
        days = F.explode(F.array(*(F.struct(F.lit(name).alias("of"), F.to_date(at(name)).alias(
            "day")) for name in found)))
        rows = self.basis.stays.where((F.col("ended") == 0) & (
            F.col("last_lsn") > self.news.behind)).select(days.alias("one")).where(
            "one.day IS NOT NULL").distinct().collect()
        for row in rows:
            found[row["one"]["of"]].add(str(row["one"]["day"]))
        return found

    def _tell(self, answer: Answer, index: Index, changed: Mapping[str, set[str]]) -> None:
        state = index.state.setdefault(answer.name, {})
        parts = answer.dated(answer.part(self._of("ended = 1")))
        where = self.lake.part(answer.name, self.number)
        merged = answer.merged([parts])
        parquet.save(merged, where, DAYS, few=self.lake.few)
        ended = self.lake.days(where)
        full = {day for day in ended if len(state.get(day, ())) >= PARTS_MAX}
        if full:  # what they had becomes one file, next to the new one
            had = self._paths(answer, full, self.before)
            parquet.save(answer.merged([self._parts(answer, merged, had)]), where, DAYS,
                         few=self._few(had), append=True)
        for day in ended:
            state[day] = [*(() if day in full else state.get(day, ())), self.number]
        self._show(answer, index, merged, {*ended, *changed.get(answer.of_stay, ())})

    def _show(self, answer: Answer, index: Index, like: DataFrame, touched: set[str]) -> None:
        """Write the days that have changed."""
        shown = index.shown.setdefault(answer.name, {})
        first = self.news.first_day
        minutes = bool(answer.day) and not answer.of_stay and not answer.by_event
        touched |= self.news.forced.get(answer.name, set())
        still = self._of("ended = 0", self._ns(first) if minutes else 0)
        if not answer.day:
            touched = {ALWAYS}
        elif minutes:
            touched = {day for day in {*index.state[answer.name], *shown} if day >= first}
        within = F.col("day") >= first if minutes else F.col("day").isin(*sorted(touched))
        there = self._paths(answer, touched, index)
        frames = [self._parts(answer, like, there)]
        if not answer.by_event:
            frames.append(answer.dated(answer.part(still)).where(within).select(*like.columns))
        told = named(answer.finish(answer.merged(frames), still.stays), self.queues)
        told = told if answer.day else told.drop("day")
        where = self.lake.path(answer.name, self.number)
        if answer.day and not touched and not minutes:
            if not is_columnar() or answer.name not in index.schemas:
                index.schemas[answer.name] = told.schema.json()
            return
        parquet.save(told, where, DAYS if answer.day else (), few=self._few(there))
        index.schemas[answer.name] = told.schema.json()
        if not answer.day:
            shown[ALWAYS] = self.number
            return
        for day in touched:
            shown.pop(day, None)
        shown.update(dict.fromkeys(self.lake.days(where), self.number))

    def _few(self, parts: Sequence[str]) -> bool:
        return self.lake.few and parquet.are_few(parts)

    def _paths(self, answer: Answer, days: Iterable[str], index: Index) -> list[str]:
        """Where the parts of some days lie."""
        state = index.state.get(answer.name, {})
        return [f"{self.lake.part(answer.name, number)}/day={day}"
                for day in sorted(days) for number in state.get(day, ())]

    def _parts(self, answer: Answer, like: DataFrame, paths: Sequence[str]) -> DataFrame:
        """The parts there; `like`: a frame of their columns."""
        return parquet.load(self.lake.spark, paths, like.schema, self.lake.part(answer.name)
                            ).select(*like.columns)

    @staticmethod
    def _ns(day: str) -> int:
        return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * NS_PER_S
