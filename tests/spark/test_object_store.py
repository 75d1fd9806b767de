"""Archive and tables in an object store, with a real S3 server: the tables are those of a
directory, also batch by batch; so is the verdict, and the report is there. Executors of Spark read
and write there in test_cluster.py; a store that refuses: test_store_faults.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from omq.base.errors import Exit
from omq.format import shipped
from omq.format.findings import Finding
from omq.format.standby import Piece, PieceKind, Synced
from omq.services.ship.sealing import Chain, seal
from omq.storage.archive import cut, write
from omq.storage.archive_file import ArchiveFile, open_archive, rebuild_without_bodies
from omq.storage.files import open_file
from omq.storage.journal_scan import FileScan
from omqtools.omqspark import plan, tables
from omqtools.omqspark.audit import audit
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.main import main
from omqtools.omqspark.pipeline import run
from omqtools.omqspark.session import Later
from tests.process import test_ship, test_ship_archive
from tests.spark.conftest import generated
from tests.spark.told import no_session, told

Store = tuple[Any, str, str]
"""The file system, where the archive lies in it, and the URL of the tables."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with test_ship.served_bucket(monkeypatch) as url:
        fs, path = plan.filesystem(f"{url}/archive")
        yield fs, path, f"{url}/tables"


def test_tables_of_an_object_store_are_those_of_a_directory(
        store: Store, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    made, _ = generated(tmp_path_factory, 300, file_frames=500, faults=1, stories=1)
    fs, path, out = store
    archive, files = f"s3://{path}", sorted((made / "archive").glob("*.oma"))
    assert len(files) > 2
    local = str(tmp_path / "tables")
    run(Later(no_session), str(made / "archive"), local, incremental=False)
    for part in (files[:2], files[2:]):
        for each in part:
            with fs.open_output_stream(f"{path}/{each.name}") as stream:
                stream.write(each.read_bytes())
        assert main(["run", "--incremental", "--archive", archive, "--out", out]) == Exit.OK
    assert told(out) == told(local), "read from where they lie"
    verdicts = [audit(lake, str(where), pool=made) for lake, where in (
        (Lake(Later(no_session), local), made / "archive"), (Lake(Later(no_session), out), archive),
        (Lake(Later(no_session, 1), out), archive))]  # the last in steps
    for verdict in verdicts:
        for finding in verdict["findings"]:
            finding.pop("detail", None)  # it has the path
        verdict["findings"].sort(key=str)
        del verdict["audited"]
    assert verdicts[0] == verdicts[1] == verdicts[2] and verdicts[0]["counts"]["lost"] == 1
    assert not fs.get_file_info(pafs.FileSelector(
        f"{plan.filesystem(out)[1]}/beside", allow_not_found=True, recursive=True))
    assert main(["report", "--out", out]) == Exit.OK
    assert f"{out}/report/report.html" in capsys.readouterr().out


def pieces_of(archive: Path, kept: Path) -> Iterator[Piece]:
    """The journal of an archive, without its bodies, as a standby is sent it; behind it begins a
    file that is still written. `kept`: what omq-archive would make of it."""
    header = None
    for path in sorted(archive.glob("*.oma")):
        file = open_file(path)
        oma = open_archive(file, path.name)
        assert isinstance(oma, ArchiveFile)
        made = rebuild_without_bodies(oma)
        file.close()
        assert not isinstance(made, Finding)
        data = bytes(made)
        number, uuid = oma.header.number, oma.header.uuid
        scan = FileScan(data, number, uuid, name=path.name)
        header = scan.header
        assert header is not None
        write(kept, cut(data, number, uuid), level=1, bodies=False)
        yield Piece(PieceKind.FILE, 0, number, lsn=header.first_lsn - 1,
                    payload=replace(header, size=len(data)).encode())  # tests.made's says 0
        for block in scan:
            yield Piece(PieceKind.BLOCK, 0, number, block.offset, block.header.last_lsn,
                        payload=bytes(block.data[: block.header.length]))
        last = block.header.last_lsn
    assert header is not None
    yield Piece(PieceKind.FILE, 0, header.number + 1, lsn=last, payload=replace(
        header, number=header.number + 1, first_lsn=last + 1, follows_lsn=last,
        follows_number=header.number).encode())


def test_tables_of_what_was_shipped_are_those_of_the_archive(
        tmp_path_factory: pytest.TempPathFactory, tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    """By `omqrecover archive`, in two runs, out of many small objects. How many rows there are is
    known from what the commits say."""
    made, truth = generated(tmp_path_factory, 300, file_frames=500, stories=1)
    place, uuid = test_ship_archive.Memory(), bytes.fromhex(truth["uuid"])
    place.create(shipped.IDENTITY, json.dumps({"format": 1, "uuid": truth["uuid"]}).encode())
    chain = Chain(0, uuid, Synced(uuid, 1, 0, 0, 0, 0, 0))
    folder, kept = tmp_path / "archive", tmp_path / "kept"
    kept.mkdir()
    out, local = str(tmp_path / "out"), str(tmp_path / "tables")
    pieces = list(pieces_of(made / "archive", kept))
    for part in (pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]):
        for at in range(0, len(part), 3):
            data, after = seal(chain, part[at : at + 3], 0)
            assert place.create(shipped.journal_name(0, chain.sequence), data)
            chain = after
        done = test_ship_archive.archive(place, folder)
        assert done.files and not done.gaps
        run(Later(no_session), str(folder), out, incremental=True, files_per_batch=9)
    assert len(list(folder.glob("*.oma"))) == truth["files"] > 2
    run(Later(no_session), str(kept), local, incremental=False)
    assert told(out) == told(local)
    assert main(["tables", "--out", out]) == Exit.OK
    rows = {one["table"]: one["rows"] for one in map(json.loads,
                                                     capsys.readouterr().out.splitlines())}
    counted = told(out)
    assert rows == {name: counted[name][0][0] for name in tables.PUBLISHED}
