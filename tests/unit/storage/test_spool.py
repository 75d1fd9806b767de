"""A spool is made whole, opened only when it is ours to use, and locked once."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from omq.base import fault, side_files
from omq.base.errors import (
    DiskError,
    NeedsRepair,
    NewerFormat,
    SpoolLocked,
    SpoolMissing,
    SpoolOwner,
)
from omq.storage import durable
from omq.storage.disk import Buffer, Disk
from omq.storage.files import create_file
from omq.storage.spool import SpoolInfo, create_spool, lock, open_spool
from tests.unit.storage.world import use_faulty


def test_create_is_idempotent(tmp_path: Path) -> None:
    made = create_spool(tmp_path / "spool")
    assert len(made.uuid) == 16 and made.uuid != create_spool(tmp_path / "other").uuid
    assert create_spool(tmp_path / "spool") == made == open_spool(tmp_path / "spool", writer=True)
    for directory in made.paths.directories():
        open_to_others = 0o011 if directory.name in ("spool", "run") else 0
        assert directory.is_dir() and directory.stat().st_mode & 0o077 == open_to_others


def test_a_cut_creation_is_completed(tmp_path: Path) -> None:
    fault.arm("durable.before_rename:eio:1")
    with pytest.raises(DiskError):
        create_spool(tmp_path / "spool")
    fault.arm("")
    durable.use(Disk())
    with pytest.raises(SpoolMissing):
        open_spool(tmp_path / "spool")
    assert create_spool(tmp_path / "spool").paths.journal.is_dir()


def test_a_daemon_makes_the_name_of_the_instance_file_durable(info: SpoolInfo) -> None:
    """Who made it may have been killed before: after a power cut there would be no spool here."""
    disk = use_faulty()
    open_spool(info.paths.root, writer=True)
    assert disk.calls == [f"dirsync {info.paths.root.name}"]
    open_spool(info.paths.root)
    assert len(disk.calls) == 1


def test_lost_run_directory_is_made_again(info: SpoolInfo) -> None:
    info.paths.run.rmdir()
    create_spool(info.paths.root)
    assert info.paths.run.is_dir()


def test_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "file"):
        with pytest.raises(SpoolMissing):
            open_spool(path)


@pytest.mark.parametrize("mode", [0o770, 0o752])
def test_others_must_not_write(info: SpoolInfo, mode: int) -> None:
    info.paths.root.chmod(mode)
    with pytest.raises(SpoolOwner) as caught:
        open_spool(info.paths.root)
    assert caught.value.fields["mode"] == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the owner needs root")
def test_a_daemon_owns_its_spool(info: SpoolInfo) -> None:
    os.chown(info.paths.root, 12345, -1)
    with pytest.raises(SpoolOwner):
        open_spool(info.paths.root, writer=True)
    assert open_spool(info.paths.root) == info


@pytest.mark.parametrize(("text", "error"), [
    ("", NeedsRepair), ("[]", NeedsRepair), ("{}", NeedsRepair), ("[" * 4000, NeedsRepair),
    ('{"format": 1, "uuid": "00"}', NeedsRepair), ('{"format": 1, "uuid": 7}', NeedsRepair),
    ('{"format": 0, "uuid": "%s"}' % ("0" * 32), NeedsRepair),
    ('{"format": "1", "uuid": "%s"}' % ("0" * 32), NeedsRepair),
    ('{"format": true, "uuid": "%s"}' % ("0" * 32), NeedsRepair),
    ('{"format": 1, "uuid": "\x1b[2J"}', NeedsRepair), ("\0" * 70, NeedsRepair),
    ('{"format": 3, "uuid": "%s"}' % ("0" * 32), NewerFormat)])
def test_a_wrong_instance_file(info: SpoolInfo, text: str, error: type[Exception]) -> None:
    info.paths.uuid.write_text(text)
    with pytest.raises(error) as caught:
        open_spool(info.paths.root)
    assert "\x1b" not in str(caught.value)
    if error is NeedsRepair:
        assert f"run: omqrecover identity {info.paths.root}" in str(caught.value)
        assert str(info.paths.uuid) in str(caught.value)


def test_a_spool_without_its_instance_file_is_no_new_one(info: SpoolInfo) -> None:
    info.paths.uuid.unlink()
    with pytest.raises(SpoolMissing):
        open_spool(info.paths.root)
    (info.paths.journal / "0000000001.jnl").touch()
    for act in (open_spool, create_spool):
        with pytest.raises(NeedsRepair, match="omqrecover identity"):
            act(info.paths.root)
    assert not info.paths.uuid.exists()


def test_the_instance_file_is_plain(info: SpoolInfo) -> None:
    assert json.loads(info.paths.uuid.read_text()) == {"format": 1, "uuid": info.uuid.hex()}


def _hold(path: Path, ready: object, done: object) -> None:
    lock(path, "queue.manager")
    ready.set()  # type: ignore[attr-defined]
    done.wait(120)  # type: ignore[attr-defined]


def test_a_lock_names_its_holder_and_ends_with_it(info: SpoolInfo) -> None:
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    path = info.paths.manager_lock
    holder = context.Process(target=_hold, args=(path, ready, done))
    holder.start()
    assert ready.wait(120)
    with pytest.raises(SpoolLocked) as caught:
        lock(path, "omqrecover")
    assert caught.value.fields["pid"] == str(holder.pid)
    assert caught.value.fields["what"] == "queue.manager"
    done.set()
    holder.join()
    lock(path, "omqrecover").close()


class _NoRoom(Disk):
    """Refuses what is written in place."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_text_of_a_lock_that_was_let_go_is_written_nowhere(
        info: SpoolInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was refused, and is owed; the descriptor is another file's when it is made up for."""
    monkeypatch.setattr(side_files, "RETRY_S", 0.0)
    before = side_files.use(side_files.Calls())
    try:
        durable.use(_NoRoom())
        held = lock(info.paths.checkpoint_lock, "pool.writer")
        durable.use(Disk())
        assert side_files.wait_s() is not None, "its text is owed"
        number = held.fd
        held.close()
        with (tmp_path / "journal").open("w+b") as journal:
            if journal.fileno() != number:  # another one was free as well
                os.dup2(journal.fileno(), number)
            journal.write(b"of a journal")
            journal.flush()
            side_files.retry()
            journal.seek(0)
            assert journal.read() == b"of a journal"
            if journal.fileno() != number:
                os.close(number)
        assert side_files.wait_s() is None
    finally:
        side_files.use(before)


def test_a_closed_file_writes_nowhere(tmp_path: Path) -> None:
    """Not into the file that has its number now."""
    one = create_file(tmp_path / "one")
    number = one.fd
    one.close()
    other = create_file(tmp_path / "other")
    if other.fd != number:
        os.dup2(other.fd, number)
    with pytest.raises(DiskError):
        one.write([b"of the one"], 0)
    durable.use(Disk())
    with pytest.raises(OSError, match="Bad file descriptor"):
        one.close()
    assert other.read(10, 0) == b""
    if other.fd != number:
        os.close(number)
    other.close()


def test_a_lock_is_no_link(info: SpoolInfo) -> None:
    info.paths.manager_lock.symlink_to(info.paths.uuid)
    with pytest.raises(DiskError):
        lock(info.paths.manager_lock, "queue.manager")
