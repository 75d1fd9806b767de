"""The report: one self-contained HTML page with pictures that one can look into, and the same
pictures as PNG files.

For a reader who never saw the system: on top what this is about (the instance, the time, what the
audit judged) and what was unusual (summary.py); each picture has a sentence that says what it shows
and what would be a bad sign. A picture has the busiest queues and all others as one; minutes are
put together as they are read (report_tables.py), so a page of two years costs no more memory than
one of a day.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from omq.base.clock import NS_PER_S
from omqtools.omqspark import charts, interactive, report_tables
from omqtools.omqspark.manifest import Manifest
from omqtools.omqspark.out_directory import Out
from omqtools.omqspark.page import page, picture
from omqtools.omqspark.reader_bars import FEW_MESSAGES
from omqtools.omqspark.summary import (
    Sentence,
    counted,
    not_judged,
    of_these,
    sentences,
    words,
)
from omqtools.omqspark.topmost import Queues

HOURS_OF_DAY: Final = "hours_of_day"
"""Not a table: made of `queue_hour` and of the time that the archive covers (by_hour_of_day)."""
DAYS_MAX: Final = 62  # more rows of it than this are weeks
WEEKS_MAX: Final = 160  # and more of these are left out, the oldest first
SECTIONS: Final[tuple[tuple[str, str, str, Callable[..., Figure], str], ...]] = (
    ("throughput", "Throughput", "queue_minute", charts.throughput,
     "Both halves should look alike: what arrives on a queue leaves it. A lower half that lags "
     "means a backlog."),
    ("depth", "Depth and age", "queue_minute", charts.depth,
     "How many messages were on each queue, and the age of the oldest. A rising age means that "
     "the readers do not keep up, or that a message waits for another attempt."),
    ("waits", "Waiting times", "queue_hour", charts.waits,
     "The time from when a message was ready (it had arrived, and any delay its sender asked for "
     "was over) until a reader first got it: solid lines for the median, dotted ones for the "
     "99th percentile. All other queues share one line: their longest."),
    ("heat", "Hours and days", HOURS_OF_DAY, charts.heat,
     "When the work arrives. Plan maintenance for the dark cells. An hour that is archived only "
     "in part, such as the first and the last, is grey."),
    ("readers", "Readers", "readers", charts.readers,
     "A reader near 100 % is the bottleneck of its queue; many near 0 % are more than you need. "
     f"The share of a reader with fewer than {FEW_MESSAGES} messages says nothing and is not "
     "shown."),
    ("poison", "Failures", "poison", charts.poison,
     "Attempts that a reader reported as failed, or during which it died. If one reader stands "
     "out, look at the reader; if all are alike, look at the messages."),
    ("flows", "Flow between queues", "routes", charts.flows,
     "From left to right: how messages went from queue to queue."),
)
NUMBERS: Final = ("queue", "from_queue", "to_queue")
ROWS_MAX: Final = 20  # of a table: the busiest


@dataclass(frozen=True)
class Drawn:
    """What of a report does not hang on the audit. `rows`: of each table; `sections`: key -> a PNG
    and the figure of the page."""

    rows: dict[str, pd.DataFrame]
    names: Queues
    oldest: pd.DataFrame
    sections: dict[str, tuple[bytes, Any]]


def drawn(out: Out) -> Drawn:
    """Read what is to be shown, and draw it: most of what a report costs."""
    rows = {table: report_tables.fetched(out, table) for table in
            {section[2] for section in SECTIONS} - {HOURS_OF_DAY} | {"sizes", "operators"}}
    wanted = {int(number) for each in rows.values() for column in NUMBERS if column in each
              for number in each[column].unique()} - {0}
    names = Queues.of(report_tables.queue_names(out, wanted), rows["queue_hour"])
    hours = rows["queue_hour"]
    told = rows | {"queue_minute": names.minutes(rows["queue_minute"]), HOURS_OF_DAY: (
        hours if hours.empty else _whole(by_hour_of_day(hours, _spans(out.known()))))}
    return Drawn(rows, names, report_tables.oldest(out), {
        key: (_png(draw(told[table], names)), interactive.FIGURES[key](told[table], names))
        for key, _, table, draw, _ in SECTIONS if not told[table].empty})


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


def _whole(table: pd.DataFrame) -> pd.DataFrame:
    """Nothing, where no hour is archived as a whole."""
    return table[:0] if table.isna().all(axis=None) else table


def make(out: Out, verdict: dict[str, Any] | None, ready: Drawn | None = None) -> dict[str, bytes]:
    """File name -> bytes: report.html and the PNGs. `ready`: what was drawn while the audit was
    made."""
    ready = ready or drawn(out)
    rows, names, known = ready.rows, ready.names, out.known()
    records = [record for record in known.files.values() if record.frames]
    verdict = of_these(verdict, max((one.last_lsn for one in records), default=0),
                       len(known.files))
    end = datetime.fromtimestamp(max((one.time_max for one in records), default=0) // NS_PER_S, UTC)
    said = sentences(rows | {"oldest": ready.oldest}, names, verdict, end=end,
                     now=datetime.now(UTC))
    body = [_head(known, verdict), _verdict(verdict), _said(said), _summary(rows, names)]
    for key, title, _, _, note in SECTIONS:
        body.append(f"<h2>{html.escape(title)}</h2><p class=note>{html.escape(note)}</p>")
        body.append(picture(key, title) if key in ready.sections else
                    "<p>The archive has nothing of this kind.</p>")
    body += [_sizes(rows["sizes"], names), _orders(rows["operators"])]
    figures = {key: figure for key, (_, figure) in ready.sections.items()}
    return {f"{key}.png": png for key, (png, _) in ready.sections.items()} | {
        "report.html": page(body, figures).encode()}


def _spans(known: Manifest) -> list[tuple[int, int]]:
    """(first, last) event in ns of each run of archive files that follow each other."""
    spans: list[tuple[int, int]] = []
    before = None
    for number in sorted(known.files):
        record = known.files[number]
        if record.frames:
            first = spans.pop()[0] if spans and before == number - 1 else record.time_min
            spans.append((first, record.time_max))
        before = number
    return spans or [(0, 0)]


def _head(known: Manifest, verdict: dict[str, Any] | None) -> str:
    """What this is about."""
    spans = _spans(known)
    first, last = (f"{datetime.fromtimestamp(edge // NS_PER_S, UTC):%d %b %Y %H:%M}"
                   for edge in (spans[0][0], spans[-1][1]))
    events = sum(record.frames for record in known.files.values())
    rows = [("Instance", known.uuid), ("Data", f"{first} to {last} (UTC), {len(known.files):,} "
                                       f"archive files, {events:,} events"),
            ("Report made", f"{datetime.now(UTC):%d %b %Y %H:%M} (UTC)")]
    if verdict is not None and "audited" in verdict:
        rows.append(("Audit", f"made {_minute(verdict['audited'])}, judged up to "
                     f"{_minute(verdict['data_to'])} (UTC): "
                     f"{', '.join(words(kind)[1] for kind in verdict['judged'])}"))
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
                    for name, text in rows)
    return f"<h1>What the message queues did</h1><table class=head>{cells}</table>"


def _minute(instant: str) -> str:
    return f"{datetime.fromisoformat(instant):%d %b %Y %H:%M}"


def _said(found: list[Sentence]) -> str:
    """What was unusual, each with what shows more."""
    lines = "".join(f"<li>{html.escape(each.text)}" + (
        f" <code>{html.escape(each.command)}</code>" if each.command else "") + "</li>"
        for each in found)
    return f"<h2>What was unusual</h2><ul>{lines}</ul>"


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


def _verdict(verdict: dict[str, Any] | None) -> str:
    if verdict is None:
        return ""
    left = html.escape(not_judged(verdict))
    if not verdict["messages"] and verdict["clean"]:
        return f'<p class="verdict">Audit: there were no messages to judge. {left}</p>'
    if verdict["clean"]:
        sure = not {"lost", "since"} & {*verdict.get("not_judged", {})}
        judged = f"clean. All {verdict['messages']:,} messages are accounted for" if sure else (
            f"nothing was found in {verdict['messages']:,} messages; whether all are accounted "
            "for was not judged")
        said = (f"Audit: {judged}: {verdict['ended']:,} finished, {verdict['open']:,} still open, "
                f"up to {verdict.get('data_to', 'the end of the tables')}. {left}")
        return f'<p class="verdict{" ok" if sure else ""}">{said}</p>'
    told = ", ".join(counted(kind, count) for kind, count in verdict["counts"].items() if count)
    said = (f"Audit: <b>{html.escape(told)}</b>; of {verdict['messages']:,} messages. audit.json "
            f"lists them. {left}")
    return f'<p class="verdict bad">{said}</p>'


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(
        f'<td data-label="{html.escape(name)}">{html.escape(cell)}</td>'
        for name, cell in zip(head, row, strict=True)) + "</tr>" for row in rows)
    return f"<div class=wide><table><tr>{cells}</tr>{lines}</table></div>"


def _summary(tables: dict[str, pd.DataFrame], names: Queues) -> str:
    hours = tables["queue_hour"]
    if hours.empty:
        return "<p>The archive holds no messages.</p>"
    rows = []
    groups = sorted(hours.groupby("queue"), key=lambda item: -item[1]["arrivals"].sum())
    for queue, part in groups[:ROWS_MAX]:
        busiest = part.loc[part["arrivals"].idxmax()]
        worst, since = part["wait_p99_s"].max(), part["ready_wait_p99_s"].max()
        rows.append([names.name(int(queue)), f"{part['arrivals'].sum():,}",
                     f"{busiest['arrivals']:,} ({busiest['hour']:%d %b %H:%M})",
                     "-" if pd.isna(worst) else f"{worst:.3f} s",
                     "-" if pd.isna(since) else f"{since:.3f} s", f"{part['failed'].sum():,}",
                     f"{part['bytes'].sum() / 1e6:,.1f} MB"])
    more = f"<p>And {len(groups) - ROWS_MAX} more.</p>" if len(groups) > ROWS_MAX else ""
    return ("<h2>Queues, busiest first</h2>" + _table(
        ["queue", "messages", "most in an hour", "worst hourly p99 wait",
         "and since they could be taken", "failed attempts",
         "bodies"], rows) + more)


def _sizes(sizes: pd.DataFrame, names: Queues) -> str:
    """Size distribution, and what to set for it."""
    if sizes.empty:
        return ""
    rows = []
    for queue, part in sorted(sizes.groupby("queue"), key=lambda item: -item[1]["bytes"].sum()
                              )[:ROWS_MAX]:
        part = part.sort_values("size_class")
        share = part["messages"].cumsum() / part["messages"].sum()
        classes = {q: int(part["size_class"][share >= q].iloc[0]) for q in (0.5, 0.99)}
        stored = part["journal_bytes"].sum() / max(1, part["bytes"].sum())
        rows.append([names.name(int(queue)), f"{classes[0.5]:,}", f"{classes[0.99]:,}",
                     f"{int(part['largest'].max()):,}", f"{stored:.2f}",
                     f"max_length = {_rounded(int(part['largest'].max()))}"])
    return ("<h2>Sizes</h2><p class=note>The first number is the median size of a body in bytes, "
            "the second the 99th percentile. Journal bytes per byte of body: near 1 is good, small "
            "messages cost more. The last column is a limit for queues.conf that all of these "
            "messages would have passed.</p>"
            + _table(["queue", "half at most", "99 % at most", "largest", "journal per body byte",
                      "advice"], rows))


def _rounded(size: int) -> int:
    return 1 << max(12, (2 * size - 1).bit_length())


def _orders(orders: pd.DataFrame) -> str:
    if orders.empty:
        return "<h2>Operators</h2><p>No operator changed a message in this time.</p>"
    rows = [[f"{row.ordered_at:%Y-%m-%d %H:%M:%S}", str(row.uid), str(row.messages),
             str(row.order_json)[:300]]
            for row in orders.sort_values("ordered_at").tail(50).itertuples()]
    return "<h2>Operators</h2>" + _table(["when (UTC)", "uid", "messages", "order"], rows)
