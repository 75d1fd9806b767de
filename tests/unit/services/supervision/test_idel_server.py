"""The Item Delete Daemon removes containers and is content with what is gone already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from omq.base.event_log import TRACE, EventLog
from omq.base.paths import SpoolPaths
from omq.base.services_conf import ServiceConf, ServiceKind
from omq.base.settings import DEFAULTS
from omq.services.readers.idel_server import IdelService
from omq.services.readers.service import Done, Message, ServiceContext
from omq.storage import containers
from omq.storage.spool import create_spool


@dataclass
class Finished:
    path: Path | None
    message_id: str = "00"


def message(path: Path | None) -> Message:
    return cast(Message, cast(Any, Finished(path)))


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
