"""`omqtest powercut`: its verdict on this file system, and that it bites when a sync is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from omq.base.errors import Exit
from omqtools.omqtest import powercut, tree
from omqtools.omqtest.cuts import Cuts, Cutter, load, record_run, store
from omqtools.omqtest.history import Found, Line, judge_state
from omqtools.omqtest.instance import RunError
from omqtools.omqtest.main import main
from omqtools.omqtest.record import Step
from tests.crash.daemons.world import private_ipc

MESSAGES = 80


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(log, the spool as it was before) of one run."""
    place = tmp_path_factory.mktemp("recorded")
    (place / "target").mkdir()
    with private_ipc():
        log, base = record_run(place / "target", place, MESSAGES)
    store(base, place / "base")
    return log, place / "base"


def _cut(recorded: tuple[Path, Path], place: Path, count: int,
         keeps: Callable[[Step], bool] = lambda step: True) -> Cuts:
    log, base = recorded
    (place / "t").mkdir()
    cutter = Cutter(log, load(base), place / "t", place, seed=5)
    cutter.keep_steps(keeps)
    with private_ipc():
        return cutter.run(count, lambda text: None)


def test_cuts_keep_the_promise(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    found = _cut(recorded, tmp_path, 60)
    assert found.failed == []
    assert (found.done, found.live, found.acknowledged) == (60, 2, MESSAGES)
    assert found.syncs > MESSAGES // 4 and found.kept > MESSAGES and found.unsynced_max > 4096


def test_it_bites_when_the_journal_is_not_synced(recorded: tuple[Path, Path], tmp_path: Path
                                                 ) -> None:
    """The same run without the syncs of journal files: acknowledged messages are lost."""
    journals: set[str] = set()

    def keeps(step: Step) -> bool:
        words = step.words
        if words["op"] == "open" and words["path"].startswith("journal/"):
            journals.add(words["file"])
        return words["op"] != "sync" or words["file"] not in journals

    found = _cut(recorded, tmp_path, 40, keeps)
    assert found.verdict.lost and len(found.failed) > 5


def test_it_bites_when_directories_are_not_synced(recorded: tuple[Path, Path], tmp_path: Path
                                                  ) -> None:
    found = _cut(recorded, tmp_path, 40, lambda step: step.words["op"] != "sync directory")
    assert found.verdict.lost


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it, small; nothing is left in the directory."""
    with private_ipc():
        code = main(["powercut", "--on", str(tmp_path), "--cuts", "10", "--kills", "3",
                     "--messages", "40", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert code == Exit.OK and facts["kept"] is True
    assert (facts["cuts"], facts["kills"], facts["acknowledged"], facts["lost"]) == (10, 3, 40, 0)
    assert list(tmp_path.iterdir()) == []


def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["powercut", "--on", str(tmp_path / "no")]) == Exit.USAGE
    assert main(["powercut", "--on", str(tmp_path), "--pull", "--verify"]) == Exit.USAGE
    assert "not a directory" in capsys.readouterr().err


def test_pull_and_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Acknowledged lines are found again; a missing message and a second run are told."""
    with private_ipc():
        assert powercut.pull(tmp_path, 30) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 30
    assert powercut.verify(tmp_path, lines) == Exit.OK
    assert "KEPT" in capsys.readouterr().out
    forged = f"acknowledged {lines[0].split()[1]} {lines[0].split()[1]}:999"
    assert powercut.verify(tmp_path, [*lines, forged], as_json=True) == Exit.NO
    assert json.loads(capsys.readouterr().out)["lost"] == 1
    with pytest.raises(RunError, match="earlier run"):
        powercut.pull(tmp_path)
    with pytest.raises(RunError, match="nothing to verify"):
        powercut.verify(tmp_path, [])


def _line(op: str, key: str, ns: int, **more: object) -> Line:
    return {"op": op, "key": key, "ns": ns, **more}


def _got(key: str, ns: int, lease: int) -> Line:
    return _line("got", key, ns, lease=lease, flag=False, bad=False)


PUT = [_line("try", "p:0", 1), _line("ok", "p:0", 2), _line("try", "p:1", 3), _line("ok", "p:1", 4)]
END = [_got("p:0", 5, 1), _line("ending", "p:0", 6), _line("done", "p:0", 7),
       _got("p:1", 8, 2), _line("ending", "p:1", 9)]


@pytest.mark.parametrize(("present", "faults"), [
    ([Found("p:0"), Found("p:1", place=(1, 0, 1))], {}),
    ([Found("p:0")], {"lost": ["p:1"]}),
    ([Found("p:0"), Found("p:0"), Found("p:1")], {"duplicated": ["p:0"]}),
    ([Found("p:0", place=(1, 0, 2)), Found("p:1", place=(1, 0, 1))], {"disordered": ["p:0"]}),
    ([Found("p:0"), Found("p:1", bad=True)], {"invented": ["p:1"]}),
    ([Found("p:0"), Found("p:1", place=(1, 0, 1)), Found("z:1")], {"invented": ["z:1"]}),
    ([Found("p:0", idle=True), Found("p:1")], {"lost": ["p:0"]}),
])
def test_states_are_judged(present: list[Found], faults: dict[str, list[str]]) -> None:
    assert judge_state(PUT, present).faults == faults


def test_ended_messages_must_not_come_back() -> None:
    assert judge_state([*PUT, *END], [Found("p:0")]).faults == {"resurrected": ["p:0"]}
    assert judge_state([*PUT, *END], [Found("p:1"), Found("p:0", idle=True)]).faults == {}


def test_tree_of_a_cut() -> None:
    """What no sync covered is gone with fate "synced", there with "all"."""
    root = tree.directory()
    node = tree.Node(0o100640)
    tree.link(root, "a", node)
    tree.write(node, 0, b"x" * 600)
    tree.sync(node)
    assert tree.cut(root, tree.fate("synced", 0)).entries == {}  # its name was not synced
    tree.sync(root)
    tree.write(node, 512, b"y" * 512)
    old, new = b"x" * 600, b"x" * 512 + b"y" * 512
    assert tree.cut(root, tree.fate("synced", 0)).entries["a"].data == old
    assert tree.cut(root, tree.fate("all", 0)).entries["a"].data == new
    seen = {bytes(tree.cut(root, tree.fate("chance", seed)).entries["a"].data)
            for seed in range(200)}
    assert old in seen and new in seen
    assert b"x" * 600 + bytes(424) in seen  # it became longer, its data did not come
    tree.forget(node)
    assert node.data == old
