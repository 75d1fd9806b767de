"""The file of a dump: where it may lie, what it replaces, and how many lines it has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omq.base.errors import Damaged, FileNotWritten
from omq.storage.spool import SpoolInfo
from omqtools.omqdump import text_file
from omqtools.omqdump.text_file import dump_path, write_lines


def test_a_text_file_replaces_only_a_regular_file(info: SpoolInfo, tmp_path: Path) -> None:
    victim, link, old = tmp_path / "victim", tmp_path / "link", tmp_path / "old"
    victim.write_text("mine")
    link.symlink_to(victim)
    with pytest.raises(FileNotWritten, match="not a regular file"):
        write_lines(link, ["x"])
    with pytest.raises(FileNotWritten):
        write_lines(tmp_path, ["x"])
    os.link(victim, old)
    assert write_lines(old, ["a", "b"]) == 2
    assert (victim.read_text(), old.read_text()) == ("mine", "a\nb\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "old", "spool", "victim"]


def test_nothing_is_left_of_a_dump_that_fails(info: SpoolInfo, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def lines() -> list[str]:
        raise Damaged(file="21QP", offset=0, reason="probe")

    with pytest.raises(Damaged):
        write_lines(folder / "dump", (line for _ in range(1) for line in lines()))
    assert list(folder.iterdir()) == []


def test_inside_the_spool_only_temp_is_written(info: SpoolInfo, tmp_path: Path) -> None:
    paths = info.paths
    (tmp_path / "door").symlink_to(paths.msgpool)
    for place in (paths.msgpool / "0QP", paths.root / "x", tmp_path / "door/0QP",
                  paths.temp / "../journal/x"):
        with pytest.raises(FileNotWritten, match="only"):
            dump_path(paths, str(place))
    assert dump_path(paths, str(paths.temp / "x")) == paths.temp / "x"
    assert dump_path(paths, "~/temp/00008b0") == paths.temp / "00008b0"
    assert dump_path(paths, "x") == Path("x").absolute()


def test_pieces_of_many_lines_are_counted_and_written_in_bounded_chunks(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_file, "_CHUNK_CHARACTERS", 8)
    pieces = ["a\nb\nc", "d", "", "e" * 20, "f"]
    assert write_lines(tmp_path / "dump", pieces) == 7
    assert (tmp_path / "dump").read_text() == "\n".join((*pieces, ""))
    assert write_lines(tmp_path / "none", []) == 0
    assert (tmp_path / "none").read_bytes() == b""
