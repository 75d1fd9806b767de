"""The check from outside: every recipient has every message exactly once, byte for byte.

For each (message, recipient) there must be one copy, in the recipient's Maildir or in a transaction
of the sink that names the recipient. A local recipient that does not exist must instead cause one
report (RFC 3464) in the sender's mailbox; the null sender gets none (RFC 5321 4.5.5). The copy's
bytes, less the trace fields on top, must be the sent bytes (without a Bcc field). No copy may tell
who a Bcc recipient is: neither in what was added on top nor by sharing a transaction.

The check keeps a count for each copy and report, and a digest of each sent message; the arrivals
stream through it. It trusts nothing that omq says about itself.

A duplicate of a message whose acceptance was in doubt for the feeder is SMTP's own weakness (RFC
1047): listed, but not held against omq.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from tests.demo.arrivals import Arrival, id_in_header, read_report, split_trace
from tests.demo.mails import ID_HEADER, Sent, digest_of, is_unknown
from tests.demo.transaction import Outcome

_CONTEXT_BYTES = 40  # shown around the first difference


@dataclass(slots=True)
class Findings:
    """What is wrong, one line each; `doubtful` alone is no fault of omq's."""

    missing: list[str] = field(default_factory=list)
    double: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    disclosed: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    copies: int = 0
    reports: int = 0

    @property
    def good(self) -> bool:
        """Whether everything arrived exactly once, unaltered, and undisclosed."""
        return not any(self.faults().values())

    def faults(self) -> dict[str, list[str]]:
        """The lists that count against omq, by their names."""
        names = [each.name for each in fields(self)]
        return {name: getattr(self, name) for name in names[: names.index("doubtful")]}


@dataclass(frozen=True, slots=True)
class Expected:
    """What one message must lead to: copies at these recipients, reports about those."""

    copies: frozenset[str]
    reports: frozenset[str]


def expected_of(sent: Sent, outcome: Outcome | None) -> Expected:
    """What must arrive for a message, given what the server said to the feeder.

    A recipient that does not exist may also be refused at once: then there is nothing to report.
    """
    refused = outcome.refused if outcome else {}
    unknown = {name for name in sent.recipients if is_unknown(name)}
    reported = {name for name in unknown if name not in refused} if sent.sender else set()
    return Expected(frozenset(sent.recipients) - unknown, frozenset(reported))


def expected_count(items: Iterable[Sent], outcomes: Mapping[str, Outcome]) -> int:
    """How many arrivals all these messages lead to (a report counts as one)."""
    expected = (expected_of(item, outcomes.get(item.demo_id)) for item in items)
    return sum(len(each.copies) + len(each.reports) for each in expected)


def verify(
    items: Iterable[Sent], outcomes: Mapping[str, Outcome], arrivals: Iterable[Arrival]
) -> Findings:
    """Compare what arrived with what was sent."""
    check = _Check({item.demo_id: item for item in items}, outcomes)
    for arrival in arrivals:
        check.take(arrival)
    check.settle()
    return check.findings


class _Check:
    def __init__(self, items: Mapping[str, Sent], outcomes: Mapping[str, Outcome]) -> None:
        self._items = items
        self._outcomes = outcomes
        self._copies: Counter[tuple[str, str]] = Counter()
        self._reports: Counter[tuple[str, str]] = Counter()
        self.findings = Findings()

    def take(self, arrival: Arrival) -> None:
        """Count one arrival and compare its bytes."""
        trace, rest = split_trace(arrival.data)
        demo_id = id_in_header(rest)
        if not demo_id:
            self._take_report(arrival, rest)
            return
        item = self._items.get(demo_id)
        recipient = arrival.recipient.lower()
        if item is None or recipient not in item.recipients or is_unknown(recipient):
            text = f"{demo_id} at {arrival.recipient}, which it was not sent to ({arrival.path})"
            self.findings.unexpected.append(text)
            return
        self._copies[demo_id, recipient] += 1
        self.findings.copies += 1
        self._compare(item, arrival, rest)
        self._find_disclosure(item, arrival, trace)

    def _take_report(self, arrival: Arrival, rest: bytes) -> None:
        report = read_report(rest)
        if report is None:
            text = f"a message that the demo did not send, at {arrival.recipient} ({arrival.path})"
            self.findings.unexpected.append(text)
            return
        self.findings.reports += 1
        item = self._items.get(report.demo_id)
        for failed in report.failed:
            if item is None or not self._is_due(item, failed, arrival.recipient):
                self.findings.unexpected.append(
                    f"{report.demo_id}: a report about {failed} at {arrival.recipient}"
                    f" ({arrival.path})"
                )
            else:
                self._reports[report.demo_id, failed] += 1

    def _is_due(self, item: Sent, failed: str, receiver: str) -> bool:
        expected = expected_of(item, self._outcomes.get(item.demo_id))
        return failed in expected.reports and receiver.lower() == item.sender

    def _compare(self, item: Sent, arrival: Arrival, rest: bytes) -> None:
        where = f"{item.demo_id} at {arrival.recipient} ({arrival.path})"
        if not rest.startswith(ID_HEADER):
            added = rest[:_CONTEXT_BYTES]
            self.findings.altered.append(f"{where}: no trace field on top: {added!r}")
        elif digest_of(rest) != item.digest:
            self.findings.altered.append(f"{where}: {_difference(item.to_arrive(), rest)}")

    def _find_disclosure(self, item: Sent, arrival: Arrival, trace: bytes) -> None:
        own = arrival.recipient.lower()
        for hidden in item.hidden:
            where = f"{item.demo_id} at {arrival.recipient}: Bcc recipient {hidden}"
            if hidden == own:
                if len(arrival.together) > 1:
                    others = ", ".join(name for name in arrival.together if name.lower() != own)
                    text = f"{where} shares a transaction with {others} ({arrival.path})"
                    self.findings.disclosed.append(text)
            elif hidden != item.sender and hidden.encode() in trace.lower():
                # The sender is named in Return-Path anyway, be it also a Bcc recipient.
                self.findings.disclosed.append(f"{where} is named on top ({arrival.path})")

    def settle(self) -> None:
        """After the last arrival: find what is missing or double."""
        for item in self._items.values():
            outcome = self._outcomes.get(item.demo_id)
            expected = expected_of(item, outcome)
            for recipient in sorted(expected.copies):
                count = self._copies[item.demo_id, recipient]
                self._judge(item, recipient, "copy", count, outcome)
            for recipient in sorted(expected.reports):
                count = self._reports[item.demo_id, recipient]
                self._judge(item, recipient, "report", count, outcome)

    def _judge(
        self, item: Sent, recipient: str, what: str, count: int, outcome: Outcome | None
    ) -> None:
        text = f"{item.demo_id}: {what} for {recipient}"
        if count == 0:
            self.findings.missing.append(f"{text}{_why(outcome, recipient)}")
        elif count > 1 and outcome is not None and outcome.in_doubt:
            self.findings.doubtful.append(f"{text}: {count} times, acceptance was in doubt")
        elif count > 1:
            self.findings.double.append(f"{text}: {count} times")


def _why(outcome: Outcome | None, recipient: str) -> str:
    if outcome is None or (not outcome.accepted and not outcome.refused):
        return " (the server never accepted the message)"
    refusal = outcome.refused.get(recipient)
    return f" (refused: {refusal})" if refusal else ""


def _difference(wanted: bytes, arrived: bytes) -> str:
    """Where two texts part, in words."""
    shorter = min(len(wanted), len(arrived))
    at = next((index for index in range(shorter) if wanted[index] != arrived[index]), shorter)
    expected = wanted[at : at + _CONTEXT_BYTES]
    found = arrived[at : at + _CONTEXT_BYTES]
    sizes = f"{len(arrived)} bytes arrived, {len(wanted)} expected"
    return f"{sizes}; at byte {at} expected {expected!r}, found {found!r}"
