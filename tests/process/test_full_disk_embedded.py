"""A disk without one free byte under `omrc --embedded`: nothing dies, done, move and delete go on,
and all comes back by itself when there is room."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import ManagerUnavailable, SpoolFull
from omq.base.paths import SpoolPaths
from omq.services.daemon import pid_file
from omq.services.daemon.run_state import read_supervisor
from omq.services.supervise.control_client import ControlConnection
from tests.process.instance import CORE_SERVICES
from tests.process.ipc_space import ipc_space
from tests.process.operator_world import Instance, Said
from tests.process.small_disk import mounted
from tests.waiting import until

WAIT_S = 120.0
SERVICES = CORE_SERVICES + """
[local]
number = 3
kind = reader
program = local.delivery
queue = LOCAL
"""
SETTINGS = ("[index]\nmessages_max = 20000\nqueue_entries_max = 25000\n"
            "[journal]\njournal_file_bytes = 4 MiB\nblock_bytes_max = 1 MiB\n"
            "[daemons]\nrestart_backoff_min_s = 0\n[store]\ndisk_reserve_bytes = 8M\n")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", 32) as root:
        yield root


def test_a_full_disk_ends_nothing_and_all_comes_back(small_disk: Path, tmp_path: Path) -> None:
    instance = object.__new__(Instance)
    instance.root, instance.conf = small_disk / "spool", tmp_path / "conf"
    instance.paths, instance.manager = SpoolPaths(instance.root), None
    instance.conf.mkdir()
    (instance.conf / "queues.conf").write_text("[*]\n\n[A]\n\n[B]\n\n[LOCAL]\n")
    (instance.conf / "services.conf").write_text(SERVICES)
    (instance.conf / "omq.conf").write_text(SETTINGS)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OMQ_")}
    with ipc_space(), (small_disk / "output").open("wb") as output:  # stderr is on the full disk
        omrc = subprocess.Popen(
            [sys.executable, "-P", "-m", "omq.cli.launch", "omrc", "--embedded",
             *instance.arguments], env=environment, stderr=output, stdout=output)
        try:
            _through(instance, small_disk / "filler")
            assert omrc.poll() is None
            said = instance.run("omshut")
            assert said.code == 0, said
            assert omrc.wait(WAIT_S) == 0
        except (AssertionError, KeyError) as error:
            log = instance.paths.event_log
            error.add_note((small_disk / "output").read_text())
            error.add_note(log.read_text()[-5000:] if log.exists() else "no log")
            raise
        finally:
            omrc.terminate()
            omrc.wait(WAIT_S)


def _through(instance: Instance, filler: Path) -> None:
    until(lambda: set(_pids(instance.paths)) == {"qmgr", "pool", "idel", "local"})
    qpools = instance.put("A", *(b"%d" % number for number in range(30)))
    before = _pids(instance.paths)
    _fill(filler)
    os.kill(before["local"], signal.SIGKILL)
    until(lambda: _pids(instance.paths).get("local", before["local"]) != before["local"])
    with instance.connect() as connection, connection.reader("A", batch=10) as reader:
        held = reader.next(timeout_s=WAIT_S)
        for message in held[:5]:
            message.done()
        for message in held[5:]:
            message.move("B")
        reader.flush()
        assert reader.lost == 0
    until(lambda: not _puts(instance))  # the manager looks from time to time
    deleted = instance.run("omqdump", "--yes", "-e", f"D A --where id={qpools[20]}")
    assert deleted.code == 0, deleted
    _says_low(instance)
    assert {name: pid for name, pid in _pids(instance.paths).items() if name != "local"} == {
        name: pid for name, pid in before.items() if name != "local"}
    shown = read_supervisor(instance.paths.run / "supervisor.json")
    assert shown is not None
    assert _pid_of(shown.children, "local") != _pids(instance.paths)["local"]  # it was refused
    filler.unlink()
    until(lambda: _shown(instance.paths) == _pids(instance.paths))
    until(lambda: pid_file.running(instance.paths.pid_file("local"))
           == _pids(instance.paths)["local"])
    until(lambda: '"event": 1124' in instance.paths.event_log.read_text())
    until(lambda: _puts(instance))
    until(lambda: "LOW" not in instance.run("omstat").out)
    assert set(qpools[10:20] + qpools[21:]) <= set(instance.on("A"))
    assert not {*qpools[:10], qpools[20]} & set(instance.on("A")) and len(instance.on("B")) == 5


def _says_low(instance: Instance) -> None:
    """omstat, omtop and omqdump's s tell that the disk is full."""
    until(lambda: "disk space" in instance.run("omstat").out)
    for said in (instance.run("omstat"), instance.run("omqdump", "-e", "s"),
                 instance.run("omtop", "--once", "--interval", "0.2")):
        assert "disk space LOW" in said.out + said.err, said
    shown: Said = instance.run("omqdump", "--json", "-e", "s")
    assert '"space_low": true' in shown.out, shown


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 512, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC
    found = os.statvfs(filler)
    assert found.f_bavail == 0


def _puts(instance: Instance) -> bool:
    with instance.connect() as connection:
        try:
            connection.put("A", b"again")
        except SpoolFull:
            return False
    return True


def _pids(paths: SpoolPaths) -> dict[str, int]:
    """Of what is started, as the supervisor itself says."""
    try:
        with ControlConnection(paths.run, WAIT_S) as connection:
            children = connection.ask({"command": "status"})["children"]
    except ManagerUnavailable:
        return {}
    return {each["name"]: each["pid"] for each in children
            if each["state"] == "started" and each["pid"]}  # 0: just reaped


def _shown(paths: SpoolPaths) -> dict[str, int]:
    """The same by run/supervisor.json."""
    found = read_supervisor(paths.run / "supervisor.json")
    return {each.name: each.pid for each in found.children if each.state == "started"} if (
        found) else {}


def _pid_of(children: object, name: str) -> int:
    return next(each.pid for each in children if each.name == name)  # type: ignore[attr-defined,no-any-return]
