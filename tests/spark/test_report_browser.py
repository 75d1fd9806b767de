"""The report in a real browser, at a desk and on a telephone, in light and dark: nothing is cut,
all pictures are drawn and can be told from the page. OMQ_REPORT_PICTURES names a folder for how it
looked. No JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from omq.base.errors import Exit
from omqtools.omqspark import interactive, report
from omqtools.omqspark.page import page, picture
from omqtools.omqspark.report import by_hour_of_day
from omqtools.omqspark.summary import Sentence
from omqtools.omqspark.topmost import Queues
from tests.process.chromium import Page, browser, needs_chromium
from tests.spark.test_believed import World, nothing
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


COVERED = """(function(){
  const found = [];
  for (const picture of document.querySelectorAll(".js-plotly-plot")) {
    for (const kind of [".ytick text", ".xtick text", ".legendtext"]) {
      const boxes = [...picture.querySelectorAll(kind)].map(each => [
        each.getBoundingClientRect(), each.textContent]).filter(each => each[0].width);
      for (const [i, [one, text]] of boxes.entries()) {
        for (const [two, other] of boxes.slice(i + 1)) {
          const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
          const tall = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
          if (wide > 2 && tall > Math.min(one.height, two.height) / 3) {
            found.push(picture.id + " " + kind + ": " + text + " / " + other); }
        }
      }
    }
  }
  return found;
})()"""
"""Labels that lie on each other."""
HIDDEN = """[...document.querySelectorAll(".wide")].filter(each =>
  each.scrollWidth > each.clientWidth + 1).map(each => each.textContent.slice(0, 80))"""
"""Tables of which a part can be seen only by scrolling."""
GREYED = """(function(){
  const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const fill = getComputedStyle(document.querySelector("#heat .bglayer rect, #heat rect.bg")).fill;
  const paper = getComputedStyle(document.body).backgroundColor;
  const far = (a, b) => Math.max(...[0, 1, 2].map(i => Math.abs(parts(a)[i] - parts(b)[i])));
  return [far(fill, paper), far(fill, "rgb(68, 1, 84)"), far(fill, "rgb(253, 231, 37)")];
})()"""
"""How far the fields without data are from the page, and from the least and the most of Viridis."""
BROKEN = """[...document.querySelectorAll(".wide td")].filter(each => {
  const text = each.firstChild, range = document.createRange();
  if (!text || each === each.parentElement.firstElementChild) { return false; }
  range.selectNodeContents(text);
  return range.getClientRects().length > 1 && !/[^ ] [^ ]/.test(text.textContent);
}).map(each => each.textContent)"""
"""Numbers of tables that are broken in the middle."""
SANKEY = """(function(){
  const flows = document.getElementById("flows");
  if (!flows) { return []; }
  const frame = flows.getBoundingClientRect();
  return [...document.querySelectorAll(".node-label")].filter(each => {
    const box = each.getBoundingClientRect();
    return box.right > frame.right + 1 || box.left < frame.left - 1;
  }).map(each => each.textContent);
})()"""
"""Names of queues that reach beyond the picture of flows."""
NOTHING = "nothing"
COUNTS = {"many": 100, "alike": 30, "one": 16, "few": 12}


def names_of(scene: str) -> dict[int, str]:
    if scene == "alike":  # their ends, which are shown, are the same
        return {n: f"orders.of.a.department.{n:03d}.with.a.long.name" for n in range(1, 31)}
    return {n: f"QUEUE{n}" for n in range(1, COUNTS[scene] + 1)} | {COUNTS[scene]: LONG}


def drawn(scene: str) -> str:
    """A page as of a day of many queues, of names that look alike, of one queue with nearly all
    messages, or of few; and of two years' heat map."""
    names = names_of(scene)
    load = {n: n if scene != "one" else 10**6 if n == 3 else 1 for n in names}
    hour = pd.DataFrame([{
        "queue": n, "hour": START + pd.Timedelta(hours=h), "arrivals": load[n] * (1 + h % 7),
        "ready_wait_p50_s": 0.5 * n, "ready_wait_p99_s": 7.0 * n, "wait_p99_s": 7.5 * n,
        "failed": 0, "bytes": 10**6 * n} for n in names for h in range(24) if h % 5])
    minute = pd.DataFrame([{
        "queue": n, "minute": START + pd.Timedelta(minutes=m), "arrivals": load[n],
        "departures": load[n], "depth": n * (m % 60), "oldest_s": float(m % 60)}
        for n in names for m in range(240)])
    reader = pd.DataFrame([{
        "queue": n, "reader": 7, "epoch": epoch, "reader_pid": 1000, "busy_share": n / len(names),
        "messages": 100 * n, "failed": n, "poisoned": 1, "deaths": 0}
        for n in names for epoch in (1, 2)])
    routes = pd.DataFrame([{"from_queue": a, "to_queue": b, "messages": load[n]}
                           for n in names for a, b in ((0, n), (n, 0))])
    sizes = pd.DataFrame([{"queue": n, "size_class": 1024, "messages": 9, "bytes": 9000,
                           "largest": 1000, "journal_bytes": 12_000} for n in names])
    queues = Queues.of(names, hour)
    span = (START.value, (START + pd.Timedelta(days=800 if scene == "many" else 1)).value)
    tables = {"queue_hour": hour, "queue_minute": queues.minutes(minute), "readers": reader,
              "poison": reader, "routes": routes,
              report.HOURS_OF_DAY: by_hour_of_day(hour, [span])}
    said = [Sentence(f"{LONG} grows: 300 came in the last hour, 60 left; 150 wait.",
                     f"omq-spark biography --out OUT --where 'queue_name = {LONG!r}'")]
    body = [report._verdict({"clean": False, "counts": {"lost": 3}, "messages": 10**6}),
            report._said(said), report._summary(tables, queues)]
    body += [picture(key, title) for key, title, *_ in report.SECTIONS]
    body.append(report._sizes(sizes, queues))
    return page(body, {key: interactive.FIGURES[key](tables[table], queues)
                       for key, _, table, *_ in report.SECTIONS})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each scene."""
    folder = tmp_path_factory.mktemp("report")
    for scene in COUNTS:
        (folder / f"{scene}.html").write_text(drawn(scene), encoding="utf-8")
    world = World(folder)
    world.add(nothing)
    assert world.command("refresh") == Exit.OK
    return {scene: folder / f"{scene}.html" for scene in COUNTS} | {
        NOTHING: world.out / "report" / "report.html"}


@pytest.fixture(scope="module")
def file(files: dict[str, Path]) -> Path:
    return files["few"]


@pytest.fixture(scope="module")
def look(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as program, program.page() as made:
        made.size(1280, 900)
        made.go(file.as_uri())
        yield made
        assert made.errors == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("scene", [*COUNTS, NOTHING])
def test_everything_can_be_seen(look: Page, files: dict[str, Path], scene: str, width: int,
                                dark: bool) -> None:  # noqa: FBT001
    look.size(width, 900, dark=dark)
    look.go(files[scene].as_uri())
    pictures = look.script("document.querySelectorAll('div[role=img]').length")
    assert pictures == (0 if scene == NOTHING else len(report.SECTIONS))
    look.until(f"document.querySelectorAll('.js-plotly-plot .main-svg').length >= {pictures}")
    if folder := os.environ.get("OMQ_REPORT_PICTURES"):
        look.picture(Path(folder, f"report-{scene}-{width}-{'dark' if dark else 'light'}.png"))
    assert look.script("document.documentElement.scrollWidth") <= width
    assert look.script(CUT) == []
    assert look.script(FAINT) == []
    assert look.script(COVERED) == []
    assert look.script(HIDDEN) == []
    assert look.script(BROKEN) == []
    assert look.script(SANKEY) == []
    if scene == NOTHING:
        assert look.script("document.body.innerText").count("has nothing of this kind") == len(
            report.SECTIONS)
        return
    assert min(look.script(GREYED)) > 60, "fields without data are told from page and colours"


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
