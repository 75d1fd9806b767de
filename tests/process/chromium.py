"""Debian's chromium without a screen, driven by its DevTools protocol over a websocket.

No driver besides: the package chromium-headless-shell or chromium is all that it needs, and
aiohttp, which the console has. One browser serves the tests of a module, each with a page of its
own; what is not there yet is waited for by asking again, with a bound.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import pause

WAIT_S = 120.0
PROGRAM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    PROGRAM is None, reason="no browser: apt install chromium-headless-shell")


class Refused(AssertionError):
    """A command had no result: nobody expects that but `until`, whose page may be on its way."""


class _Line:
    """Commands to one end of a browser, itself or a page, and their answers."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._number = 0
        self._run(self._open(address))

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, WAIT_S))

    async def _open(self, address: str) -> None:
        import aiohttp

        self._session = aiohttp.ClientSession()
        self._line = await self._session.ws_connect(address, max_msg_size=0)

    def close(self) -> None:
        self._run(self._line.close())
        self._run(self._session.close())
        self._loop.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command and its answer."""
        self._number += 1
        return dict(self._run(self._call(self._number, method, parameters)))

    async def _call(self, number: int, method: str, parameters: dict[str, Any]) -> Any:
        await self._line.send_str(json.dumps(
            {"id": number, "method": method, "params": parameters}))
        while True:
            found = json.loads((await self._line.receive()).data)
            if found.get("id") == number:
                if "error" in found:
                    raise Refused(found)
                return found["result"]
            self._note(found)

    def _note(self, found: dict[str, Any]) -> None:
        """What was not asked for."""


class Page(_Line):
    """One page of a browser. Errors of scripts and refusals of the policy are kept."""

    def __init__(self, address: str) -> None:
        self.errors: list[str] = []
        super().__init__(address)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _note(self, found: dict[str, Any]) -> None:
        what = found.get("method")
        if what == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(found["params"])[:500])
        elif what == "Log.entryAdded" and found["params"]["entry"]["level"] == "error":
            self.errors.append(found["params"]["entry"]["text"])

    def script(self, text: str) -> Any:
        """The value of an expression in the page, once it is known."""
        found = self.call("Runtime.evaluate", expression=text, returnByValue=True,
                          awaitPromise=True)
        if "exceptionDetails" in found:
            raise Refused(found)
        return found["result"].get("value")

    def until(self, text: str) -> Any:
        """The expression's value, once it is true. A page that is on its way to another has no
        answer, and one that is half there may lack what is asked for: both are not yet."""
        ends = time.monotonic() + WAIT_S
        while True:
            try:
                if found := self.script(text):
                    return found
                why: object = self.script("document.body.innerText")
            except Refused as refused:
                why = refused
            assert time.monotonic() < ends, (text, why)
            pause()

    def go(self, address: str) -> None:
        """Another page, wholly there."""
        self.script("window.left = true")
        self.call("Page.navigate", url=address)
        self.arrived()

    def arrived(self) -> None:
        self.until("!window.left && document.readyState === 'complete'")

    def click(self, text: str) -> None:
        """The button or link with these words, which leads to another page."""
        self.script("window.left = true")
        assert self.script(
            "(function(){const found=[...document.querySelectorAll('button,a')].find("
            f"each=>each.textContent.trim().startsWith({json.dumps(text)}));"
            "if(found){found.click();return true}})()"), (text, self.text())
        self.arrived()

    def fill(self, selector: str, text: str) -> None:
        """A field gets a text by the keyboard."""
        self.script(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def key(self, text: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=text, text=text)

    def text(self) -> str:
        return str(self.script("document.body.innerText"))

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """How large the window is, and what its user likes."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 700)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, file: Path) -> None:
        """All of the page, as PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))


class Browser(_Line):
    """A browser; each of its pages is somebody else's, with cookies and a cache of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        super().__init__(str(self._ask("version")["webSocketDebuggerUrl"]))

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/json/{what}",
                                    timeout=WAIT_S) as answer:
            return json.loads(answer.read())

    @contextmanager
    def page(self) -> Iterator[Page]:
        """An empty one, gone behind the block."""
        person = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank",
                           browserContextId=person)["targetId"]
        try:
            made = Page(f"ws://127.0.0.1:{self._port}/devtools/page/{target}")
            try:
                yield made
            finally:
                made.close()
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=person)


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile in this folder."""
    assert PROGRAM is not None
    profile = folder / "profile"
    profile.mkdir()
    port = profile / "DevToolsActivePort"
    process = subprocess.Popen(
        [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "HOME": str(folder)})
    try:
        ends = time.monotonic() + WAIT_S
        while not port.exists() or len(port.read_text().splitlines()) < 2:
            assert process.poll() is None and time.monotonic() < ends
            pause()
        made = Browser(int(port.read_text().splitlines()[0]))
        try:
            yield made
        finally:
            made.close()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
