"""Which policy of MTA-STS a domain has now: the DNS is asked for its record, its policy is fetched
where that is new, and kept (omq.services.mail.sts_cache).

1. Fetched when there is none, when the record has another id, and when what is kept is older than a
   day or half of its time, whichever is less.
2. Where the record or the policy cannot be had, what is kept counts until its time is over (RFC
   8461 section 5.1); where nothing is kept, the domain has none, and the failure is noted for the
   report.
3. What failed is not tried again for RETRY_S: a server that hangs costs its time once.

The DNS need not be signed: who takes the record away gains nothing while a policy is kept.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from omq.base import clock, events
from omq.base.errors import OmqError
from omq.base.event_log import WARNING
from omq.services.mail import sts_fetch
from omq.services.mail.sts_cache import Kept, StsCache
from omq.services.mail.sts_policy import NotAPolicyError, StsPolicy, identity_of, policy_of
from omq.services.mail.tls_sessions import TlsSession, TlsSessions

if TYPE_CHECKING:
    import ssl

    from omq.services.readers.service import ServiceContext

RETRY_S: Final = 300.0
FRESH_S: Final = 86_400
TRIED_MAX: Final = 10_000
INVALID: Final = "sts-policy-invalid"

Failed = Callable[[str, str, str], None]
"""Gets domain, RFC 8460's word and the reason."""
Texts = Callable[[str], Iterable[bytes] | None]
"""The TXT records of a name, () where there are none; None: there was no answer."""
Addresses = Callable[[str], Sequence[str]]


class StsDomains:
    """One process's. `failed` gets what could not be had, `unkept` what could not be written."""

    def __init__(self, cache: StsCache, context: ssl.SSLContext, timeout_s: float, failed: Failed,
                 unkept: Callable[[OmqError], None], close: Callable[[], None]) -> None:
        self._cache, self._context, self._timeout_s = cache, context, timeout_s
        self._failed, self._unkept, self._close = failed, unkept, close
        self._tried: OrderedDict[str, float] = OrderedDict()

    def of(self, domain: str, texts: Texts, addresses: Addresses) -> StsPolicy | None:
        """The policy that counts; None: none does."""
        now_ns = clock.wall_ns()
        kept = self._cache.of(domain)
        if kept is not None and not kept.counts(now_ns):
            kept = None
        answer = texts(f"_mta-sts.{domain}")
        identity = identity_of(answer) if answer is not None else ""
        if identity and self._wanted(domain, kept, identity, now_ns):
            kept = self._fetched(domain, identity, addresses) or kept
        if kept is None or kept.policy.mode == "none":
            return None
        return kept.policy

    def close(self) -> None:
        """The process ends."""
        self._close()

    def _wanted(self, domain: str, kept: Kept | None, identity: str, now_ns: int) -> bool:
        if self._tried.get(domain, 0.0) > time.monotonic():
            return False
        return (kept is None or kept.policy.identity != identity or kept.fetched_ns > now_ns
                or kept.age_s(now_ns) > min(FRESH_S, kept.policy.max_age_s / 2))

    def _fetched(self, domain: str, identity: str, addresses: Addresses) -> Kept | None:
        host = f"mta-sts.{domain}"
        try:
            text = sts_fetch.fetch(host, addresses(host), sts_fetch.PORT, self._context,
                                   self._timeout_s)
            policy = policy_of(text, identity)
        except sts_fetch.FetchError as error:
            self._none(domain, error.result, str(error))
            return None
        except NotAPolicyError as error:
            self._none(domain, INVALID, f"the policy of {domain}: {error}")
            return None
        kept = Kept(policy, clock.wall_ns())
        try:
            self._cache.keep(domain, kept)
        except OmqError as error:  # a full disk: it counts for this mail, and is fetched again
            self._unkept(error)
        return kept

    def _none(self, domain: str, result: str, reason: str) -> None:
        """It cannot be had now."""
        while len(self._tried) >= TRIED_MAX:
            self._tried.popitem(last=False)
        self._tried[domain] = time.monotonic() + RETRY_S
        self._failed(domain, result, reason)


def sts_domains(context: ServiceContext, trust: ssl.SSLContext | None) -> StsDomains | None:
    """Of a process of the gateway; None: `unix_mta_sts` is off. `trust`: whom it believes."""
    if trust is None:
        return None
    sessions = TlsSessions.of(context)

    def failed(domain: str, result: str, reason: str) -> None:
        context.log.event(events.STS_FAILED, WARNING, domain=domain, reason=reason)
        sessions.note(TlsSession(result=result, reason=reason), [domain], "sts", ())

    def unkept(error: OmqError) -> None:
        context.log.event(events.STS_NOT_KEPT, WARNING, reason=str(error))

    cache = StsCache(context.paths.sts(context.conf.name))
    return StsDomains(cache, trust, float(context.settings.unix_mta_sts_timeout_s), failed, unkept,
                      sessions.close)
