"""Service parents with real reader processes: work, restarts, stop, reload, what they publish."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import Exit
from omq.base.settings import KEYS
from omq.services.daemon.run_state import ServiceState, State, read_service
from omq.services.supervise.child import Notice, NotifySocket
from omq.storage.spool import create_spool

BOUND_S = 120.0
SCRIPT = Path(__file__).with_name("run_parent.py")


class Parent:
    """One service parent, its pipes and its notifications."""

    def __init__(self, folder: Path, make_lines: Callable[[int], Any]) -> None:
        self.spool = folder / "spool"
        self.conf = folder / "conf"
        self.gate = folder / "gate"
        self.notify = NotifySocket("fake")
        self.heard: list[dict[str, str]] = []
        self._unread: list[Notice] = []
        self.feed_out, self.feed = os.pipe()
        self.out, self.out_in = os.pipe()
        self.lines = make_lines(self.out)
        self.process: subprocess.Popen[bytes] | None = None
        self.conf.mkdir()
        os.mkfifo(self.gate)
        create_spool(self.spool)

    def configure(self, *, auxiliaries: int = 0, batch: int = 1, **settings: int) -> None:
        text = (
            "[fake]\nnumber = 1\nkind = reader\nprogram = fake\nqueue = FAKE\n"
            f"auxiliaries = {auxiliaries}\nbatch = {batch}\n"
        )
        (self.conf / "services.conf").write_text(text)
        wanted = {"restart_backoff_min_s": 0} | settings
        text = ""
        for key, value in wanted.items():
            text += f"[{KEYS[key].section}]\n" if KEYS[key].section not in text else ""
            text += f"{key} = {value}\n"
        (self.conf / "omq.conf").write_text(text)

    def start(self, **configuration: int) -> None:
        self.configure(**configuration)
        pipes = [str(self.feed_out), str(self.out_in), str(self.gate)]
        options = ["--spool", str(self.spool), "--conf", str(self.conf)]
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *pipes, *options],
            pass_fds=(self.feed_out, self.out_in),
            env=os.environ | {"NOTIFY_SOCKET": self.notify.address},
        )
        os.close(self.out_in)
        self.out_in = -1

    def send(self, *words: str) -> None:
        os.write(self.feed, "".join(f"{word:<8}" for word in words).encode())

    def until(self, *words: str) -> int:
        """Wait for a line that ends with these words; the pid that wrote it."""
        line = self.lines.until(lambda line: line.endswith(" ".join(words)))
        return int(line.split()[0])

    def until_heard(self, wanted: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """Wait for a notification."""
        assert self.process is not None
        while True:
            while self._unread:
                self.heard.append(self._unread.pop(0).fields)
                if wanted(self.heard[-1]):
                    return self.heard[-1]
            assert select.select([self.notify], [], [], BOUND_S)[0], self.heard
            self._unread = self.notify.receive(self.process.pid)

    def until_status(self, text: str) -> None:
        self.until_heard(lambda fields: fields.get("STATUS") == text)

    def state(self) -> ServiceState:
        state = read_service(self.spool / "run" / "fake.json")
        assert state is not None
        return state

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait until the parent and all readers are gone."""
        assert self.process is not None
        while self.lines.next() is not None:
            pass
        return self.process.wait(BOUND_S)

    def events(self) -> list[int]:
        text = (self.spool / "logs" / "events.log").read_text()
        return [json.loads(line)["event"] for line in text.splitlines()]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()  # the readers die with it
        if self.process is not None:
            self.process.wait(BOUND_S)
        self.notify.close()
        for fd in (self.feed, self.feed_out, self.out, self.out_in):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def parent(tmp_path: Path, lines: Callable[[int], Any]) -> Iterator[Parent]:
    found = Parent(tmp_path, lines)
    yield found
    found.close()


def test_every_disposition_reaches_the_client(parent: Parent) -> None:
    parent.start(batch=10)
    parent.until("registered on FAKE batch 10")
    parent.send("ok", "move", "defer", "fail", "raise")
    parent.until("main done ok")
    parent.until("move to A,B new 0: move")
    parent.until("defer 5 later: defer")
    parent.until("fail bad: fail")
    parent.until("fail ValueError: boom: raise")
    parent.signal(signal.SIGTERM)
    assert parent.end() == 0
    assert [line.split(" ", 1)[1] for line in parent.lines.seen[-2:]] == [
        "main unregistered", "main closed",
    ]  # fmt: skip
    text = (parent.spool / "logs" / "events.log").read_text()
    assert "ValueError: boom" in text
    assert "Traceback" in text


def test_ready_with_the_main_reader_then_auxiliaries(parent: Parent) -> None:
    parent.start(auxiliaries=2)
    ready = parent.until_heard(lambda fields: "READY" in fields)
    assert ready["STATUS"] == "main 1/1, auxiliary 0/2"
    parent.until_status("main 1/1, auxiliary 2/2")
    state = parent.state()
    assert state.main is not None
    assert [each.name for each in (state.main, *state.auxiliary)] == ["fake", "fake.1", "fake.2"]
    assert all(each.state is State.STARTED for each in (state.process, state.main))
    assert all(each.identity.alive() for each in (state.process, state.main, *state.auxiliary))


def test_stop_finishes_the_message_in_hand_and_gives_back_the_rest(parent: Parent) -> None:
    parent.start(batch=10)
    parent.until("registered on FAKE batch 10")
    parent.send("wait", "ok", "ok")
    pid = parent.until("waits")
    with parent.gate.open("wb"):
        parent.signal(signal.SIGTERM)
        parent.until_heard(lambda fields: "STOPPING" in fields)
    assert parent.end() == 0
    after = [line.removeprefix(f"{pid} main ") for line in parent.lines.seen]
    assert after[after.index("waits") :] == [
        "waits", "done wait", "release ok", "release ok", "unregistered", "closed",
    ]  # fmt: skip
    assert parent.state().process.state is State.STOPPED


def test_stop_without_messages_is_immediate(parent: Parent) -> None:
    """The readers wait for messages for reader_wait_s (30 s) and must be woken."""
    parent.start(auxiliaries=1)
    parent.until("auxiliary registered on FAKE batch 1")
    parent.signal(signal.SIGINT)
    assert parent.end() == 0


def test_reader_that_does_not_end_is_killed(parent: Parent) -> None:
    parent.start(drain_timeout_s=0)
    parent.until("registered on FAKE batch 1")
    parent.send("wait")
    parent.until("waits")
    parent.signal(signal.SIGTERM)
    assert parent.end() == 0
    assert 1105 in parent.events()


def test_dead_reader_is_restarted_and_counted(parent: Parent) -> None:
    parent.start()
    first = parent.until("registered on FAKE batch 1")
    parent.send("kill")
    second = parent.until("registered on FAKE batch 1")
    assert first != second
    parent.until_status("main 1/1, auxiliary 0/0, restarts 1")
    state = parent.state()
    assert state.main is not None
    assert (state.main.pid, state.main.restarts) == (second, 1)


def test_dead_auxiliary_does_not_touch_the_main_reader(parent: Parent) -> None:
    parent.start(auxiliaries=1)
    parent.until_status("main 1/1, auxiliary 1/1")
    before = parent.state()
    os.kill(before.auxiliary[0].pid, signal.SIGKILL)
    parent.until_status("main 1/1, auxiliary 1/1, restarts 1")
    after = parent.state()
    assert after.main == before.main
    assert after.auxiliary[0].pid != before.auxiliary[0].pid


def test_readers_die_with_their_parent(parent: Parent) -> None:
    parent.start(auxiliaries=1)
    parent.until_status("main 1/1, auxiliary 1/1")
    parent.signal(signal.SIGKILL)
    assert parent.end() == -signal.SIGKILL  # the end of file: no reader holds the pipe
    assert sum(line.endswith("unregistered") for line in parent.lines.seen) == 2


def test_wrong_configuration_in_the_main_reader_ends_the_service(parent: Parent) -> None:
    parent.configure()
    (parent.conf / "wrong").touch()
    parent.start()
    assert parent.end() == Exit.CONFIG
    assert parent.state().process.state is State.FAILED


def test_wrong_configuration_in_an_auxiliary_waits_for_a_reload(parent: Parent) -> None:
    parent.configure()
    (parent.conf / "wrong-auxiliary").touch()
    parent.start(auxiliaries=1)
    parent.until_status("main 1/1, auxiliary 0/1, failed 1")
    parent.send("ok")
    parent.until("main done ok")
    (parent.conf / "wrong-auxiliary").unlink()
    parent.signal(signal.SIGHUP)
    parent.until_status("main 1/1, auxiliary 1/1")


def test_reload_changes_auxiliaries_without_touching_the_others(parent: Parent) -> None:
    parent.start(auxiliaries=1)
    parent.until_status("main 1/1, auxiliary 1/1")
    before = parent.state()
    parent.configure(auxiliaries=3, batch=7)
    parent.signal(signal.SIGHUP)
    parent.until_status("main 1/1, auxiliary 3/3")
    grown = parent.state()
    assert (grown.main, grown.auxiliary[0]) == (before.main, before.auxiliary[0])
    assert _count(parent, "reloaded batch 7", 2)
    parent.configure(auxiliaries=0, batch=7)
    parent.signal(signal.SIGHUP)
    parent.until_status("main 1/1, auxiliary 0/0")
    for _ in range(3):
        parent.until("auxiliary closed")
    assert parent.state().main == before.main


def _count(parent: Parent, text: str, wanted: int) -> bool:
    for _ in range(wanted):
        parent.until(text)
    return True


def test_wrong_reload_is_refused_and_the_service_goes_on(parent: Parent) -> None:
    parent.start()
    parent.until_heard(lambda fields: "READY" in fields)
    (parent.conf / "services.conf").write_text("[fake]\nauxiliaries = many\n")
    parent.signal(signal.SIGHUP)
    parent.until_heard(lambda fields: "RELOADING" in fields)
    parent.until_heard(lambda fields: "READY" in fields)
    assert 1005 in parent.events()
    parent.send("ok")
    parent.until("main done ok")


def test_pause_is_told_once(parent: Parent) -> None:
    parent.start(reader_wait_s=1)
    parent.until("idle")
    parent.send("ok")
    parent.until("main done ok")
    parent.until("idle")
    parent.send("ok")
    parent.until("main done ok")
    assert [line.split()[2] for line in parent.lines.seen] == [
        "registered", "idle", "done", "idle", "done",
    ]  # fmt: skip


def test_stop_does_not_wait_for_a_manager_that_is_gone(parent: Parent) -> None:
    parent.start()
    parent.until("registered on FAKE batch 1")
    (parent.conf / "manager-gone").touch()
    parent.signal(signal.SIGTERM)
    assert parent.end() == 0


def test_manager_that_is_gone_costs_a_restart(parent: Parent) -> None:
    parent.configure()
    (parent.conf / "manager-gone").touch()
    parent.start()
    parent.until("closed")
    (parent.conf / "manager-gone").unlink()
    parent.send("ok")
    parent.until("main done ok")


def test_refuses_without_a_spool_or_section(parent: Parent) -> None:
    parent.configure()
    options = [str(parent.feed_out), str(parent.out_in), "x", "--conf", str(parent.conf)]
    for more, text in (
        (["--spool", str(parent.spool / "nothing")], "there is no spool"),
        (["--spool", str(parent.spool), "--service", "other"], "other is not defined"),
    ):
        found = subprocess.run(
            [sys.executable, str(SCRIPT), *options, *more],
            pass_fds=(parent.feed_out, parent.out_in), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert text in found.stderr
        assert found.returncode != 0
