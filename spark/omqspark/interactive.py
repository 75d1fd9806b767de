"""The pictures of the report as one can look into them: traces and layout for plotly.js, which is
inlined, so the page works offline and alone.

Each function of FIGURES takes what its sister in charts.py takes, and gives what Plotly.newPlot
takes, as plain dicts: plotly's Python is not imported, only its script is read. The page colours
axes and texts by what the reader's system wants, light or dark (report.html.in).

Invariant: what goes into the page goes through `script`, which no text in it can end.
Errors: SparkMissing where plotly is not installed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pandas as pd

from omq.base.errors import SparkMissing
from omqtools.omqspark import charts
from omqtools.omqspark.reader_bars import busiest, by_reader, reader_label, reader_said
from omqtools.omqspark.topmost import Queues

Figure = dict[str, Any]
ROW_PX, TALL_PX, FLAT_PX, HEIGHT_MAX_PX = 26, 520, 380, 900
HEAT_LABELS_MAX: Final = 24
SCRIPT: Final = "package_data/plotly.min.js"


def library() -> str:
    """plotly.js. SparkMissing."""
    spec = find_spec("plotly")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (found := Path(place) / SCRIPT).is_file():
            return found.read_text(encoding="utf-8").replace("</script", "<\\/script")
    raise SparkMissing(what="plotly", reason="it draws the report: pip install 'omq-suite[spark]'")


def script(value: Any) -> str:
    """JSON that may be in a <script>; what is not a number is null, a gap."""
    return json.dumps(_plain(value), allow_nan=False).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, pd.Index | pd.Series):
        return [_plain(each) for each in value.tolist()]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is pd.NaT:
        return None
    if isinstance(value, pd.Timestamp):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _line(part: pd.DataFrame, column: str, queues: Queues, queue: int, **more: Any) -> Figure:
    return {"type": "scatter", "mode": "lines", "x": part.index, "y": part[column],
            "name": queues.short(queue), "legendgroup": str(queue), "connectgaps": False,
            "line": {"color": queues.colour(queue), "width": 1.5}} | more


def _two(top: str, below: str, traces: list[Figure], **below_axis: Any) -> Figure:
    """Two pictures with one time axis."""
    return {"data": traces, "height": TALL_PX, "layout": {
        "xaxis": {"type": "date", "anchor": "y2"},
        "yaxis": {"domain": [0.54, 1], "title": {"text": top}, "rangemode": "tozero"},
        "yaxis2": {"domain": [0, 0.46], "title": {"text": below}, "rangemode": "tozero"}
        | below_axis}}


def throughput(minutes: pd.DataFrame, queues: Queues) -> Figure:
    """Arrivals and departures a minute."""
    traces = []
    for queue, part in queues.parts(charts.whole_minutes(minutes)):
        thin = charts.thinned(part, {"arrivals": "sum", "departures": "sum"})
        traces += [_line(thin, "arrivals", queues, queue),
                   _line(thin, "departures", queues, queue, yaxis="y2", showlegend=False)]
    return _two("came, per minute", "left, per minute", traces)


def depth(minutes: pd.DataFrame, queues: Queues) -> Figure:
    """Messages on each queue, and the age of the oldest."""
    traces = []
    for queue, part in queues.parts(minutes):
        thin = charts.thinned(part, {"depth": "last", "oldest_s": "max"})
        traces += [_line(thin, "depth", queues, queue, line={
                       "color": queues.colour(queue), "width": 1.5, "shape": "hv"}),
                   _line(thin[:-1], "oldest_s", queues, queue, yaxis="y2", showlegend=False)]
    return _two("messages", "oldest, s", traces)


def waits(hours: pd.DataFrame, queues: Queues) -> Figure:
    """Percentiles of the wait by hour."""
    traces = []
    told = queues.hours(hours.dropna(subset=["ready_wait_p50_s"]))
    for queue, part in queues.parts(told):
        found = charts.hourly(part)
        traces += [
            _line(found, "ready_wait_p50_s", queues, queue, mode="lines+markers"),
            _line(found, "ready_wait_p99_s", queues, queue, mode="lines+markers", marker={
                      "symbol": "triangle-up"}, showlegend=False,
                  line={"color": queues.colour(queue), "width": 1, "dash": "dot"})]
    ticks = charts.WAIT_TICKS
    return {"data": traces, "height": FLAT_PX, "layout": {
        "xaxis": {"type": "date"},
        "yaxis": {"type": "log", "tickvals": list(ticks), "ticktext": list(ticks.values())}}}


def heat(table: pd.DataFrame, _queues: Queues) -> Figure:
    """Arrivals by day (or week) and hour of the day."""
    rows = [list(row) for row in table.to_numpy(float).tolist()]
    return {"data": [{"type": "heatmap", "z": rows, "y": list(table.index),
                      "x": [f"{hour}:00" for hour in table.columns], "colorscale": "Viridis",
                      "zmin": 0, "hoverongaps": False, "colorbar": {"nticks": 5, "title": {
                          "text": "messages"}}}],
            "height": min(HEIGHT_MAX_PX, 200 + 22 * len(rows)),
            "layout": {"plot_bgcolor": charts.NOT_ARCHIVED, "yaxis": {
                "type": "category", "autorange": "reversed", "showgrid": False,
                "tickvals": list(table.index)[:: max(1, -(-len(rows) // HEAT_LABELS_MAX))]},
                "xaxis": {"type": "category", "showgrid": False}}}


def _bars(labels: list[str], layers: list[tuple[str, Any, Any]], texts: list[str] | None = None,
          **axis: Any) -> Figure:
    places = list(range(len(labels)))  # not by label: two that look alike would be one bar
    return {"data": [{"type": "bar", "orientation": "h", "y": places, "x": values, "name": name,
                      "marker": {"color": colour}, "hovertext": texts or labels,
                      "hoverinfo": "x+text"} for name, values, colour in layers],
            "height": min(HEIGHT_MAX_PX, 110 + ROW_PX * len(labels)),
            "layout": {"yaxis": {"autorange": "reversed", "automargin": True, "showgrid": False,
                                 "tickvals": places, "ticktext": labels},
                       "xaxis": axis, "barmode": "overlay", "showlegend": len(layers) > 1}}


def readers(table: pd.DataFrame, queues: Queues) -> Figure:
    """How busy each reader was."""
    table = busiest(table)
    rows = list(table.itertuples())
    texts = [reader_said(row) for row in rows]
    share = [min(1.0, row.busy_share) * 100 if row.enough and row.busy_share == row.busy_share
             else 0.0 for row in rows]
    return _bars([reader_label(row, queues) for row in rows],
                 [("busy", share, [queues.colour(row.queue) for row in rows])], texts,
                 range=[0, 100], ticksuffix=" %")


def poison(table: pd.DataFrame, queues: Queues) -> Figure:
    """Failed attempts by queue and reader."""
    sums = by_reader(table)
    return _bars([reader_label(row, queues) for row in sums.itertuples()],
                 [("failed attempts", sums["failed"], "#E69F00"),
                  ("the message went to POISON", sums["poisoned"], "#D55E00")])


def flows(table: pd.DataFrame, queues: Queues) -> Figure:
    """Where messages went from where."""
    rows = charts.flow_rows(table, queues)
    nodes = sorted({node for a, b, _ in rows for node in (a, b)}, key=str)
    names = {"in": "put", "out": "finished"}
    place = {node: i for i, node in enumerate(nodes)}
    return {"data": [{"type": "sankey", "node": {
        "label": [names.get(node) or queues.short(node) for node in nodes],
        "color": [queues.colour(node) if isinstance(node, int) else "#888888" for node in nodes]},
        "link": {"source": [place[a] for a, _, _ in rows], "target": [place[b] for _, b, _ in rows],
                 "value": [n for _, _, n in rows], "color": "rgba(136,136,136,0.35)"}}],
        "height": FLAT_PX + 60, "layout": {}}


FIGURES: Final[dict[str, Callable[[pd.DataFrame, Queues], Figure]]] = {
    "throughput": throughput, "depth": depth, "waits": waits, "heat": heat, "readers": readers,
    "poison": poison, "flows": flows}
