"""A conversation with one filter about one mail (milter protocol, client's side).

Rules:
1. A filter answers each stage within `smtp_milter_timeout_s`; "progress" gives it that time again,
   PROGRESS_MAX times over a mail. All of its answer must have come by then.
2. What cannot be (a packet that is too long, a change before the end of the body, an answer that is
   none) ends the conversation: MilterFailed. Nothing that it wanted until then is done.
3. Each session waits for its own filter alone; nothing is shared between sessions.

Errors: MilterFailed, whose text says what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from omq.services.mail import mail_message as mail
from omq.services.mail import milter_packets as packets
from omq.services.mail.milter_packets import Change, MilterWrong, Negotiated, Steps

PROGRESS_MAX: Final = 10


class MilterFailed(Exception):
    """It is away, silent, or says what cannot be."""


class Kind(Enum):
    """What a filter says of a stage."""

    CONTINUE = "continue"
    ACCEPT = "accept"  # and is asked nothing more
    DISCARD = "discard"
    REFUSE = "refuse"  # with `reply`


@dataclass(frozen=True, slots=True)
class Verdict:
    """`changes`: at the end of the body alone."""

    kind: Kind
    reply: str = ""
    changes: Sequence[Change] = ()


CONTINUE: Final = Verdict(Kind.CONTINUE)
_ACCEPT: Final = Verdict(Kind.ACCEPT)
_PLAIN: Final = {packets.CONTINUE: CONTINUE, packets.SKIP: CONTINUE, packets.ACCEPT: _ACCEPT,
                 packets.DISCARD: Verdict(Kind.DISCARD),
                 packets.REJECT: Verdict(Kind.REFUSE, "550 5.7.1 refused by a filter"),
                 packets.TEMPFAIL: Verdict(Kind.REFUSE, "451 4.7.1 try again later")}


@dataclass(slots=True)
class Milter:
    """`open` it, then the stages in their order; `close` in any case."""

    place: str  # inet:host:port or unix:/path
    timeout_s: float
    bytes_max: int  # of a body that takes the place of another, and of all changes
    steps: Steps = Steps.NONE
    actions: int = 0
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None
    _progress: int = 0
    _done: bool = False
    _skipped: bool = False
    _version: int = packets.VERSION
    changes: list[Change] = field(default_factory=list)

    async def open(self) -> None:
        """Connect and negotiate. MilterFailed."""
        kind, _, where = self.place.partition(":")
        host, _, port = where.rpartition(":")
        try:
            async with asyncio.timeout(self.timeout_s):
                if kind == "unix":
                    self._reader, self._writer = await asyncio.open_unix_connection(where)
                else:
                    self._reader, self._writer = await asyncio.open_connection(
                        host.strip("[]"), int(port))
        except TimeoutError as error:
            raise MilterFailed("it cannot be reached in time") from error
        except OSError as error:
            raise MilterFailed(error.strerror or str(error)) from error
        command, data = await self._ask(packets.offer())
        if command != packets.NEGOTIATE:
            raise MilterFailed("it answers the negotiation with something else")
        found = _checked(data)
        self.steps, self.actions, self._version = found.steps, found.actions, found.version

    async def stage(self, command: int, packet: bytes, macros: dict[str, str]) -> Verdict:
        """What it says of a stage, which it may have left out. MilterFailed."""
        if self._done or self.steps & packets.LEFT_OUT.get(command, Steps.NONE):
            return CONTINUE
        message = (packets.macros(command, macros) if macros else b"") + packet
        if self.steps & packets.UNANSWERED.get(command, Steps.NONE):
            await self._send(message)
            return CONTINUE
        return self._verdict(*await self._ask(message))

    async def text(self, text: bytes, macros: dict[str, str], scan_bytes: int) -> Verdict:
        """DATA, header, body and the end. MilterFailed."""
        for command, packet in self._pieces(text, scan_bytes):
            found = await self.stage(command, packet, macros if command == packets.DATA else {})
            if found.kind is not Kind.CONTINUE:
                return found
            if self._skipped:
                break
        if self._done:
            return CONTINUE
        return await self._end(macros)

    def _pieces(self, text: bytes, scan_bytes: int) -> Iterator[tuple[int, bytes]]:
        if self.steps & Steps.NO_DATA == 0 and self._version >= 4:
            yield packets.DATA, packets.packet(packets.DATA)
        end = 0
        for _, start, end in mail.header_fields(text, scan_bytes):
            yield packets.HEADER, packets.header(text[start:end], self.steps)
        yield packets.END_OF_HEADER, packets.packet(packets.END_OF_HEADER)
        at = end + 2 if text[end : end + 2] == b"\r\n" else end + (text[end : end + 1] == b"\n")
        while at < len(text):
            piece = text[at : at + packets.CHUNK_BYTES]
            at += len(piece)
            yield packets.BODY, packets.packet(packets.BODY, piece)

    async def _end(self, macros: dict[str, str]) -> Verdict:
        command, data = await self._ask(packets.macros(packets.END_OF_BODY, macros)
                                        + packets.packet(packets.END_OF_BODY))
        size, body = 0, bytearray()  # which comes in pieces
        while command not in packets.VERDICTS:
            if command == packets.REPLACE_BODY:
                if not any(each.command == command for each in self.changes):
                    self.changes.append(Change(command, b""))
                body += data
            elif len(self.changes) >= packets.CHANGES_MAX:
                raise MilterFailed(f"it wants more than {packets.CHANGES_MAX} changes")
            else:
                self.changes.append(_change(command, data))
            size += len(data)
            if size > self.bytes_max:
                raise MilterFailed("its changes are larger than a message may be")
            command, data = await self._answer()
        self.changes = [replace(each, value=bytes(body)) if each.command == packets.REPLACE_BODY
                        else each for each in self.changes]
        found = self._verdict(command, data)
        keeps = found.kind in (Kind.CONTINUE, Kind.ACCEPT)
        return Verdict(found.kind, found.reply, tuple(self.changes) if keeps else ())

    def _verdict(self, command: int, data: bytes) -> Verdict:
        if command == packets.REPLY:
            try:
                return Verdict(Kind.REFUSE, packets.reply(data))
            except MilterWrong as error:
                raise MilterFailed(str(error)) from error
        found = _PLAIN.get(command)
        if found is None or (command == packets.SKIP and not self.steps & Steps.SKIP):
            raise MilterFailed(f"command {chr(command)!r} has no place at this stage")
        self._skipped = command == packets.SKIP
        self._done = self._done or command == packets.ACCEPT
        return found

    async def _ask(self, message: bytes) -> tuple[int, bytes]:
        await self._send(message)
        return await self._answer()

    async def _send(self, message: bytes) -> None:
        assert self._writer is not None
        try:
            async with asyncio.timeout(self.timeout_s):
                self._writer.write(message)
                await self._writer.drain()
        except TimeoutError as error:
            raise MilterFailed("it does not read") from error
        except OSError as error:
            raise MilterFailed(error.strerror or str(error)) from error

    async def _answer(self) -> tuple[int, bytes]:
        assert self._reader is not None
        while True:
            try:
                async with asyncio.timeout(self.timeout_s):
                    length = packets.number(await self._reader.readexactly(4))
                    if not 1 <= length <= packets.PACKET_BYTES_MAX:
                        raise MilterFailed(f"it sends a packet of {length} bytes")
                    data = await self._reader.readexactly(length)
            except TimeoutError as error:
                raise MilterFailed("it gives no answer in time") from error
            except asyncio.IncompleteReadError as error:
                raise MilterFailed("it went away in the middle") from error
            except OSError as error:
                raise MilterFailed(error.strerror or str(error)) from error
            if data[0] != packets.PROGRESS:
                return data[0], data[1:]
            self._progress += 1
            if self._progress > PROGRESS_MAX:
                raise MilterFailed("it only says that it goes on")

    def close(self) -> None:
        """Say good-bye and forget it; nobody waits for its answer."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):
                writer.write(packets.packet(packets.QUIT))
            writer.close()


_CHANGES: Final = frozenset((
    packets.ADD_HEADER, packets.INSERT_HEADER, packets.CHANGE_HEADER, packets.CHANGE_FROM,
    packets.ADD_RCPT, packets.ADD_RCPT_ARGS, packets.DELETE_RCPT, packets.QUARANTINE))


def _change(command: int, data: bytes) -> Change:
    if command not in _CHANGES:
        raise MilterFailed(f"command {chr(command)!r} is none that is known here")
    try:
        return packets.change(command, data)
    except MilterWrong as error:
        raise MilterFailed(str(error)) from error


def _checked(data: bytes) -> Negotiated:
    try:
        return packets.negotiated(data)
    except MilterWrong as error:
        raise MilterFailed(str(error)) from error
