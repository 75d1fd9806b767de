"""One SMTP session: an asyncio protocol that reads commands, takes the text and answers.

What is allowed is in omq.services.mail.smtp_commands, the text while it comes in
omq.services.mail.smtp_data, the put in omq.services.mail.smtp_intake.

Rules:
1. DATA is answered with 250 only after the durable put returned.
2. What is put is the text exactly as it was sent (after the doubled dots are undone) behind one
   Received field (RFC 5321 section 4.4).
3. PIPELINING (RFC 2920): what came is answered in order, one command at a time. While a put runs,
   or the client does not read its replies, nothing more is read from it.
4. A client that closes its half after the final dot still gets its reply; so does what it sent
   before. In the middle of a command or text nothing is left to answer.
5. TLS begins when the client asks for it, or with the connection (a port of that kind). What came
   in plain behind STARTTLS is thrown away: it would be read as if it had come encrypted
   (CVE-2011-0411). The handshake has `tls_handshake_timeout_s`, and counts as a session.
6. Time: a whole command within `smtp_idle_timeout_s`; a text gets that and what its bytes earn
   (`smtp_text_bytes_s_min`); all together `smtp_session_s_max`. Single bytes hold no session.

Memory: what waits is bounded (omq.services.mail.smtp_input), texts by the count of all sessions.
After a session nothing of it is held.

How long a session waits for its client: one timer, looked at when it is due instead of being
moved for each command.

Times are the loop's. A whole command comes within `smtp_idle_timeout_s`; a text has that and what
its bytes earn (`smtp_text_bytes_s_min`); all together `smtp_session_s_max`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from omq.services.mail.smtp_chunk import Chunk
from omq.services.mail.smtp_data import Text
from omq.services.mail.smtp_input import Input
from omq.services.network.source import source_of
from omq.services.network.tls import accepted, secured

if TYPE_CHECKING:
    from omq.base.settings import Settings
    from omq.services.mail.smtp_commands import SmtpCommands
    from omq.services.mail.smtp_handler import Answer


class Patience:
    """`over` is called once the client has had its time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Callable[[], Settings],
                 over: Callable[[], None]) -> None:
        self._loop, self._settings, self._over = loop, settings, over
        self._timer: asyncio.TimerHandle | None = None
        self._ends = loop.time() + settings().smtp_session_s_max  # of the session
        self._base = self._due = self._ends  # for the text, for what is next

    def expect(self) -> None:
        """From now on a whole command, or a text that moves, is waited for."""
        self._base = self._due = self._loop.time() + self._settings().smtp_idle_timeout_s
        self._watch()

    def grant(self, received: int) -> None:
        """So much of a text has come: it earns time."""
        rate = self._settings().smtp_text_bytes_s_min
        self._due = self._base + received / rate if rate else self._ends

    def hold(self) -> None:
        """No time-out: the server itself makes the client wait, or the session is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_at(min(self._due, self._ends), self._check)

    def _check(self) -> None:
        self._timer = None
        if self._loop.time() < min(self._due, self._ends):
            self._watch()  # it has moved since the timer was set
        else:
            self._over()


GOODBYE: Final = "421 4.3.2 the server shuts down"
_OUT_OF_TIME: Final = "421 4.4.2 out of time"
_LONG_COMMAND: Final = "500 5.5.2 the line is too long"
_LINGER_S: Final = 2.0
"""For the last words of a session that is closed, to a client that does not read."""


class SmtpSession(asyncio.Protocol):
    """One connection. `commands` says what each command means; `on_end` is called when it is
    over."""

    def __init__(self, commands: SmtpCommands, on_end: Callable[[SmtpSession], None], *,
                 tls_first: bool = False) -> None:
        self._commands = commands
        self._tls_first = tls_first
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._input = Input()
        self._text: Text | None = None
        self._chunk: Chunk | None = None
        self._task: asyncio.Task[None] | None = None  # a put, or what else takes its time
        self._handshaking = False
        self._blocked = False  # the client does not read its replies
        self._half_closed = False
        self._can_half_close = True
        self._closing = False
        self._linger: asyncio.TimerHandle | None = None
        self._patience = Patience(self._loop, lambda: commands.settings, self._out_of_time)
        self.draining = False

    @property
    def busy(self) -> bool:
        """In the middle of a mail transaction."""
        return not self._handshaking and (
            self._text is not None or self._task is not None or self._commands.in_transaction)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        refusal = self._commands.admit(transport.get_extra_info("peername"),
                                       source_of(transport.get_extra_info("socket")))
        if self._tls_first and refusal:
            transport.abort()  # words in plain would mean nothing to it
        elif self._tls_first:
            self._start_tls()
        elif refusal:
            self._reply(refusal)
            self._close()
        else:
            self._answer(self._commands.greeting())

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._patience.hold()
        if self._linger is not None:
            self._linger.cancel()
        self._closing = True
        self._input.take()
        if self._text is not None:
            self._text.drop()
        self._text = None
        if self._task is None:  # a put that runs is waited for: the drain must not cut it off
            self._on_end(self)

    def data_received(self, data: bytes) -> None:
        if not self._closing:
            self._input.add(data)
            self._work()

    def eof_received(self) -> bool:
        self._half_closed = True
        if self._closing:
            return False
        self._work()
        # True: we may still answer; over TLS nobody may, it has no half of a connection.
        return not self._closing and self._can_half_close

    def pause_writing(self) -> None:
        self._blocked = True
        self._flow()

    def resume_writing(self) -> None:
        self._blocked = False
        self._work()

    # what the server does

    def goodbye(self) -> None:
        """End a session that is between two messages."""
        if self._handshaking:
            self.abort()
        elif not self._closing:
            self._reply(GOODBYE)
            self._closing = True
            self._shut()  # without waiting: the server is to stop

    def abort(self) -> None:
        """Cut the connection, whatever it is doing."""
        if self._transport is not None:
            self._transport.abort()

    # the work

    def _work(self) -> None:
        """Everything that has come and may be answered now."""
        while not (self._closing or self._blocked or self._task is not None):
            if self._chunk is not None:
                if self._chunk.left and not self._input:
                    break
                self._feed_chunk(self._chunk)
            elif self._text is not None:
                if not self._input:
                    break
                self._feed(self._text)
            else:
                line = self._input.line()
                if line is None:
                    break
                self._command(line)
        self._flow()
        idle = self._task is None and not self._blocked
        if self._half_closed and idle and not self._closing:
            self._close()

    def _command(self, line: bytes) -> None:
        commands = self._commands
        try:
            answer = commands.answer(line) if line else commands.too_long(_LONG_COMMAND)
        except Exception as error:
            answer = commands.failed(error)
        self._text, self._chunk = answer.text, answer.chunk
        if answer.chunk is not None:
            self._patience.expect()
        else:
            self._do(answer)

    def _do(self, answer: Answer) -> None:
        """Say so, or have the work done that gives the answer."""
        if answer.work is not None:
            self._run(answer.work())
        else:
            self._answer(answer)

    def _answer(self, answer: Answer | None) -> None:
        """Say so, and what follows from it; None: go on without a word."""
        if answer is not None:
            self._reply(answer.reply)
        if answer is not None and answer.close:
            self._close()
        elif answer is not None and answer.start_tls:
            self._start_tls()
        else:
            self._patience.expect()
            if self.draining and not self.busy:
                self.goodbye()

    def _feed(self, text: Text) -> None:
        self._input.add(text.feed(self._input.take()))
        if not text.ended:
            self._patience.grant(text.received)
            return
        self._text = None
        if text.refusal:
            self._answer(self._commands.not_taken(text.refusal))
            return
        self._run(self._commands.stored(text))

    def _feed_chunk(self, chunk: Chunk) -> None:
        if chunk.feed(self._input):
            self._chunk = None
            self._do(self._commands.chunk_ended(chunk))
        elif chunk.text is not None:
            self._patience.grant(chunk.text.received)

    def _run(self, work: Awaitable[Answer]) -> None:
        """Nothing is read until this has its answer."""
        self._patience.hold()
        self._task = self._loop.create_task(self._finish(work))

    async def _finish(self, work: Awaitable[Answer]) -> None:
        try:
            answer = await work
        except Exception as error:  # the client has a reply all the same
            answer = self._commands.failed(error)
        finally:
            self._task = None
            if self._closing:
                self._on_end(self)
        if not self._closing:
            self._answer(answer)
            self._work()

    # TLS

    def _start_tls(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self._input.take()  # rule 5
        self._handshaking = True
        self._patience.hold()
        self._task = self._loop.create_task(self._handshake(self._transport))

    async def _handshake(self, transport: asyncio.Transport) -> None:
        found = await accepted(self, transport, self._commands.tls,
                               self._commands.settings.tls_handshake_timeout_s, _LINGER_S)
        self._task, self._handshaking = None, False
        if isinstance(found, Exception):
            self._commands.not_secured(found)
            self._closing = True
            self._on_end(self)
            return
        self._transport, self._can_half_close = found, False
        self._commands.secured(secured(found.get_extra_info("ssl_object")))
        self._answer(self._commands.greeting() if self._tls_first else None)
        self._work()  # a client may send with the last piece of its handshake

    def _reply(self, reply: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._commands.said(reply).encode("utf-8", "replace") + b"\r\n")

    def _flow(self) -> None:
        """Read on only while what comes can be worked on. While nothing has come that waits, a
        session goes on to listen: most clients say nothing before they have their reply, and to
        stop and begin costs two calls. Not over TLS: there the end of what a client sends is the
        end of the connection, and would overtake the reply."""
        if self._transport is None or self._transport.is_closing() or self._half_closed:
            return
        if self._handshaking:
            return  # the transport below is the handshake's
        if self._task is not None or self._blocked:
            if self._input or not self._can_half_close:
                self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _close(self) -> None:
        """Say no more. What the client sends is read and thrown away for a moment: closing over
        unread bytes would take the last reply from it (RFC 9293 section 3.10.4)."""
        self._closing = True
        self._input.take()
        self._patience.hold()
        if self._transport is None or self._transport.is_closing():
            return
        if self._half_closed or not self._can_half_close:
            self._shut()
        else:
            self._transport.write_eof()
            self._transport.resume_reading()
        self._linger = self._loop.call_later(_LINGER_S, self._transport.abort)

    def _shut(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()  # asyncio's TLS never ends while it is paused
            self._transport.close()

    def _out_of_time(self) -> None:
        self._reply(_OUT_OF_TIME)
        self._close()
