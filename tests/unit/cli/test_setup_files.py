"""The files of omq setup: told apart, written all or none; services.conf changed by one line."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from omq.base.errors import BadRequest, ConfigError, FileInTheWay, FileNotWritten
from omq.base.paths import shipped_conf
from omq.base.services_conf import load_services
from omq.cli.operate.services_edit import set_key, with_key
from omq.cli.setup import setup_files
from omq.cli.setup.setup_files import Found, Planned, judge, stamped

OLD = stamped("old\n")
NEW = stamped("new\n")


def _found(path: Path) -> Found:
    return judge(path, NEW).found


def test_what_lies_there_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "unit"
    assert _found(path) is Found.NOTHING
    for data, found in ((NEW, Found.SAME), (OLD, Found.OURS), (OLD + b"edit\n", Found.EDITED),
                        (b"[Unit]\n", Found.FOREIGN), (b"", Found.FOREIGN)):
        path.write_bytes(data)
        assert _found(path) is found
    path.write_bytes(NEW.replace(b"setup ", b"setup 0.0.1+", 1))  # the stamp of another version
    assert _found(path) is Found.OURS
    path.unlink()
    path.symlink_to("/dev/null")  # masked
    assert _found(path) is Found.FOREIGN


def test_strangers_are_refused_before_anything(tmp_path: Path) -> None:
    for data in (OLD + b"edit\n", b"theirs\n"):
        (tmp_path / "b").write_bytes(data)
        with pytest.raises(FileInTheWay, match=r"/b "):
            setup_files.refuse_strangers([judge(tmp_path / "a", NEW), judge(tmp_path / "b", NEW)])


def _world(root: Path) -> dict[str, bytes | str]:
    return {str(path.relative_to(root)): os.readlink(path) if path.is_symlink()
            else path.read_bytes() if path.is_file() else ""
            for path in root.rglob("*")}


def _plan(root: Path) -> list[Planned]:
    (root / "ours").write_bytes(OLD)
    (root / "edited").write_bytes(b"by hand\n")  # with --force
    (root / "same").write_bytes(NEW)
    (root / "link").symlink_to("/elsewhere/link")
    return [judge(root / name, NEW) for name in ("ours", "edited", "same", "none", "deep/none")]


def _install(root: Path, plan: list[Planned], undo: ExitStack) -> None:
    setup_files.write_all(plan, undo)
    links = [(root / "link", Path("/opt/link")), (root / "other", Path("/opt/other"))]
    setup_files.link_all(links, undo)
    setup_files.forget_new_folders([root / "spool", root / "spool/run", root / "used"], undo)
    (root / "spool/run").mkdir(parents=True)
    (root / "used").mkdir()
    (root / "used/file").write_bytes(b"somebody's")


def test_all_is_taken_back_but_what_others_put_there(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    before = _world(tmp_path)
    with ExitStack() as undo:
        _install(tmp_path, plan, undo)
        assert all(each.path.read_bytes() == NEW for each in plan)
        assert (tmp_path / "link").readlink() == Path("/opt/link")
        assert (tmp_path / "other").readlink() == Path("/opt/other")
    assert _world(tmp_path) == before | {"deep": "", "used": "", "used/file": b"somebody's"}


def test_what_is_not_taken_back_stays(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    with ExitStack() as undo:
        _install(tmp_path, plan, undo)
        undo.pop_all()
    assert all(each.path.read_bytes() == NEW for each in plan)
    assert (tmp_path / "spool/run").is_dir()


def test_a_write_that_fails_takes_back_those_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    plan = [judge(tmp_path / "a", NEW), Planned(tmp_path / "file/b", NEW, None, Found.NOTHING)]
    with pytest.raises(FileNotWritten, match="file/b"), ExitStack() as undo:
        setup_files.write_all(plan, undo)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_removal_keeps_what_was_edited(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    assert setup_files.remove(plan, force=False) == (
        [tmp_path / "ours", tmp_path / "same"], [tmp_path / "edited"])
    assert (tmp_path / "edited").exists()
    removed, kept = setup_files.remove([judge(each.path, NEW) for each in plan], force=True)
    assert (removed, kept) == ([tmp_path / "edited"], [])


SERVICES = """\
# mine
[router]
title = Service Router
auxiliaries=1 # of them
[ local ]
# auxiliaries = 9

[unix]
auxiliaries = 4"""


@pytest.mark.parametrize(("section", "old", "new"), [
    ("router", "auxiliaries=1 # of them", "auxiliaries = 7"),
    ("local", "[ local ]", "[ local ]\nauxiliaries = 7"),
    ("unix", "auxiliaries = 4", "auxiliaries = 7"),
])
def test_one_line_changes(section: str, old: str, new: str) -> None:
    assert with_key(SERVICES, section, "auxiliaries", "7") == SERVICES.replace(old, new)


def test_the_file_keeps_its_mode_and_a_missing_one_is_the_shipped_one(tmp_path: Path) -> None:
    path = tmp_path / "services.conf"
    set_key(tmp_path, "router", "auxiliaries", "3")
    shipped = (shipped_conf() / "services.conf").read_text()
    assert set(path.read_text().splitlines()) - set(shipped.splitlines()) == {"auxiliaries = 3"}
    path.chmod(0o640)
    set_key(tmp_path, "router", "auxiliaries", "5")
    assert path.stat().st_mode & 0o777 == 0o640
    assert load_services(tmp_path)["router"].auxiliaries == 5
    assert [each.name for each in tmp_path.iterdir()] == ["services.conf"]


def test_the_shipped_file_and_one_with_a_mistake_stay(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="is not changed"):
        set_key(shipped_conf(), "router", "auxiliaries", "3")
    (tmp_path / "services.conf").write_text("[router]\nauxiliaries = many\n")
    with pytest.raises(ConfigError):
        set_key(tmp_path, "router", "auxiliaries", "3")
    assert (tmp_path / "services.conf").read_text() == "[router]\nauxiliaries = many\n"
