"""The report in a real browser, at a desk and on a telephone, in light and dark: nothing is cut,
all pictures are drawn and can be told from the page. OMQ_REPORT_PICTURES names a folder for how it
looked. No JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from omqtools.omqspark import interactive, report
from omqtools.omqspark.hours import by_hour_of_day
from omqtools.omqspark.page import page, picture
from omqtools.omqspark.summary import Sentence
from omqtools.omqspark.topmost import Queues
from tests.process.chromium import Page, browser, needs_chromium
from tests.spark.test_report import START

pytestmark = needs_chromium

QUEUES = 12
LONG = "orders.of.a.department.with.a.long.name.that.goes.on"
CUT = """[...document.querySelectorAll("body > *, .plotly text, .main-svg")].filter(each => {
  const box = each.getBoundingClientRect();
  const end = document.documentElement.clientWidth;
  return box.width && box.right > 0 && (box.left < -1 || box.right > end + 1);
}).map(each => each.outerHTML.slice(0, 160))"""
"""What reaches beyond the window; a wide table scrolls within itself."""
FAINT = """(function(){
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const light = c => { const f = c.slice(0, 3).map(v => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); });
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const paper = light(parts(getComputedStyle(document.body).backgroundColor));
  const found = [];
  for (const [what, style, least] of [["text", "fill", 4.5], ["path.js-line", "stroke", 2]]) {
    for (const each of document.querySelectorAll(".plotly " + what)) {
      if (each.closest(".hoverlayer, .modebar, .sankey-node")) { continue; }
      const ink = light(parts(getComputedStyle(each)[style]));
      const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
      if (ratio < least) { found.push(each.outerHTML.slice(0, 160) + " " + ratio.toFixed(2)); }
    }
  }
  return found;
})()"""
"""Texts and lines of pictures that can hardly be told from the page: WCAG AA for texts; lines have
a legend and what one is told under the pointer."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page as of a day of twelve queues, one of which has a long name."""
    names = {n: f"QUEUE{n}" for n in range(1, QUEUES + 1)} | {QUEUES: LONG}
    hour = pd.DataFrame([{
        "queue": n, "hour": START + pd.Timedelta(hours=h), "arrivals": n * (1 + h % 7),
        "ready_wait_p50_s": 0.5 * n, "ready_wait_p99_s": 7.0 * n, "failed": 0, "bytes": 10**6 * n}
        for n in names for h in range(24) if h % 5])
    minute = pd.DataFrame([{
        "queue": n, "minute": START + pd.Timedelta(minutes=m), "arrivals": n, "departures": n,
        "depth": n * (m % 60), "oldest_s": float(m % 60)}
        for n in names for m in range(240)])
    reader = pd.DataFrame([{
        "queue": n, "reader": n, "reader_pid": 1000 + n, "busy_share": n / QUEUES, "messages": n,
        "failed": n, "poisoned": 1, "deaths": 0} for n in names])
    routes = pd.DataFrame([{"from_queue": a, "to_queue": b, "messages": 10}
                           for n in names for a, b in ((0, n), (n, 0))])
    sizes = pd.DataFrame([{"queue": n, "size_class": 1024, "messages": 9, "bytes": 9000,
                           "largest": 1000, "journal_bytes": 12_000} for n in names])
    queues = Queues.of(names, hour)
    tables = {"queue_hour": hour, "queue_minute": queues.minutes(minute), "readers": reader,
              "poison": reader, "routes": routes, report.HOURS_OF_DAY: by_hour_of_day(
                  hour, [(START.value, (START + pd.Timedelta(days=1)).value)])}
    said = [Sentence(f"{LONG} grows: 300 came in the last hour, 60 left; 150 wait.",
                     f"omq-spark biography --out OUT --where 'queue_name = {LONG!r}'")]
    body = [report._verdict({"clean": False, "counts": {"lost": 3}, "messages": 10**6}),
            report._said(said), report._summary(tables, queues)]
    body += [picture(key, title) for key, title, *_ in report.SECTIONS]
    body.append(report._sizes(sizes, queues))
    drawn = {key: interactive.FIGURES[key](tables[table], queues)
             for key, _, table, *_ in report.SECTIONS}
    made = tmp_path_factory.mktemp("report") / "report.html"
    made.write_text(page(body, drawn), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def look(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as program, program.page() as made:
        made.size(1280, 900)
        made.go(file.as_uri())
        yield made
        assert made.errors == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_everything_can_be_seen(look: Page, file: Path, width: int, dark: bool) -> None:  # noqa: FBT001
    look.size(width, 900, dark=dark)
    look.go(file.as_uri())
    look.until("document.querySelectorAll('.js-plotly-plot .main-svg').length >= "
               f"{len(report.SECTIONS)}")
    if folder := os.environ.get("OMQ_REPORT_PICTURES"):
        look.picture(Path(folder, f"report-{width}-{'dark' if dark else 'light'}.png"))
    assert look.script("document.documentElement.scrollWidth") <= width
    assert look.script(CUT) == []
    assert look.script(FAINT) == []


def test_pictures_follow_what_the_system_wants(look: Page, file: Path) -> None:
    """The page is open while its reader's system becomes dark."""
    ink = "getComputedStyle(document.querySelector('.plotly .xtick text')).fill"
    look.size(1280, 900)
    look.go(file.as_uri())
    look.until(f"document.querySelector('.plotly .xtick text') && {ink}")
    before = look.script(ink)
    look.size(1280, 900, dark=True)
    look.until(f"{ink} !== {before!r}")
    assert look.script(FAINT) == []
