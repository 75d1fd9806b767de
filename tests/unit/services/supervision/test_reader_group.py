"""How many readers a service has after its number of auxiliaries was changed."""

from __future__ import annotations

import selectors
from pathlib import Path

import pytest

from omq.base.event_log import EventLog
from omq.services.daemon.restart_backoff import Backoff
from omq.services.readers.group import ReaderGroup


@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("after", range(6))
def test_resize_gives_as_many_as_wanted(tmp_path: Path, before: int, after: int) -> None:
    log = EventLog("test", tmp_path / "log", stderr=False)
    with selectors.DefaultSelector() as selector:
        group = ReaderGroup("local", selector, log, target=lambda is_main, ready: 0,
                            backoff=lambda: Backoff(1, 1))
        group.resize(before)
        had = list(group.readers)
        group.resize(after)
    log.close()
    names = ["local", *(f"local.{number}" for number in range(1, after + 1))]
    assert [reader.name for reader in group.readers] == names
    assert group.readers[: 1 + min(before, after)] == had[: 1 + after], "those that stay, stay"
    assert all(reader.wanted for reader in group.readers)
