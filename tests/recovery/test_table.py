"""The decision table: total, without overlap, and the same in RECOVERY.md."""

from __future__ import annotations

import pytest

from omq.core.judge.cases import (
    TABLE,
    Action,
    Case,
    Place,
    Source,
    Verdict,
    combinations,
    decide,
    table_lines,
)
from omq.storage.instance_file import Role
from omqtools.omqrecover.apply import BEHIND, LAST, ON, ORDER, RECORDS
from omqtools.omqrecover.render import finding_lines
from omqtools.omqrecover.repairs import REPAIRS
from tests.tidy.tree import ROOT


def test_every_combination_has_exactly_one_row() -> None:
    assert len(list(combinations())) >= len(Case) * len(Source)
    for case, source, place in combinations():
        rows = [row for row in TABLE if row.covers(case, source, place)]
        assert rows == [decide(case, source, place)], (case, source, place)


def test_no_row_is_out_of_use() -> None:
    used = {decide(*each) for each in combinations()}
    assert used == set(TABLE)
    assert {row.action for row in TABLE} == set(Action)


def test_apply_knows_every_action_once() -> None:
    listed = [*ORDER, *RECORDS, *ON, *LAST, *BEHIND, Action.REFUSE]
    assert sorted(action.name for action in listed) == sorted(action.name for action in Action)
    assert set(REPAIRS) == set(ORDER)


def test_what_loses_nothing_is_never_said_to_lose() -> None:
    """Where history has everything, only a body that never was in it can be lost."""
    lossy = {row.case for row in TABLE for source in (Source.WHOLE,)
             if row.verdict is Verdict.LOSS and row.covers(row.case, source, Place.FREE)}
    assert lossy == {Case.CONTROL_FOREIGN, Case.CONTAINER_DAMAGED}


def test_recovery_md_has_the_table() -> None:
    text = (ROOT / "lib/omq/docs/RECOVERY.md").read_text(encoding="utf-8")
    assert "\n".join(table_lines()) in text, "\n".join(table_lines())


@pytest.mark.parametrize(("role", "word"), [
    (Role.PRIMARY, "start the instance"), (Role.STANDBY, "standby follow"),
    (Role.FORMER, "no queue manager starts")])
def test_a_clean_spool_is_started_where_a_start_is_not_refused(role: Role, word: str) -> None:
    (line,) = finding_lines([], role)
    assert line.startswith("clean: ") and word in line
    assert ("start the instance" in line) == (role is Role.PRIMARY)
