"""A disk that has no room for a journal file: a reload is refused whole, a stop goes on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omq.base import events
from omq.base.errors import SpoolFull
from omq.base.settings import Settings
from omq.format.definition import Definition, Kind
from omq.ipc.server.queue_plane import QueueEnds
from omq.services.manager.parts import Parts
from omq.services.manager.queue_manager import QueueManager
from omq.storage.journal import JournalWriter
from tests.unit.engine.world import A, World, make_world


class Said:
    """An event log that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def event(self, event: Any, *_: Any, **__: Any) -> None:
        self.events.append(event)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The journal file is as good as full, and there is no other."""
    made = make_world(tmp_path / "spool")
    fill(made, monkeypatch)
    return made


def fill(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def rotate() -> None:
        raise SpoolFull(path="the spool", detail="no space left on device")

    monkeypatch.setattr(made.core.block, "rotate", rotate)
    monkeypatch.setattr(JournalWriter, "room", lambda _: 0)
    made.core.block._measure()


def test_a_reload_is_refused_whole(world: World, tmp_path: Path) -> None:
    (tmp_path / "queues.conf").write_text("[A]\nmax_depth = 7\n\n[B]\n\n[NEW]\n")
    (tmp_path / "authority.conf").write_text("")
    (tmp_path / "omq.conf").write_text("")
    said = Said()
    manager = object.__new__(QueueManager)
    manager._context = SimpleNamespace(conf_dir=tmp_path, settings=SimpleNamespace(  # type: ignore[assignment]
        body_bytes_max=1 << 20))
    manager._log = said  # type: ignore[assignment]
    manager._parts = SimpleNamespace(engine=world.engine)  # type: ignore[assignment]
    before = dict(world.core.rules)
    manager._reload()
    assert said.events == [events.RELOAD_REFUSED]
    assert world.core.rules == before
    assert world.core.rules[A].max_depth == 1000


def test_a_stop_goes_on(world: World) -> None:
    done: list[str] = []

    def note(what: str) -> Any:
        return lambda *_, **__: done.append(what)

    end = SimpleNamespace
    parts = Parts(
        world.info.paths, end(close=note("lock")), end(close=note("name")),  # type: ignore[arg-type]
        world.engine, world.writer,
        end(by_id={}, say_ended=note("told"), close_gone=note("sessions")),  # type: ignore[arg-type]
        end(close=note("server"), is_held=None),  # type: ignore[arg-type]
        end(bodies=end(stop=note("large bodies"))),  # type: ignore[arg-type]
        end(stop=note("doorkeeper")), end(queue=end(remove=note("requests"))),  # type: ignore[arg-type]
        end(remove=note("index")), end(clear_left_overs=note("listed")), end(), 1, 1,  # type: ignore[arg-type]
        new_term=False)
    world.info.paths.ids.parent.mkdir(exist_ok=True)
    world.info.paths.ids.write_text(json.dumps({}))
    assert not parts.close_in_order(world.wall, world.mono)
    assert done == ["told", "doorkeeper", "large bodies", "sessions", "server", "index",
                    "requests", "listed", "name", "lock"]
    assert not world.info.paths.ids.exists()


def test_a_temporary_queue_ends_when_there_is_room(tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client is gone, and the deletion of what is on it finds no place in the journal."""
    world, said = make_world(tmp_path / "spool"), Said()
    queues = world.engine.queues
    queues.start({}, {}, Settings(), {A: "A"}, {})
    queues.define(Definition("T", Kind.TEMPORARY, {"owner": "77"}))
    world.put(queues.number("T"))
    server = SimpleNamespace(
        sessions=SimpleNamespace(by_id={}, changed=lambda _: None, alias_changed=lambda _: None),
        engine=world.engine, stopping=False, refused=[])
    ends = QueueEnds(server, said)  # type: ignore[arg-type]
    with monkeypatch.context() as patched:
        fill(world, patched)
        ends.sweep()
        assert "T" in queues.numbers and not said.events
    world.core.block._measure()
    world.begin(2)
    ends.sweep()
    assert "T" not in queues.numbers
