"""The report: one self-contained HTML page with pictures inside, and the pictures as PNG files.

For a reader who never saw the system: each picture has a sentence that says what it shows and what
would be a bad sign. Tables of the gold layer are small, so they are fetched whole.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from omqtools.omqspark import charts
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.state import queue_names

SECTIONS: Final[tuple[tuple[str, str, str, Callable[..., Figure], str], ...]] = (
    ("throughput", "Throughput", "queue_minute", charts.throughput,
     "Both halves should look alike: what arrives on a queue leaves it. A lower half that stays "
     "behind means a backlog."),
    ("depth", "Depth and age", "queue_minute", charts.depth,
     "How many messages lay on each queue, and since when the oldest. A rising age means that the "
     "readers do not keep up, or that a message waits for another attempt."),
    ("waits", "Waiting times", "queue_hour", charts.waits,
     "The time from arrival on a queue until a reader got the message for the first time."),
    ("heat", "Hours and days", "queue_hour", charts.heat,
     "When the work comes. Plan maintenance for the dark fields."),
    ("readers", "Readers", "readers", charts.readers,
     "A reader near 100 % is the bottleneck of its queue; many near 0 % are more than are needed."),
    ("poison", "Failures", "poison", charts.poison,
     "Attempts that a reader reported as failed or died in. One reader that stands out points to "
     "the reader; all alike point to the messages."),
    ("flows", "Flow between queues", "routes", charts.flows,
     "From left to right: how messages went from queue to queue."),
)
STYLE: Final = """body{font:15px/1.5 system-ui,sans-serif;max-width:1120px;margin:2em auto;padding:0
1em;color:#222}h1{font-size:1.6em}h2{margin-top:2em;border-bottom:1px solid #ccc}img{max-width:100%}
table{border-collapse:collapse}td,th{padding:.25em .8em;text-align:right;border-bottom:
1px solid #ddd}
td:first-child,th:first-child{text-align:left}.ok{background:#e3f4ea}.bad{background:#fbe5e0}
.verdict{padding:.6em 1em;border-radius:6px}p.note{color:#555}"""


def make(lake: Lake, verdict: dict[str, Any] | None) -> dict[str, bytes]:
    """File name -> bytes: report.html and the PNGs."""
    names = queue_names(lake)
    tables = {table: _fetched(lake, table) for table in
              {section[2] for section in SECTIONS} | {"sizes", "operators"}}
    files: dict[str, bytes] = {}
    body = [_verdict(verdict), _summary(tables, names)]
    for key, title, table, draw, note in SECTIONS:
        body.append(f"<h2>{html.escape(title)}</h2><p class=note>{html.escape(note)}</p>")
        if tables[table].empty:
            body.append("<p>Nothing of this kind is in the archive.</p>")
            continue
        png = files[f"{key}.png"] = _png(draw(tables[table], names))
        data = base64.b64encode(png).decode("ascii")
        body.append(f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}">')
    body += [_sizes(tables["sizes"], names), _orders(tables["operators"])]
    text = (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>omq report'
            f"</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>")
    files["report.html"] = text.encode()
    return files


def _fetched(lake: Lake, table: str) -> pd.DataFrame:
    frame = lake.gold(table)
    kept = [c for c in frame.columns if not c.endswith("_sketch")]
    return frame.select(*kept).toPandas()


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


def _verdict(verdict: dict[str, Any] | None) -> str:
    head = "<h1>What the message queues did</h1>"
    if verdict is None:
        return head + "<p class=note>No audit was made.</p>"
    if verdict["clean"]:
        left = "".join(f" Not judged: {kind.replace('_', ' ')} ({html.escape(why)})."
                       for kind, why in verdict.get("not_judged", {}).items())
        said = (f"Audit: clean. All {verdict['messages']:,} messages are accounted for: "
                f"{verdict['ended']:,} finished, {verdict['open']:,} still open, up to "
                f"{verdict.get('data_to', 'the end of the tables')}.{left}")
        return f'{head}<p class="verdict ok">{said}</p>'
    found = ", ".join(f"{count} {kind.replace('_', ' ')}"
                      for kind, count in verdict["counts"].items() if count)
    said = (f"Audit: <b>{html.escape(found)}</b>, in {verdict['messages']:,} messages. "
            "audit.json lists them.")
    return f'{head}<p class="verdict bad">{said}</p>'


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                    for row in rows)
    return f"<table><tr>{cells}</tr>{lines}</table>"


def _summary(tables: dict[str, pd.DataFrame], names: charts.Names) -> str:
    hours = tables["queue_hour"]
    if hours.empty:
        return "<p>The archive holds no messages.</p>"
    rows = []
    for queue, part in sorted(hours.groupby("queue"), key=lambda item: -item[1]["arrivals"].sum()):
        busiest = part.loc[part["arrivals"].idxmax()]
        worst = part["wait_p99_s"].max()
        rows.append([charts.name(queue, names), f"{part['arrivals'].sum():,}",
                     f"{busiest['arrivals']:,} ({busiest['hour']:%d %b %H:%M})",
                     "-" if pd.isna(worst) else f"{worst:.3f} s", f"{part['failed'].sum():,}",
                     f"{part['bytes'].sum() / 1e6:,.1f} MB"])
    span = f"{hours['hour'].min():%d %b %Y %H:%M} to {hours['hour'].max():%d %b %Y %H:59} UTC"
    return (f"<p>From {span}.</p><h2>Queues, busiest first</h2>" + _table(
        ["queue", "messages", "most in an hour", "worst hourly p99 wait", "failed attempts",
         "bodies"], rows))


def _sizes(sizes: pd.DataFrame, names: charts.Names) -> str:
    """Size distribution, and what to set for it."""
    if sizes.empty:
        return ""
    rows = []
    for queue, part in sizes.groupby("queue"):
        part = part.sort_values("size_class")
        share = part["messages"].cumsum() / part["messages"].sum()
        classes = {q: int(part["size_class"][share >= q].iloc[0]) for q in (0.5, 0.99)}
        stored = part["journal_bytes"].sum() / max(1, part["bytes"].sum())
        rows.append([charts.name(queue, names), f"{classes[0.5]:,}", f"{classes[0.99]:,}",
                     f"{int(part['largest'].max()):,}", f"{stored:.2f}",
                     f"max_length = {_rounded(int(part['largest'].max()))}"])
    return ("<h2>Sizes</h2><p class=note>Half of the bodies are at most as large as the first "
            "number of bytes, 99 of 100 at most as the second. Journal bytes for each byte of "
            "body: near 1 is good, small messages cost more. The last column is a limit for "
            "queues.conf that all of these messages would have passed.</p>"
            + _table(["queue", "half at most", "99 % at most", "largest", "journal per body byte",
                      "advice"], rows))


def _rounded(size: int) -> int:
    return 1 << max(12, (2 * size - 1).bit_length())


def _orders(orders: pd.DataFrame) -> str:
    if orders.empty:
        return "<h2>Operators</h2><p>No operator changed a message in this time.</p>"
    rows = [[f"{row.at:%Y-%m-%d %H:%M:%S}", str(row.uid), str(row.messages), str(row.order)[:300]]
            for row in orders.sort_values("at").tail(50).itertuples()]
    return "<h2>Operators</h2>" + _table(["when (UTC)", "uid", "messages", "order"], rows)
