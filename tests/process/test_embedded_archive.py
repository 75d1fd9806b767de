"""`omrc --embedded` archives by itself: retired journal files become archive files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from omq.base import events
from omq.base.paths import SpoolPaths
from omq.storage.archive import FRAMES_SUFFIX
from omq.storage.journal import numbers_in
from tests.process.instance import CORE_SERVICES
from tests.process.ipc_space import ipc_space
from tests.process.operator_world import Instance
from tests.waiting import until

SETTINGS = ("[index]\nmessages_max = 20000\nqueue_entries_max = 25000\n"
            "[journal]\njournal_file_bytes = 1 MiB\nblock_bytes_max = 512 KiB\n"
            "journal_files_kept = 0\n[archive]\narchive_interval_s = 1\n"
            "[pool]\ncheckpoint_interval_s = 1\n[store]\ndisk_reserve_bytes = 0\n")


def test_an_embedded_instance_archives(tmp_path: Path) -> None:
    instance = object.__new__(Instance)
    instance.root, instance.conf = tmp_path / "spool", tmp_path / "conf"
    instance.paths, instance.manager = SpoolPaths(instance.root), None
    instance.conf.mkdir()
    (instance.conf / "queues.conf").write_text("[*]\n\n[A]\n")
    (instance.conf / "services.conf").write_text(CORE_SERVICES)
    (instance.conf / "omq.conf").write_text(SETTINGS)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OMQ_")}
    with ipc_space(), (tmp_path / "output").open("wb") as output:
        omrc = subprocess.Popen(
            [sys.executable, "-P", "-m", "omq.cli.launch", "omrc", "--embedded",
             *instance.arguments], env=environment, stderr=output, stdout=output)
        try:
            until(lambda: f'"event": {events.MANAGER_READY.number}' in _log(instance))
            _archived(instance)
            assert instance.run("omshut").code == 0
            assert omrc.wait(120) == 0
        finally:
            omrc.terminate()
            omrc.wait(120)
    assert f'"event": {events.JOURNAL_ARCHIVED.number}' in _log(instance)
    assert f'"event": {events.FAILED.number}' not in _log(instance)


def _archived(instance: Instance) -> None:
    body = os.urandom(50_000)
    with instance.connect() as c, c.reader("A", batch=20) as reader:
        def once() -> bool:
            c.put_many("A", [body] * 20)
            for message in reader.next(timeout_s=60):
                message.done()
            return len(numbers_in(instance.paths.archive, FRAMES_SUFFIX)) >= 2

        until(once)


def _log(instance: Instance) -> str:
    log = instance.paths.event_log
    return log.read_text() if log.exists() else ""
