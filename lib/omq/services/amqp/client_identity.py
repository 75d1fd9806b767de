"""Who a client of AMQP is: what its SASL said, its certificate, the account, the event of it.

Errors: none; somebody who is nobody is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omq.base import events
from omq.base.event_log import REPORT, WARNING
from omq.services.amqp.policy import ANONYMOUS, EXTERNAL, PLAIN
from omq.services.amqp.sasl_door import Outcome, SaslResponse
from omq.services.network.accounts import Account

if TYPE_CHECKING:
    from omq.services.amqp.host import Host


async def proved(host: Host, peer: str, shown: str, asked: SaslResponse
                 ) -> tuple[Account | None, Outcome]:
    """Who this is; `shown`: the name in its certificate. The event says what came of it."""
    policy, log = host.policy, host.rated
    mechanism = asked.mechanism or ANONYMOUS
    name = ""
    if mechanism not in policy.mechanisms(certificate=bool(shown)):
        log.event(events.AMQP_LOGIN_FAILED, WARNING, peer, peer=peer,
                  mechanism=mechanism[:32], reason="the mechanism is not offered")
        return None, Outcome.REFUSED
    if mechanism == PLAIN:
        credentials = asked.credentials()
        if not host.may_log_in(peer):
            return None, Outcome.LATER
        if credentials is not None and await host.password_right(*credentials):
            name = credentials[0]
    elif mechanism == EXTERNAL:
        name = shown
    else:
        name = policy.settings.amqp_anonymous_user
    user = await host.account(name) if name else None
    if user is None:
        host.login_failed(peer)
        log.event(events.AMQP_LOGIN_FAILED, WARNING, peer, peer=peer, mechanism=mechanism,
                  user=name or "?",
                  reason="no account for it" if name else "wrong name or password")
        return None, Outcome.REFUSED
    log.event(events.AMQP_LOGIN, REPORT, user.name, peer=peer, user=user.name,
              mechanism=mechanism)
    return user, Outcome.ACCEPTED
