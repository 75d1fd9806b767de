"""The pictures of the README: the console and omtop, light and dark, of an instance made for them.

    python -m tests.process.pictures FOLDER          (make pictures)

They are rendered from the programs as they are, so they can be made again after any change, and a
test does so: what a picture shows must be what the programs show now. Rates and times differ from
run to run; pictures are compared by `difference`, screens of text by `text_of`.
"""

from __future__ import annotations

import asyncio
import base64
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from omq.cli.look.top_app import TopApp
from omq.services.daemon.options import Location
from tests.process.chromium import Page, browser
from tests.process.operator_world import WAIT_S, Instance
from tests.process.processes import popen
from tests.process.web_world import PASSWORD, Web, configure, console
from tests.waiting import pause

QUEUES: Final = ("[*]\n\n[ORDERS]\n\n[INVOICES]\n\n[SHIPPED]\n\n[LABELS]\nget = inhibited\n\n"
                 "[PACKED]\n")
WAITING: Final = {"ORDERS": 240, "INVOICES": 85, "LABELS": 12}
CAUSES: Final = 4
"""Lines of what does not move: POISON and the three queues that wait. A slow machine may have
more for a moment."""
_AS_WANTED: Final = (
    "!/seen yet/.test(document.querySelector('.cards').innerText) && "
    f"document.querySelectorAll('[data-list=\"n:causes\"] li').length === {CAUSES}")
WIDTH, HEIGHT = 1280, 900
SCHEMES: Final = ("light", "dark")
GRID: Final = (60, 38)
"""Cells into which a picture is divided to be compared."""
APART_MAX: Final = 2.0
"""Of 255: figures, times and sparklines differ from run to run by less than 0.1; a line more or
less by 5, the other scheme by 211."""
TRIES: Final = 10
"""A slow machine shows for a moment what it does not show again: a rate that is odd, a line."""


@contextmanager
def shop(folder: Path) -> Iterator[Web]:
    """A console and an instance with some work waiting, a reader, and a message on POISON."""
    made = Instance(folder / "spool")
    (made.conf / "queues.conf").write_text(QUEUES)
    services = made.conf / "services.conf"
    services.write_text(re.sub(r"^(\[(?:router|local|unix|errmgr|smtp)\]\n)", r"\1enabled = no\n",
                               services.read_text(), flags=re.MULTILINE))
    configure(made, web_ring_period_s=1)
    made.manager = popen("omrc", ["--embedded", "-n", *made.arguments])
    made.connect("wait").close()
    try:
        with made.connect("shop") as connection:
            for queue, count in WAITING.items():
                connection.put_many(queue, [b"x" * 400] * count)
            connection.put("ORDERS", b"an order without a customer", priority=9)
            with connection.reader("ORDERS") as reader:
                for _ in range(3):
                    (message,) = reader.next(1, timeout_s=WAIT_S)
                    message.fail("no customer", delay_s=0)
        with made.connect("packer") as connection, connection.reader("ORDERS", batch=4) as reader, \
                _trade(made), console(made) as web:
            assert len(reader.next(4, timeout_s=WAIT_S)) == 4
            yield web
    finally:
        made.end()


@contextmanager
def _trade(made: Instance) -> Iterator[None]:
    """Somebody works on two of the queues: what arrives leaves."""
    over = threading.Event()

    def work(queue: str) -> None:
        with made.connect("trade") as connection, connection.reader(queue) as reader:
            while not over.is_set():
                connection.put(queue, b"x" * 400)
                for message in reader.next(1, timeout_s=WAIT_S):
                    message.done()
                pause()

    threads = [threading.Thread(target=work, args=(queue,))
               for queue in ("SHIPPED", "PACKED")]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in threads:
            each.join(WAIT_S)


def _login(page: Page, web: Web) -> str:
    """The console's address, as its administrator."""
    base = f"http://{web.host}:{web.port}"
    page.go(f"{base}/")
    page.fill("input[name=user]", "games")
    page.fill("input[name=password]", PASSWORD)
    page.click("Log in")
    return base


def make(folder: Path, kept: Path | None = None) -> list[Path]:
    """All pictures, in `folder`; needs a browser (tests.process.chromium) and textual. `kept`: the
    console's are taken anew, TRIES times at most, until they look like those there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="omq-pictures-") as place:
        work = Path(place)
        with shop(work) as web:
            screens = [asyncio.run(_screen(web.instance, folder, scheme)) for scheme in SCHEMES]
            with browser(work) as program, program.page() as page, program.page() as blank:
                page.size(WIDTH, HEIGHT)
                base = _login(page, web)
                pages = [_like(kept, blank, partial(_photograph, page, f"{base}/", folder, scheme))
                         for scheme in SCHEMES]
    return [*screens, *pages]


async def _screen(instance: Instance, folder: Path, scheme: str) -> Path:
    app = TopApp(Location(None, instance.paths, instance.conf), 60.0, "name")
    async with app.run_test(size=(80, 18)) as pilot:
        app.theme = f"textual-{scheme}"
        await pilot.pause()
        drawn = app.export_screenshot(title="omtop", simplify=True)
        await pilot.press("x")
    # Fonts of somebody else's host are not asked for; the reader's own monospace does.
    drawn = re.sub(r"<!--.*?-->\s*", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    drawn = drawn.replace("Fira Code, monospace", "monospace")
    file = folder / f"omtop-{scheme}.svg"
    file.write_text(drawn, encoding="utf-8")
    return file


def _like(kept: Path | None, blank: Page, photograph: Callable[[], Path]) -> Path:
    """The picture that looks like the one of its name in `kept`, or the last of TRIES."""
    for _ in range(TRIES):
        file = photograph()
        if kept is None or difference(blank, kept / file.name, file) < APART_MAX:
            break
    return file


def _photograph(page: Page, address: str, folder: Path, scheme: str) -> Path:
    page.size(WIDTH, HEIGHT, dark=scheme == "dark")
    page.call("Emulation.setScrollbarsHidden", hidden=True)
    file = folder / f"console-{scheme}.png"
    while True:
        page.go(address)
        page.until("document.getElementById('following').textContent === 'live'")
        as_wanted = page.script(_AS_WANTED)
        found = page.call("Page.captureScreenshot", captureBeyondViewport=False)
        if as_wanted and page.script(_AS_WANTED):  # it is live: before and behind the picture
            file.write_bytes(base64.b64decode(found["data"]))
            return file
        pause()


def text_of(drawn: str) -> list[str]:
    """The words of a picture of a terminal, figures and ages as `#`."""
    words = " ".join(re.sub(r"<[^>]+>", " ", drawn.split("</style>")[-1]).split())
    words = words.replace("&#160;", " ").replace("\xa0", " ")
    words = re.sub(r"checkpoint .*? frames behind", "checkpoint #", words)
    return re.sub(r"(?<!\S)(?:-|[\d.,]+[a-z]?)(?!\S)", "#", words).split()


def difference(page: Page, one: Path, other: Path) -> float:
    """How far two pictures are apart, 0 to 255: the mean over the cells of a grid, each the mean of
    its pixels. 255 if they are not of one size."""
    return float(page.script(f"""(async function(){{
        const cells = async data => {{
            const image = new Image();
            image.src = 'data:image/png;base64,' + data;
            await image.decode();
            const canvas = new OffscreenCanvas({GRID[0]}, {GRID[1]});
            const context = canvas.getContext('2d');
            context.imageSmoothingQuality = 'high';
            context.drawImage(image, 0, 0, {GRID[0]}, {GRID[1]});
            return [image.width, image.height,
                    context.getImageData(0, 0, {GRID[0]}, {GRID[1]}).data];
        }};
        const [width, height, a] = await cells('{_encoded(one)}');
        const [wide, high, b] = await cells('{_encoded(other)}');
        if (width !== wide || height !== high) return 255;
        let sum = 0;
        for (let n = 0; n < a.length; n++) sum += Math.abs(a[n] - b[n]);
        return sum / (a.length * 3 / 4);
    }})()"""))


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode("ascii")


if __name__ == "__main__":
    print(*make(Path(sys.argv[1])), sep="\n")
