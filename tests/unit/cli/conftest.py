"""Fixtures of the tests of tools that send and read."""

from __future__ import annotations

import pytest

import omq
from tests.unit.cli.fakes import FakeConnection


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> FakeConnection:
    """What omq.connect gives."""
    connection = FakeConnection()
    monkeypatch.setattr(omq, "connect", connection.connect)
    return connection
