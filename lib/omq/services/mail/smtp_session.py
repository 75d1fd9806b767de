"""One SMTP session: an asyncio protocol that reads commands, takes the text and answers.

What is allowed stands in omq.services.mail.smtp_commands, the text while it comes in
omq.services.mail.smtp_text, the put in omq.services.mail.smtp_intake.

Rules:
1. DATA is answered with 250 only after the durable put returned.
2. What is put is the text exactly as it was sent (after the doubled dots are undone) behind one
   Received field (RFC 5321 section 4.4).
3. PIPELINING (RFC 2920): what came is answered in order, one command at a time. While a put runs,
   or the client does not read its replies, nothing more is read from it.
4. A client that closes its half after the final dot still gets its reply; so does what it sent
   before. In the middle of a command or text nothing is left to answer.
5. Time: a whole command within `smtp_idle_timeout_s`; a text gets that and what its bytes earn
   (`smtp_text_bytes_s_min`); all together `smtp_session_s_max`. Single bytes hold no session.

Memory: a command line is bounded by COMMAND_BYTES_MAX, what waits behind it by one read of the
socket, texts by the count of all sessions. After a session nothing of it is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from omq.services.mail.smtp_text import Text

if TYPE_CHECKING:
    from omq.services.mail.smtp_commands import SmtpCommands
    from omq.services.mail.smtp_handler import Answer

COMMAND_BYTES_MAX: Final = 2048
"""RFC 5321 asks for 512, its extensions for more; addresses have 320 each."""

GOODBYE: Final = "421 4.3.2 the server shuts down"
_OUT_OF_TIME: Final = "421 4.4.2 out of time"
_LONG_COMMAND: Final = "500 5.5.2 the line is too long"
_LINGER_S: Final = 2.0
"""For the last words of a session that is closed, to a client that does not read."""


class SmtpSession(asyncio.Protocol):
    """One connection. `commands` says what each command means; `on_end` is told when it is over."""

    def __init__(self, commands: SmtpCommands, on_end: Callable[[SmtpSession], None]) -> None:
        self._commands = commands
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._at = 0  # what stands before it in the buffer is done
        self._text: Text | None = None
        self._put: asyncio.Task[None] | None = None
        self._overlong = False  # inside a command line that is too long
        self._blocked = False  # the client does not read its replies
        self._half_closed = False
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._ends = self._base = self._due = 0.0  # of the session, for the text, what is next
        self.draining = False

    @property
    def busy(self) -> bool:
        """In the middle of a mail transaction."""
        return self._text is not None or self._put is not None or self._commands.in_transaction

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        settings = self._commands.settings
        self._ends = self._loop.time() + settings.smtp_session_s_max
        answer = self._commands.begin(transport.get_extra_info("peername"))
        self._reply(answer.reply)
        if answer.close:
            self._close()
        else:
            self._expect_command()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if self._timer is not None:
            self._timer.cancel()
        self._closing = True
        self._rest()
        if self._text is not None:
            self._text.drop()
            self._text = None
        if self._put is None:  # a put that runs is waited for: the drain must not cut it off
            self._on_end(self)

    def data_received(self, data: bytes) -> None:
        if not self._closing:
            self._buffer = self._rest() + data
            self._work()

    def eof_received(self) -> bool:
        self._half_closed = True
        if self._closing:
            return False
        self._work()
        return not self._closing  # True: we may still answer

    def pause_writing(self) -> None:
        self._blocked = True
        self._flow()

    def resume_writing(self) -> None:
        self._blocked = False
        self._work()

    # what the server does

    def goodbye(self) -> None:
        """End a session that is between two messages."""
        if not self._closing:
            self._reply(GOODBYE)
            self._closing = True
            if self._transport is not None:
                self._transport.close()  # without waiting: the server is to stop

    def abort(self) -> None:
        """Cut the connection, whatever it is doing."""
        if self._transport is not None:
            self._transport.abort()

    # the work

    def _work(self) -> None:
        """Everything that has come and may be answered now."""
        while not (self._closing or self._blocked or self._put is not None):
            if self._text is not None:
                if self._at >= len(self._buffer):
                    break
                self._feed(self._text)
            else:
                line = self._line()
                if line is None:
                    break
                self._command(line)
        self._flow()
        idle = self._put is None and not self._blocked
        if self._half_closed and idle and not self._closing:
            self._close()

    def _rest(self) -> bytes:
        """Take what is not worked on yet out of the buffer."""
        rest = self._buffer[self._at :] if self._at else self._buffer
        self._buffer, self._at = b"", 0
        return rest

    def _line(self) -> bytes | None:
        """The next command line with its end; None: not here yet. One that is too long comes
        without an end, when that has come."""
        end = self._buffer.find(b"\n", self._at) + 1
        if not end:
            if len(self._buffer) - self._at > COMMAND_BYTES_MAX:
                self._rest()
                self._overlong = True
            return None
        overlong = self._overlong or end - self._at > COMMAND_BYTES_MAX
        line = b"" if overlong else self._buffer[self._at : end]
        self._at, self._overlong = end, False
        return line

    def _command(self, line: bytes) -> None:
        answer = self._commands.answer(line) if line else self._commands.refused(_LONG_COMMAND)
        self._text = answer.text
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        self._reply(answer.reply)
        if answer.close:
            self._close()
            return
        self._expect_command()
        if self.draining and not self.busy:
            self.goodbye()

    def _feed(self, text: Text) -> None:
        self._buffer = text.feed(self._rest())
        if not text.ended:
            rate = self._commands.settings.smtp_text_bytes_s_min
            self._due = self._base + text.received / rate if rate else self._ends
            return
        self._text = None
        if text.refusal:
            self._answer(self._commands.not_taken(text.refusal))
            return
        self._hold_time()
        self._put = self._loop.create_task(self._store(text))

    async def _store(self, text: Text) -> None:
        try:
            answer = await self._commands.store(text.take())
        finally:
            text.drop()
            self._put = None
            if self._closing:
                self._on_end(self)
        if not self._closing:
            self._answer(answer)
            self._work()

    def _reply(self, reply: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(reply.encode("utf-8", "replace") + b"\r\n")

    def _flow(self) -> None:
        """Read on only while what comes can be worked on."""
        if self._transport is None or self._transport.is_closing() or self._half_closed:
            return
        if self._put is not None or self._blocked:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _close(self) -> None:
        """Say no more. What the client sends is read and thrown away for a moment: closing over
        unread bytes would take the last reply from it (RFC 9293 section 3.10.4)."""
        self._closing = True
        self._rest()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is None or self._transport.is_closing():
            return
        if self._half_closed:
            self._transport.close()
        else:
            self._transport.write_eof()
            self._transport.resume_reading()
        self._timer = self._loop.call_later(_LINGER_S, self._transport.abort)

    # time

    def _expect_command(self) -> None:
        """From now on a whole command, or a text that moves, is waited for."""
        self._base = self._loop.time() + self._commands.settings.smtp_idle_timeout_s
        self._due = self._base
        self._watch()

    def _hold_time(self) -> None:
        """No time-out while the server itself makes the client wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if self._timer is None and not self._closing:
            self._timer = self._loop.call_at(min(self._due, self._ends), self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        if self._closing:
            return
        now = self._loop.time()
        if now < min(self._due, self._ends) or self._put is not None:
            self._watch()  # the deadline has moved since the timer was set: one timer a session
            return
        self._reply(_OUT_OF_TIME)
        self._close()
