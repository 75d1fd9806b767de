"""Arrivals by day and hour of the day, for the heat map, as far as the archive covers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

DAYS_MAX: Final = 62  # more rows than this are weeks
WEEKS_MAX: Final = 160  # and more of these are left out, the oldest first


def by_hour_of_day(hours: pd.DataFrame, spans: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """Arrivals by day or, of a long time, a day's mean by week, and hour; `spans`: (first, last)
    in ns, between which everything is archived. An archived hour in which nothing came has 0. NaN:
    an hour that is not archived, or only in part, which would look quiet."""
    edges = [(pd.Timestamp(first, unit="ns"), pd.Timestamp(last, unit="ns"))
             for first, last in spans]
    whole = pd.DatetimeIndex([hour for first, last in edges for hour in pd.date_range(
        first.ceil("h"), last.floor("h"), freq="h", inclusive="left")])
    came = hours.groupby(hours["hour"].dt.tz_localize(None))["arrivals"].sum()
    days, step = whole.normalize(), "D"
    begin, end = edges[0][0].normalize(), edges[-1][1].normalize()
    if (end - begin).days >= DAYS_MAX:
        days, step = days - pd.to_timedelta(days.weekday, unit="D"), "7D"
        begin -= pd.Timedelta(days=begin.weekday())
    table = pd.DataFrame({"day": days, "of_day": whole.hour,
                          "arrivals": came.reindex(whole, fill_value=0).to_numpy()}).pivot_table(
        index="day", columns="of_day", values="arrivals", aggfunc="mean")
    table = table.reindex(index=pd.date_range(begin, end, freq=step)[-WEEKS_MAX:],
                          columns=range(24))
    table.index = pd.Index([f"{day:%Y-%m-%d}" for day in table.index])
    return table
