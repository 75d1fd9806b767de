"""The tool: options from the command line, from a script and on a terminal."""

from __future__ import annotations

import io
import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omq.base.errors import (
    BadItemRef,
    BadRequest,
    BodyDamaged,
    BodyUnavailable,
    Damaged,
    FileNotWritten,
    ManagerUnavailable,
    NeedsRepair,
    NoMessage,
    NothingMeant,
    OmqError,
    SpoolMissing,
    UnknownQueue,
)
from omq.cli import launch
from omq.core.index.tables import Tables
from omq.storage import poolctrl as control
from omq.storage.segment import read_ids
from omq.storage.spool import SpoolInfo
from omqtools.omqdump.main import main
from omqtools.omqdump.options import MENU, MORE, OPTIONS, Needs
from omqtools.omqdump.session import menu
from tests.unit.omqdump import world
from tests.unit.omqdump.world import golden

Run = Callable[..., str]
SEED_LETTERS = "slmMdDvaOLToigGrcfptCZq"


@pytest.fixture
def run(info: SpoolInfo, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run omqdump on the spool; its standard output."""

    def call(*arguments: str) -> str:
        capsys.readouterr()
        assert main(["--spool", str(info.paths.root), *arguments]) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def script(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same with these lines on standard input."""

    def call(text: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return run(*arguments)

    return call


def test_menu(request: pytest.FixtureRequest) -> None:
    golden(request, "menu.txt", menu())
    assert ("".join(MENU), "".join(MORE)) == (SEED_LETTERS, "uA")


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(("letter", "name"), [
    ("s", "summary"), ("T", "throughput"), ("L", "configured"), ("l LOCAL", "browse")])
def test_listings(request: pytest.FixtureRequest, run: Run, letter: str, name: str) -> None:
    golden(request, f"{name}.txt", run("-e", letter))


@pytest.mark.usefixtures("running")
def test_several_options(run: Run) -> None:
    out = run("-e", "L", "-e", "s", "-e", "q", "-e", "no option")
    assert out.count("Done\n") == 2
    assert out.startswith("DESK\nLOCAL\nROUTER\nUNIX\nDone\nQUEUE")


@pytest.mark.usefixtures("running")
def test_script_from_standard_input(script: Run, tmp_path: Path) -> None:
    target = tmp_path / "dump.txt"
    out = script(f"L\n\nt\nm\n{target}\nl\nlocal\nq\nnever\n")
    assert out.startswith("DESK\nLOCAL\nROUTER\nUNIX\nDone\nDone\nQPoolId")
    assert out.count("Done\n") == 3
    assert "Option?" not in out, "no prompts in the output of a script"
    assert target.read_text(encoding="ascii") == world.GOLDEN.joinpath("pool.txt").read_text()


def test_the_end_of_the_script_is_the_end(script: Run) -> None:
    assert script("") == ""
    assert script("L") == "DESK\nLOCAL\nROUTER\nUNIX\nDone\n"


CHANGES = {"m": "g DESK|m 2000 LOCAL", "d": "g DESK|d 2000", "p": "g DESK|p 2000 LOCAL",
           "M": "M LOCAL UNIX 1 1", "D": "D DESK 1 1", "C": "C DESK LOCAL 1 1", "Z": "Z LOCAL 1 1",
           "u": "u 990", "A": "A PLAN"}


def test_every_letter_that_changes_is_tried_without_a_manager() -> None:
    assert {letter for letter, each in OPTIONS.items() if each.needs is Needs.MANAGER} == set(
        CHANGES)


@pytest.mark.parametrize("letter", CHANGES)
def test_changes_need_a_manager(
        script: Run, info: SpoolInfo, tmp_path: Path, letter: str) -> None:
    """A dead manager's segment, or no segment at all: refused at once, and nothing is changed."""
    plan = tmp_path / "plan"
    with world.indexed(info, alive=False) as tables:
        world.fill(tables)
        if letter == "u":  # as after a delete
            set_deleted(tables)
        script("", "-e", f"M LOCAL UNIX 1 1 --dry-run {plan}")
        text = CHANGES[letter].replace("PLAN", str(plan))
        before = bytes(tables.buffer)
        with pytest.raises(ManagerUnavailable):
            script(text.replace("|", "\n") + "\n")
        assert bytes(tables.buffer) == before
    with pytest.raises((ManagerUnavailable, NoMessage, NothingMeant, BodyDamaged,
                        BodyUnavailable)):
        script(text.replace("|", "\n") + "\n")


def set_deleted(tables: Tables) -> None:
    """Message 990 is on IDEL, deleted from LOCAL."""
    world.set_row(tables, 10, e_queue=1, e_state=world.DEFERRED, e_until=world.NOW_NS * 2)
    world.set_row(tables, 6, m_origin=4)


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(("text", "error"), [
    ("?", BadRequest), ("ss", BadRequest), ("s LOCAL", BadRequest), ("'", BadRequest),
    ("l", BadRequest), ("l LOCAL many", BadRequest), ("l LOCAL 1 2", BadRequest),
    ("l NOWHERE", UnknownQueue), ("l \x1b[2J", UnknownQueue), ("t", BadRequest),
    ("t x", BadRequest), ("t m ~/data/000000a/0000b94", FileNotWritten),
    ("t m ~/../etc/passwd", BadItemRef), ("t m .", FileNotWritten), ("t m /", FileNotWritten),
    ("t m /nowhere/at/all", FileNotWritten), ("t m /dev/null", FileNotWritten)])
def test_wrong_options(run: Run, text: str, error: type[OmqError]) -> None:
    with pytest.raises(error) as caught:
        run("-e", text)
    assert "\x1b" not in str(caught.value)
    assert Path("/dev/null").is_char_device()


@pytest.mark.usefixtures("running")
def test_json(run: Run) -> None:
    rows = [json.loads(line) for line in run("-e", "s", "--json").splitlines()]
    assert [row["queue"] for row in rows] == ["DESK", "LOCAL", "ROUTER", "UNIX", "IDEL", "POISON"]
    assert rows[1].pop("space_low") is False
    assert rows[1].pop("space_free_bytes") > 0
    assert rows[1].pop("index_low") == 0
    assert rows[1].pop("inodes_free") != 0
    assert rows[1].pop("space_parts") is None
    assert rows[1] == {
        "queue": "LOCAL", "special": False, "messages": 6, "active": 2, "ready": 3, "deferred": 1,
        "held": 0, "prepared": 0, "ever": 6, "processed": 874, "expired": 0,
        "remembered": 0,
        "load": [96.679782, 19.7, 12.74],
        "throughput": [28.22, 31.18, 31.72]}
    assert [json.loads(line)["queue"] for line in run("-e", "L", "--json").splitlines()] == [
        "DESK", "LOCAL", "ROUTER", "UNIX"]
    rows = [json.loads(line) for line in run("-e", "l LOCAL 5", "--json").splitlines()]
    assert [row["qpool_id"] for row in rows] == [984, 991, 983, 986, 985]
    assert rows[4]["due"] == "1999-05-18T13:37:55.000000+01:00" and rows[0]["due"] is None
    assert [row["persistent"] for row in rows] == [True, True, True, False, True]
    answer = json.loads(run("-e", "t q", "--json"))
    assert Path(answer["file"]).read_text().count("\n") == answer["lines"]


def test_without_a_manager(run: Run, info: SpoolInfo, tmp_path: Path) -> None:
    assert run("-e", "L") == "DESK\nLOCAL\nROUTER\nUNIX\nDone\n"
    run("-e", f"t m {tmp_path}/pool.txt")
    golden_text = world.GOLDEN.joinpath("pool.txt").read_text()
    assert (tmp_path / "pool.txt").read_text() == golden_text
    assert run("-e", "t m -") == golden_text + "Done\n"
    for letter in ("s", "T", "l LOCAL", "t q"):
        with pytest.raises(ManagerUnavailable):
            run("-e", letter, "--source", "segment")
    assert "LOCAL            2           1         0" in run("-e", "s")
    assert list(info.paths.temp.iterdir()) == []


def test_a_dead_manager_is_said(info: SpoolInfo, capsys: pytest.CaptureFixture[str]) -> None:
    with world.indexed(info, alive=False) as tables:
        world.fill(tables)
        assert main(["--spool", str(info.paths.root), "-e", "s"]) == 0
    found = capsys.readouterr()
    assert "LOCAL " in found.out
    assert found.err == ("omqdump: the queue manager does not run; "
                         "this is what its memory held\n")


def test_no_segment_stays_attached(run: Run, info: SpoolInfo, running: Tables) -> None:
    for letter in ("s", "T", "l LOCAL 1", "t q", "t q -"):
        run("-e", letter)
    with pytest.raises(UnknownQueue):
        run("-e", "l NOWHERE")
    ids = read_ids(info.paths)
    assert ids is not None
    attached = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()]
    assert [row[6] for row in attached if row[1] == str(ids.segment)] == ["1"], "the fixture's"


def test_poolctrl_missing_or_damaged(run: Run, info: SpoolInfo, tmp_path: Path) -> None:
    path = info.paths.msgpool / control.NAME
    whole = path.read_bytes()
    path.write_bytes(b"\x55" * len(whole))
    with pytest.raises(Damaged):
        run("-e", "L")
    assert "Queue=#4\n" in run("-e", "t m -"), "queues are shown by number"
    path.write_bytes(bytes(len(whole)))
    with pytest.raises(NeedsRepair):
        run("-e", "L")
    path.unlink()
    with pytest.raises(NeedsRepair):
        run("-e", "L")


@pytest.mark.usefixtures("running")
def test_a_broken_conf_is_not_in_the_way(
        info: SpoolInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "omq.conf").write_text("[daemons]\nload_sample_period_s = often\n")
    spool = ["--spool", str(info.paths.root), "--conf", str(conf)]
    assert main([*spool, "-e", "t q -"]) == 0
    found = capsys.readouterr()
    assert "load_sample_period_s" in found.err and "default settings are used" in found.err
    assert "Sample period=5\n" in found.out
    (conf / "omq.conf").write_text("[daemons]\nload_sample_period_s = 7\n")
    assert main([*spool, "-e", "t q -"]) == 0
    assert "Sample period=7\n" in capsys.readouterr().out


def test_spool_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(SpoolMissing):
        main(["--spool", str(tmp_path / "nowhere"), "-e", "L"])


@pytest.mark.usefixtures("running")
def test_exit_codes(info: SpoolInfo, capsys: pytest.CaptureFixture[str]) -> None:
    spool = ["--spool", str(info.paths.root)]
    assert launch.run("omqdump", [*spool, "-e", "m"]) == 1
    assert launch.run("omqdump", [*spool, "-e", "l NOWHERE"]) == 66
    assert launch.run("omqdump", [*spool, "-e", "t m /"]) == 73
    assert launch.run("omqdump", [*spool, "--nonsense"]) == 64
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == ("omqdump: no message is open under handle 2000; "
                        "option a lists the open ones")


@pytest.mark.usefixtures("running")
def test_memory_dump_has_a_name_of_its_own_in_temp(run: Run, info: SpoolInfo) -> None:
    name, done = run("-e", "t q").splitlines()
    assert done == "Done" and name.startswith("~/temp/")
    path = info.paths.root / name[2:]
    assert path.read_text().startswith("====Active Messages====\nTable Size=4\n")
    assert stat.S_IMODE(path.stat().st_mode) & ~0o640 == 0
