"""The console in a real browser: an operator's morning, at desk and telephone, in light and
dark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process import axe
from tests.process.chromium import Page, needs_chromium
from tests.process.web_world import Web, login, world
from tests.waiting import pause

pytestmark = needs_chromium

WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with world(tmp_path_factory.mktemp("browser"), web_ring_period_s=1) as made:
        made.instance.put("A", b"one", b"two")
        yield made


def test_an_operators_morning(web: Web, page: Page) -> None:
    base = login(web, page, "daemon")
    page.until("document.getElementById('following').textContent === 'live'")
    page.until("document.querySelector(\"[data-live='q:A:messages']\").textContent === '2'")
    web.instance.put("A", b"three")  # it comes by itself
    page.until("document.querySelector(\"[data-live='q:A:messages']\").textContent === '3'")
    page.until("document.querySelector(\"[data-live='a:A:0']\").textContent === '3'")
    assert page.script("document.querySelector('.bars rect').getAttribute('width')") == "100.00"

    page.fill("input[name=reason]", "maintenance")
    page.click("Hold: readers get nothing")
    assert page.script("document.querySelector('h1 .state').textContent").startswith("held")
    page.fill("input[name=reason]", "over")
    page.click("Release")
    assert "held" not in page.script("document.querySelector('h1 .state').textContent")

    with web.instance.connect("fails") as connection, connection.reader("A") as reader:
        for _ in range(3):
            (message,) = reader.next(1, timeout_s=60)
            message.fail("the printer is on fire", delay_s=0)
    page.go(f"{base}/")
    while not page.script("document.querySelector('main a[href=\"/queues/POISON\"]')!==null"):
        pause()
        page.go(f"{base}/")  # figures are a moment old
    page.click("POISON")
    page.click("Look at its messages")
    page.click(str(message.qpool_id))
    assert "3 attempts failed" in page.text() and "printer is on fire" in page.text()
    page.click("Requeue or move")
    assert "Nothing was changed yet" in page.text()
    page.fill("input[name=reason]", "the fire is out")
    page.click("Move 1")
    assert "1 of 1 done" in page.text() and message.qpool_id in web.instance.on("A")

    page.go(f"{base}/queues/A/messages")
    page.script("document.querySelector('[data-all]').click()")
    page.click("Delete")
    page.fill("input[name=reason]", "a mistake")
    page.click("Delete 3")
    assert web.instance.on("A") == []
    page.click("Undo")
    assert "3 of 3 done" in page.text() and len(web.instance.on("A")) == 3

    page.go(f"{base}/")
    with web.instance.stopped():
        page.until("document.querySelector(\"[data-live='f:manager']\").textContent === 'hangs'")
        page.until("document.querySelector(\"[data-live='f:manager']\").className === 'state bad'")
    page.until("document.querySelector(\"[data-live='f:manager']\").textContent === 'works'")


def test_who_looks_is_offered_nothing_else(web: Web, page: Page) -> None:
    base = login(web, page, "bin")
    for path in ("/", "/queues/A", "/queues/A/messages", "/services"):
        page.go(base + path)
        assert page.script("[...document.querySelectorAll('main button')].map("
                           "each=>each.textContent).filter(text=>text!=='Show')") == [], path
    assert "Audit" not in page.text()


def test_pages_can_be_read_at_every_width_and_light(web: Web, page: Page) -> None:
    base = login(web, page, "games")
    number = web.instance.on("A")[0]
    for path in ("/", "/queues", "/queues/A", "/queues/A/messages", f"/messages/{number}",
                 f"/messages/{number}/biography", "/services", "/readers", "/peers",
                 "/schedules", "/units", "/events", "/audit", "/connections", "/definitions",
                 "/rights", "/messages/999"):
        page.go(base + path)
        _readable(page, path)
    page.errors = [each for each in page.errors if "404" not in each]
    page.go(f"{base}/queues/A/messages")
    page.script("document.querySelector('[name=id]').click()")
    page.click("Delete")
    _readable(page, "a plan")
    page.fill("input[name=reason]", "a look")
    page.click("Delete 1")
    _readable(page, "what was done")
    page.click("Undo")
    page.click("Log out")
    _readable(page, "the login")


def _readable(page: Page, path: str) -> None:
    """At desk and telephone, in light and dark: WCAG AA as axe checks it, in the dark what of it is
    colours, which are the same at every width; one heading, and no wider than the window."""
    for width, dark in ((1280, True), (1280, False), (390, False)):
        page.size(width, 850, dark=dark)
        where = (path, width, dark)
        assert axe.findings(page, axe.COLOURS if dark else ()) == [], where
        assert page.script(WIDER) is False, where
    assert page.script("document.querySelectorAll('h1').length") == 1, path


def test_the_keyboard_is_enough(web: Web, page: Page) -> None:
    base = login(web, page, "bin")
    page.go(f"{base}/")
    page.script("window.left = true")
    page.key("g")
    page.key("q")
    page.until("location.pathname === '/queues' && document.readyState === 'complete'")
    page.key("/")
    page.until("document.activeElement.name === 'filter'")


def test_hostile_texts_stay_texts(web: Web, page: Page) -> None:
    evil = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    with web.instance.connect("evil") as connection:
        connection.put("A", evil.encode(), properties={"subject": f"{evil}\u202e\x1b[2J"})
    number = web.instance.on("A")[-1]
    base = login(web, page, "games")
    for path in ("/queues/A/messages", f"/messages/{number}", f"/messages/{number}?as=text"):
        page.go(base + path)
        assert "<img src=x" in page.text() and "owned" not in page.script("document.title")
        assert page.script("document.images.length") == 0
