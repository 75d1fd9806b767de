"""Which clients' last requests are remembered: nobody pushes out those of others."""

from __future__ import annotations

import pytest

from omq.core.redo.last_requests import bounded, fair_share
from omq.format.poolctrl import Answered


@pytest.mark.parametrize(("counts", "limit", "share"), [
    ([5, 1], 10, 10), ([100, 1, 2], 10, 7), ([100, 100], 10, 5), ([100], 10, 10), ([], 10, 10)])
def test_share(counts: list[int], limit: int, share: int) -> None:
    found = fair_share(dict(enumerate(counts)), limit)
    assert found == share
    assert sum(min(each, found) for each in counts) <= limit


def test_a_crowd_of_one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand newer ones of user 1; the older ones of user 0 stay."""
    mine = {token: Answered(token, 1, 0, 1, token, 0) for token in range(1, 11)}
    crowd = {token: Answered(token, 1, 0, 1, token, 1) for token in range(100, 2100)}
    kept = bounded(mine | crowd, 100)
    assert len(kept) == 100 and set(mine) <= set(kept)
    assert max(crowd) in kept and list(kept) == sorted(kept)
