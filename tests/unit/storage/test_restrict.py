"""What is open to others is closed, once; nothing else is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omq.base.paths import SpoolPaths
from omq.storage.restrict_modes import restrict
from omq.storage.spool import create_spool


@pytest.fixture
def paths(tmp_path: Path) -> SpoolPaths:
    return create_spool(tmp_path / "spool").paths


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o7777


def test_a_new_spool_has_nothing_to_close(paths: SpoolPaths) -> None:
    done = restrict(paths)
    assert (done.files, done.directories, done.foreign) == (0, 0, [])
    assert mode(paths.root) == mode(paths.run) == 0o711
    assert mode(paths.uuid) == 0o644 and mode(paths.journal) == 0o700


def test_what_is_open_is_closed_and_counted_once(paths: SpoolPaths) -> None:
    inner = paths.data / "abcdefg"
    inner.mkdir()
    for path in (paths.journal / "x", inner / "y", paths.run / "z.lock", paths.run / "z.pid"):
        path.write_bytes(b"kept")
        path.chmod(0o664)
    for path in (paths.journal, paths.data, inner):
        path.chmod(0o2755)
    done = restrict(paths)
    assert (done.files, done.directories) == (4, 3)
    assert mode(paths.journal / "x") == mode(inner / "y") == 0o600
    assert mode(paths.run / "z.lock") == 0o600
    assert mode(paths.run / "z.pid") == 0o644, "who looks asks its lock"
    assert mode(inner) == mode(paths.data) == 0o2700
    assert (inner / "y").read_bytes() == b"kept"
    assert restrict(paths).files == 0


def test_the_spool_itself_is_opened_for_nobody(paths: SpoolPaths) -> None:
    """Its owner's own wish counts; run/ is omq's."""
    for wish, result in ((0o700, 0o700), (0o750, 0o710), (0o755, 0o711)):
        paths.root.chmod(wish)
        paths.run.chmod(0o700)
        restrict(paths)
        assert (mode(paths.root), mode(paths.run)) == (result, 0o711)


def test_links_conf_and_strange_things_are_left_alone(paths: SpoolPaths, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    outside.chmod(0o666)
    (paths.journal / "link").symlink_to(outside)
    os.mkfifo(paths.journal / "pipe", 0o666)
    (paths.journal / "pipe").chmod(0o666)
    paths.journal.chmod(0o750)
    paths.conf.mkdir()
    mine = paths.root / "mine"
    mine.mkdir()
    for folder in (paths.conf, mine):
        folder.chmod(0o755)
        (folder / "file").write_bytes(b"")
        (folder / "file").chmod(0o644)
    restrict(paths)
    assert mode(outside) == 0o666 and mode(paths.journal / "pipe") == 0o666
    assert mode(paths.conf) == mode(mine) == 0o755 and mode(mine / "file") == 0o644
    assert mode(paths.journal) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a file of somebody else")
def test_files_of_others_are_named(paths: SpoolPaths) -> None:
    strange = paths.store / "strange"
    strange.write_bytes(b"")
    os.chown(strange, 64010, 64010)
    paths.store.chmod(0o750)
    done = restrict(paths)
    assert done.foreign == [strange] and str(paths.root) in done.command(paths)
