"""instance.json damaged in every way: the start and every tool name the file, the reason and the
command; the command makes it anew from the other files, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.errors import NeedsRepair
from omq.cli import launch
from omq.format.journal import FileHeader
from omq.format.pool import encode_file_header
from omq.storage import instance_file
from omq.storage.instance_file import Instance, Role
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_reader import read_entry
from omq.storage.spool import create_spool, open_spool
from omqtools.omqrecover.repairs import write_epoch_file
from tests.recovery.conftest import Dead
from tests.recovery.spool import overwrite, run, start

OTHER = "0f" * 16
Damage = Callable[[Path], None]


def _text(text: str) -> Damage:
    return lambda file: (file.write_text(text), None)[1]


DAMAGES: dict[str, tuple[Damage, str]] = {
    "absent": (lambda file: file.unlink(), "it is missing, but journal/ holds"),
    "empty": (_text(""), "it is empty"),
    "zeros": (_text("\0" * 70), "it is empty"),
    "binary": (lambda file: (file.write_bytes(os.urandom(60)), None)[1], "no JSON object"),
    "cut": (_text('{"format": 1, "uu'), "no JSON object"),
    "list": (_text("[1]"), "no JSON object"),
    "no keys": (_text("{}"), "its format is not a version number"),
    "format text": (_text(json.dumps({"format": "1", "uuid": OTHER})), "not a version number"),
    "uuid number": (_text('{"format": 1, "uuid": 5}'), "32 hexadecimal digits"),
    "uuid short": (_text('{"format": 1, "uuid": "00"}'), "32 hexadecimal digits"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_instance_file_is_named_and_made_anew(
    dead: Dead, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    damage, reason = DAMAGES[name]
    damage(dead.paths.uuid)
    for opened in (open_spool, create_spool):
        with pytest.raises(NeedsRepair, match="run: omqrecover identity"):
            opened(dead.root)
    for command in (["omqrecover", "scan", str(dead.root)], ["omqcheck", "--spool", str(dead.root)],
                    ["omqlog", "--operator", "--spool", str(dead.root)],
                    ["omrc", "--embedded", "--spool", str(dead.root)],
                    ["queue.manager", "--create", "--spool", str(dead.root)]):
        assert launch.run(command[0], command[1:]) == 65, command
        said = capsys.readouterr().err
        assert reason in said and str(dead.paths.uuid) in said, said
        assert f"run: omqrecover identity {dead.root}" in said
        assert "Traceback" not in said and said.count("\n") == 1
    assert run("identity", str(dead.root))[0] == 0
    assert open_spool(dead.root).uuid == dead.uuid
    kept = list(dead.paths.quarantine.glob("instance.json.*"))
    assert len(kept) == (name != "absent")
    assert start(dead.root, dead.uuid)[1] == dead.known


def test_another_version_is_for_a_newer_omq(dead: Dead, capsys: pytest.CaptureFixture[str]) -> None:
    dead.paths.uuid.write_text(json.dumps({"format": 3, "uuid": [dead.uuid.hex()]}))
    assert launch.run("omqrecover", ["scan", str(dead.root)]) == 78
    assert "use the newer omq" in capsys.readouterr().err


def test_a_wrong_uuid_is_not_repaired_by_setting_everything_aside(
    dead: Dead, capsys: pytest.CaptureFixture[str]
) -> None:
    dead.paths.uuid.write_text(json.dumps({"format": 1, "uuid": OTHER}))
    assert launch.run("omqrecover", ["scan", str(dead.root)]) == 65
    said = capsys.readouterr().err
    assert f"it names the instance {OTHER}, all" in said and dead.uuid.hex() in said
    assert "run: omqrecover identity" in said
    assert run("identity", str(dead.root))[0] == 0
    assert start(dead.root, dead.uuid)[1] == dead.known


def test_mixed_files_need_the_operators_word(
    dead: Dead, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead.paths.uuid.unlink()
    other = create_spool(tmp_path / "other", bytes.fromhex(OTHER))
    assert launch.run("omqrecover", ["identity", str(other.paths.root)]) == 65
    assert "no file of it names an instance" in capsys.readouterr().err
    first = next(dead.paths.msgpool.glob("*QP"))
    data = first.read_bytes()
    first.write_bytes(encode_file_header(int(first.name[:-2]), other.uuid, 1) + data[512:])
    assert launch.run("omqrecover", ["identity", str(dead.root)]) == 65
    said = capsys.readouterr().err
    assert "of 2 instances" in said and OTHER in said and dead.uuid.hex() in said
    assert not dead.paths.uuid.exists()
    assert run("identity", str(dead.root), "--uuid", dead.uuid.hex())[0] == 0
    assert open_spool(dead.root).uuid == dead.uuid
    shutil.rmtree(other.paths.root)


def test_term_and_role_are_kept(dead: Dead) -> None:
    instance_file.write(dead.paths, Instance(dead.uuid, 3, Role.STANDBY, "b", "a.example"))
    kept = dead.paths.uuid.read_bytes()
    assert run("identity", str(dead.root))[0] == 0
    assert dead.paths.uuid.read_bytes() == kept


def test_who_was_the_primary_only_the_operator_knows(
    dead: Dead, capsys: pytest.CaptureFixture[str]
) -> None:
    """instance.json of an instance that had standbys is lost: it must not become a primary by
    itself, for one may be serving elsewhere."""
    last = max(numbers_in(dead.paths.journal))
    header = read_entry(dead.paths, last, dead.uuid).header
    assert header is not None
    overwrite(dead.paths.journal / file_name(last), 0, replace(header, term=2).encode()[:128])
    dead.paths.uuid.unlink()
    assert launch.run("omqrecover", ["identity", str(dead.root)]) == 65
    assert "had standbys (term 2): say --role primary only if" in capsys.readouterr().err
    assert not dead.paths.uuid.exists()
    for role in Role:
        assert launch.run("omqrecover", ["identity", str(dead.root), "--role", role.value]) == 0
        made = open_spool(dead.root).instance
        assert (made.uuid, made.term, made.role) == (dead.uuid, 2, role)
        dead.paths.uuid.unlink()


def test_a_repair_is_of_the_spools_term(dead: Dead) -> None:
    """The journal file that a repair makes says the term; and a standby is not repaired."""
    instance_file.write(dead.paths, Instance(dead.uuid, 3, Role.PRIMARY, "b"))
    write_epoch_file(dead.paths, FileHeader(dead.uuid, 99, 99, 4096, 4096, 10**6, 1, 1, 1, 1))
    header = read_entry(dead.paths, 99, dead.uuid).header
    assert header is not None and (header.term, header.epoch) == (3, 99)
    plan = dead.root.parent / "plan"
    (dead.paths.journal / file_name(99)).unlink()
    assert run("plan", str(dead.root), "--save", str(plan))[0] in (0, 65)
    instance_file.write(dead.paths, Instance(dead.uuid, 3, Role.STANDBY, "b"))
    assert run("apply", str(dead.root), str(plan))[0] == 69
