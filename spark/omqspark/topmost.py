"""What a picture can show of many queues: the busiest eight with names and colours of their own,
and all others as one.

Colours are those of the Okabe-Ito set, which people who see colours differently can tell apart; a
queue has the same in every picture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import pandas as pd

TOP: Final = 8
OTHER: Final = -1
PALETTE: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D1F",
                  "#332288")
GREY: Final = "#999999"
LIGHTER: Final = {"#332288": "#A99CF0"}
"""What a colour is on a dark page, where it could not be told from the paper."""
NAME_SHOWN_MAX: Final = 24
"""Characters of a name next to a picture: a longer one would take the picture's place."""


def _cut(name: str, most: int) -> str:
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


class Queues:
    """Names and colours. `busiest`: numbers of queues, those with most arrivals first."""

    def __init__(self, names: Mapping[int, str], busiest: list[int]) -> None:
        self._names, self.top = names, busiest[:TOP]
        self._alike: dict[str, set[int]] = defaultdict(set)
        for queue in {*names, *busiest}:
            self._alike[_cut(self.name(queue), NAME_SHOWN_MAX)].add(queue)
        self.others = len(busiest) - len(self.top)

    @classmethod
    def of(cls, names: Mapping[int, str], hours: pd.DataFrame) -> Queues:
        """From the rows of queue_hour."""
        sums = hours.groupby("queue")["arrivals"].sum()
        return cls(names, [int(n) for n in sorted(sums.index, key=lambda n: (-sums[n], n))])

    def name(self, queue: int) -> str:
        if queue == OTHER:
            return f"{self.others} other" + "s" * (self.others > 1)
        return self._names.get(queue, f"queue {queue}")

    def short(self, queue: int) -> str:
        """The name as a picture has room for it; its ends tell long names apart best. Two queues
        whose names look alike then have their numbers."""
        cut = _cut(self.name(queue), NAME_SHOWN_MAX)
        if len(self._alike[cut]) < 2 or queue == OTHER:
            return cut
        number = f" #{queue}"
        return _cut(self.name(queue), NAME_SHOWN_MAX - len(number)) + number

    def colour(self, queue: int) -> str:
        return PALETTE[self.top.index(queue)] if queue in self.top else GREY

    def shown(self, queue: int) -> int:
        """Where a queue is drawn: itself, or OTHER."""
        return queue if queue in self.top else OTHER

    def parts(self, rows: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
        """The rows of each queue that is drawn, the busiest first, OTHER last."""
        found = [(queue, rows[rows["queue"] == queue]) for queue in (*self.top, OTHER)]
        return [(queue, part) for queue, part in found if not part.empty]

    def hours(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Rows of queue_hour, those of all other queues as one: half of them waited less than its
        median, and none of them longer than its p99."""
        mine = rows[rows["queue"].isin(self.top)]
        rest = rows[~rows["queue"].isin(self.top)]
        if rest.empty:
            return mine
        other = rest.groupby("hour", as_index=False).agg({
            name: "median" if "_p50_" in name else "max" for name in rest
            if name.startswith("ready_wait_p")} | {"arrivals": "sum"})
        return pd.concat([mine, other.assign(queue=OTHER)], ignore_index=True)

    def minutes(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Rows of queue_minute, those of all other queues as one queue. Depth holds until a queue
        says another one."""
        mine = rows[rows["queue"].isin(self.top)]
        rest = rows[~rows["queue"].isin(self.top)]
        if rest.empty:
            return mine
        depth = rest.pivot_table(index="minute", columns="queue", values="depth", aggfunc="last")
        other = rest.groupby("minute").agg(
            {"arrivals": "sum", "departures": "sum", "oldest_s": "max"})
        other["depth"] = depth.ffill().fillna(0).sum(axis=1)
        return pd.concat([mine, other.reset_index().assign(queue=OTHER)], ignore_index=True)
