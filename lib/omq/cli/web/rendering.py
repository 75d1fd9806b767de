"""Pages of the console: templates, and how figures and foreign texts are written in them.

Every text that somebody else chose passes Jinja's autoescape, and before that `shown`, which makes
control, bidirectional and undecodable characters visible. Nothing is ever marked safe but what
`spark`, `chart`, `times` and `bars` draw of numbers. No page has style or script of its own: the
policy forbids both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import omq
from omq.base import clock
from omq.base.limits import GIB, KIB, MIB
from omq.base.names import escape
from omq.services.daemon.options import Location

HERE: Final = Path(__file__).parent
WIDTH, HEIGHT = 120, 28
CHART_WIDTH, CHART_HEIGHT = 720, 160
_KEY: Final = Markup('<svg class="key" viewBox="0 0 24 8" aria-hidden="true">')
_TEN_MINUTES_NS: Final = 600 * clock.NS_PER_S
TEXT_MAX: Final = 4096
NONE: Final = "\u2013"
"""For what is not known, or is not."""


class Pages:
    """The templates of one instance."""

    def __init__(self, location: Location, root: str = "") -> None:
        """`root`: web_path, with which each link begins."""
        self.root = root
        self.instance = location.instance or "default"
        self.spool = str(location.paths.root)
        self._environment = made = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, trim_blocks=True,
            lstrip_blocks=True, undefined=StrictUndefined)
        made.filters.update(shown=shown, number=number, rate=rate, age=age, size=size, when=when,
                            percent=percent)
        made.globals.update(spark=spark, times=times, bars=bars, chart=chart, root=root,
                            version=omq.__version__, instance=self.instance, spool=self.spool)

    def answer(self, request: web.Request, template: str, *, status: int = 200,
               headers: dict[str, str] | None = None, **values: Any) -> web.Response:
        """A page for who asks."""
        from omq.cli.web.console import CALLER, SESSION  # which has the pages

        caller, session = request.get(CALLER), request.get(SESSION)
        text = self._environment.get_template(template).render(
            caller=caller, csrf=session.csrf if session is not None else "", path=request.path,
            proxied=session is not None and session.by_proxy, **values)
        return web.Response(status=status, text=text, content_type="text/html", headers=headers)


def shown(value: object, limit: int = TEXT_MAX) -> str:
    """A text of somebody else's on one line."""
    return escape(value if isinstance(value, bytes) else str(value), limit)


def number(value: float | None) -> str:
    """`1,234,567`; a dash for what is not known."""
    return NONE if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A second: `12.3`, `1,234`."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def age(seconds: float | None) -> str:
    """`4.2 s`, `12 min`, `5.1 h`, `3.0 d`; a dash for nothing."""
    if not seconds or seconds < 0:
        return NONE
    for limit, unit, unit_s, digits in (
            (10, "s", 1, 1), (120, "s", 1, 0), (7200, "min", 60, 0), (172_800, "h", 3600, 1)):
        if seconds < limit:
            return f"{seconds / unit_s:.{digits}f} {unit}"
    return f"{seconds / 86400:,.1f} d"


def size(count: float | None) -> str:
    """`1.2 GiB`."""
    if count is None:
        return NONE
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:,.0f} B"


def percent(part: float | None) -> str:
    return NONE if part is None else f"{part:.0f} %"


def when(wall_ns: int | None) -> str:
    """Local time, to the second; a dash for never."""
    return clock.iso_time(wall_ns)[:19].replace("T", " ") if wall_ns else NONE


def spark(values: Sequence[float], label: str, axis: bool = True) -> Markup:  # noqa: FBT001, FBT002
    """A line of the last hour, the present at the right; gaps where nothing was known. With the
    times below it, or only their lines where a column's head has them."""
    known = [each for each in values if math.isfinite(each)]
    if len(known) < 2:
        return Markup('<span class="spark none">nothing seen yet</span>')
    low, high = min(0.0, *known), max(known)
    told = f"{label}, last hour: {rate(min(known))} to {rate(high)}"
    quarters = " ".join(f"M{WIDTH * at // 4} 0V{HEIGHT}" for at in range(5))
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" '
        'aria-label="{told}"><path class="axis" d="{quarters}"/><path d="{d}"/></svg>').format(
            w=WIDTH, h=HEIGHT, told=told, quarters=quarters,
            d=_path(values, low, high, WIDTH, HEIGHT)) + (
                times() if axis else "")


def _path(values: Sequence[float], low: float, high: float, width: int, height: int) -> str:
    """A line through the points, the first at the left; gaps where nothing is known."""
    span, step = high - low or 1.0, width / (len(values) - 1)
    found, pen = [], "M"
    for at, value in enumerate(values):
        if not math.isfinite(value):
            pen = "M"
            continue
        y = height - 1 - (value - low) / span * (height - 2)
        found.append(f"{pen}{at * step:.1f} {y:.1f}")
        pen = "L"
    return " ".join(found)


def chart(coming: Sequence[float], going: Sequence[float], label: str, now_ns: int) -> Markup:
    """Messages a second on and off a queue in the last hour, with both axes: the clock of this host
    and the rate; and the same in a table, as means of ten minutes."""
    known = [each for each in (*coming, *going) if math.isfinite(each)]
    if len(known) < 2 or len(coming) != len(going):
        return Markup('<p class="small">Nothing seen yet: the rate is drawn from the second look '
                      "on.</p>")
    high = _round_up(max(known))
    lines = Markup("").join(
        Markup('<path class="{}" d="{}"/>').format(
            kind, _path(values, 0.0, high, CHART_WIDTH, CHART_HEIGHT))
        for kind, values in (("coming", coming), ("going", going)))
    grid = "".join([*(f"M{CHART_WIDTH * at // 6} 0V{CHART_HEIGHT}" for at in range(7)),
                    *(f"M0 {CHART_HEIGHT * at // 4}H{CHART_WIDTH}" for at in range(5))])
    marks = [clock.iso_time(now_ns - (6 - at) * _TEN_MINUTES_NS)[11:16] for at in range(7)]
    scale = Markup("").join(Markup("<span>{}</span>").format(rate(high * at / 4))
                            for at in (4, 3, 2, 1, 0))
    axis = Markup("").join(Markup("<span>{}</span>").format(each) for each in marks)
    rows = Markup("").join(
        Markup('<tr><th scope="row">{} to {}</th><td class="n">{}</td><td class="n">{}</td></tr>'
               ).format(marks[at], marks[at + 1], rate(_mean(coming, at)), rate(_mean(going, at)))
        for at in range(6))
    return Markup(
        '<figure class="chart"><figcaption>{label}: messages a second. {key}<path class="'
        'coming" d="M0 4H24"/></svg> In, {key}<path class="going" d="M0 4H24"/></svg> Out'
        '</figcaption>'
        '<div class="plot"><div class="scale" aria-hidden="true">{scale}</div>'
        '<svg viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}, '
        'messages a second in the last hour, up to {high}"><path class="axis" d="{grid}"/>{lines}'
        '</svg><div class="clock" aria-hidden="true">{axis}</div></div>'
        '<details class="why"><summary>As a table</summary><table><thead><tr><th scope="col">From '
        'to</th><th scope="col" class="n">In/s</th><th scope="col" class="n">Out/s</th></tr>'
        "</thead><tbody>{rows}</tbody></table></details></figure>").format(
            label=label, key=_KEY, scale=scale, w=CHART_WIDTH, h=CHART_HEIGHT,
            high=rate(max(known)), grid=grid, lines=lines, axis=axis, rows=rows)


def _round_up(value: float) -> float:
    """The end of the scale: 1, 2 or 5 times a power of ten."""
    if value <= 1:
        return 1.0
    power = float(10 ** math.floor(math.log10(value)))
    return next(each * power for each in (1, 2, 5, 10) if each * power >= value)


def _mean(values: Sequence[float], sixth: int) -> float | None:
    part = values[len(values) * sixth // 6 : len(values) * (sixth + 1) // 6]
    known = [each for each in part if math.isfinite(each)]
    return sum(known) / len(known) if known else None


def times() -> Markup:
    """The axis of a sparkline, in words."""
    return Markup('<span class="times" aria-hidden="true"><span>\u221260 min</span>'
                  '<span>\u221230</span><span>now</span></span>')


def bar_texts(counts: Sequence[int]) -> Iterator[tuple[str, str]]:
    """(how long the bar is, of 100; the number), each of a histogram."""
    most = max([*counts, 1])
    return ((f"{100 * count / most:.2f}", number(count)) for count in counts)


def bars(counts: Sequence[int], names: Sequence[str], label: str, live: str) -> Markup:
    """A histogram as a table that draws itself: each row has its name, its bar, its number. `live`:
    what the keys of its live values begin with."""
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th><td class="bar"><svg viewBox="0 0 100 8" '
               'preserveAspectRatio="none" aria-hidden="true"><rect data-live="{}:bar" width="{}" '
               'height="8"/></svg></td><td class="n" data-live="{}">{}</td></tr>').format(
                   name, key := f"{live}{at}", width, key, text)
        for at, (name, (width, text)) in enumerate(zip(names, bar_texts(counts), strict=True)))
    return Markup('<table class="bars"><caption>{}</caption><tbody>{}</tbody></table>').format(
        label, rows)
