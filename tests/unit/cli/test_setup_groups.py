"""omq setup names the groups in omq.conf, and those who were clients stay clients."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from omq.base.settings_file import load_settings
from omq.cli.setup import setup_groups
from omq.cli.setup.setup_groups import with_groups, write_conf

OLD = "# mine\n[journal]\njournal_file_bytes = 8 MiB\n\n[ ipc ]\n# many\nclients_max = 7\n"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run; group `omq` has two members beside the service user."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("grp.getgrnam",
                        lambda name: SimpleNamespace(gr_mem=["omq", "bob", "alice"]))
    return commands


def test_a_new_installation_names_both(tmp_path: Path, added: list[list[str]]) -> None:
    with ExitStack() as undo:
        write_conf(tmp_path, "omq", "omq", print, undo)
        settings = load_settings(tmp_path)
        assert (settings.clients_group, settings.operators_group) == ("omq-clients",
                                                                      "omq-operators")
        assert settings.request_queue_bytes == setup_groups.REQUEST_QUEUE_BYTES
    assert not (tmp_path / "omq.conf").exists() and added == []  # taken back


@pytest.mark.parametrize("old", [OLD, "", "[journal]\narchive = delete\n"])
def test_an_older_one_keeps_its_words_and_its_clients(tmp_path: Path, added: list[list[str]],
                                                      old: str) -> None:
    path = tmp_path / "omq.conf"
    path.write_text(old)
    said: list[str] = []
    with ExitStack() as undo:
        write_conf(tmp_path, "omq", "omq", said.append, undo)
        assert [line for line in old.splitlines() if line not in path.read_text()] == []
        settings = load_settings(tmp_path)
        assert settings.clients_group == "omq-clients"
        assert settings.clients_max == (7 if "7" in old else 500)
        assert [command[3:] for command in added] == [["omq-clients", "alice"],
                                                      ["omq-clients", "bob"]]
        assert any("alice" in line for line in said) and "omq-operators" in said[-1]
        write_conf(tmp_path, "omq", "omq", said.append, undo)
        assert len(added) == 2, "once"
        undo.pop_all()
    assert with_groups(old, "omq") == path.read_text()


def test_what_the_author_named_stays(tmp_path: Path, added: list[list[str]]) -> None:
    text = "[ipc]\nclients_group = staff\n"
    (tmp_path / "omq.conf").write_text(text)
    with ExitStack() as undo:
        write_conf(tmp_path, "omq", "omq", print, undo)
    assert (tmp_path / "omq.conf").read_text() == text and added == []
