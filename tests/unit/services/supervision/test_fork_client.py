"""A daemon forked by the fork server is like an executed one, and starts whatever happens to it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base import events, form
from omq.base.event_log import EventLog
from omq.services.daemon import process
from omq.services.supervise import fork_client as module
from omq.services.supervise import process_group
from omq.services.supervise.daemon_plan import LAUNCH
from omq.services.supervise.fork_client import ForkServer

HERE = Path(__file__).parent
BOUND_S = 120.0
EXECUTED = [sys.executable, "-P", "-m", "fork_probe"]


ORDER = """
import json, sys
from omq.base import form
from omq.cli import launch
from omq.cli.fork_server import Imports
names = {name: target.partition(":")[0] for name, target in launch.COMMANDS.items()}
imports, found = Imports(), []
for program in ("queue.manager", "service.router", "nobody"):
    imports.reach(names.get(program, ""))
    there = [name for name, module in names.items()
             if module.startswith("omq.services.") and module in sys.modules]
    fast = set(form.SERVER) <= sys.modules.keys()
    found.append([there, imports.complete, len(imports.stamps), fast])
print(json.dumps([found, sum(name.startswith("omq.services.") for name in names.values())]))
"""


class World:
    """A fork server and the environment in which both kinds of daemons are started."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = dict(os.environ) | {
            "PYTHONPATH": f"{HERE}:{root}:{os.environ.get('PYTHONPATH', '')}",
            "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.log = root / "events.log"
        self.events: list[EventLog] = []
        self.fork_server = self.new()
        self._count = 0

    def new(self, probe: str = "") -> ForkServer:
        environ = self.environ | ({"PROBE": probe} if probe else {})
        self.events.append(EventLog("omrc", self.log, stderr=False))
        self.fork_server = ForkServer(environ, self.events[-1])
        return self.fork_server

    def close(self) -> None:
        self.fork_server.close()
        for log in self.events:
            log.close()

    def start(self, *deed: str, **environ: str) -> tuple[int, Path]:
        """Start a probe by the fork server; its pid and the file that it writes."""
        self._count += 1
        path = self.root / f"facts{self._count}"
        argv = [*LAUNCH, "probe", str(path), *(deed or ("0",))]
        return self.fork_server.launch(argv, self.environ | environ), path

    def hang(self, *more: str) -> tuple[int, str]:
        """Start a probe that runs on; its pid and file, when it has told its facts."""
        path = self.root / f"facts{self._count + 1}"
        os.mkfifo(path)
        told = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        pid, _path = self.start("hang", *more)
        assert select.select([told], [], [], BOUND_S)[0]
        os.close(told)
        return pid, str(path)

    def facts(self, *deed: str, **environ: str) -> dict[str, Any]:
        """Of a probe that has ended with 0."""
        pid, path = self.start(*deed, **environ)
        assert ended(pid) == 0
        return dict(json.loads(path.read_text()))

    @property
    def pid(self) -> int:
        """Of the fork server; -1 of one that was reaped."""
        lines = Path(f"/proc/self/fdinfo/{self.fork_server._pidfd}").read_text().splitlines()
        (found,) = [line for line in lines if line.startswith("Pid:")]
        return int(found.split()[1])

    def given_up(self) -> int:
        """How often that was told."""
        lines = self.log.read_text().splitlines()
        return sum(json.loads(line)["event"] == events.FORK_SERVER_GONE.number for line in lines)


def ended(pid: int) -> int:
    """Wait for a child: its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(module, "MODULE", "fork_probe")
    made = World(tmp_path)
    yield made
    made.close()
    process._prctl(process._PR_SET_CHILD_SUBREAPER, 0)


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What the fork server leaves to exec is a probe, too: launch itself knows none."""
    real = process_group.launch

    def instead(argv: list[str], environ: dict[str, str], descriptors: tuple[int, ...] = ()) -> int:
        if argv[: len(LAUNCH)] == LAUNCH:
            return real([*EXECUTED, *argv[len(LAUNCH) + 1:]], environ | {"PROBE": "executed"})
        return real(argv, environ, descriptors)

    return lambda: monkeypatch.setattr(process_group, "launch", instead)


def test_a_forked_daemon_is_like_an_executed_one(world: World) -> None:
    world.new("whole")
    forked = world.facts(EXTRA="1")
    path = world.root / "facts"
    pid = process_group.launch([*EXECUTED, str(path), "0"],
                               world.environ | {"EXTRA": "1", "PROBE": "executed"})
    assert ended(pid) == 0
    other = json.loads(path.read_text())
    for each in (forked, other):  # as under systemd: the scheduler counts sessions
        assert each["pid"] == each["group"] == each["session"]
    assert forked["parent"] == os.getpid()
    assert forked["environ"] == world.environ | {"EXTRA": "1"}  # nothing of the fork server's own
    assert forked["files"].keys() == other["files"].keys() == {"0", "1", "2", "3"}  # 3: the listing
    assert forked["argv"] == ["probe", str(world.root / "facts1"), "0"]
    for name in ("parent", "cwd", "umask", "tasks", "threads", "handlers", "mask",
                 "wakeup", "faulthandler", "limits"):
        assert forked[name] == other[name], name
    for name in ("0", "1", "2"):
        assert forked["files"][name] == other["files"][name], name
    assert world.given_up() == 0


def test_daemons_of_one_fork_server_share_no_chance(world: World) -> None:
    first, second = world.facts(), world.facts()
    for name in ("random", "uuid", "name"):
        assert first[name] != second[name], name


def test_ps_shows_the_daemon(world: World) -> None:
    pid, path = world.hang()
    shown = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    os.kill(pid, signal.SIGTERM)
    assert ended(pid) == -signal.SIGTERM
    assert [os.fsdecode(word) for word in shown] == [*LAUNCH, "probe", path, "hang"]
    own = Path(f"/proc/{world.pid}/cmdline").read_bytes().rstrip(b"\0")
    assert own.endswith(b"omq.cli.fork_server")


def test_a_long_command_line_is_cut(world: World) -> None:
    pid, _path = world.hang("x" * 5000)
    shown = Path(f"/proc/{pid}/cmdline").read_bytes()
    os.kill(pid, signal.SIGKILL)
    assert ended(pid) == -signal.SIGKILL
    assert shown.endswith(b"xxx\0")
    assert len(module.ROOM) < len(shown) < 5000


def test_exit_codes_and_signals_are_known(world: World) -> None:
    assert ended(world.start("3")[0]) == 3
    pid, _path = world.start("hang")
    os.kill(pid, signal.SIGKILL)
    assert ended(pid) == -signal.SIGKILL


def test_a_hang_shows_where(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    pid, _path = world.hang()
    os.kill(pid, signal.SIGABRT)
    assert ended(pid) == -signal.SIGABRT
    told = capfd.readouterr().err
    assert "Fatal Python error: Aborted" in told
    assert " in probe\n" in told


def test_nothing_runs_before_the_gate_opens(world: World) -> None:
    world.fork_server.begin()
    channel, path = world.fork_server._channel, world.root / "facts"
    assert channel is not None
    gate, opener = os.pipe()
    request = {"argv": [*LAUNCH, "probe", str(path), "0"], "environ": world.environ}
    socket.send_fds(channel, [json.dumps(request).encode()], [gate])
    pid = json.loads(channel.recv(module.MESSAGE_BYTES_MAX))["pid"]
    os.close(gate)
    assert os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is None  # it waits, as our child
    os.close(opener)  # the supervisor ends here
    assert ended(pid) == 0
    assert not path.exists()


def test_it_ends_with_its_supervisor(world: World) -> None:
    process.adopt_orphans()
    reading, writing = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        try:
            pid, _path = world.hang()
            os.write(writing, f"{pid} {world.pid}".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert ended(supervisor) == -signal.SIGKILL
    daemon, forks = map(int, os.read(reading, 100).split())
    os.close(reading)
    os.close(writing)
    assert ended(daemon) == -signal.SIGTERM
    assert ended(forks) in (0, -signal.SIGTERM)


def test_after_an_upgrade_a_new_one_is_asked(world: World) -> None:
    part = world.root / "probe_part.py"
    part.write_text("VALUE = 'old'\n")
    world.new("part")
    assert world.facts()["part"] == "old"
    before = world.pid
    part.write_text("VALUE = 'upgraded'\n")
    assert world.facts()["part"] == "upgraded"
    assert world.pid != before
    part.unlink()  # and one that was taken away: its fork server cannot be made again
    assert world.given_up() == 0


def test_a_dead_one_is_told_once_and_forgiven(world: World, executed: Callable[[], None]) -> None:
    world.facts()
    executed()
    os.kill(world.pid, signal.SIGKILL)
    assert world.facts()["environ"]["PROBE"] == "executed"
    assert world.facts()["environ"]["PROBE"] == "executed"
    assert world.given_up() == 1
    world.fork_server.forgive()
    assert "PROBE" not in world.facts()["environ"]
    assert world.given_up() == 1


@pytest.mark.parametrize("failure", ["ends", "thread", "part"])
def test_one_that_cannot_serve(failure: str, world: World, executed: Callable[[], None]) -> None:
    executed()
    world.new(failure)  # "part": there is no such module
    assert world.facts()["environ"]["PROBE"] == "executed"
    assert world.given_up() == 1


def test_a_deaf_one_is_killed(world: World, executed: Callable[[], None]) -> None:
    world.facts()
    executed()
    pid = world.pid
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    assert world.fork_server._channel is not None
    world.fork_server._channel.settimeout(0.1)
    assert world.facts()["environ"]["PROBE"] == "executed"
    assert world.given_up() == 1
    assert not Path(f"/proc/{pid}").exists()


def test_a_refused_fork_is_told_as_such(world: World) -> None:
    world.new("fork")
    with pytest.raises(BlockingIOError):
        world.start()
    assert world.given_up() == 0
    with pytest.raises(BlockingIOError):  # it goes on
        world.start()


def test_no_process_for_the_fork_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: object, **_more: object) -> int:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(process_group, "launch", refused)
    with pytest.raises(BlockingIOError):
        world.start()
    assert world.given_up() == 1


def test_an_environment_that_is_too_large(world: World, executed: Callable[[], None]) -> None:
    executed()
    assert len(world.facts(**{f"BIG{n}": "x" * 100_000 for n in range(5)})["environ"]["BIG0"]) > 9
    assert world.given_up() == 1


def test_other_programs_are_executed(world: World) -> None:
    pid = world.fork_server.launch([sys.executable, "-c", "raise SystemExit(7)"], world.environ)
    assert ended(pid) == 7
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("fast", [form.AUTO, form.OFF])
def test_the_manager_is_not_kept_waiting_for_the_imports_of_others(fast: str) -> None:
    said = subprocess.run([sys.executable, "-P", "-c", ORDER], check=True, text=True,
                          stdout=subprocess.PIPE, env=os.environ | {form.VARIABLE: fast}).stdout
    (manager, router, everything), count = json.loads(said)
    assert manager[:2] == [["queue.manager"], False]
    assert "service.router" in router[0] and "smtp.server" not in router[0]
    assert everything[1] and len(everything[0]) == count
    assert manager[2] < router[2] < everything[2], "what is imported later is looked at, too"
    assert everything[3] is (fast != form.OFF)
