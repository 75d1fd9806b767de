"""What filters want changed in a mail, carried out: header, body, envelope, quarantine.

Counting is libmilter's: `change` means the n-th field of that name (from 1; beyond the last it is
added, an empty value removes it), `insert` a place among all fields (0: before the first).

Invariants: 1. a mail is changed by a filter's whole answer or not at all: `Changed` is a new value;
2. what is not named stays byte for byte; 3. it is bounded: milter_packets.CHANGES_MAX, the size of
a message.

Errors: MilterWrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from omq.services.mail import mail_message as mail
from omq.services.mail import milter_packets as packets
from omq.services.mail.milter_packets import Change, MilterWrong, Steps
from omq.services.mail.smtp_address import path_of
from omq.services.mail.smtp_handler import address_problem


@dataclass(frozen=True, slots=True)
class Changed:
    """A mail as filters left it. `text`: without our Received field; `held`: why it is set aside,
    empty: it is not."""

    sender: str
    recipients: tuple[str, ...]
    text: bytes
    held: str = ""


def apply(given: Changed, changes: Sequence[Change], steps: Steps, *, scan_bytes: int, utf8: bool
          ) -> Changed:
    """The mail after these changes, in their order. MilterWrong."""
    found = given
    if any(each.command in _HEADER for each in changes):
        found = replace(found, text=_with_header(found.text, changes, steps, scan_bytes))
    body = [each.value for each in changes if each.command == packets.REPLACE_BODY]
    if body:
        end = mail.header_end(found.text, scan_bytes)
        found = replace(found, text=found.text[:end] + b"\r\n" + b"".join(body))
    for each in changes:
        found = _envelope(found, each, utf8=utf8)
    return found


_HEADER: Final = frozenset((packets.ADD_HEADER, packets.INSERT_HEADER, packets.CHANGE_HEADER))


def _with_header(text: bytes, changes: Iterable[Change], steps: Steps, scan_bytes: int) -> bytes:
    parts = list(mail.header_fields(text, scan_bytes))
    end = max((at for _, _, at in parts), default=0)
    fields = [(name, text[start:stop]) for name, start, stop in parts]
    rest = text[end:]
    if not rest.startswith((b"\r\n", b"\n")):  # it had no header: what is added must not join it
        rest = b"\r\n" + rest
    for each in changes:
        if each.command not in _HEADER:
            continue
        name = each.name.lower()
        made = (name, packets.field(each.name, each.value, steps))
        if each.command == packets.ADD_HEADER:
            fields.append(made)
        elif each.command == packets.INSERT_HEADER:
            fields.insert(min(each.index, len(fields)), made)
        else:
            places = [at for at, (known, _) in enumerate(fields) if known == name]
            if each.index > len(places) or not places:
                fields += [made] if each.value else []
            elif each.value:
                fields[places[max(each.index, 1) - 1]] = made
            else:
                del fields[places[max(each.index, 1) - 1]]
    return b"".join(field for _, field in fields) + rest


def _envelope(given: Changed, change: Change, *, utf8: bool) -> Changed:
    if change.command == packets.QUARANTINE:
        return replace(given, held=mail.one_line(change.value.decode("utf-8", "replace"))
                       or "by a filter")
    if change.command == packets.CHANGE_FROM:
        return replace(given, sender=_address(change.value, utf8=utf8, empty=True))
    if change.command in (packets.ADD_RCPT, packets.ADD_RCPT_ARGS):
        address = _address(change.value, utf8=utf8)
        return replace(given, recipients=tuple(dict.fromkeys((*given.recipients, address))))
    if change.command == packets.DELETE_RCPT:
        address = _address(change.value, utf8=True)
        return replace(given, recipients=tuple(each for each in given.recipients
                                               if each.lower() != address.lower()))
    return given


def _address(value: bytes, *, utf8: bool, empty: bool = False) -> str:
    text = value.decode("utf-8", "replace").strip()
    path = path_of(text if text.startswith("<") else f"<{text}>")
    address = path[0] if path else text
    if not address and empty:
        return ""
    problem = address_problem(address, utf8=utf8)
    if path is None or problem:
        raise MilterWrong(f"it names something that is not an address: {problem}")
    return address
