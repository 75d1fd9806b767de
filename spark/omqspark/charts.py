"""The pictures of the report, drawn with matplotlib from small tables (pandas).

Each function takes a table and the names of the queues and gives a Figure. Colours are those of the
Okabe-Ito set, which people who see colours differently can tell apart; a queue keeps its colour in
every picture. Times are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Curve

PALETTE: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D1F",
                  "#666666")
WIDTH, HEIGHT = 10.0, 3.6  # inches
FEW_HOURS: Final = 6  # so few are drawn as single values, not as a band
AT_ONCE_MS: Final = 0.1  # shorter waits are drawn as this
POINTS_MAX: Final = 1500  # of a line: more are put together
Names = Mapping[int, str]

mpl.rcParams.update({
    "font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "axes.spines.top": False,
    "axes.spines.right": False, "figure.dpi": 110, "axes.titlesize": 10,
    "axes.titlelocation": "left"})


def colour(queue: int) -> str:
    """The colour of a queue, the same everywhere."""
    return PALETTE[queue % len(PALETTE)]


def name(queue: int, names: Names) -> str:
    return names.get(queue, f"queue {queue}")


def _figure(rows: int = 1, height: float = HEIGHT) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]


def _dated(axis: Any) -> None:
    """A time axis whose labels say no more than they must, with the day at its end."""
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(
        ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _thinned(frame: pd.DataFrame, how: dict[str, str]) -> pd.DataFrame:
    """By minute, or by as many minutes as keep a line readable."""
    span = frame["minute"].max() - frame["minute"].min()
    step = max(1, int(np.ceil(span.total_seconds() / 60 / POINTS_MAX)))
    grouped = frame.set_index("minute").resample(f"{step}min").agg(how)
    for column, rule in how.items():
        if rule == "sum":
            grouped[column] = grouped[column] / step
        elif rule == "last":
            grouped[column] = grouped[column].ffill()
    return grouped


def throughput(minutes: pd.DataFrame, names: Names) -> Figure:
    """Arrivals and departures a minute."""
    figure, (top, below) = _figure(2, 5.2)
    for queue, part in minutes.groupby("queue"):
        thin = _thinned(part, {"arrivals": "sum", "departures": "sum"})
        top.plot(thin.index, thin["arrivals"], color=colour(queue), lw=1.2,
                 label=name(queue, names))
        below.plot(thin.index, thin["departures"], color=colour(queue), lw=1.2)
    top.set_title("Messages that arrived on a queue, per minute")
    below.set_title("Messages that left it, per minute")
    for axis in (top, below):
        axis.set_ylim(bottom=0)
    _dated(below)
    top.legend(ncols=6, loc="upper left", fontsize=8)
    return figure


def depth(minutes: pd.DataFrame, names: Names) -> Figure:
    """Messages on each queue, and how long the oldest has been there."""
    figure, (top, below) = _figure(2, 5.2)
    for queue, part in minutes.groupby("queue"):
        thin = _thinned(part, {"depth": "last", "oldest_s": "max"})
        top.step(thin.index, thin["depth"], where="post", color=colour(queue), lw=1.2,
                 label=name(queue, names))
        thin = thin[:-1]  # the last minute has not ended
        below.plot(thin.index, thin["oldest_s"], color=colour(queue), lw=1.2)
    top.set_title("Messages on the queue at the end of the minute")
    below.set_title("Age of the oldest one in seconds (at most a day)")
    top.set_ylim(bottom=0)
    below.set_yscale("symlog", linthresh=1)
    below.set_ylim(bottom=0)
    _dated(below)
    top.legend(ncols=6, loc="upper left", fontsize=8)
    return figure


def waits(hours: pd.DataFrame, names: Names) -> Figure:
    """Percentiles of the wait by hour: a line for the median, a band up to the 99th."""
    figure, (axis,) = _figure()
    lines = hours.dropna(subset=["wait_p50_s"]).groupby("queue")
    for shift, (queue, part) in enumerate(lines):
        part = part.sort_values("hour").copy()
        part["hour"] += pd.Timedelta(minutes=30 + 3 * shift)  # the middle; side by side
        ms = {key: np.maximum(part[f"wait_{key}_s"] * 1000, AT_ONCE_MS)
              for key in ("p50", "p90", "p99")}
        if len(part) > FEW_HOURS:
            axis.fill_between(part["hour"], ms["p50"], ms["p99"], color=colour(queue), alpha=0.12)
        else:
            axis.vlines(part["hour"], ms["p50"], ms["p99"], color=colour(queue), lw=0.8)
        axis.plot(part["hour"], ms["p50"], color=colour(queue), lw=1.6, marker="o", ms=3,
                  label=name(queue, names))
        axis.plot(part["hour"], ms["p99"], color=colour(queue), lw=0.9, ls="--", marker="v", ms=4)
    hour = pd.Timedelta(hours=1)
    axis.set_xlim(hours["hour"].min() - hour, hours["hour"].max() + 2 * hour)
    axis.set_yscale("log")
    axis.set_ylim(bottom=AT_ONCE_MS * 0.8, top=max(10.0, axis.get_ylim()[1]))
    axis.set_ylabel(f"milliseconds ({AT_ONCE_MS} = at once)")
    _dated(axis)
    axis.set_title("Wait until the first hand-out, by hour of arrival; dots: half waited less, "
                   "triangles: 99 of 100")
    axis.legend(ncols=6, loc="upper left", fontsize=8)
    return figure


def heat(hours: pd.DataFrame, names: Names) -> Figure:
    """Arrivals by day and hour of the day."""
    table = hours.assign(day=hours["hour"].dt.date, of_day=hours["hour"].dt.hour).pivot_table(
        index="day", columns="of_day", values="arrivals", aggfunc="sum").reindex(
        columns=range(24))
    figure, (axis,) = _figure(height=max(1.9, 1.3 + 0.22 * len(table)))
    image = axis.imshow(np.ma.masked_invalid(table.to_numpy(float)), aspect="auto",
                        cmap="viridis", vmin=0)
    axis.set_xticks(range(0, 24, 2), [f"{hour}:00" for hour in range(0, 24, 2)])
    step = max(1, len(table) // 20)
    axis.set_yticks(range(0, len(table), step), [str(day) for day in table.index[::step]])
    axis.grid(visible=False)
    axis.set_title("Arrivals on all queues, by day and hour (white: nothing archived)")
    figure.colorbar(image, ax=axis, pad=0.01, label="messages")
    return figure


def readers(table: pd.DataFrame, names: Names) -> Figure:
    """How busy each reader was."""
    table = table.sort_values(["queue", "reader"]).tail(40)
    figure, (axis,) = _figure(height=max(2.0, 0.8 + 0.24 * len(table)))
    labels = [f"{name(row.queue, names)}  pid {row.reader_pid}" for row in table.itertuples()]
    share = np.minimum(table["busy_share"].fillna(0).to_numpy(), 1) * 100
    axis.barh(range(len(table)), share, color=[colour(q) for q in table["queue"]])
    for place, row in enumerate(table.itertuples()):
        died = f", died {row.deaths} times" if row.deaths else ""
        axis.text(share[place] + 1, place, f"{row.messages:,} messages, {row.failed} failed{died}",
                  va="center", fontsize=8)
    axis.set_yticks(range(len(table)), labels)
    axis.set_xlim(0, 130)
    axis.set_xticks(range(0, 101, 20), [f"{p} %" for p in range(0, 101, 20)])
    axis.invert_yaxis()
    axis.set_title("Share of its time in which a reader worked on a message")
    return figure


def poison(table: pd.DataFrame, names: Names) -> Figure:
    """Failed attempts by queue and reader."""
    sums = table.groupby(["queue", "reader_pid"])[["failed", "poisoned"]].sum().reset_index()
    sums = sums.sort_values("failed", ascending=False).head(20)
    figure, (axis,) = _figure(height=max(2.0, 0.8 + 0.24 * len(sums)))
    places = range(len(sums))
    axis.barh(places, sums["failed"], color="#E69F00", label="failed attempts")
    axis.barh(places, sums["poisoned"], color="#D55E00", label="of these: the message went to "
              "POISON")
    axis.set_yticks(places, [f"{name(r.queue, names)}  pid {r.reader_pid}"
                             for r in sums.itertuples()])
    axis.invert_yaxis()
    axis.legend(loc="lower right", fontsize=8)
    axis.set_title("Attempts that failed, by reader")
    return figure


def flows(table: pd.DataFrame, names: Names) -> Figure:
    """Where messages went from where: the width of a band is their number."""
    figure, (axis,) = _figure(height=4.2)
    axis.set_axis_off()
    totalled = table.groupby(["from_queue", "to_queue"], as_index=False)["messages"].sum()
    rows = [(f"in{r.to_queue}" if not r.from_queue else r.from_queue, r.to_queue or "out",
             int(r.messages)) for r in totalled.itertuples()]
    rows = [("in" if str(a).startswith("in") else int(a), b if b == "out" else int(b), n)
            for a, b, n in rows if n]
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
    _draw(axis, rows, layer, totals, bottom, scale, lambda node: {
        "in": "put", "out": "finished"}.get(node) or name(node, names))
    axis.set_xlim(-0.1, max(layer.values()) + 0.6)
    axis.set_ylim(1.35, -0.12)
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
          label: Callable[[Any], str]) -> None:
    leaves, comes = dict(bottom), dict(bottom)
    for a, b, count in sorted(rows, key=lambda row: (layer[row[1]], str(row[1]), bottom[row[0]])):
        x0, x1, thick = layer[a] + 0.12, layer[b] * 1.0, max(count * scale, 0.002)
        y0, y1, middle = leaves[a], comes[b], (layer[a] + 0.12 + layer[b]) / 2
        points = [(x0, y0), (middle, y0), (middle, y1), (x1, y1), (x1, y1 + thick),
                  (middle, y1 + thick), (middle, y0 + thick), (x0, y0 + thick), (x0, y0)]
        codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4, Curve.LINETO,
                 Curve.CURVE4, Curve.CURVE4, Curve.CURVE4, Curve.CLOSEPOLY]
        tint = colour(b if b != "out" else a) if isinstance(b if b != "out" else a, int) else "#888"
        axis.add_patch(PathPatch(Curve(points, codes), color=tint, alpha=0.35, lw=0))
        axis.text(x0 + 0.14, y0 + thick / 2, f"{count:,}", fontsize=8, ha="center",
                  va="center")
        leaves[a] += count * scale
        comes[b] += count * scale
    for node, column in layer.items():
        tall = max(totals[node] * scale, 0.01)
        axis.add_patch(Rectangle((column, bottom[node]), 0.12, tall, color=(
            colour(node) if isinstance(node, int) else "#888")))
        axis.text(column + 0.06, bottom[node] - 0.015, label(node), fontsize=9, ha="center",
                  va="bottom", weight="bold")
