"""The pictures of the report, drawn with matplotlib from small tables (pandas).

Each function takes a table and the queues (topmost.py: names, colours, the busiest) and gives a
Figure. Times are UTC.
"""

from __future__ import annotations

from typing import Any, Final

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Curve

from omqtools.omqspark.reader_bars import busiest, by_reader, reader_label, reader_said
from omqtools.omqspark.topmost import Queues

WIDTH, HEIGHT = 10.0, 3.6  # inches
FEW_HOURS: Final = 6  # so few are drawn as single values, not as a band
AT_ONCE_S: Final = 0.0001  # shorter waits are drawn as this
WAIT_TICKS: Final = {0.0001: "at once", 0.001: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1.0: "1 s",
                     10.0: "10 s", 60.0: "1 min", 600.0: "10 min", 3600.0: "1 h", 36000.0: "10 h",
                     864000.0: "10 days"}
NOT_ARCHIVED: Final = "#8C8C8C"  # a field of the heat map: no colour of Viridis, no paper
BANDS_MAX: Final = 3  # more of them hide each other
POINTS_MAX: Final = 1500  # of a line: more are put together

mpl.rcParams.update({
    "font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "axes.spines.top": False,
    "axes.spines.right": False, "figure.dpi": 110, "axes.titlesize": 10,
    "axes.titlelocation": "left"})


def _figure(rows: int = 1, height: float = HEIGHT) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]


def _dated(axis: Any) -> None:
    """A time axis whose labels say no more than they must, with the day at its end."""
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(
        ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _legend(axis: Any) -> None:
    """Next to the picture, never on it."""
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)


def thinned(frame: pd.DataFrame, how: dict[str, str]) -> pd.DataFrame:
    """By minute, or by as many minutes as keep a line readable."""
    span = frame["minute"].max() - frame["minute"].min()
    step = max(1, int(np.ceil(span.total_seconds() / 60 / POINTS_MAX)))
    grouped = frame.set_index("minute").resample(f"{step}min", origin="epoch").agg(how)
    for column, rule in how.items():
        if rule == "sum":
            grouped[column] = grouped[column] / step
        elif rule == "last":
            grouped[column] = grouped[column].ffill()
    return grouped


def whole_minutes(minutes: pd.DataFrame) -> pd.DataFrame:
    """Without the last minute (or step of several), which the data do not cover as a whole: it
    would look like an outage. One that is alone is shown."""
    whole = minutes[minutes["minute"] < minutes["minute"].max()]
    return minutes if whole.empty else whole


def throughput(minutes: pd.DataFrame, queues: Queues) -> Figure:
    """Arrivals and departures a minute."""
    figure, (top, below) = _figure(2, 5.2)
    for queue, part in queues.parts(whole_minutes(minutes)):
        thin = thinned(part, {"arrivals": "sum", "departures": "sum"})
        top.plot(thin.index, thin["arrivals"], color=queues.colour(queue), lw=1.2,
                 label=queues.short(queue))
        below.plot(thin.index, thin["departures"], color=queues.colour(queue), lw=1.2)
    top.set_title("Messages that arrived on a queue, per minute")
    below.set_title("Messages that left it, per minute")
    for axis in (top, below):
        axis.set_ylim(bottom=0)
    _dated(below)
    _legend(top)
    return figure


def depth(minutes: pd.DataFrame, queues: Queues) -> Figure:
    """Messages on each queue, and how long the oldest has been there."""
    figure, (top, below) = _figure(2, 5.2)
    for queue, part in queues.parts(minutes):
        thin = thinned(part, {"depth": "last", "oldest_s": "max"})
        top.step(thin.index, thin["depth"], where="post", color=queues.colour(queue), lw=1.2,
                 label=queues.short(queue))
        thin = thin[:-1]  # the last minute has not ended
        below.plot(thin.index, thin["oldest_s"], color=queues.colour(queue), lw=1.2, marker=".",
                   ms=2)
    top.set_title("Messages on the queue at the end of the minute")
    below.set_title("Age of the oldest one in seconds")
    top.set_ylim(bottom=0)
    below.set_yscale("symlog", linthresh=1)
    below.set_ylim(bottom=0)
    _dated(below)
    _legend(top)
    return figure


def hourly(part: pd.DataFrame) -> pd.DataFrame:
    """Waits by hour, a gap where there are none; of a long time by several hours."""
    span = part["hour"].max() - part["hour"].min()
    step = max(1, int(np.ceil(span.total_seconds() / 3600 / POINTS_MAX)))
    found = part.set_index("hour").resample(f"{step}h", origin="epoch").agg(
        {"ready_wait_p50_s": "median", "ready_wait_p99_s": "max"})
    return found.clip(lower=AT_ONCE_S)


def waits(hours: pd.DataFrame, queues: Queues) -> Figure:
    """Percentiles of the wait by hour: a line for the median, a band up to the 99th."""
    figure, (axis,) = _figure()
    hours = queues.hours(hours.dropna(subset=["ready_wait_p50_s"]))
    lines = queues.parts(hours)
    for shift, (queue, part) in enumerate(lines):
        ink = queues.colour(int(queue))
        part = hourly(part).reset_index()
        part["hour"] += pd.Timedelta(minutes=30 + 3 * shift)  # the middle; side by side
        s = {key: part[f"ready_wait_{key}_s"] for key in ("p50", "p99")}
        if len(part) > FEW_HOURS and len(lines) <= BANDS_MAX:
            axis.fill_between(part["hour"], s["p50"], s["p99"], color=ink, alpha=0.12)
        else:
            axis.vlines(part["hour"], s["p50"], s["p99"], color=ink, lw=0.8)
        axis.plot(part["hour"], s["p50"], color=ink, lw=1.6, marker="o", ms=3,
                  label=queues.short(queue))
        axis.plot(part["hour"], s["p99"], color=ink, lw=0.9, ls="--", marker="v", ms=4)
    hour = pd.Timedelta(hours=1)
    axis.set_xlim(hours["hour"].min() - hour, hours["hour"].max() + 2 * hour)
    axis.set_yscale("log")
    axis.set_yticks(list(WAIT_TICKS), list(WAIT_TICKS.values()), minor=False)
    axis.set_yticks([], minor=True)
    axis.set_ylim(bottom=AT_ONCE_S * 0.8, top=max(0.01, hours["ready_wait_p99_s"].max() * 2))
    _dated(axis)
    axis.set_title("Wait since a message could be taken, by hour of arrival; dots: half waited "
                   "less, triangles: 99 of 100")
    _legend(axis)
    return figure


def heat(table: pd.DataFrame, _queues: Queues) -> Figure:
    """Arrivals by day and hour of the day, of report.by_hour_of_day."""
    figure, (axis,) = _figure(height=min(9.0, max(1.9, 1.3 + 0.22 * len(table))))
    image = axis.imshow(np.ma.masked_invalid(table.to_numpy(float)), aspect="auto",
                        cmap="viridis", vmin=0)
    axis.set_xticks(range(0, 24, 2), [f"{hour}:00" for hour in range(0, 24, 2)])
    step = max(1, len(table) // 20)
    axis.set_yticks(range(0, len(table), step), list(table.index[::step]))
    axis.grid(visible=False)
    axis.set_facecolor(NOT_ARCHIVED)
    axis.set_title("Arrivals on all queues, by day and hour (grey: not archived as a whole)")
    figure.colorbar(image, ax=axis, pad=0.01, label="messages")
    return figure


def readers(table: pd.DataFrame, queues: Queues) -> Figure:
    """How busy each reader was."""
    count, table = len(table), busiest(table)
    figure, (axis,) = _figure(height=max(2.0, 0.8 + 0.24 * len(table)))
    labels = [reader_label(row, queues) for row in table.itertuples()]
    share = np.minimum(table["busy_share"].where(table["enough"]).fillna(0).to_numpy(), 1) * 100
    axis.barh(range(len(table)), share, color=[queues.colour(q) for q in table["queue"]])
    for place, row in enumerate(table.itertuples()):
        axis.text(share[place] + 1, place, reader_said(row), va="center", fontsize=8)
    axis.set_yticks(range(len(table)), labels)
    axis.set_xlim(0, 130)
    axis.set_xticks(range(0, 101, 20), [f"{p} %" for p in range(0, 101, 20)])
    axis.invert_yaxis()
    axis.set_title("Share of its time in which a reader worked on a message (the busiest "
                   f"{len(table)} of {count})")
    return figure


def poison(table: pd.DataFrame, queues: Queues) -> Figure:
    """Failed attempts by queue and reader."""
    sums = by_reader(table)
    figure, (axis,) = _figure(height=max(2.0, 0.8 + 0.24 * len(sums)))
    places = range(len(sums))
    axis.barh(places, sums["failed"], color="#E69F00", label="failed attempts")
    axis.barh(places, sums["poisoned"], color="#D55E00", label="of these: the message went to "
              "POISON")
    axis.set_yticks(places, [reader_label(row, queues) for row in sums.itertuples()])
    axis.invert_yaxis()
    axis.legend(loc="lower right", fontsize=8)
    axis.set_title("Attempts that failed, by reader")
    return figure


def flow_rows(table: pd.DataFrame, queues: Queues) -> list[tuple[Any, Any, int]]:
    """(from, to, messages): numbers of queues that are shown, "in" and "out"."""
    folded = table.assign(**{column: [n and queues.shown(int(n)) for n in table[column]]
                             for column in ("from_queue", "to_queue")})
    totalled = folded.groupby(["from_queue", "to_queue"], as_index=False)["messages"].sum()
    return [(int(r.from_queue) or "in", int(r.to_queue) or "out", int(r.messages))
            for r in totalled.itertuples() if r.messages]


def flows(table: pd.DataFrame, queues: Queues) -> Figure:
    """Where messages went from where: the width of a band is their number."""
    figure, (axis,) = _figure(height=4.2)
    axis.set_axis_off()
    rows = flow_rows(table, queues)
    layer = _layers(rows)
    totals = {node: max(sum(n for a, _, n in rows if a == node),
                        sum(n for _, b, n in rows if b == node)) for node in layer}
    scale = 1.0 / max(1, max(sum(totals[n] for n in layer if layer[n] == level)
                             for level in set(layer.values())))
    bottom: dict[Any, float] = {}
    for level in sorted(set(layer.values())):
        y = 0.0
        for node in sorted((n for n in layer if layer[n] == level), key=str):
            bottom[node] = y
            y += totals[node] * scale + 0.08
    _draw(axis, rows, layer, totals, bottom, scale, queues)
    axis.set_xlim(-0.1, max(layer.values()) + 0.6)
    lowest = max(bottom[node] + totals[node] * scale for node in layer)
    axis.set_ylim(lowest + 0.05, -0.12)
    axis.set_title("Flow of messages between queues")
    return figure


def _layers(rows: list[tuple[Any, Any, int]]) -> dict[Any, int]:
    """Each node's column: one more than what leads to it; a way back does not count."""
    layer: dict[Any, int] = {"in": 0}
    for _ in range(8):
        for a, b, _count in sorted(rows, key=lambda row: -row[2]):
            if a in layer and b not in layer and b != "out":
                layer[b] = layer[a] + 1
    for a, b, _count in rows:
        for node in (a, b):
            if node != "out":
                layer.setdefault(node, 1)
    layer["out"] = max(layer.values()) + 1
    return layer


def _draw(axis: Any, rows: list[tuple[Any, Any, int]], layer: dict[Any, int],
          totals: dict[Any, int], bottom: dict[Any, float], scale: float,
          queues: Queues) -> None:
    ends = {"in": "put", "out": "finished"}
    leaves, comes = dict(bottom), dict(bottom)
    for a, b, count in sorted(rows, key=lambda row: (layer[row[1]], str(row[1]), bottom[row[0]])):
        x0, x1, thick = layer[a] + 0.12, layer[b] * 1.0, max(count * scale, 0.002)
        y0, y1, middle = leaves[a], comes[b], (layer[a] + 0.12 + layer[b]) / 2
        points = [(x0, y0), (middle, y0), (middle, y1), (x1, y1), (x1, y1 + thick),
                  (middle, y1 + thick), (middle, y0 + thick), (x0, y0 + thick), (x0, y0)]
        codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4, Curve.LINETO,
                 Curve.CURVE4, Curve.CURVE4, Curve.CURVE4, Curve.CLOSEPOLY]
        painted = b if b != "out" else a
        tint = queues.colour(painted) if isinstance(painted, int) else "#888"
        axis.add_patch(PathPatch(Curve(points, codes), color=tint, alpha=0.35, lw=0))
        axis.text(x0 + 0.14, y0 + thick / 2, f"{count:,}", fontsize=8, ha="center",
                  va="center")
        leaves[a] += count * scale
        comes[b] += count * scale
    for node, column in layer.items():
        tall = max(totals[node] * scale, 0.01)
        axis.add_patch(Rectangle((column, bottom[node]), 0.12, tall, color=(
            queues.colour(node) if isinstance(node, int) else "#888")))
        axis.text(column + 0.06, bottom[node] - 0.015,
                  ends.get(node) or queues.short(node), fontsize=9, ha="center",
                  va="bottom", weight="bold")
