"""What a member is asked, and what of its answer is believed."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import NotPrimary, StandbyDiverged, StreamBroken
from omq.base.settings import Settings
from omq.format.standby import Piece, PieceKind
from omq.services.manager.fencing import step_aside
from omq.services.standby import ask_members, line
from omq.services.standby.ask_members import (
    AskedMember,
    MemberReply,
    answer,
    ask_all,
    is_asked,
    members,
)
from omq.services.standby.sending import Sending
from omq.services.standby.stream import Outgoing
from omq.storage import promotions
from omq.storage.instance_file import Instance, Role
from omq.storage.promotions import Promotion
from omq.storage.spool import SpoolInfo, create_spool, open_spool


@pytest.fixture
def info(tmp_path: Path) -> SpoolInfo:
    return create_spool(tmp_path / "primary")


def asked(info: SpoolInfo, tmp_path: Path, *answers: bytes) -> list[AskedMember]:
    """Programs that say these bytes once they were asked, and end."""
    ways = []
    for i, data in enumerate(answers):
        path = tmp_path / f"answer{i}"
        path.write_bytes(data)
        ways.append(shlex.join([sys.executable, "-c", "import sys; sys.stdin.buffer.read("
                                f"64); sys.stdout.buffer.write(open({str(path)!r}, 'rb').read())"
                                ]))
    return ask_all(ways, info.instance, Settings(), tmp_path)


def encoded(piece: Piece) -> bytes:
    return b"".join(map(bytes, Outgoing().encode(piece)))


def said(info: SpoolInfo, term: int = 1, **changed: object) -> bytes:
    found: dict[str, Any] = {"uuid": info.uuid.hex(), "member": "b", "role": "primary",
                             "promotions": []}
    return encoded(Piece(PieceKind.SAID, term, payload=json.dumps(found | changed).encode()))


def test_an_answer_is_believed_when_it_is_whole_and_of_this_instance(info: SpoolInfo,
                                                                     tmp_path: Path) -> None:
    whole = said(info)
    broken = {
        "closed": b"", "zeros": bytes(200), "text": b"welcome to this host\n" * 20,
        "cut": whole[:-3], "flipped": whole[:70] + bytes([whole[70] ^ 1]) + whole[71:],
        "another": said(info, uuid="00" * 16), "no role": said(info, role="king"),
        "a list": encoded(Piece(PieceKind.SAID, 1, payload=b"[]")),
        "deep": encoded(Piece(PieceKind.SAID, 1, payload=b"[" * 100_000)),
        "promotions": said(info, promotions=[{"term": 1}]), "term": said(info, term=1 << 31),
        "kind": encoded(Piece(PieceKind.FOLLOW, 1, payload=b"{}")),
        "refused": encoded(Piece(PieceKind.REFUSE, 9, payload=b"no")),
    }
    first, *rest = asked(info, tmp_path, whole, *broken.values())
    assert first.said == MemberReply(1, "b", Role.PRIMARY)
    assert {name: each.said for name, each in zip(broken, rest, strict=True)} == dict.fromkeys(
        broken)
    assert all(each.why for each in rest)


def test_who_hangs_is_waited_for_a_bounded_time(info: SpoolInfo, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_members, "ASK_S", 0.2)
    monkeypatch.setattr(line, "END_S", 0.1)
    (found, missing, quote) = ask_all(["sleep 600", "/no/such/program", "'"], info.instance,
                                      Settings(), tmp_path)
    assert found.said is None and "says nothing" in found.why
    assert missing.said is None and "No such file" in missing.why and quote.why


def test_ways_stand_with_commas_between_them() -> None:
    assert members(" tls://a:1 ,, ssh b omq standby send, ") == ["tls://a:1",
                                                                 "ssh b omq standby send"]
    assert members("") == []


def a_sending(info: SpoolInfo) -> Sending:
    return Sending(info.paths, Instance(info.uuid, 3, Role.PRIMARY, "a"))


def test_a_primary_says_what_it_is(info: SpoolInfo) -> None:
    promotions.note(info.paths, Promotion(2, 77, "a", 5))
    sending = a_sending(info)
    question = Piece(PieceKind.ASK, 3, payload=json.dumps({"uuid": info.uuid.hex()}).encode())
    (told,) = sending.take(question, 1)
    found = json.loads(bytes(told.payload))
    assert (told.kind, told.term, found["member"], found["role"]) == (PieceKind.SAID, 3, "a",
                                                                     "primary")
    assert [each["lsn"] for each in found["promotions"]] == [77] and not sending.superseded
    assert sending.turn(100, 1 << 20) == [], "who asks is no standby"


@pytest.mark.parametrize(("kind", "who"), [
    (PieceKind.ASK, {"uuid": "00" * 16}), (PieceKind.ASK, []), (PieceKind.DURABLE, {}),
    (PieceKind.HELLO, {"uuid": "00" * 16, "member": "b"}), (PieceKind.ACK, {})])
def test_a_term_of_a_stranger_stops_nobody(info: SpoolInfo, kind: PieceKind, who: object) -> None:
    """Whose instance it is stands before its term."""
    sending = a_sending(info)
    with pytest.raises(StreamBroken):
        sending.take(Piece(kind, 9, payload=bytes(96) + json.dumps(who).encode()
                           if kind is PieceKind.HELLO else json.dumps(who).encode()), 1)
    assert not sending.superseded
    assert not is_asked(Piece(PieceKind.ASK, 9, payload=b"[" * 100_000), info.instance)


def test_who_is_asked_under_a_later_term_is_superseded(info: SpoolInfo) -> None:
    sending = a_sending(info)
    question = Piece(PieceKind.ASK, 4, payload=json.dumps({"uuid": info.uuid.hex()}).encode())
    assert sending.take(question, 1) == [answer(info.paths, Instance(info.uuid, 3, Role.PRIMARY,
                                                                     "a"))]
    with pytest.raises(StreamBroken, match="another member was promoted since"):
        sending.refuse_superseded(sending.superseded)


def test_the_latest_term_counts_and_its_primary_is_named(info: SpoolInfo) -> None:
    mine = Instance(info.uuid, 2, Role.PRIMARY, "a")
    step_aside(info.paths, mine, [AskedMember("x", MemberReply(2, "a", Role.PRIMARY)),
                                  AskedMember("y", MemberReply(1, "b", Role.PRIMARY)),
                                  AskedMember("z", why="no"),
                                  AskedMember("w", MemberReply(2, "c", Role.STANDBY))])
    assert open_spool(info.paths.root).instance.role is Role.PRIMARY
    with pytest.raises(StandbyDiverged, match="two members are primary of term 2: a, and b at y"):
        step_aside(info.paths, mine, [AskedMember("y", MemberReply(2, "b", Role.PRIMARY))])
    with pytest.raises(NotPrimary):
        step_aside(info.paths, mine, [AskedMember("v", MemberReply(4, "c", Role.STANDBY)),
                                      AskedMember("w", MemberReply(3, "d", Role.PRIMARY)),
                                      AskedMember("y", MemberReply(4, "b", Role.PRIMARY))])
    found = open_spool(info.paths.root, any_role=True).instance
    assert (found.role, found.member, found.term, found.primary) == (Role.FORMER, "a", 2, "y")
