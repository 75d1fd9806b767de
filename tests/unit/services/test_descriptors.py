"""The limit of open files: raised, or fewer clients, or a clear word."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from omq.base.errors import TooFewDescriptors
from omq.base.event_log import EventLog
from omq.base.settings import DEFAULTS
from omq.ipc.server.admission import descriptors_needed
from omq.services.manager import descriptors
from omq.services.manager.descriptors import raise_limit
from omq.services.supervise.unit_files import UnitValues, render_all

SETTINGS = replace(DEFAULTS, clients_max=100, callers_max=8)
NEEDED = descriptors_needed(100, 8)


class Log:
    def __init__(self) -> None:
        self.told: list[tuple[int, Any]] = []

    def event(self, event: Any, level: Any, /, **fields: Any) -> None:
        self.told.append((event.number, fields["clients_max"]))


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Soft, hard, and whether the hard one may be raised."""
    found = [0, 0, 0]

    def set_limit(_: int, wanted: tuple[int, int]) -> None:
        if wanted[1] > found[1] and not found[2]:
            raise PermissionError
        found[:2] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(found[:2]))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    return found


@pytest.mark.parametrize(("soft", "hard", "root", "clients", "then"), [
    (NEEDED, NEEDED, 0, 100, NEEDED), (1, NEEDED, 0, 100, NEEDED),
    (1, NEEDED - 100, 1, 100, NEEDED), (1, NEEDED - 100, 0, 75, NEEDED - 100),
    (NEEDED - 100, NEEDED - 100, 0, 75, NEEDED - 100),
    (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 0, 100, resource.RLIM_INFINITY)])
def test_clients(limits: list[int], soft: int, hard: int, root: int, clients: int, then: int
                 ) -> None:
    limits[:] = soft, hard, root
    log = Log()
    assert raise_limit(SETTINGS, cast(EventLog, log)) == clients
    assert limits[0] == then
    assert log.told == ([] if clients == 100 else [(1256, clients)])


def test_no_room_at_all(limits: list[int]) -> None:
    limits[:] = 64, 64, 0
    with pytest.raises(TooFewDescriptors, match="LimitNOFILE"):
        raise_limit(SETTINGS, cast(EventLog, Log()))


def test_asking_is_forbidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SystemCallFilter=~@resources: prlimit64 serves getrlimit too."""

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(resource, "getrlimit", refuse)
    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(descriptors, "LIMITS", tmp_path / "limits")
    (tmp_path / "limits").write_text(
        "Max processes             95979                95979                processes\n"
        f"Max open files            {NEEDED - 2}                unlimited            files\n")
    assert descriptors.found() == (NEEDED - 2, resource.RLIM_INFINITY)
    assert raise_limit(SETTINGS, cast(EventLog, Log())) == 99


def test_the_unit_has_the_limit() -> None:
    """`omq setup` derives it from clients_max; within the unit nothing can raise it."""
    values = UnitValues(None, "omq", "omq", Path("/usr/bin/python3"), (), Path("/var/lib/omq"),
                        Path("/etc/omq"), NEEDED)
    units = render_all(values)
    (text,) = [text for path, text in units.items() if "queue-manager" in path.name]
    assert f"\nLimitNOFILE={NEEDED}\n" in text
