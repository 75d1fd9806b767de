"""What arrived, read from outside: the files of the Maildirs and of the sink.

Both readers yield one Arrival per recipient, its bytes as they lie in the file: omq's Maildirs keep
the CRLF line ends of the accepted message, so there is nothing to turn back.

A delivered copy is the sent message with trace fields on top (RFC 5321 4.4). `split_trace` takes
exactly those off; anything else on top remains and is found by the check.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import Message
from pathlib import Path

from tests.demo.mails import ID_HEADER, header_fields, local_address

_TRACE_FIELDS = frozenset((b"received", b"return-path", b"delivered-to"))
_ID_LINE = re.compile(rb"^" + ID_HEADER + rb": (\S+)\r?$", re.MULTILINE)
_MAILDIR_PARTS = ("new", "cur")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message at one recipient; `together` names all recipients of the same transaction."""

    recipient: str
    together: tuple[str, ...]
    data: bytes
    path: Path


@dataclass(frozen=True, slots=True)
class Report:
    """A delivery status report (RFC 3464): about which message, which recipients failed."""

    demo_id: str
    failed: tuple[str, ...]


def maildir_arrivals(root: Path) -> Iterator[Arrival]:
    """Every message in the Maildirs under `root`, one folder a user."""
    for maildir in _maildirs(root):
        recipient = local_address(maildir.name)
        for part in _MAILDIR_PARTS:
            for path in sorted((maildir / part).iterdir()):
                yield Arrival(recipient, (recipient,), path.read_bytes(), path)


def sink_arrivals(folder: Path) -> Iterator[Arrival]:
    """Every message in the sink's folder, once for each recipient of its transaction."""
    for path in sorted(folder.glob("*.msg")):
        head, _, data = path.read_bytes().partition(b"\n")
        recipients = tuple(json.loads(head)["recipients"])
        for recipient in recipients:
            yield Arrival(recipient, recipients, data, path)


def count_arrivals(mail_root: Path, sink_folder: Path) -> int:
    """How many arrivals there are now, by listing folders only (cheap enough to watch with)."""
    count = 0
    for maildir in _maildirs(mail_root):
        for part in _MAILDIR_PARTS:
            count += len(os.listdir(maildir / part))
    for name in os.listdir(sink_folder):
        count += int(name.removesuffix(".msg").rpartition("-")[2])
    return count


def _maildirs(root: Path) -> Iterator[Path]:
    if not root.is_dir():
        return
    for maildir in sorted(root.iterdir()):
        if all((maildir / part).is_dir() for part in _MAILDIR_PARTS):
            yield maildir


def split_trace(data: bytes) -> tuple[bytes, bytes]:
    """The trace fields on top, and all the rest."""
    end = 0
    for name, _, field_end in header_fields(data):
        if name not in _TRACE_FIELDS:
            break
        end = field_end
    return data[:end], data[end:]


def id_in_header(data: bytes) -> str:
    """The demo's id of a message whose header holds it; empty when it does not."""
    found = _ID_LINE.search(data.partition(b"\r\n\r\n")[0])
    return found[1].decode("ascii", "replace") if found else ""


def read_report(data: bytes) -> Report | None:
    """The message as a delivery status report; None when it is none or names no demo message."""
    message = message_from_bytes(data, policy=policy.compat32)
    if message.get_content_type() != "multipart/report":
        return None
    demo_id = ""
    failed: list[str] = []
    for part in message.walk():
        kind = part.get_content_type()
        if kind == "message/delivery-status":
            failed.extend(_failed_recipients(part))
        elif kind == "text/rfc822-headers":
            text = part.get_payload(decode=True)
            assert isinstance(text, bytes)  # a leaf part decodes to bytes
            demo_id = demo_id or id_in_header(text)
        elif kind == "message/rfc822":
            demo_id = demo_id or _id_of_returned(part)
    return Report(demo_id, tuple(failed)) if demo_id and failed else None


def _failed_recipients(status: Message) -> Iterator[str]:
    """The recipients as the sender knew them: Original-Recipient where given, else Final-."""
    blocks = status.get_payload()
    if not isinstance(blocks, list):
        return
    for block in blocks:
        assert isinstance(block, Message)
        name = block.get("Original-Recipient") or block.get("Final-Recipient")
        if name:
            yield str(name).rpartition(";")[2].strip().lower()


def _id_of_returned(part: Message) -> str:
    inner = part.get_payload()
    if not isinstance(inner, list) or not isinstance(inner[0], Message):
        return ""
    return str(inner[0].get(ID_HEADER.decode(), ""))
