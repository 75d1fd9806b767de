"""The Item Delete Daemon removes containers and is content with what is gone already."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from omq.base.event_log import TRACE, EventLog
from omq.base.paths import SpoolPaths
from omq.base.services_conf import ServiceConf, ServiceKind
from omq.base.settings import DEFAULTS
from omq.services.readers.idel_server import IdelService
from omq.services.readers.service import Done, Fail, Message, ServiceContext
from omq.storage import containers, durable, quarantine
from omq.storage.spool import create_spool
from tests.unit.storage.world import FaultyDisk


@dataclass
class Finished:
    container: Path | None
    message_id: str = "00"
    attempts: int = 0
    qpool_id: int = 7
    size: int = 5


def message(path: Path | None, attempts: int = 0) -> Message:
    return cast(Message, cast(Any, Finished(path, attempts=attempts)))


@pytest.fixture
def service(tmp_path: Path) -> IdelService:
    create_spool(tmp_path / "spool")
    paths = SpoolPaths(tmp_path / "spool")
    conf = ServiceConf("idel", "", 102, ServiceKind.DELETER, "idel.server", queue="IDEL")
    log = EventLog("idel.server", paths.event_log, level=TRACE, stderr=False)
    service = IdelService(ServiceContext(DEFAULTS, paths, conf, tmp_path, log, is_main=True))
    service.open()
    return service


def test_container_goes_with_its_directory_and_once(service: IdelService) -> None:
    paths = service.context.paths
    reference, _size, _crc = containers.create(paths, [b"large"])
    path = paths.root / containers.relative_path(reference)
    assert path.read_bytes() == b"large"
    assert service.handle(message(path)) == Done()
    assert not path.parent.exists()
    assert service.handle(message(path)) == Done()
    service.idle()
    service.close()
    service.context.log.close()
    text = paths.event_log.read_text()
    assert [number for number in (1501, 1502, 1503, 1504) if f'"event": {number}' in text] == [
        1501, 1502, 1503, 1504,
    ]  # fmt: skip


def test_message_without_a_container(service: IdelService) -> None:
    assert service.handle(message(None)) == Done()
    service.context.log.close()


def test_a_path_outside_the_spool_is_refused(service: IdelService, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    with pytest.raises(ValueError, match="outside"):
        service.handle(message(outside))
    assert outside.exists()
    service.context.log.close()


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    faulty = FaultyDisk()
    before = durable.use(faulty)
    yield faulty
    durable.use(before)


def container(service: IdelService) -> Path:
    reference, _size, _crc = containers.create(service.context.paths, [b"large"])
    return service.context.paths.root / containers.relative_path(reference)


def events(service: IdelService, number: int) -> list[dict[str, Any]]:
    lines = service.context.paths.event_log.read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["event"] == number]


LAST = DEFAULTS.idel_attempts_max - 1


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EIO, errno.EROFS])
def test_what_cannot_be_deleted_is_set_aside_after_its_attempts(
        service: IdelService, disk: FaultyDisk, number: int) -> None:
    """EPERM is what an immutable file gives. The message fails (and waits on IDEL) until then; the
    container stays where it is, for whoever removes the cause, and is no longer a message's."""
    path, other = container(service), container(service)
    disk.failures["unlink"] = number
    for attempt in range(LAST):
        assert isinstance(service.handle(message(path, attempt)), Fail)
    assert not events(service, 1269)
    assert not service.context.paths.quarantine.exists() or not list(
        service.context.paths.quarantine.iterdir())
    assert service.handle(message(path, LAST)) == Done()
    (told,) = events(service, 1269)
    relative = path.relative_to(service.context.paths.root).as_posix()
    assert told["path"] == str(path)
    assert told["command"] == "omscan --remove"
    (note,) = service.context.paths.quarantine.glob("*.json")
    assert json.loads(note.read_text())["file"] == relative
    assert json.loads(note.read_text())["reason"] == told["reason"]
    assert path.exists()
    del disk.failures["unlink"]
    assert service.handle(message(other)) == Done(), "the rest of IDEL goes on"
    assert not other.exists()
    service.context.log.close()


def test_a_removal_that_cannot_be_synced_stops_nobody(service: IdelService, disk: FaultyDisk
                                                      ) -> None:
    """A container that a power cut brings back is an orphan; no durable step depends on it."""
    path, other = container(service), container(service)
    disk.failures["dirsync"] = errno.EIO
    assert isinstance(service.handle(message(path)), Fail)
    assert durable.latched() is None
    del disk.failures["dirsync"]
    assert service.handle(message(other)) == Done()
    assert service.handle(message(path, 1)) == Done(), "it is gone"
    service.context.log.close()


def test_without_room_for_the_note_it_stays_on_idel(
        service: IdelService, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a full quarantine nor a full disk forgets a container; said once, not each hour."""
    path = container(service)
    disk.failures["unlink"] = errno.EACCES
    monkeypatch.setattr(quarantine, "PIECES_MAX", 0)
    assert isinstance(service.handle(message(path, LAST)), Fail)
    monkeypatch.undo()
    disk.failures["create"] = errno.ENOSPC
    assert isinstance(service.handle(message(path, LAST + 1)), Fail)
    assert not events(service, 1269)
    del disk.failures["create"]
    assert service.handle(message(path, LAST + 2)) == Done(), "there is room by now"
    service.context.log.close()


def test_how_many_attempts_is_a_setting(service: IdelService, disk: FaultyDisk) -> None:
    service.context = replace(service.context, settings=replace(DEFAULTS, idel_attempts_max=3))
    path = container(service)
    disk.failures["unlink"] = errno.EACCES
    assert isinstance(service.handle(message(path, 1)), Fail)
    assert service.handle(message(path, 2)) == Done()
    service.context.log.close()
