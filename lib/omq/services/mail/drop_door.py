"""The door of the maildrop: a session with a program of this host that hands in mail.

Rules:
1. Who it is says the kernel (SO_PEERCRED); what it may says mail.drop_users.
2. A draft is held in memory while it comes, counted as it comes, of `smtp_memory_bytes_max` for all
   sessions (one user: half of it); it becomes a mail (mail.drafts) and a durable file
   (mail.maildrop) in a thread, and only then is its author told the id.
3. `drop_timeout_s` without a byte ends a session; what came of a draft until then is thrown away.
4. A refusal is an error of omq.base.errors, whose exit code tells "later" from "never".

No errors: each is an answer, and an event (DROP_REFUSED) at a bounded rate.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from omq.base import clock, events, fault
from omq.base.errors import BadRequest, DiskError, MessageTooLong, OmqError
from omq.base.event_log import WARNING
from omq.base.names import ROUTER
from omq.base.rated_log import RatedLog
from omq.base.settings import Settings
from omq.services.mail import mail_message as mail
from omq.services.mail.drafts import Author, submission
from omq.services.mail.drop_file import Dropped
from omq.services.mail.drop_protocol import HEAD_BYTES_MAX, Request, refused, taken
from omq.services.mail.drop_users import Users
from omq.services.mail.dsn import dsn_request_of, properties_of, sender_problem
from omq.services.mail.mail_log import MailLog, shown
from omq.services.mail.maildrop import Maildrop
from omq.services.mail.smtp_data import Memory

PROGRAM: Final = "omq-sendmail"
_PIECE_BYTES: Final = 64 * 1024
_CREDENTIALS_BYTES: Final = 12  # struct ucred: pid, uid, gid


@dataclass
class Desk:
    """What all sessions share; `settings` change at a reload."""

    settings: Settings
    drop: Maildrop
    users: Users
    memory: Memory
    workers: Executor
    mail_log: MailLog
    rated: RatedLog
    kept: Callable[[], None]  # a mail waits
    failed: Callable[[DiskError], None]  # the disk; the process is to end


async def serve(desk: Desk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, to its end."""
    uid = _uid(writer.get_extra_info("socket"))
    admitted = False
    try:
        await asyncio.get_running_loop().run_in_executor(
            desk.workers, desk.users.admit, uid, desk.settings)
        admitted = True
        while await _mail(desk, uid, reader, writer):
            pass
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
        pass  # it is gone, or says nothing: nobody is there to be told
    except OmqError as error:
        await _refuse(desk, uid, writer, error)
        if isinstance(error, DiskError):
            desk.failed(error)
    finally:
        if admitted:
            desk.users.end(uid)
        writer.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(desk.settings.drop_timeout_s):
                await writer.wait_closed()


async def _mail(desk: Desk, uid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
                ) -> bool:
    """Take one mail; False: there is none any more."""
    settings = desk.settings
    async with asyncio.timeout(settings.drop_timeout_s):
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            raise BadRequest(reason=f"its first line has more than {HEAD_BYTES_MAX} bytes"
                             ) from error
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return False
    request = Request.decode(line)
    if request.size > settings.smtp_message_bytes_max:
        raise MessageTooLong(size=request.size, queue=ROUTER,
                             limit=settings.smtp_message_bytes_max)
    desk.users.count(uid, settings, clock.monotonic_ns())
    draft, held = bytearray(), 0
    try:
        while len(draft) < request.size:
            async with asyncio.timeout(settings.drop_timeout_s):
                piece = await reader.read(min(_PIECE_BYTES, request.size - len(draft)))
            if not piece:
                return False  # its author died; half a mail is not a mail
            room = 2 * len(piece)  # the draft, and the mail made of it
            desk.users.take(uid, room, desk.memory, settings)
            held += room
            draft += piece
        try:
            mail_id = await asyncio.get_running_loop().run_in_executor(
                desk.workers, _keep, desk, uid, request, bytes(draft))
        except BadRequest as error:  # of this mail; others may follow
            await _refuse(desk, uid, writer, error)
            return True
    finally:
        desk.users.give(uid, held, desk.memory)
    desk.kept()
    writer.write(taken(mail_id))
    await writer.drain()
    return True


def _keep(desk: Desk, uid: int, request: Request, draft: bytes) -> str:
    """In a thread: a mail of the draft, durable; its id. BadRequest and those of the maildrop."""
    now_ns = clock.wall_ns()
    mail_id = uuid.uuid4().hex + f"{now_ns:016x}"
    made = submission(draft, request.to, request.sender, desk.settings,
                      Author(PROGRAM, uid, request.name), read=request.read, mark=mail_id)
    properties = (made.envelope.properties() | _told(request, made.envelope.recipients)
                  | mail.tracing(mail_id, now_ns))
    desk.drop.keep(Dropped(mail_id, uid, now_ns, made.priority, properties, made.body),
                   bounded=not desk.users.is_own(uid))
    fault.point("drop.after_file")
    desk.mail_log.write((("pickup", f"{mail_id}: uid={uid} from=<{shown(made.envelope.sender)}>"),))
    return mail_id


def _told(request: Request, recipients: tuple[str, ...]) -> dict[str, str]:
    """What the sender wants to be told, as properties. BadRequest."""
    given = {key: value for key, value in (("RET", request.ret), ("ENVID", request.envid)) if value}
    problem = sender_problem(given)
    wish = dsn_request_of({"NOTIFY": request.notify} if request.notify else {})
    if problem or isinstance(wish, str):
        raise BadRequest(reason=problem or str(wish))
    return properties_of(given, dict.fromkeys(recipients, wish))


async def _refuse(desk: Desk, uid: int, writer: asyncio.StreamWriter, error: OmqError) -> None:
    desk.rated.event(events.DROP_REFUSED, WARNING, uid, uid=uid, reason=str(error))
    with suppress(ConnectionError):
        writer.write(refused(error))
        await writer.drain()


def _uid(connection: socket.socket) -> int:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    return memoryview(data).cast("I")[1]
