"""Whether the next host takes mail for a recipient, found out by asking it (MAIL, RCPT, QUIT), so
that mail that could only come back is refused to its client.

1. Asked about recipients of strangers whose mail goes to a host of [peers] or `unix_smarthost`,
   over SMTP or LMTP: a session like unix.out's, without a text, from the null sender, with the same
   TLS and without a password.
2. 250, 251 and 252 to RCPT: there is such a recipient; 5yz that is about the address (RFC 3463 X.1,
   X.2, or without an enhanced status 550, 551, 553): there is none. Anything else is not an answer.
3. Bounded: probes at once, at one domain, and begun in a minute; answers that are remembered. What
   is beyond that, or has no answer in time, is 450, never a refusal for good.
4. Threads ask; nobody but the session in question waits, for `smtp_verify_timeout_s` at most. An
   answer that comes later than that is remembered all the same, up to ANSWER_S_MAX for each reply.

A verdict says all; errors of ours alone come through `reply`.
"""

from __future__ import annotations

import asyncio
import re
import smtplib
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omq.services.mail.mail_host import mail_hostname
from omq.services.mail.mail_message import one_line, split_address
from omq.services.mail.next_hop import NextHops
from omq.services.mail.peer_line import NotSecureError, Opening, Security, opened
from omq.services.mail.routes import Peer

if TYPE_CHECKING:
    from omq.base.settings import Settings
    from omq.services.mail.routes import Routes

KNOWN_MAX: Final = 10_000
FAILED_S: Final = 60.0
"""A host that gives no answer is left alone for so long, for this recipient."""
MINUTE_S: Final = 60.0
ANSWER_S_MAX: Final = 60.0
_WORDS_MAX: Final = 200
_TAKEN: Final = (250, 251, 252)
_NO_SUCH: Final = (550, 551, 553)
_ENHANCED: Final = re.compile(r"5\.(\d{1,3})\.\d{1,3}(\s|$)")
_ABOUT_ADDRESSES: Final = ("1", "2")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said to RCPT; "": the recipient is taken. `until`: monotonic."""

    reply: str
    until: float


class Probes:
    """Of one configuration. `ask` has a thread of its own for each call."""

    def __init__(self, settings: Settings, routes: Routes, security: Security,
                 now: Callable[[], float] = time.monotonic) -> None:
        self._ways = NextHops(settings, routes)
        self._settings, self._security, self._now = settings, security, now
        self._hostname = mail_hostname(settings)
        self.known: OrderedDict[str, Verdict] = OrderedDict()
        self._lock = threading.Lock()
        self._asked: dict[str, Future[Verdict]] = {}
        self._at_domains: Counter[str] = Counter()
        self._begun: deque[float] = deque()

    def peer(self, address: str) -> Peer | None:
        """Who is asked about this recipient; None: nobody."""
        way = self._ways.of(address)
        return way if isinstance(way, Peer) and way.channel in ("smtp", "lmtp") else None

    async def reply(self, address: str, peer: Peer) -> str:
        """What is to be said of this recipient; "": it is taken."""
        future = self._begin(address, peer)
        if isinstance(future, str):
            return future
        try:
            found = await asyncio.wait_for(
                asyncio.shield(asyncio.wrap_future(future)), self._settings.smtp_verify_timeout_s)
        except TimeoutError:
            return "450 4.1.1 the recipient is being verified, try again later"
        return found.reply

    def _begin(self, address: str, peer: Peer) -> Future[Verdict] | str:
        """The verdict to come, or a refusal at once."""
        settings, now = self._settings, self._now()
        domain = split_address(address)[1]
        with self._lock:
            found = self.known.get(address)
            if found is not None and found.until > now:
                return found.reply
            running = self._asked.get(address)
            if running is not None:
                return running
            while self._begun and self._begun[0] <= now - MINUTE_S:
                self._begun.popleft()
            if (len(self._asked) >= settings.smtp_verify_probes_max
                    or self._at_domains[domain] >= settings.smtp_verify_domain_max
                    or len(self._begun) >= settings.smtp_verify_minute_max):
                return "450 4.1.1 too many recipients are being verified, try again later"
            future = self._asked[address] = Future[Verdict]()
            self._at_domains[domain] += 1
            self._begun.append(now)
        threading.Thread(target=self._work, args=(address, domain, peer, future), name="probe",
                         daemon=True).start()
        return future

    def _work(self, address: str, domain: str, peer: Peer, future: Future[Verdict]) -> None:
        try:
            reply, seconds = self._asked_of(address, peer)
        except Exception as error:  # an error of ours is the session's that waits, and told there
            with self._lock:
                self._ended(address, domain)
            future.set_exception(error)
            return
        verdict = Verdict(reply, self._now() + seconds)
        with self._lock:
            self._ended(address, domain)
            self.known[address] = verdict
            self.known.move_to_end(address)
            while len(self.known) > KNOWN_MAX:
                self.known.popitem(last=False)
        future.set_result(verdict)

    def _ended(self, address: str, domain: str) -> None:
        """With the lock."""
        del self._asked[address]
        self._at_domains[domain] -= 1
        self._at_domains += Counter()  # without what is 0

    def _asked_of(self, address: str, peer: Peer) -> tuple[str, float]:
        """The reply, and for how long it is good."""
        settings = self._settings
        patience_s = min(ANSWER_S_MAX, float(settings.unix_reply_timeout_s))
        how = Opening(self._hostname, float(settings.unix_connect_timeout_s), patience_s,
                      self._security, peer.channel == "lmtp")
        try:
            line = opened(peer, (), how)
        except (OSError, smtplib.SMTPException, ValueError, NotSecureError) as error:
            return _unknown(f"{type(error).__name__}: {error}"), FAILED_S
        try:
            code, text = line.docmd("MAIL", "FROM:<>")
            if code != 250:
                return _unknown(f"{code} {text.decode('utf-8', 'replace')}"), FAILED_S
            code, text = line.docmd("RCPT", f"TO:<{address}>")
            with suppress(OSError, smtplib.SMTPException):  # all that was wanted is known
                line.putcmd("QUIT")
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return _unknown(f"{type(error).__name__}: {error}"), FAILED_S
        finally:
            line.close()
        words = one_line(f"{code} {text.decode('utf-8', 'replace')}")[:_WORDS_MAX]
        if code in _TAKEN:
            return "", float(settings.smtp_verify_positive_s)
        if _no_such(code, text.decode("utf-8", "replace")):
            return (f"550 5.1.1 the next host has no such recipient: {words}",
                    float(settings.smtp_verify_negative_s))
        return _unknown(words), FAILED_S


def _no_such(code: int, text: str) -> bool:
    enhanced = _ENHANCED.match(text)
    if enhanced is not None:
        return 500 <= code <= 599 and enhanced[1] in _ABOUT_ADDRESSES
    return code in _NO_SUCH


def _unknown(reason: str) -> str:
    return f"450 4.1.1 the recipient cannot be verified now: {one_line(reason)[:_WORDS_MAX]}"
