"""Bodies out of a dead spool; who may look, and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omq.core.load.recovery import recover
from omq.storage import spool
from omq.storage.pool import PoolFiles
from omqtools.omqrecover.conditions import parse
from tests.recovery import test_repair as damages
from tests.recovery.conftest import Dead
from tests.recovery.spool import SMALL, repair, run, scan


def written(target: Path) -> dict[int, dict[str, object]]:
    return {int(path.stem): json.loads(path.read_text()) for path in target.glob("*.json")}


def test_everything(dead: Dead, tmp_path: Path) -> None:
    target = tmp_path / "out"
    before = damages.contents(dead.root)
    code, out, _ = run("extract", dead.root, "--to", target)
    assert code == 0 and f"{len(dead.known)} messages" in out
    made = written(target)
    assert made.keys() == dead.known.keys()
    for qpool, fields in made.items():
        body = (target / f"{qpool}.body").read_bytes()
        assert len(body) == fields["size"] == dead.known[qpool][0][6]
    assert any((target / f"{q}.body").read_bytes() == b"c" * 300_000 for q in made), "a container"
    assert damages.contents(dead.root) == before


@pytest.mark.parametrize(("conditions", "wanted"), [
    (["queue=q3"], lambda parts: any(p[0] == 3 for p in parts)),
    (["queue=Q3", "state=active"], lambda parts: any(p[0] == 3 for p in parts)
     and any(p[2] == 2 for p in parts)),
    (["attempts>=1"], lambda parts: any(p[3] >= 1 for p in parts)),
    (["priority<4"], lambda parts: any(p[1] < 4 for p in parts)),
])
def test_conditions(dead: Dead, tmp_path: Path, conditions: list[str], wanted: object) -> None:
    assert callable(wanted)
    arguments = [part for condition in conditions for part in ("--where", condition)]
    code, _, _ = run("extract", dead.root, *arguments, "--to", tmp_path / "out")
    expected = {q for q, (_, parts) in dead.known.items() if wanted(parts)}
    assert written(tmp_path / "out").keys() == expected
    assert code == (0 if expected else 1)


def test_a_damaged_body_is_told(dead: Dead, tmp_path: Path) -> None:
    damages._missing_store(dead)
    code, _, err = run("extract", dead.root, "--to", tmp_path / "out")
    assert code == 65 and err.count("there is no such file") == 5
    damaged = [q for q, fields in written(tmp_path / "out").items() if fields.get("damage")]
    assert len(damaged) == 5
    assert not any((tmp_path / "out" / f"{q}.body").exists() for q in damaged)


@pytest.mark.parametrize("text", ["", "queue", "nothing=1", "priority=high", "time<yesterday",
                                  "size~1"])
def test_conditions_that_are_none(dead: Dead, tmp_path: Path, text: str) -> None:
    code, _, err = run("extract", dead.root, "--where", text, "--to", tmp_path / "out")
    assert code == 64 and err


def test_properties() -> None:
    fields = {"property.customer": "42", "priority": [3, 7]}
    assert parse("property.customer=42").holds(fields)
    assert not parse("property.order=1").holds(fields)
    assert parse("priority>6").holds(fields) and not parse("priority!=7").holds(fields)


@pytest.mark.parametrize("what", ["manager_lock", "pool_lock"])
def test_a_running_spool_is_refused(dead: Dead, what: str) -> None:
    """Its holder is named, and nothing changes."""
    damages._torn_record(dead)
    plan = dead.root.parent / "plan"
    run("plan", dead.root, "--save", plan)
    held = spool.lock(getattr(dead.paths, what), "queue.manager")
    try:
        for arguments in (("scan", dead.root), ("plan", dead.root), ("apply", dead.root, plan),
                          ("extract", dead.root, "--to", dead.root.parent / "out"),
                          ("rebuild", dead.root, "--from-archive", dead.paths.archive)):
            code, _, err = run(*arguments)
            assert code == 75 and "queue.manager" in err, arguments
    finally:
        held.close()
    repair(dead.root)


def test_a_plan_is_for_one_state_of_one_spool(dead: Dead) -> None:
    damages._torn_record(dead)
    plan = dead.root.parent / "plan"
    run("plan", dead.root, "--save", plan)
    pool = PoolFiles(dead.paths, dead.uuid)
    recover(dead.paths, SMALL, dead.uuid, pool, lambda _: None)  # the checkpoint moves
    pool.close()
    code, _, err = run("apply", dead.root, plan)
    assert code == 65 and "changed since" in err


def test_a_plan_is_carried_out_once(dead: Dead) -> None:
    damages._torn_record(dead)
    repair(dead.root)
    code, out, _ = run("apply", dead.root, dead.root.parent / "plan")
    assert code == 0 and "carried out before" in out


@pytest.mark.parametrize("text", ["", "{}", "{\"omqrecover\": 1}\n", "[1]\n", "\x00"])
def test_what_is_no_plan(dead: Dead, text: str) -> None:
    plan = dead.root.parent / "plan"
    plan.write_text(text)
    code, _, err = run("apply", dead.root, plan)
    assert code == 65 and "plan" in err


def test_a_newer_plan_is_refused(dead: Dead) -> None:
    plan = dead.root.parent / "plan"
    plan.write_text('{"omqrecover": 2}\n')
    assert run("apply", dead.root, plan)[0] == 78


def test_no_spool(tmp_path: Path) -> None:
    assert run("scan", tmp_path / "nothing")[0] == 66


def test_json_lines_end_with_the_verdict(dead: Dead) -> None:
    damages._torn_record(dead)
    code, out, _ = run("plan", dead.root, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 1 and lines[-1] == {"verdict": "repairable", "findings": 1, "repairable": 1}
    assert scan(dead.root)[1] == lines[:-1]
