"""Where a recipient of a stranger is verified at the next host: after our own checks and those of
the policy services, before the milters. Each session waits for its own answer alone.
"""

from __future__ import annotations

from functools import partial

from omq.base import names
from omq.services.mail.smtp_handler import Answer, Listener
from omq.services.mail.smtp_policy_asking import AskingCommands


class VerifyingCommands(AskingCommands):
    """A session whose recipients are verified (smtp_verify)."""

    def _on_rcpt(self, argument: str) -> Answer | str:
        found = super()._on_rcpt(argument)
        if (self._handler.policy.probes is None or not isinstance(found, Answer)
                or self._listener is Listener.RETURNED or self._may_relay):
            return found
        return Answer("", work=partial(self.sure, self._verify, found))

    async def _verify(self, taken: Answer) -> Answer:
        if taken.work is not None:  # policy services come first
            taken = await taken.work()
        given, probes = self._mail, self._handler.policy.probes
        if given is None or probes is None or not taken.reply.startswith("250"):
            return taken
        address = given.recipients[-1]
        destinations, _ = given.resolved[address]
        if len(destinations) != 1 or destinations[0].queue != names.UNIX:
            return taken  # an alias for several is taken, and who fails is reported
        peer = probes.peer(destinations[0].address)
        reply = await probes.reply(destinations[0].address, peer) if peer is not None else ""
        if not reply or self._mail is not given:
            return taken
        return self._without(given, address, reply)
