"""The embedded supervisor over fake daemons: order, restarts, stop, watchdog, control socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import BadRequest, ConfigError, Exit, ServiceUnknown
from omq.services.daemon.process import ProcessId
from omq.services.daemon.run_state import State, SupervisorState, read_supervisor

Supervise = Callable[..., Any]

ALL = {
    "smtp": ["submitter", "normal"],
    "local": ["reader", "normal"],
    "router": ["reader", "normal"],
    "idel": ["deleter", "normal"],
    "pool": ["pool", "normal"],
    "qmgr": ["manager", "normal"],
}


def _state(spool: Path) -> SupervisorState:
    state = read_supervisor(spool / "run" / "supervisor.json")
    assert state is not None
    return state


def test_starts_and_stops_in_order(supervise: Supervise) -> None:
    run = supervise(ALL)
    run.until("smtp", "is ready")
    starts = [line for line in run.journal() if line.endswith(" start")]
    order = ("qmgr", "pool", "idel", "local", "router", "smtp")
    assert starts == [f"{name} start" for name in order]
    assert all(child.state is State.STARTED for child in _state(run.spool).children)
    run.terminate()
    assert run.end() == Exit.OK
    stops = [line.split()[0] for line in run.journal() if line.endswith(" stop")]
    assert stops[0] == "smtp"
    assert sorted(stops[1:3]) == ["local", "router"]
    assert stops[3:] == ["idel", "qmgr", "pool"]
    assert all(child.state is State.STOPPED for child in _state(run.spool).children)
    assert not (run.spool / "run" / "supervisor.sock").exists()


def test_next_daemon_waits_for_readiness(supervise: Supervise, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    services = {"qmgr": ["manager", f"gate:{gate}"], "local": ["reader", "normal"]}
    run = supervise(services)
    run.until("qmgr", "started")
    with gate.open("wb"):  # opens only when the daemon reads, so it is alive and not ready
        status = run.status()
        assert status["qmgr"]["state"] == State.STARTING
        assert status["qmgr"]["text"] == "replaying"
        assert status["local"]["state"] == State.STOPPED
    run.until("local", "is ready")
    assert run.journal() == ["qmgr waits", "qmgr start", "local start"]


def test_dead_daemon_is_restarted_others_untouched(supervise: Supervise) -> None:
    run = supervise(ALL)
    run.until("smtp", "is ready")
    before = run.status()
    os.kill(before["qmgr"]["pid"], signal.SIGKILL)
    run.until("qmgr", "died")
    run.until("qmgr", "is ready")
    after = run.status()
    assert after["qmgr"]["restarts"] == 1
    assert after["qmgr"]["pid"] != before["qmgr"]["pid"]
    del before["qmgr"], after["qmgr"]
    assert after == before


def test_wrong_configuration_is_not_restarted(supervise: Supervise) -> None:
    run = supervise(ALL | {"local": ["reader", "exit:78"]})
    run.until("local", "is not restarted")
    run.until("smtp", "is ready")
    assert run.status()["local"]["state"] == State.FAILED


def test_manager_with_wrong_configuration_ends_it_all(supervise: Supervise) -> None:
    run = supervise(ALL | {"qmgr": ["manager", "exit:78"]})
    assert run.end() == Exit.CONFIG
    assert run.journal() == []


def test_crash_loop_holds_up_nobody(supervise: Supervise) -> None:
    run = supervise(ALL | {"local": ["reader", "exit:1"]}, backoff_min_s=60)
    run.until("local", "died exit code 1; start 2 in 60 s")
    run.until("smtp", "is ready")
    assert run.status()["local"]["state"] == State.WAITING
    run.terminate()
    assert run.end() == Exit.OK


def test_first_start_that_fails_is_repeated(supervise: Supervise, tmp_path: Path) -> None:
    run = supervise(ALL | {"pool": ["pool", f"once:{tmp_path / 'mark'}"]})
    run.until("pool", "died exit code 70")
    run.until("smtp", "is ready")
    starts = [line for line in run.journal() if line.endswith(" start")]
    assert starts[:3] == ["qmgr start", "pool start", "idel start"]


def test_hang_is_aborted(supervise: Supervise, tmp_path: Path) -> None:
    run = supervise({"qmgr": ["manager", f"hang:{tmp_path / 'mark'}"]}, watchdog_s=0.2)
    run.until("qmgr", "its main loop hangs")
    run.until("qmgr", f"died signal {int(signal.SIGABRT)}")
    run.until("qmgr", "is ready")


def test_not_ready_in_time(supervise: Supervise) -> None:
    run = supervise({"qmgr": ["manager", "silent"]}, start_s=0.2, backoff_min_s=60)
    run.until("qmgr", "did not become ready in time")
    run.until("qmgr", f"died signal {int(signal.SIGTERM)}")


def test_deaf_daemon_is_killed(supervise: Supervise) -> None:
    run = supervise({"qmgr": ["manager", "normal"], "local": ["reader", "deaf"]}, stop_s=0.2)
    run.until("local", "is ready")
    run.terminate()
    run.until("local", "did not stop in time and was killed")
    assert run.end() == Exit.OK
    assert run.journal() == ["qmgr start", "qmgr stop"]


def test_orphans_end_before_the_next_start(supervise: Supervise) -> None:
    run = supervise({"qmgr": ["manager", "orphan"]}, stop_s=0.2)
    run.until("qmgr", "is ready")
    noted = run.journal()
    pid = run.status()["qmgr"]["pid"]
    assert pid not in [int(line.split()[2]) for line in noted if "orphan" in line]
    os.kill(pid, signal.SIGKILL)
    run.until("qmgr", "did not stop in time and was killed")
    run.until("qmgr", "died")
    orphans = [int(line.split()[2]) for line in run.journal() if "orphan" in line]
    assert not Path(f"/proc/{orphans[0]}").exists()
    run.until("qmgr", "is ready")


def test_children_die_with_the_supervisor(supervise: Supervise) -> None:
    run = supervise({"qmgr": ["manager", "normal"]})
    run.until("qmgr", "is ready")
    pidfd = os.pidfd_open(run.status()["qmgr"]["pid"])
    run.process.kill()
    run.end()  # the end of file comes when the last holder of stdout, the daemon, is gone
    os.close(pidfd)
    assert run.journal() == ["qmgr start", "qmgr stop"]


def test_second_supervisor_is_refused(supervise: Supervise) -> None:
    run = supervise({"qmgr": ["manager", "normal"]})
    run.until("qmgr", "is ready")
    here = Path(__file__).parent
    command = [sys.executable, str(here / "run_supervisor.py"), str(run.spool / "spec.json")]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode != 0
    assert f"locked by process {run.process.pid}" in second.stderr
    assert run.status()["qmgr"]["state"] == State.STARTED


def test_off_and_on(supervise: Supervise) -> None:
    run = supervise(ALL)
    run.until("smtp", "is ready")
    with run.connect() as connection:
        connection.ask({"command": "off", "service": "local"})
        run.until("local", "stopped")
        assert run.status()["local"]["state"] == State.STOPPED
        connection.ask({"command": "on", "service": "local"})
        run.until("local", "is ready")
        with pytest.raises(BadRequest, match="NON-STOP"):
            connection.ask({"command": "off", "service": "qmgr"})
        with pytest.raises(ServiceUnknown, match="smtp"):
            connection.ask({"command": "on", "service": "nobody"})
        with pytest.raises(BadRequest, match="status"):
            connection.ask({"command": "dance"})


def test_followers_see_changes_until_the_end(supervise: Supervise) -> None:
    run = supervise({"qmgr": ["manager", "normal"], "local": ["reader", "normal"]})
    run.until("local", "is ready")
    with run.connect() as connection:
        reply = connection.ask({"command": "stop", "follow": True})
        assert [child["name"] for child in reply["children"]] == ["qmgr", "local"]
        seen = [(event["name"], event["state"]) for event in connection.events(30)]
    assert seen == [
        ("local", "stopping"), ("local", "stopped"), ("qmgr", "stopping"), ("qmgr", "stopped"),
    ]  # fmt: skip
    assert run.end() == Exit.OK


def test_garbage_on_the_control_socket(supervise: Supervise) -> None:
    run = supervise({"qmgr": ["manager", "normal"]})
    run.until("qmgr", "is ready")
    for garbage in (b"\xff\x00\n", b"[]\n", b'{"command": []}\n', b"[" * 60000 + b"\n"):
        with run.connect() as connection:
            connection._socket.sendall(garbage)
            reply = connection.next_line(30)
            assert reply is not None
            assert reply["ok"] is False
    with run.connect() as connection:
        connection._socket.sendall(b"x" * 70000)  # no end of line: dropped
        assert connection.next_line(30) is None
    assert run.status()["qmgr"]["state"] == State.STARTED


def test_reload_adds_removes_and_passes_on(
    supervise: Supervise, respec: Callable[..., None]
) -> None:
    services = {"qmgr": ["manager", "normal"], "local": ["reader", "normal"]}
    run = supervise(services)
    run.until("local", "is ready")
    pid = run.status()["qmgr"]["pid"]
    respec(run.spool, {"qmgr": ["manager", "normal"], "router": ["reader", "normal"]})
    with run.connect() as connection:
        connection.ask({"command": "reload", "follow": True})
        run.until("router", "is ready")
    status = run.status()
    assert status["local"]["state"] == State.STOPPED
    assert status["qmgr"]["pid"] == pid
    respec(run.spool, services | {"router": ["reader", "normal"]})
    run.terminate(signal.SIGHUP)
    run.until("local", "is ready")


def test_wrong_reload_is_refused(supervise: Supervise, respec: Callable[..., None]) -> None:
    services = {"qmgr": ["manager", "normal"], "local": ["reader", "normal"]}
    run = supervise(services)
    run.until("local", "is ready")
    respec(run.spool, {}, wrong=True)
    with run.connect() as connection, pytest.raises(ConfigError, match="wrong: is set"):
        connection.ask({"command": "reload"})
    assert {child["state"] for child in run.status().values()} == {"started"}


def test_published_identities_are_true(supervise: Supervise) -> None:
    run = supervise({"qmgr": ["manager", "normal"]})
    run.until("qmgr", "is ready")
    state = _state(run.spool)
    assert state.identity == ProcessId(run.process.pid, state.start_ticks)
    assert state.identity.alive()
    assert state.children[0].identity.alive()
    assert not ProcessId(state.pid, state.start_ticks + 1).alive()
    events = (run.spool / "events.log").read_text().splitlines()
    assert [json.loads(line)["event"] for line in events] == [1121, 1111, 1112]
