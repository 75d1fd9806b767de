"""Which term do the other members know, and who of them is what? Asked by an old primary at its
start (services.manager.fencing) and before it becomes a standby again.

    ASK     the asker's term; its uuid and name
    SAID    the other's term; uuid, name, role, its promotions

`omq standby send` and `omq standby listen` answer whatever their member is: primary, standby,
former primary. An answer counts when it is of this instance. A primary that is asked under a later
term than its own becomes a former primary, as by a standby that knows one.

What did not answer says nothing: neither that it is not a primary, nor that it is away.

Errors: none of `ask_all`: whoever cannot be asked has said nothing, and why. StreamBroken of
`answer`.
"""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base.amounts import duration
from omq.base.errors import OmqError, StreamBroken
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.format.standby import Piece, PieceKind
from omq.services.standby.dialling import answers, dial
from omq.services.standby.line import Line
from omq.storage import promotions
from omq.storage.instance_file import TERM_MAX, Instance, Role
from omq.storage.promotions import Promotion

ASK_S: Final = 10.0  # for one member to answer, from the connection on
_LOOK_S: Final = 0.5
_MORE_S: Final = 10.0  # for a connection to be made, and a command to end
_ROLES: Final = {each.value: each for each in Role}


@dataclass(frozen=True, slots=True)
class MemberReply:
    """What one member answered."""

    term: int
    member: str
    role: Role
    promotions: tuple[Promotion, ...] = ()


@dataclass(frozen=True, slots=True)
class AskedMember:
    """One of those that were asked: `way` as the configuration has it; `said` or `why` not."""

    way: str
    said: MemberReply | None = None
    why: str = ""


def members(text: str) -> list[str]:
    """The ways of `standby_members`: tls:// addresses and commands, with commas between them."""
    return [each for each in (part.strip() for part in text.split(",")) if each]


def ask_all(ways: Sequence[str], instance: Instance, settings: Settings, conf_dir: Path
            ) -> list[AskedMember]:
    """All of them at the same time, in their order; one that hangs is waited for a bounded time."""
    answers = [AskedMember(way, why="it says nothing") for way in ways]

    def one(i: int, way: str) -> None:
        try:
            answers[i] = AskedMember(way, ask(shlex.split(way), instance, settings, conf_dir))
        except StreamBroken as error:
            answers[i] = AskedMember(way, why=str(error.fields["reason"]))
        except (OmqError, ValueError, OSError) as error:
            answers[i] = AskedMember(way, why=str(error))

    threads = [threading.Thread(target=one, args=each, daemon=True, name=f"asks {each[1][:32]}")
               for each in enumerate(ways)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + ASK_S + settings.channel_connect_timeout_s + _MORE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return list(answers)


def ask(words: Sequence[str], instance: Instance, settings: Settings, conf_dir: Path
        ) -> MemberReply:
    """What the member there says. StreamBroken: nothing that can be believed; those of dial."""
    way = dial(words, settings, conf_dir, ASK_S)
    try:
        way.line.send(Piece(PieceKind.ASK, instance.term, payload=_encode(instance)))
        deadline = time.monotonic() + ASK_S
        while time.monotonic() < deadline:
            for piece in way.line.receive(_LOOK_S):
                return _decode(piece, instance, way.line.peer)
        raise StreamBroken(peer=way.line.peer, reason=f"it says nothing for {duration(ASK_S)}")
    finally:
        way.close()


def a_primary_answers(words: Sequence[str], instance: Instance, settings: Settings,
                      conf_dir: Path) -> bool:
    """Before a promotion: is there anything of a primary? A member that says that it is none is
    none; of whatever answers otherwise nobody knows. BadArgument."""
    if not words:
        return False
    try:
        return ask(words, instance, settings, conf_dir).role is Role.PRIMARY
    except (OmqError, OSError):
        return answers(words, instance.term)


def _decode(piece: Piece, instance: Instance, peer: str) -> MemberReply:
    if piece.kind is PieceKind.REFUSE:
        raise StreamBroken(peer=peer, reason="it refuses: " + bytes(piece.payload[:500]).decode(
            "utf-8", "replace"))
    try:
        found = json.loads(bytes(piece.payload))
        uuid, member, role = str(found["uuid"]), str(found["member"]), _ROLES[found["role"]]
        told = promotions.decode(json.dumps(found["promotions"]).encode())
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StreamBroken(peer=peer, reason="it does not say what it is") from error
    if piece.kind is not PieceKind.SAID or told is None or piece.term > TERM_MAX:
        raise StreamBroken(peer=peer, reason="it does not say what it is")
    if uuid != instance.uuid.hex():
        raise StreamBroken(peer=peer, reason=f"it is of the instance {uuid[:32]}")
    return MemberReply(piece.term, member[:64], role, told)


def _encode(instance: Instance) -> bytes:
    return json.dumps({"uuid": instance.uuid.hex(), "member": instance.member}).encode()


def is_asked(piece: Piece, instance: Instance) -> bool:
    """Is it a question of a member of this instance?"""
    try:
        found = json.loads(bytes(piece.payload[:4096]))
        return bool(piece.kind is PieceKind.ASK and found["uuid"] == instance.uuid.hex())
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def answer(paths: SpoolPaths, instance: Instance) -> Piece:
    """What this member is."""
    told = promotions.encode(promotions.load(paths, instance.term))
    payload = json.dumps({"uuid": instance.uuid.hex(), "member": instance.member,
                          "role": instance.role.value, "promotions": json.loads(told)}).encode()
    return Piece(PieceKind.SAID, instance.term, payload=payload)


def answer_only(line: Line, paths: SpoolPaths, instance: Instance, why: OmqError) -> None:
    """Of a member that serves nobody: it answers a question, and refuses all else. StreamBroken."""
    deadline = time.monotonic() + ASK_S
    while time.monotonic() < deadline:
        for piece in line.receive(_LOOK_S):
            if is_asked(piece, instance):
                line.send(answer(paths, instance))
            else:
                line.send(Piece(PieceKind.REFUSE, instance.term, payload=str(why)[:500].encode()))
            return
