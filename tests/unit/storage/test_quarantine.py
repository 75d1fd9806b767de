"""Quarantine: evidence is complete, named after its place, kept once, and bounded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from omq.base.errors import DiskError
from omq.format.findings import Finding, Kind
from omq.storage import quarantine
from omq.storage.quarantine import place_of, save, save_found
from omq.storage.spool import SpoolInfo
from tests.unit.storage.world import BROKEN, use_faulty

FOUND = Finding(Kind.CORRUPT, "block fails its CRC", "0000000042.jnl", 0xA000, 4096, lsn=77)


def names(info: SpoolInfo) -> list[str]:
    return sorted(path.name for path in info.paths.quarantine.iterdir())


def test_bytes_and_note(info: SpoolInfo) -> None:
    path = save(info.paths, FOUND, b"damaged")
    assert path is not None and path.name == "0000000042.jnl-0000a000.bin"
    assert path.read_bytes() == b"damaged"
    note = json.loads(path.with_suffix(".json").read_text())
    assert (note["file"], note["offset"], note["length"]) == ("0000000042.jnl", 0xA000, 4096)
    assert (note["kind"], note["reason"], note["lsn"]) == ("corrupt", "block fails its CRC", 77)
    assert note["kept"] == 7 and note["time"]


def test_the_same_bytes_are_kept_once(info: SpoolInfo) -> None:
    first = save(info.paths, FOUND, b"damaged")
    assert save(info.paths, FOUND, b"damaged") == first
    assert len(names(info)) == 2


def test_other_bytes_of_the_place_get_another_name(info: SpoolInfo) -> None:
    save(info.paths, FOUND, b"damaged")
    second = save(info.paths, FOUND, b"damaged again")
    assert second is not None and second.name == "0000000042.jnl-0000a000-2.bin"
    assert save(info.paths, FOUND, b"damaged again") == second


def test_one_place_does_not_fill_it(info: SpoolInfo) -> None:
    kept = [save(info.paths, FOUND, bytes([i])) for i in range(20)]
    assert [path is not None for path in kept] == [True] * 10 + [False] * 10


def test_pieces_are_bounded(info: SpoolInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "PIECE_BYTES_MAX", 10)
    monkeypatch.setattr(quarantine, "PIECES_MAX", 2)
    path = save(info.paths, FOUND, bytes(100))
    assert path is not None and path.stat().st_size == 10
    assert save(info.paths, replace(FOUND, offset=1), b"x") is not None
    assert save(info.paths, replace(FOUND, offset=2), b"x") is None
    assert len(names(info)) == 4


def test_a_copy_that_was_cut_is_made_again(info: SpoolInfo) -> None:
    (info.paths.quarantine / "0000000042.jnl-0000a000.bin").write_bytes(b"half")
    path = save(info.paths, FOUND, b"whole")
    assert path is not None and path.read_bytes() == b"whole"


@pytest.mark.parametrize("note", [b"", b"[]", b"{", b"\xff"])
def test_what_is_not_ours_is_not_overwritten(info: SpoolInfo, note: bytes) -> None:
    strange = info.paths.quarantine / "0000000042.jnl-0000a000.json"
    strange.write_bytes(note)
    path = save(info.paths, FOUND, b"bytes")
    assert path is not None and path.name.endswith("-2.bin") and strange.read_bytes() == note


def test_a_name_cannot_leave_the_directory(info: SpoolInfo) -> None:
    path = save(info.paths, replace(FOUND, file="../../etc/passwd"), b"x")
    assert path is not None and path.parent == info.paths.quarantine


def test_from_where_the_finding_says(info: SpoolInfo) -> None:
    (info.paths.msgpool / "7QP").write_bytes(bytes(512) + b"record" + bytes(506))
    path = save_found(info.paths, Finding(Kind.CORRUPT, "", "7QP", 512, 512, 0))
    assert path is not None and path.read_bytes().startswith(b"record")


def test_a_retired_journal_file_is_found(info: SpoolInfo) -> None:
    (info.paths.archive / "0000000042.jnl").write_bytes(bytes(0xA000) + b"old")
    path = save_found(info.paths, replace(FOUND, length=3))
    assert path is not None and path.read_bytes() == b"old"


@pytest.mark.parametrize(
    "finding", [
        Finding(Kind.CORRUPT, "", "99QP", 0, 512), Finding(Kind.GAP, "", "7QP", 0, 0),
        Finding(Kind.CORRUPT, "", "instance.json", 0, 10), Finding(Kind.CORRUPT, "no name")])
def test_nothing_to_copy(info: SpoolInfo, finding: Finding) -> None:
    assert save_found(info.paths, finding) is None
    assert names(info) == []


def test_places(info: SpoolInfo) -> None:
    paths = info.paths
    assert place_of(paths, "poolctrl") == paths.msgpool / "poolctrl"
    assert place_of(paths, "checkpoint.dw") == paths.msgpool / "checkpoint.dw"
    assert place_of(paths, "0000000001.sto") == paths.store / "0000000001.sto"
    assert place_of(paths, "../7QP") is None


def test_a_failing_disk_is_said(info: SpoolInfo) -> None:
    use_faulty(fsync=BROKEN)
    with pytest.raises(DiskError):
        save(info.paths, FOUND, b"x")
