"""Disk errors and a full disk under running daemons.

EIO comes from the fault points. After a failed sync the manager must end at once: the kernel has
marked the pages clean, a second sync would say "ok" for bytes that are gone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import Exit, SpoolFull
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, WRITER, Instance, instance
from tests.process.load import Load
from tests.process.small_disk import mounted
from tests.waiting import pause, until

MANAGERS = ["journal.before_write", "journal.after_write", "journal.before_sync",
            "journal.after_sync"]
RESERVE = 8 << 20
WRITERS = ["pool.before_sync", "poolctrl.before_sync"]


@pytest.mark.parametrize("point", MANAGERS)
def test_the_manager_ends_at_the_first_disk_error(omq_instance: Instance, tmp_path: Path,
                                                  point: str) -> None:
    load = Load(omq_instance, tmp_path)
    victim = omq_instance.start(WRITER, MANAGER, fault=f"{point}:eio:80")
    clients = load.until_dead(victim)
    load.deaths.say({"op": "death"})
    assert victim.wait() == Exit.IO
    assert len(omq_instance.fired()) == 1
    tomb = omq_instance.paths.tombstone.read_text()
    assert "Cause:" in tomb and "Stack:" in tomb and "groups = " in tomb
    requests = tomb[tomb.index("Last requests") : tomb.index("Counters:")].splitlines()[1:]
    assert any("(pid " in line and ", request " in line for line in requests), requests
    assert any("question register by" in line for line in requests)
    sections = [line for line in tomb.splitlines() if line.startswith("====")]
    assert sections == ["====Active Messages====", "====End Active=====", "====Known messages====",
                        "====END Messages====", "==== Queues =====", "====Queue Readers====",
                        "=====End Readers====="]
    assert "Queue Name=A" in tomb and "the dump ends here" not in tomb
    (died,) = omq_instance.events(1204)
    assert "failed" in died["reason"]
    omq_instance.start()
    load.join(clients)
    assert load.verdict().faults == {}


@pytest.mark.parametrize("point", WRITERS)
def test_pool_writer_ends_at_the_first_disk_error(omq_instance: Instance, tmp_path: Path,
                                                  point: str) -> None:
    load = Load(omq_instance, tmp_path)
    omq_instance.settings(checkpoint_journal_bytes_max=1 << 16)
    omq_instance.start(MANAGER)
    victim = omq_instance.start(WRITER, fault=f"{point}:eio:1")
    clients = load.until_dead(victim)
    assert victim.wait() == Exit.IO
    load.join(clients)
    omq_instance.start(WRITER)
    assert load.verdict().faults == {}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", 24) as root:
        yield root


def test_a_full_disk_refuses_puts_and_takes_done(small_disk: Path) -> None:
    """Nothing acknowledged is lost; with space again, puts go on."""
    with instance(small_disk) as made:
        made.settings(disk_reserve_bytes=RESERVE, archive="keep", journal_files_kept=0)
        made.start(MANAGER, WRITER)
        made.ready()
        filler = small_disk / "filler"
        with made.connect() as c:
            kept = [c.put("A", b"%d" % i + bytes(20_000)) for i in range(50)]
            found = os.statvfs(small_disk)
            free = found.f_bavail * found.f_frsize
            filler.write_bytes(bytes(free - (RESERVE * 3 // 4)))
            with pytest.raises(SpoolFull) as refused:
                for _ in range(1000):
                    kept.append(c.put("A", bytes(20_000)))
            assert refused.value.exit_code == Exit.TEMPORARY
            with c.reader("A", batch=10) as reader:
                first = reader.next(timeout_s=120)
                for message in first:
                    message.done()
                reader.flush()
                assert reader.lost == 0
        filler.unlink()
        left = made.drain("A")
        assert len(left) == len(kept) - len(first)
        with made.connect() as c:
            deadline = time.monotonic() + 120
            while True:  # the manager looks for free space from time to time
                try:
                    c.put("A", b"again")
                    break
                except SpoolFull:
                    assert time.monotonic() < deadline
                    pause()
        assert [m.body for m in made.drain("A")] == [b"again"]


@pytest.mark.parametrize(("size", "together", "batch"), [(20_000, 1, 10), (10, 100, 100)])
def test_what_is_taken_from_a_full_disk_gives_its_space_back(small_disk: Path, size: int,
                                                             together: int, batch: int) -> None:
    """With a reserve of one journal file, which is too small: the next file took the last bytes,
    no checkpoint could be written then, and taking all of it changed nothing."""
    with instance(small_disk) as made:
        made.settings(disk_reserve_bytes=1 << 20)
        made.start(MANAGER, WRITER)
        made.ready()
        with made.connect() as c:
            left = _fill(c, size, together)
            with c.reader("A", batch=batch) as reader:
                while left > 0:
                    taken = reader.next(timeout_s=120)
                    assert taken
                    for message in taken:
                        message.done()
                    reader.flush()
                    left -= len(taken)
        assert not made.events(1441)
        until(lambda: _free(small_disk) > 8 << 20, lambda: str(_free(small_disk)))


def _fill(c: Client, size: int, together: int) -> int:
    """Put until nothing more is taken; how many there are."""
    count, deadline = 0, time.monotonic() + 120
    while True:
        try:
            with c.unit() as unit:
                for _ in range(together):
                    unit.put("A", os.urandom(size))
            count += together
        except SpoolFull:
            if count:
                return count
            assert time.monotonic() < deadline, "the manager looks for free space each second"
            pause()


def _free(root: Path) -> int:
    found = os.statvfs(root)
    return found.f_bavail * found.f_frsize


def test_an_instance_does_not_begin_on_a_disk_that_never_takes_a_message(small_disk: Path) -> None:
    """It says from where on it does. One with messages starts on any disk."""
    with instance(small_disk) as made:
        made.settings(disk_reserve_bytes=1, journal_file_bytes=6 << 20)
        refused = made.start(MANAGER)
        assert refused.wait() == Exit.CONFIG
        (said,) = made.events(1006)
        assert "set journal_file_bytes to 5.0 MiB or less" in said["reason"]
        made.settings(disk_reserve_bytes=1, journal_file_bytes=4 << 20)
        made.start(MANAGER, WRITER)
        made.ready()
        with made.connect() as c:
            c.put("A", b"1")
        made.stop()
        made.settings(disk_reserve_bytes=1, journal_file_bytes=6 << 20)
        made.start(MANAGER, WRITER)
        assert [message.body for message in made.drain("A")] == [b"1"]


def test_a_manager_that_a_fatal_signal_ended_has_a_tombstone_too(omq_instance: Instance) -> None:
    """It can write its stack alone; the next one makes the tombstone of it and of its segment."""
    omq_instance.start()
    omq_instance.ready()
    with omq_instance.connect() as c:
        c.put("A", b"found in the dump")
    dead = omq_instance.children[MANAGER]
    dead.signal(signal.SIGABRT)
    assert dead.wait() == -signal.SIGABRT
    assert not omq_instance.paths.tombstone.exists()
    omq_instance.start()
    omq_instance.ready()
    tomb = omq_instance.paths.tombstone.read_text()
    assert tomb.splitlines()[0].endswith(f", pid {dead.pid}")
    assert "Cause: a fatal signal: Fatal Python error: Aborted" in tomb
    assert "queue_manager.py" in tomb and "====Known messages====" in tomb
    omq_instance.drain("A")
