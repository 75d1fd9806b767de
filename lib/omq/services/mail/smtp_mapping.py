"""MAIL and RCPT where maps of addresses are asked: a session waits for its own answer alone.

A command is carried out with what is remembered. Where an answer is missing it is fetched, and the
command is carried out again; what it counts is counted once. A map that gives no answer refuses for
now (451): its mail is neither lost nor given to somebody else. Event 1521, at a bounded rate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from omq.base import events
from omq.base.event_log import WARNING
from omq.services.mail.map_errors import MapFailed, MapMissing
from omq.services.mail.smtp_cleaning import CleaningCommands
from omq.services.mail.smtp_handler import Answer

LOOKUPS_MAX: Final = 1000
"""For one command: `Routes.resolve` ends before; this bounds answers that are forgotten at once."""
_NO_ANSWER: Final = "451 4.3.0 the address cannot be looked up now, try again later"

Command = Callable[[str], Answer | str]


class MappingCommands(CleaningCommands):
    """A session whose addresses are looked up."""

    def _on_mail(self, argument: str) -> Answer | str:
        return self._with_maps(super()._on_mail, argument)

    def _on_rcpt(self, argument: str) -> Answer | str:
        return self._with_maps(super()._on_rcpt, argument)

    def _with_maps(self, command: Command, argument: str) -> Answer | str:
        try:
            return command(argument)
        except MapMissing as missing:
            return Answer("", work=partial(self._looked_up, command, argument, missing))
        except MapFailed as error:
            return self._unanswered(error)

    async def _looked_up(self, command: Command, argument: str, missing: MapMissing) -> Answer:
        given, found = self._mail, None
        for _ in range(LOOKUPS_MAX):
            await missing.maps.fetch(missing.key)
            assert self._mail is given, "nothing is read while this waits"
            self._counted = True
            try:
                found = command(argument)
                break
            except MapMissing as another:
                missing = another
            except MapFailed as error:
                found = self._unanswered(error)
                break
            finally:
                self._counted = False
        if found is None:
            found = self._unanswered(MapFailed("maps", f"more than {LOOKUPS_MAX} look-ups"))
        while isinstance(found, Answer) and found.work is not None:
            found = await found.work()
        return found if isinstance(found, Answer) else self.refused(found)

    def _unanswered(self, error: MapFailed) -> str:
        self._handler.rated.event(events.MAIL_MAP_FAILED, WARNING, error.source, map=error.source,
                                  reason=error.reason)
        return self._no("RCPT" if self._mail else "MAIL", _NO_ANSWER, "")
