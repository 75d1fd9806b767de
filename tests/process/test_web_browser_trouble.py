"""The console in a real browser on a bad night: a manager that died, a full disk, a thousand
queues, very many messages, somebody else at work, an undo that comes too late.

OMQ_CRASH_LONG=1: a million messages instead of ten thousand. OMQ_WEB_PICTURES names a folder
for how the pages looked.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omq.base import limits
from omq.base.names import SPECIAL_NAMES
from tests.process.chromium import Browser, Page, needs_chromium
from tests.process.operator_world import QUEUES, SETTINGS, Instance
from tests.process.processes import popen
from tests.process.web_world import WAIT_S, Web, configure, console, login
from tests.waiting import until

pytestmark = needs_chromium

MANY = 1_000_000 if os.environ.get("OMQ_CRASH_LONG") else 10_000
ROOM = MANY * 11 // 10 + 10_000  # members leave a part of the index free
ALL = limits.NAMED_QUEUES_MAX
OTHERS = ALL - len(SPECIAL_NAMES) - QUEUES.count("[") + 1  # [*] is none
NOTE = "document.querySelector(\"[data-live='n:note']\")"
STATE = "document.querySelector(\"[data-live='q:A:state']\").textContent"
FOLLOWING = "document.getElementById('following').textContent"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("trouble") / "spool")
    queues = made.conf / "queues.conf"
    queues.write_text(QUEUES + "".join(f"\n[Q{n}]\n" for n in range(OTHERS)))
    conf = made.conf / "omq.conf"
    conf.write_text(SETTINGS.replace("messages_max = 20000", f"messages_max = {ROOM}")
                    .replace("entries_max = 25000", f"entries_max = {ROOM + 10_000}"))
    configure(made)
    made.start()
    made.put("A", b"one", b"two", b"three")
    yield made
    made.end()


@pytest.fixture(scope="module")
def web(made: Instance) -> Iterator[Web]:
    with console(made) as found:
        yield found


@contextmanager
def changed(instance: Instance, more: str, old: str = "", new: str = "") -> Iterator[None]:
    """A manager with another omq.conf, and the old one again."""
    conf = instance.conf / "omq.conf"
    before = conf.read_text()
    assert old in before
    instance.stop()
    conf.write_text(before.replace(old, new) + more if old else before + more)
    instance.start()
    try:
        yield
    finally:
        instance.stop()
        conf.write_text(before)
        instance.start()


def look(page: Page, name: str) -> None:
    """How it looks at a desk and on a telephone, for whoever wants to see it."""
    folder = os.environ.get("OMQ_WEB_PICTURES")
    for width in (390, 1280):
        page.size(width, 850)
        assert page.script("document.documentElement.scrollWidth") <= width, name
        if folder:
            page.picture(Path(folder) / f"{name}-{width}.png")


def test_who_looks_sees_what_who_operates_does(web: Web, program: Browser, page: Page) -> None:
    login(web, page, "bin")
    page.until(f"{FOLLOWING} === 'live'")
    page.script("window.kept = true")
    with program.page() as other:
        other.size(1280, 900)
        login(web, other, "daemon")
        other.fill("input[name=reason]", "a look by two")
        other.click("Hold: readers get nothing")
        page.until(f"{STATE}.startsWith('held')")
        assert page.script("document.querySelectorAll('main form').length") == 0
        csrf = other.script("document.querySelector('[name=csrf]').value")
        mine = page.script("document.querySelector('[name=csrf]').value")
        for token in (csrf, mine):  # a form of his own making, with the other's token and his own
            assert page.script(
                "fetch('/queues/A/inhibit',{method:'POST',redirect:'manual',body:"
                f"new URLSearchParams({{csrf:'{token}',what:'release',reason:'mine'}})"
                "}).then(found=>found.status)"
                ) == 403
        page.errors = [each for each in page.errors if "403" not in each]
        assert page.script(STATE).startswith("held")
        other.fill("input[name=reason]", "over")
        other.click("Release")
        page.until(f"!{STATE}.startsWith('held')")
        assert other.errors == []
    assert page.script("window.kept") is True


def test_a_thousand_queues_are_sorted_and_found(web: Web, page: Page) -> None:
    web.instance.put("Q500", b"1", b"2", b"3", b"4")
    base = login(web, page, "bin")
    page.go(f"{base}/queues")
    rows = "document.querySelectorAll('table.queues tbody tr').length"
    assert page.script(rows) == 200 and "page 1 of 5" in page.text()
    page.until(f"{FOLLOWING} === 'live'")
    web.instance.put("Q1", b"1", b"2", b"3", b"4", b"5")  # it comes by itself
    page.until("document.querySelector(\"[data-live='q:Q1:messages']\").textContent === '5'")
    page.click("Messages")
    first = "[...document.querySelectorAll('tbody th a')].slice(0,3).map(each=>each.textContent)"
    assert page.script(first) == ["Q1", "Q500", "A"]
    page.key("/")
    page.call("Input.insertText", text="q50")
    page.click("Show")
    assert page.script(rows) == 11 and f"11 of {ALL}" in page.text()
    assert page.script(first)[0] == "Q500", "it is still sorted"
    page.click("Messages")
    assert page.script(first)[0] != "Q500", "now the other way round"
    page.go(f"{base}/queues")
    look(page, "queues")


def test_very_many_messages_are_a_page(web: Web, page: Page) -> None:
    with web.instance.connect("fills") as connection:
        connection.put_many("B", (b"x" for _ in range(MANY)))
        connection.put("B", b"the last", priority=0, properties={"customer": "42"})
    base = login(web, page, "games")
    chosen = "[...document.querySelectorAll('[name=id]')].map(each=>Number(each.value))"
    took = "Math.round(performance.getEntriesByType('navigation')[0].responseEnd)"
    said = []
    for what in ("", "?where=property%3Acustomer%3D42", "?where=priority%3D0"):
        page.go(f"{base}/queues/B/messages{what}")
        said.append(f"{what or 'first page'} {page.script(took)} ms")
        if not what:
            one = page.script(chosen)
            page.click("Next page")
            two = page.script(chosen)
            assert one == sorted(one) and two == sorted(two) and one[-1] < two[0]
        else:
            assert len(page.script(chosen)) == 1
    page.go(f"{base}/queues/B")
    said.append(f"the queue {page.script(took)} ms")
    sys.stdout.write(f"{MANY:,} messages: {', '.join(said)}\n")
    page.until("[...document.querySelectorAll('.bars td.n')].some("
               f"each=>each.textContent === '{MANY + 1:,}')")
    look(page, "many")


def test_an_undo_that_comes_too_late_says_so(web: Web, page: Page) -> None:
    web.instance.put("Q8", b"1", b"2", b"3", b"4", b"5")
    base = login(web, page, "games")
    with changed(web.instance, "\n[daemons]\noperator_undo_s = 1\n"):
        page.go(f"{base}/queues/Q8/messages")
        page.script("document.querySelector('[data-all]').click()")
        page.click("Delete")
        page.fill("input[name=reason]", "a mistake")
        page.click("Delete 5")
        assert "5 of 5 done" in page.text()
        idel = popen("idel.server", web.instance.arguments)
        try:
            until(lambda: not web.instance.on("IDEL"))
        finally:
            idel.send_signal(signal.SIGTERM)
            assert idel.wait(WAIT_S) == 0
        page.click("Undo")
        assert "none of them is on IDEL any more" in page.text()
        look(page, "too-late")
    page.errors = [each for each in page.errors if "400" not in each and "503" not in each]


def test_a_manager_that_dies_is_told_and_comes_back_by_itself(web: Web, page: Page) -> None:
    base = login(web, page, "daemon")
    page.until(f"{FOLLOWING} === 'live'")
    page.script("window.kept = true")
    assert page.script(f"{NOTE}.hidden") is True
    web.instance.kill()
    page.until(f"{NOTE}.textContent.includes('is dead')")
    assert page.script(f"{NOTE}.hidden") is False
    assert page.script(f"{NOTE}.className") == "note bad"
    assert page.script("document.querySelector(\"[data-live='q:A:messages']\").textContent") == "3"
    look(page, "dead")
    web.instance.start()
    page.until(f"{NOTE}.hidden")
    web.instance.put("A", b"four")
    page.until("document.querySelector(\"[data-live='q:A:messages']\").textContent === '4'")
    assert page.script("window.kept") is True, "nobody loaded it anew"
    web.instance.kill()
    page.go(f"{base}/")
    page.until(f"{NOTE}.textContent.includes('is dead')")  # the last look may be a moment old
    look(page, "dead-overview")
    web.instance.start()
    page.until(f"{NOTE}.hidden")


def test_a_full_disk_is_told_and_orders_still_go(web: Web, page: Page) -> None:
    base = login(web, page, "daemon")
    page.go(f"{base}/")
    page.until(f"{FOLLOWING} === 'live'")
    with changed(web.instance, "", "disk_reserve_bytes = 0", "disk_reserve_bytes = 1023 GiB"):
        page.until(f"{NOTE}.textContent.includes('disk space LOW')")
        look(page, "full")
        number = web.instance.on("A")[0]
        page.go(f"{base}/messages/{number}")
        page.click("Delete")
        page.fill("input[name=reason]", "room")
        page.click("Delete 1")
        assert "1 of 1 done" in page.text() and number not in web.instance.on("A")
        page.click("Undo")
        assert "1 of 1 done" in page.text() and number in web.instance.on("A")
    page.go(f"{base}/")
    page.until(f"{NOTE}.hidden")
    page.errors = [each for each in page.errors if "503" not in each]  # it was stopped


def test_a_console_that_was_started_anew_says_log_in(made: Instance, page: Page) -> None:
    conf = made.conf / "omq.conf"
    before = conf.read_text()  # the Unix socket is that of the console of all these tests
    alone = before.replace("web_listen_port = 0", "web_socket = off\nweb_listen_port = 0")
    conf.write_text(alone)
    try:
        with console(made) as first:
            login(first, page, "bin")
            page.until(f"{FOLLOWING} === 'live'")
            port = first.port
        page.until(f"{FOLLOWING}.startsWith('not connected')")
        conf.write_text(alone.replace("web_listen_port = 0", f"web_listen_port = {port}"))
        with console(made):
            page.until(f"{FOLLOWING}.startsWith('logged out')")
    finally:
        conf.write_text(before)
    page.errors.clear()  # of the connection
