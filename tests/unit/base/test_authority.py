"""authority.conf: default deny, grants for users and groups, owner and root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omq.base import authority
from omq.base.authority import ACTIONS, Authority, Grant, load_authority
from omq.base.errors import ConfigError

NOBODY = frozenset[int]()
OWNER, ALICE, BOB, CLERKS = 900, 1001, 1002, 2001


def _load(folder: Path, text: str) -> Authority:
    (folder / "authority.conf").write_text(text, encoding="utf-8")
    return load_authority(folder, owner_uid=OWNER)


def test_shipped_file_denies_everybody_but_owner_and_root() -> None:
    shipped = load_authority(owner_uid=OWNER)
    for action in ACTIONS:
        assert not shipped.allows(action, "ROUTER", ALICE, NOBODY)
        assert shipped.allows(action, "ROUTER", OWNER, NOBODY)
        assert shipped.allows(action, "ROUTER", 0, NOBODY)


def test_owner_is_who_runs_it_by_default() -> None:
    assert load_authority().owner_uid == os.geteuid()


def test_grants(tmp_path: Path) -> None:
    rights = _load(
        tmp_path,
        f"[ORDERS]\nuser:{ALICE} = put browse\ngroup:{CLERKS} = get\n"
        f"[*]\nuser:{BOB} = all\n[OPEN]\nuser:* = put\n",
    )
    assert rights.allows("put", "ORDERS", ALICE, NOBODY)
    assert rights.allows("browse", "ORDERS", ALICE, NOBODY)
    assert not rights.allows("get", "ORDERS", ALICE, NOBODY)
    assert not rights.allows("put", "OTHER", ALICE, NOBODY)
    assert rights.allows("get", "ORDERS", ALICE, frozenset({7, CLERKS}))
    assert not rights.allows("get", "OTHER", ALICE, frozenset({CLERKS}))
    assert rights.allows("admin", "WHATEVER", BOB, NOBODY)
    assert rights.allows("put", "OPEN", 31337, NOBODY)
    assert not rights.allows("get", "OPEN", 31337, NOBODY)
    assert rights.queues() == ("ORDERS", "OPEN")


def test_names_of_this_host(tmp_path: Path) -> None:
    rights = _load(tmp_path, "[Q]\nuser:daemon = put\ngroup:daemon = get\n")
    assert rights.allows("put", "Q", 1, NOBODY)  # Debian's fixed numbers
    assert rights.allows("get", "Q", ALICE, frozenset({1}))


def test_answers_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "CACHE_ENTRIES_MAX", 3)
    rights = Authority(OWNER, {"Q": (Grant(frozenset({"put"}), uid=ALICE),)})
    for _ in range(2):
        for uid in (ALICE, BOB, 5, 6, 7):
            assert rights.allows("put", "Q", uid, NOBODY) is (uid == ALICE)
    assert len(rights._cache) <= 3


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("[q]\n", 1, "[q]"),
        ("[Q]\nalice = put\n", 2, "alice"),
        ("[Q]\nuser: = put\n", 2, "user:"),
        ("[Q]\nrole:x = put\n", 2, "role:x"),
        ("[Q]\nuser:1 = write\n", 2, "user:1"),
        ("[Q]\nuser:1 =\n", 2, "user:1"),
        ("[Q]\nuser:no-such-user = put\n", 2, "user:no-such-user"),
        ("[Q]\ngroup:no-such-group = put\n", 2, "group:no-such-group"),
        ("[Q]\ngroup:* = put\n", 2, "group:*"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, line: int, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    assert (caught.value.fields["line"], caught.value.fields["key"]) == (line, key)
