"""What a session reads: no more than it can work on, and of a line without end nothing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from omq.base.settings import Settings
from omq.services.mail.smtp_commands import SmtpCommands
from omq.services.mail.smtp_handler import Answer
from omq.services.mail.smtp_input import COMMAND_BYTES_MAX, Input
from omq.services.mail.smtp_session import SmtpSession


def test_a_command_without_end_costs_one_read() -> None:
    came = Input()
    for _ in range(100):
        came.add(b"a" * 65536)
        assert came.line() is None
        assert not came, "it is not kept"
    came.add(b"a\r\nNOOP\r\n")
    assert (came.line(), came.line(), came.line()) == (b"", b"NOOP\r\n", None)
    came.add(b"b" * COMMAND_BYTES_MAX)
    assert came.line() is None
    assert came, "this may still become a line"


class Commands:
    """Answers every line, and counts them."""

    settings = Settings()
    in_transaction = False
    heard = 0

    def admit(self, peername: object, source: str) -> str:
        del peername, source
        return ""

    def greeting(self) -> Answer:
        return Answer("220 here")

    def said(self, reply: str) -> str:
        return reply

    def answer(self, line: bytes) -> Answer:
        assert line == b"HELP\r\n"
        self.heard += 1
        return Answer("214 all of it")


class Transport(asyncio.Transport):
    """Has room for so many replies; the client reads none by itself."""

    room = 10
    session: SmtpSession
    reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        del name
        return default

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        del data
        self.room -= 1
        if not self.room:
            self.session.pause_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def test_a_client_that_reads_no_replies_is_not_read() -> None:
    async def life() -> None:
        commands, transport = Commands(), Transport()
        session = transport.session = SmtpSession(cast("SmtpCommands", commands), lambda _: None)
        session.connection_made(transport)
        session.data_received(b"HELP\r\n" * 100)
        assert (commands.heard, transport.reading) == (9, False), "the greeting was a reply too"
        transport.room = 50
        session.resume_writing()  # the client has read them
        assert (commands.heard, transport.reading) == (59, False)
        transport.room = 50
        session.resume_writing()
        assert (commands.heard, transport.reading) == (100, True)
        session.connection_lost(None)

    asyncio.run(life())
