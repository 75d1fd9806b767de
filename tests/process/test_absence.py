"""A manager of a spool that lost a pool file refuses it, by code and words, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base import events
from omq.base.errors import Exit
from omq.cli.launch import run as launch
from omq.core.judge import judge
from omq.core.judge.presence import pool_findings
from omq.format.pool import RECORD_BYTES
from omq.services.supervise.unit_files import UnitValues, render_all
from omq.storage import poolctrl
from tests.process.instance import CORE_SERVICES, MANAGER, WRITER, Instance
from tests.process.processes import start_program


def served(instance: Instance, count: int = 20, *, stop: bool = True) -> Path:
    """An instance with some messages in its pool; the pool file."""
    instance.start(MANAGER, WRITER)
    with instance.connect() as connection:
        for _ in range(count):
            connection.put("A", b"here")
    if stop:
        instance.stop(MANAGER, WRITER)
    return instance.paths.msgpool / "0QP"


@contextmanager
def without(path: Path) -> Iterator[None]:
    """The file is elsewhere for a time."""
    kept = path.parent.parent / "kept"
    path.rename(kept)
    try:
        yield
    finally:
        kept.rename(path)


def test_the_manager_refuses_a_spool_without_a_pool_file(omq_instance: Instance) -> None:
    path = served(omq_instance)
    with without(path):
        refused = omq_instance.start(MANAGER)
        assert refused.wait() == Exit.DATA
        assert "0QP" in omq_instance.said() and "omqrecover plan" in omq_instance.said()
        assert not path.exists()
    omq_instance.start(MANAGER, WRITER)  # and is served as if nothing had been
    assert len(omq_instance.drain("A")) == 20


def test_a_supervisor_does_not_try_again_and_says_what_to_do(
        omq_instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    path = served(omq_instance)
    (omq_instance.conf / "services.conf").write_text(CORE_SERVICES)
    arguments = ["--spool", str(omq_instance.root), "--conf", str(omq_instance.conf)]
    with without(path):
        omrc = start_program("omrc", ["--embedded", *arguments], output=omq_instance.output)
        omq_instance.children["omrc"] = omrc  # to be killed should it not end
        assert omrc.wait() == Exit.DATA
        said = omq_instance.said()
        assert f"omqrecover plan {omq_instance.root}" in said and "refuses the spool" in said
        started = omq_instance.events(events.DAEMON_STARTED.number)
        assert [each["daemon"] for each in started] == ["qmgr"], "once, and nothing behind it"
        assert len(omq_instance.events(events.DAEMON_REFUSES.number)) == 1
        assert not path.exists()

        capsys.readouterr()
        assert launch("omstat", arguments) == 1
        shown = capsys.readouterr().out
        assert "aborted" in shown and f"omqrecover plan {omq_instance.root}" in shown
        assert launch("omqdump", [*arguments, "-e", "s"]) == 0
        said = capsys.readouterr().err
        assert "1 places are damaged" in said and "0QP" in said and "missing" in said


def test_the_unit_does_not_try_again() -> None:
    values = UnitValues(None, "omq", "omq", Path("/usr/bin/python3"), (Path("/usr"),),
                        Path("/var/lib/omq"), Path("/etc/omq"), 1024)
    (unit,) = (text for name, text in render_all(values).items()
               if name.name == "omq-queue-manager.service")
    prevented = " ".join(line.partition("=")[2] for line in unit.splitlines()
                         if line.startswith("RestartPreventExitStatus=")).split()
    assert {str(int(code)) for code in (Exit.DATA, Exit.CONFIG, Exit.USAGE)} <= {*prevented}


def test_an_upgrade_is_said_once(omq_instance: Instance) -> None:
    """A spool whose poolctrl, double-write file and journal are of an earlier version."""
    served(omq_instance)
    control, _ = poolctrl.load(omq_instance.paths)
    assert control is not None
    for _ in range(2):  # both slots
        control = replace(control, generation=control.generation + 1, contents=None)
        poolctrl.store(omq_instance.paths, control)
    (omq_instance.paths.journal / "newest").unlink()
    (omq_instance.paths.msgpool / "checkpoint.dw").write_bytes(bytes(64))
    for _ in range(2):
        omq_instance.start(MANAGER, WRITER)
        omq_instance.ready()
        omq_instance.stop(MANAGER, WRITER)
    (said,) = omq_instance.events(events.SPOOL_UPGRADED.number)
    assert "poolctrl" in said["files"] and "newest" in said["files"]


# omqcheck


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 3 * RECORD_BYTES])


def _zeroed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4 * RECORD_BYTES : 5 * RECORD_BYTES] = bytes(RECORD_BYTES)
    path.write_bytes(data)


FAULTS: dict[str, Callable[[Path], None]] = {
    "absent": Path.unlink, "emptied": _emptied, "cut": _cut, "zeroed record": _zeroed}


def check(instance: Instance, capsys: pytest.CaptureFixture[str], *options: str
          ) -> tuple[int, str, str]:
    capsys.readouterr()
    code = launch("omqcheck", ["--spool", str(instance.root), "--conf", str(instance.conf),
                               *options])
    shown = capsys.readouterr()
    return int(code), shown.out, shown.err


@pytest.mark.parametrize("beside", ["offline", "living"])
@pytest.mark.parametrize("fault", [*FAULTS, "older"])
def test_omqcheck_names_file_and_reason(omq_instance: Instance, fault: str, beside: str,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    path = served(omq_instance)
    older = path.read_bytes()
    if fault == "older":
        omq_instance.start(MANAGER, WRITER)
        assert len(omq_instance.drain("A")) == 20
        with omq_instance.connect() as connection:
            connection.put("B", b"new")
        omq_instance.stop(MANAGER, WRITER)
    if beside == "living":
        omq_instance.start(MANAGER)  # no pool.writer, so that what is read stands still
        omq_instance.ready()
    assert check(omq_instance, capsys)[0] == Exit.OK
    kept = path.read_bytes()
    if fault == "older":
        path.write_bytes(older)
    else:
        FAULTS[fault](path)
    code, out, _ = check(omq_instance, capsys, "--all")
    assert code == Exit.NO
    assert "damage" in out and "0QP" in out and "the last checkpoint left" in out
    code, out, _ = check(omq_instance, capsys, "--all", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == Exit.NO and found[-1]["uncompared"] == []
    assert any(each["kind"] == "damage" and each["file"] == "0QP" and each["reason"]
               for each in found)
    path.write_bytes(kept)
    assert check(omq_instance, capsys)[0] == Exit.OK


def test_omqcheck_says_what_it_could_not_compare(
        omq_instance: Instance, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is written each time while the pool files are counted."""
    path = served(omq_instance)
    paths, counted = omq_instance.paths, pool_findings

    def moving(*arguments: object) -> object:
        found = counted(*arguments)  # type: ignore[arg-type]
        control, _ = poolctrl.load(paths)
        assert control is not None
        poolctrl.store(paths, replace(control, generation=control.generation + 1))
        return found

    monkeypatch.setattr(judge, "pool_findings", moving)
    kept = path.read_bytes()
    path.write_bytes(kept[: 3 * RECORD_BYTES])
    code, out, err = check(omq_instance, capsys)
    assert code == Exit.TEMPORARY, out
    assert "not compared with what the last checkpoint left: pool files" in err
    code, out, _ = check(omq_instance, capsys, "--json")
    assert code == Exit.TEMPORARY
    assert json.loads(out.splitlines()[-1])["uncompared"] == ["pool files"]
    monkeypatch.undo()
    assert check(omq_instance, capsys)[0] == Exit.NO
    path.write_bytes(kept)
