"""The layout of a spool and the choice of spool and conf directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base import paths
from omq.base.errors import BadName, BadRequest, SpoolMissing


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMQ_SPOOL", raising=False)
    monkeypatch.delenv("OMQ_CONF", raising=False)


def test_everything_lies_in_the_spool() -> None:
    spool = paths.SpoolPaths(Path("/s"))
    assert spool.socket == Path("/s/run/qmgr.sock")
    assert spool.manager_lock == Path("/s/run/manager.lock")
    assert spool.pool_lock == Path("/s/msgpool/lock")
    assert spool.ids == Path("/s/run/ids.json")
    assert spool.tombstone == Path("/s/logs/qmgr.tomb")
    assert spool.event_log == Path("/s/logs/events.log")
    assert spool.uuid == Path("/s/instance.json")
    assert spool.pid_file("router") == Path("/s/run/router.pid")
    directories = spool.directories()
    assert directories[0] == spool.root
    assert len(set(directories)) == len(directories) == 11
    assert all(directory.parent == spool.root for directory in directories[1:])


def test_spool_of_an_instance() -> None:
    assert paths.chosen_spool(None, None) == Path("/var/lib/omq")
    assert paths.chosen_spool(None, "test-2") == Path("/var/lib/omq-test-2")
    with pytest.raises(BadName):
        paths.chosen_spool(None, "../etc")


def test_what_is_said_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMQ_SPOOL", "here")
    monkeypatch.setenv("OMQ_CONF", "/elsewhere")
    assert paths.chosen_spool(None, None) == tmp_path / "here"
    assert paths.chosen_spool(None, "nope") == Path("/var/lib/omq-nope")
    assert paths.chosen_spool("there", None) == tmp_path / "there"
    assert paths.conf_dir(tmp_path, "nope") == paths.shipped_conf()


def test_a_contradiction_is_refused(tmp_path: Path) -> None:
    assert paths.chosen_spool("/var/lib/omq-x", "x") == Path("/var/lib/omq-x")
    with pytest.raises(BadRequest, match=r"instance x has the spool /var/lib/omq-x, not .*two"):
        paths.chosen_spool(tmp_path, "x")


def test_a_spool_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none", tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SpoolMissing):
            paths.existing_spool(path)
    assert paths.existing_spool(tmp_path).root == tmp_path


def test_conf_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert paths.conf_dir(tmp_path, "no-such-one") == paths.shipped_conf()
    (tmp_path / "conf").mkdir()
    assert paths.conf_dir(tmp_path, "no-such-one") == tmp_path / "conf"
    monkeypatch.setenv("OMQ_CONF", "/elsewhere")
    assert paths.conf_dir(tmp_path) == Path("/elsewhere")


def test_shipped_conf_is_whole() -> None:
    shipped = {path.name for path in paths.shipped_conf().iterdir()}
    assert {"omq.conf", "queues.conf", "services.conf", "authority.conf"} <= shipped
