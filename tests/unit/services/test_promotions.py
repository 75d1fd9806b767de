"""promotions.json: what counts of it, what is told on, and two promotions of one term."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import StandbyDiverged
from omq.base.paths import SpoolPaths
from omq.storage import promotions
from omq.storage.promotions import NAME, Promotion
from omq.storage.spool import create_spool

FIRST = Promotion(1, 100, "b", 5)
SECOND = Promotion(2, 300, "c", 9)


@pytest.fixture
def paths(tmp_path: Path) -> SpoolPaths:
    return create_spool(tmp_path / "spool").paths


def test_terms_are_noted_in_order_and_one_that_did_not_come_does_not_count(paths: SpoolPaths
                                                                          ) -> None:
    assert promotions.load(paths, 9) == ()
    promotions.note(paths, FIRST)
    promotions.note(paths, SECOND)
    assert promotions.load(paths, 2) == (FIRST, SECOND)
    assert promotions.load(paths, 1) == (FIRST,), "term 2 was cut before it was one"
    again = replace(SECOND, lsn=310)
    promotions.note(paths, again)
    assert promotions.load(paths, 2) == (FIRST, again), "a promotion that is done again"


def test_a_standby_takes_what_it_is_told(paths: SpoolPaths) -> None:
    promotions.take(paths, (), 0)
    assert not (paths.root / NAME).exists()
    promotions.take(paths, (FIRST, SECOND), 2)
    promotions.take(paths, (FIRST, SECOND), 2)
    assert promotions.load(paths, 2) == (FIRST, SECOND)


@pytest.mark.parametrize("other", [replace(FIRST, lsn=101), replace(FIRST, member="x")])
def test_two_that_were_promoted_for_one_term_are_told_apart(paths: SpoolPaths, other: Promotion
                                                            ) -> None:
    promotions.take(paths, (FIRST,), 1)
    with pytest.raises(StandbyDiverged, match="two members were promoted for term 1"):
        promotions.take(paths, (other, SECOND), 2)
    assert promotions.load(paths, 2) == (FIRST,), "nothing of it was taken"


@pytest.mark.parametrize("data", [
    b"", b"{}", b"[1]", b"[{}]", b"\xff", b"[" * 100_000, b'[{"term": 1}]',
    promotions.encode((SECOND, FIRST)), promotions.encode((FIRST, FIRST)),
    promotions.encode((replace(FIRST, member="a/b"),)),
    promotions.encode((replace(FIRST, lsn=-1),)),
    promotions.encode((replace(FIRST, lsn=1 << 63),)),
    promotions.encode((replace(FIRST, term=1 << 20),)),
    b'[{"term": true, "lsn": 1, "member": "b", "time_ns": 1}]',
    b'[{"term": 1, "lsn": 1.5, "member": "b", "time_ns": 1}]'])
def test_what_is_none_is_none(paths: SpoolPaths, data: bytes) -> None:
    if data != b"{}":  # an empty list by another name
        assert promotions.decode(data) is None
    (paths.root / NAME).write_bytes(data)
    assert promotions.load(paths, 9) == ()
