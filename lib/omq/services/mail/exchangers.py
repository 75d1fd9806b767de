"""What unix.out knows of the hosts of domains: names that were looked up, hosts that fail.

Bounded: NAMES_KNOWN domains, the one that was looked up first goes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from omq.services.mail.names import NAMES_KNOWN, Exchanger, Found

if TYPE_CHECKING:
    from omq.services.mail.routes import TlsRule


class Exchangers:
    """Times are monotonic."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, Found]] = OrderedDict()
        self._unreached: OrderedDict[str, float] = OrderedDict()

    def of(self, domain: str) -> Found | None:
        """What is known of a domain; None: it is to be looked up."""
        until, found = self._known.get(domain, (0.0, None))
        return found if until > time.monotonic() else None

    def learn(self, domain: str, found: Found) -> None:
        """It was looked up."""
        while len(self._known) >= NAMES_KNOWN:
            self._known.popitem(last=False)
        self._known[domain] = time.monotonic() + found.ttl_s, found

    def failed(self, host: str, seconds: float) -> None:
        """It cannot be reached for this long."""
        while len(self._unreached) >= NAMES_KNOWN:
            self._unreached.popitem(last=False)
        self._unreached[host] = time.monotonic() + seconds

    def best(self, domain: str, found: Found, rule: TlsRule | None) -> Exchanger | None:
        """Who is to have mail for the domain: the most preferred that is not known to fail, else
        the most preferred. None: its TLS rule allows nobody."""
        allowed = [each for each in found.ordered()
                   if rule is None or rule.allows(each.host, domain)]
        now = time.monotonic()
        return next((each for each in allowed if self._unreached.get(each.host, 0.0) <= now),
                    allowed[0] if allowed else None)

    def another(self, domain: str) -> bool:
        """Whether there is a host for the domain that is not known to fail."""
        found, now = self.of(domain), time.monotonic()
        return found is not None and any(
            self._unreached.get(each.host, 0.0) <= now for each in found.hosts)
