"""instance.json: both formats, everything that is wrong with one, and its write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omq.base.errors import NeedsRepair, NewerFormat, NotPrimary
from omq.storage import instance_file
from omq.storage.instance_file import TERM_MAX, Instance, Role, decode
from omq.storage.spool import SpoolInfo, create_spool, open_spool

UUID = bytes(range(16))
FILE = Path("/spool/instance.json")
GOOD = {"format": 2, "uuid": UUID.hex(), "term": 3, "role": "standby", "member": "b",
        "primary": "a.example"}


def test_without_a_standby_it_is_as_it_was() -> None:
    data = Instance(UUID).encode()
    assert json.loads(data) == {"format": 1, "uuid": UUID.hex()}
    assert decode(data, FILE) == Instance(UUID)


@pytest.mark.parametrize("role", Role)
def test_what_is_written_is_read(info: SpoolInfo, role: Role) -> None:
    made = Instance(info.uuid, TERM_MAX, role, "east-1.example", "west (10.0.0.1)")
    instance_file.write(info.paths, made)
    assert open_spool(info.paths.root).instance == made
    assert json.loads(info.paths.uuid.read_bytes())["format"] == 2
    if role is Role.PRIMARY:
        assert create_spool(info.paths.root).instance == made, "a start leaves it as it is"
        return
    said = f"a {role.words} of its instance .*10.0.0.1"
    with pytest.raises(NotPrimary, match=said):
        open_spool(info.paths.root, writer=True)
    with pytest.raises(NotPrimary, match=said):
        create_spool(info.paths.root)
    assert open_spool(info.paths.root, writer=True, any_role=True).instance == made


@pytest.mark.parametrize(("key", "value", "reason"), [
    ("term", -1, "its term is not a number from 0 to 4096"), ("term", "3", "its term"),
    ("term", True, "its term"), ("term", TERM_MAX + 1, "its term"), ("term", None, "its term"),
    ("role", "master", "its role is not one of primary, standby, former"),
    ("role", ["primary"], "its role"), ("role", None, "its role"),
    ("member", "", "its member is not a name"), ("member", "a/b", "its member"),
    ("member", "a" * 33, "its member"), ("member", 7, "its member"),
    ("primary", "line\nbreak", "its primary is not text"), ("primary", "x" * 501, "its primary"),
    ("primary", None, "its primary"), ("uuid", "00", "its uuid"),
])
def test_what_is_wrong_is_named(key: str, value: object, reason: str) -> None:
    with pytest.raises(NeedsRepair, match=reason) as error:
        decode(json.dumps(GOOD | {key: value}).encode(), FILE)
    assert "run: omqrecover identity /spool" in str(error.value)
    with pytest.raises(NeedsRepair):
        decode(json.dumps({k: v for k, v in GOOD.items() if k != key}).encode(), FILE)


def test_a_newer_one_is_for_a_newer_omq() -> None:
    with pytest.raises(NewerFormat, match="format version 3, but this omq reads versions up to 2"):
        decode(json.dumps(GOOD | {"format": 3}).encode(), FILE)
