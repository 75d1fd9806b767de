"""The console under a clock that is set: sessions go on, tokens end at their moment."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from omq.base.settings import Settings
from omq.cli.web.sessions import Sessions
from omq.cli.web.tokens import Token
from tests.host_clock import HostClock


@pytest.mark.parametrize("days", [-400, 400])
def test_no_session_follows_the_clock(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    host = HostClock(monkeypatch)
    sessions = Sessions(Settings())
    key, begun = sessions.begin("alice")
    host.step(days * 86400)
    assert sessions.find(key) is begun
    host.close()


def test_a_token_ends_at_its_moment() -> None:
    token = Token("ci", "alice", frozenset({"read"}), date(2026, 11, 25))
    assert not token.over(datetime(2026, 11, 25, 23, 59, tzinfo=UTC))
    assert token.over(datetime(2026, 11, 26, tzinfo=UTC))
    assert not token.over(datetime(2026, 11, 1, tzinfo=UTC)), "the clock was set back"
