"""Where the text of a transaction is checked and its addresses are written anew: before milters and
the filter, so that a signature is made of what is sent.

The header and the envelope's sender are rewritten here; recipients when they are named (rule 1).

Rules:
1. Recipients are rewritten at RCPT: what counts there and later is the new address, but who may
   relay is asked about the one that was given, too.
2. Checks come first, and look at the mail as it was sent, without our own Received field; rewriting
   then sees what they made of it. Mail that the filter gives back has had both.
3. A stranger's header is rewritten with `headers = all` alone.
4. A check or a map without an answer refuses for now (451), events 1552 and 1521.

Crash argument: nothing of it is kept; killed before the durable put, the client has no 250.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from omq.base import events
from omq.base.event_log import WARNING
from omq.services.mail.content_checks import CheckFailed
from omq.services.mail.map_errors import MapFailed, MapMissing
from omq.services.mail.rewriting import Class, header_addresses, with_addresses
from omq.services.mail.smtp_data import NO_MEMORY, TOO_LARGE
from omq.services.mail.smtp_handler import Answer, Listener, Transaction
from omq.services.mail.smtp_milters import MilterCommands
from omq.services.mail.smtp_policy_asking import GONE

if TYPE_CHECKING:
    from omq.services.mail.content_checks import Checked
    from omq.services.mail.maps import Maps
    from omq.services.mail.rewriting import Rewriting

_NO_CHECK: Final = "451 4.3.0 the content cannot be checked now, try again later"
_NO_ANSWER: Final = "451 4.3.0 an address cannot be looked up now, try again later"


class CleaningCommands(MilterCommands):
    """A session whose mail is checked and rewritten."""

    async def _store(self, body: bytes) -> Answer:
        given, routes, memory = self._mail, self._handler.policy.routes, self._handler.memory
        assert given is not None
        if self._listener is Listener.RETURNED or not (routes.checks or routes.rewriting):
            return await super()._store(body)
        head, text = body[: given.head_bytes], body[given.head_bytes :]
        room = 2 * len(text)  # what checks, and then what rewriting makes of it
        if not memory.take(room):
            return self.not_taken(NO_MEMORY)
        try:
            found = await self._cleaned(given, text)
        except CheckFailed as error:
            self._handler.rated.event(events.MAIL_CHECK_FAILED, WARNING, error.source,
                                      checks=error.source, reason=error.reason,
                                      message_id=given.mail_id)
            return self.not_taken(_NO_CHECK)
        except MapFailed as error:
            self._handler.rated.event(events.MAIL_MAP_FAILED, WARNING, error.source,
                                      map=error.source, reason=error.reason,
                                      message_id=given.mail_id)
            return self.not_taken(_NO_ANSWER)
        finally:
            memory.give(room)
        if isinstance(found, str):
            return self.not_taken(found)
        return await super()._store(head + found)

    async def _cleaned(self, given: Transaction, text: bytes) -> bytes | str:
        """The text that is to be taken, or the reply to one that is not. MapFailed."""
        routes, scan_bytes = self._handler.policy.routes, self.settings.mail_header_scan_bytes
        if routes.checks:
            loop = asyncio.get_running_loop()
            ends = loop.time() + routes.checks.time_s  # its turn included; the clock is monotonic
            checked = await loop.run_in_executor(
                self._handler.looking, routes.checks.of, text, scan_bytes, ends)
            self._note(given, checked)
            if checked.refusal:
                return checked.refusal
            text = checked.text
        if routes.rewriting:
            text = await self._rewritten(given, routes.rewriting, text, scan_bytes)
        return TOO_LARGE if len(text) > self.settings.smtp_message_bytes_max else text

    def _note(self, given: Transaction, checked: Checked) -> None:
        """What checks say of the mail but of its text."""
        if checked.discarded:
            given.held = GONE
        elif given.held != GONE:
            given.held = given.held or checked.held
        given.redirected = checked.redirected or given.redirected
        given.added += [each for each in checked.added if each not in given.added]
        self._handler.mail_log.write(
            ("cleanup", f"{given.mail_id}: {each}") for each in checked.notes)

    async def _rewritten(self, given: Transaction, rewriting: Rewriting, text: bytes,
                         scan_bytes: int) -> bytes:
        wanted = {(Class.ENVELOPE_SENDER, given.sender): None}
        if rewriting.headers == "all" or (rewriting.headers == "own" and self._may_relay):
            wanted |= header_addresses(text, scan_bytes)
        try:
            async with asyncio.timeout(rewriting.time_s):
                answers = await _answers(rewriting, wanted)
        except TimeoutError as error:
            raise MapFailed("[rewriting]", "too many look-ups that are slow") from error
        given.sender = answers[Class.ENVELOPE_SENDER, given.sender]
        return with_addresses(text, answers, scan_bytes)


async def _answers(rewriting: Rewriting, wanted: Iterable[tuple[Class, str]]
                   ) -> dict[tuple[Class, str], str]:
    """Each address as it is written anew, while other sessions go on. MapFailed."""
    fetched: dict[tuple[int, str], tuple[str, ...] | None] = {}

    def look(maps: Maps, key: str) -> tuple[str, ...] | None:
        place = id(maps), key
        return fetched[place] if place in fetched else maps.known(key)

    found: dict[tuple[Class, str], str] = {}
    for kind, address in wanted:
        while (kind, address) not in found:
            try:
                found[kind, address] = rewriting.of(address, kind, look)
            except MapMissing as missing:
                fetched[id(missing.maps), missing.key] = await missing.maps.answer(missing.key)
    return found
