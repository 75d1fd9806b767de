"""Back-off, locks, notifications, run files: the parts without a process."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import ManagerUnavailable, SpoolLocked
from omq.base.services_conf import ServiceConf, ServiceKind
from omq.services.daemon.exit_text import exit_text
from omq.services.daemon.lock import holder
from omq.services.daemon.notify import Notifier, forget_environment
from omq.services.daemon.restart_backoff import Backoff
from omq.services.daemon.run_state import (
    ProcessState,
    ServiceState,
    State,
    SupervisorState,
    read_service,
    read_supervisor,
    write_state,
)
from omq.services.daemon.signals import Signals, blocked
from omq.services.supervise.child import NotifySocket
from omq.services.supervise.control_client import ControlConnection
from omq.services.supervise.daemon_plan import start_order, stop_stage
from omq.storage.spool import lock


def test_backoff_of_zero_restarts_once_at_once() -> None:
    backoff = Backoff(0, 10)
    assert [backoff.next_wait_s(0) for _ in range(7)] == [0, 1, 2, 4, 8, 10, 10]
    assert backoff.next_wait_s(11) == 0
    backoff.reset()
    assert backoff.next_wait_s(0) == 0


def test_backoff_never_overflows() -> None:
    backoff = Backoff(1, 3600)
    assert max(backoff.next_wait_s(0) for _ in range(2000)) == 3600


def test_lock_names_its_holder_and_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert holder(path) == ""
    held = lock(path, "the test")
    assert holder(path) == str(os.getpid())
    with pytest.raises(SpoolLocked, match=f"process {os.getpid()}"):
        lock(path, "the test")
    held.close()
    assert holder(path) == ""


@pytest.fixture
def notify_socket(monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifySocket]:
    receiver = NotifySocket("test")
    monkeypatch.setenv("NOTIFY_SOCKET", receiver.address)
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    yield receiver
    receiver.close()


def test_notifications_arrive_with_their_fields(notify_socket: NotifySocket) -> None:
    notifier = Notifier()
    notifier.ready("up\nand away")
    notifier.status("up\nand away")  # a repetition is not sent
    notifier.status("né")
    notifier.watchdog()
    notifier.extend(1.5)
    notifier.reloading()
    notifier.stopping()
    notifier.close()
    notifier.ready()  # said to nobody
    found = [notice.fields for notice in notify_socket.receive(os.getpid())]
    assert found[0] == {"READY": "1", "STATUS": "up and away"}
    assert found[1] == {"STATUS": "n?"}
    assert found[2] == {"WATCHDOG": "1"}
    assert found[3] == {"EXTEND_TIMEOUT_USEC": "1500000"}
    assert found[4].keys() == {"RELOADING", "MONOTONIC_USEC"}
    assert found[5:] == [{"STOPPING": "1"}]
    assert notifier.watchdog_interval_s == 2.0


def test_foreign_bytes_are_no_notification(notify_socket: NotifySocket) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect("\0" + notify_socket.address[1:])
        for data in (b"\xff\xfe", b"", b"=\n==\n", b"READY", b"EXTEND_TIMEOUT_USEC=1e9"):
            sender.send(data)
        notices = notify_socket.receive(os.getpid())
        assert not any(notice.flag("READY") for notice in notices)
        assert {notice.seconds("EXTEND_TIMEOUT_USEC") for notice in notices} == {None}
        sender.send(b"READY=1")
        assert notify_socket.receive(os.getpid() + 1) == []


def test_without_a_supervisor_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    notifier = Notifier()
    notifier.ready()
    notifier.watchdog()
    assert (notifier.active, notifier.watchdog_s) == (False, None)


def test_forked_processes_do_not_speak_for_the_unit() -> None:
    environ = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "2", "HOME": "/"}
    forget_environment(environ)
    assert environ == {"HOME": "/"}


def test_run_files_come_back_as_written(tmp_path: Path) -> None:
    main = ProcessState("local", State.STARTED, 12.5, pid=3, start_ticks=4, restarts=1)
    service = ServiceState(main, 2, main, (main, main), "/etc/omq")
    supervisor = SupervisorState(1, 2, 3.0, (main,))
    write_state(tmp_path / "local.json", service)
    write_state(tmp_path / "supervisor.json", supervisor)
    assert read_service(tmp_path / "local.json") == service
    assert read_supervisor(tmp_path / "supervisor.json") == supervisor
    assert sorted(each.name for each in tmp_path.iterdir()) == ["local.json", "supervisor.json"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"{}", b"[" * 5000, b'{"process": {"name": 1}}', b" " * 300_000,
     b'{"process": null, "auxiliaries": "x", "main": 3, "auxiliary": 4}',
     b'{"pid": 1, "start_ticks": 1, "since": 1, "children": [{"state": "merry"}]}'],
)  # fmt: skip
def test_damaged_run_files_are_no_state(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    assert read_service(path) is None
    path.write_bytes(content)
    assert read_service(path) is None
    assert read_supervisor(path) is None


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(ManagerUnavailable, match="no supervisor"):
        ControlConnection(tmp_path, 1.0)


def test_order_of_kinds() -> None:
    kinds = (ServiceKind.SUBMITTER, ServiceKind.READER, ServiceKind.DELETER, ServiceKind.POOL)
    off = ServiceKind.READER
    confs = [
        ServiceConf(kind.value, "", number, kind, kind.value, enabled=kind is not off)
        for number, kind in enumerate((*kinds, ServiceKind.MANAGER))
    ]
    names = [conf.name for conf in start_order(confs, nonstop_only=False)]
    assert names == ["manager", "pool", "deleter", "submitter"]
    assert [conf.name for conf in start_order(confs, nonstop_only=True)] == names[:3]
    stages = sorted(confs, key=stop_stage)
    assert [conf.name for conf in stages] == ["submitter", "reader", "deleter", "manager", "pool"]


def test_signals_end_a_wait_and_are_not_lost_around_a_fork() -> None:
    signals = Signals()
    woken: list[bool] = []
    signals.add_waker(lambda: woken.append(signals.stopping))
    try:
        signals.install()
        with blocked():
            # To this thread: any other thread of the tests' process would take it unblocked.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGHUP)
            assert not signals.take_reload()
        signals.wait(120)
        assert signals.take_reload()
        assert not signals.take_reload()
        os.kill(os.getpid(), signal.SIGTERM)
        signals.wait(120)
        assert signals.stopping
        assert woken == [False, True]
        assert not select.select([signals], [], [], 0)[0]
    finally:
        signals.restore()


def test_exit_in_words() -> None:
    assert exit_text(78) == "exit code 78"
    assert exit_text(-9) == "signal 9 (Killed)"
