"""The comparison as a picture: rates by kind of work, and latencies under half load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from tests.bench.peers.rounds import WORKS

matplotlib.use("agg")
_OURS, _THEIRS = "#b5431f", "#7a8794"


def draw(record: dict[str, Any], path: Path) -> None:
    """Bars are medians, the lines on them go from the lowest to the highest round."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplots(2, 2).flat
    titles = {name: each["title"] for name, each in record["systems"].items()}
    for axis, work in zip(axes, WORKS, strict=False):
        found = [each for each in record["rates"] if each["work"] == work.name]
        _bars(axis, f"{work.title}: messages/s",
              [(titles[each["peer"]], each["peer"], each["rate"], each["lowest"], each["highest"])
               for each in found])
    own = [each for each in record["latencies"] if each["load"] == "own"]
    _bars(figure.axes[3], "durable put under half of its own load: p99, ms",
          [(titles[each["peer"]], each["peer"], each["p99"],
            min(one["put_ms"]["p99"] for one in each["rounds"]),
            max(one["put_ms"]["p99"] for one in each["rounds"])) for each in own])
    figure.axes[3].set_xscale("log")
    figure.savefig(path, dpi=100)


def _bars(axis: Any, title: str, rows: list[tuple[str, str, float, float, float]]) -> None:
    labels = [row[0] for row in rows]
    values = [row[2] for row in rows]
    errors = [[max(0.0, row[2] - row[3]) for row in rows], [max(0.0, row[4] - row[2])
                                                           for row in rows]]
    colours = [_OURS if row[1] == "omq" else _THEIRS for row in rows]
    axis.barh(range(len(rows)), values, xerr=errors, color=colours, ecolor="#222222", capsize=2)
    axis.set_yticks(range(len(rows)), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_title(title, fontsize=10)
    axis.tick_params(axis="x", labelsize=8)
