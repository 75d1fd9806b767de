"""omq standby rejoin: a former primary follows the member that was promoted, without a copy of it.

    1. asks the member there: it must be a primary of a later term, of this instance
    2. looks whether it can be done in place (core.standby.rejoin), and asks the new primary whether
       its history goes on from there; nothing is changed until both say yes
    3. sets aside what this spool alone has, names it, and becomes a standby

Who is still called a primary here becomes a former one at step 1, whatever comes of the rest.

Errors: NeedsCopy; StreamBroken: it cannot be asked; BadRequest; SpoolLocked; SpoolFull; DiskError.
"""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from omq.base.config import load_settings
from omq.base.errors import BadRequest, Exit, NeedsCopy, StreamBroken
from omq.base.settings import Settings
from omq.core.standby.rejoin import Survey, fork, join, keep, survey
from omq.format.standby import Piece, PieceKind
from omq.services.daemon.options import Location
from omq.services.standby.ask_members import ask
from omq.services.standby.dialling import dial, parse
from omq.storage import instance_file, spool
from omq.storage.instance_file import UNNAMED, Instance, Role, is_member_name

NAME: Final = "omq standby rejoin"
_WAIT_S: Final = 30.0  # for the new primary to say whether its history goes on from here
_LOOK_S: Final = 0.5


def rejoin(location: Location, words: Sequence[str], member: str) -> int:
    """See the module."""
    if not words:
        raise BadRequest(reason="give, after --, how the new primary is reached")
    parse(words)
    settings = load_settings(location.conf_dir)
    info = spool.open_spool(location.paths.root, writer=True, any_role=True)
    paths, instance = info.paths, info.instance
    if instance.role is Role.STANDBY:
        raise BadRequest(reason=f"{paths.root} is a standby already; go on with: omq standby "
                         "follow")
    name = member or (instance.member if instance.member != UNNAMED else "")
    if not is_member_name(name):
        raise BadRequest(reason="say by --member how this one is called among the members")
    with ExitStack() as held:
        for path in (paths.manager_lock, paths.pool_lock):
            held.callback(spool.lock(path, NAME).close)
        said = ask(words, instance, settings, location.conf_dir)
        if said.role is not Role.PRIMARY or said.term <= instance.term:
            raise BadRequest(reason=f"the member there is a {said.role.value} of term {said.term}, "
                             f"and this is one of term {instance.term}: it follows a primary of a "
                             "later term alone")
        if said.member == name:
            raise BadRequest(reason=f"the primary is called {name}, too; say another --member")
        if instance.role is Role.PRIMARY:
            instance = replace(instance, role=Role.FORMER, member=name)
            instance_file.write(paths, instance)
        plan = survey(paths, instance, fork(instance, said.promotions, paths.root))
        _agree(location, settings, words, replace(instance, member=name), plan)
        kept = keep(paths, instance, plan)
        join(paths, instance, plan, name, shlex.join(words))
    counted = Counter(each.state for each in plan.found.lines)
    what = ", ".join(f"{counted[state]} {state}" for state in sorted(counted)) or "nothing"
    print(f"{paths.root} is a standby of member {said.member}, term {said.term}; set aside: {what} "
          f"(omq standby aside --since {plan.since} --spool {shlex.quote(str(kept))}); go on with: "
          "omq standby follow")
    return Exit.OK


def _agree(location: Location, settings: Settings, words: Sequence[str], instance: Instance,
           plan: Survey) -> None:
    """Does the history of the primary there go on where this one would? NeedsCopy, StreamBroken."""
    way = dial(words, settings, location.conf_dir, _WAIT_S)
    who = {"uuid": instance.uuid.hex(), "member": instance.member}
    try:
        way.line.send(Piece(PieceKind.HELLO, instance.term, plan.mark.number,
                            payload=plan.mark.encode() + json.dumps(who).encode()))
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            for piece in way.line.receive(_LOOK_S):
                _judge(piece, location, plan)
                return
        raise StreamBroken(peer=way.line.peer, reason="it does not say where to go on")
    finally:
        way.close()


def _judge(piece: Piece, location: Location, plan: Survey) -> None:
    if piece.kind is PieceKind.FOLLOW:
        return
    if piece.kind is PieceKind.BACK and piece.number < plan.mark.number:
        return  # a file without a block that counts, which it has not: the follower takes it away
    reason = bytes(piece.payload[:500]).decode("utf-8", "replace") if (
        piece.kind is PieceKind.REFUSE) else f"its history goes up to LSN {piece.lsn}"
    raise NeedsCopy(path=location.paths.journal, reason=f"the new primary does not go on from LSN "
                    f"{plan.mark.lsn} in this journal: {reason}")
