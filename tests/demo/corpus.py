"""Where the demo's mail comes from: a mailbox given by the user, or CPython's own test messages.

A mailbox is an mbox file, a single message, a Maildir (with its subfolders), or a folder of .eml
files at any depth. The messages are used as they are, with three changes that submission by SMTP
asks for: line ends become CRLF, an mbox "From " line is dropped, and a few header lines are added
on top (the demo's id, where the message came from, the demo's recipients where To or Cc is free).
The addresses inside the messages get no mail: envelopes are drawn from the demo's own world.

A message that cannot be carried (NUL, a line longer than omq takes, nothing at all) is skipped with
its reason, never altered silently.

Errors: CorpusError when the path holds no mail.
"""

from __future__ import annotations

import importlib.util
import mailbox
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from omq.base.settings import DEFAULTS
from tests.demo.envelopes import Envelope, draw_envelope
from tests.demo.mails import ID_HEADER, Mail

_LINE_END = re.compile(rb"\r\n|\r|\n")
_MAILDIR_PARTS = ("new", "cur")


class CorpusError(Exception):
    """The named input holds no mail that can be used."""


@dataclass(frozen=True, slots=True)
class RawMail:
    """A message as found: a name to show (file, or file and number) and its bytes."""

    origin: str
    data: bytes


@dataclass(slots=True)
class Corpus:
    """Turns found messages into mail to send; `skipped` lists (origin, reason)."""

    seed: int
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def mails(self, found: Iterator[RawMail]) -> Iterator[Mail]:
        """Usable messages with an id and an envelope, in the order found."""
        for number, raw in enumerate(found):
            reason = unusable(raw.data)
            if reason:
                self.skipped.append((raw.origin, reason))
                continue
            rng = random.Random(f"omq corpus {self.seed} {number}")
            yield _adopt(raw, f"c{self.seed}-{number:06d}", draw_envelope(rng))


def unusable(data: bytes) -> str:
    """Why omq would not carry this message, or an empty string."""
    if not data.strip():
        return "empty"
    if b"\0" in data:
        return "holds a NUL byte"
    longest = max(len(line) for line in _LINE_END.split(data))
    allowed = DEFAULTS.smtp_line_bytes_max
    return f"has a line of {longest} bytes, allowed are {allowed}" if longest > allowed else ""


def read_mailbox(path: Path) -> Iterator[RawMail]:
    """All messages of an mbox file, single message file, Maildir or folder of .eml files."""
    if path.is_file():
        yield from _read_file(path)
    elif path.is_dir():
        files = _maildir_files(path) if _is_maildir(path) else sorted(path.rglob("*.eml"))
        if not files:
            raise CorpusError(f"{path} holds neither a Maildir's messages nor .eml files")
        for file in files:
            yield RawMail(str(file.relative_to(path)), file.read_bytes())
    else:
        raise CorpusError(f"{path} is neither a file nor a folder")


def cpython_folder() -> Path | None:
    """The folder of messages of CPython's own e-mail tests; None where it is not installed."""
    try:
        spec = importlib.util.find_spec("test.test_email")
    except ModuleNotFoundError:  # some distributions leave the whole `test` package out
        return None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "data"
    return folder if folder.is_dir() else None


def read_cpython(folder: Path) -> Iterator[RawMail]:
    """The RFC 822 messages among the test data."""
    for file in sorted(folder.glob("msg_*.txt")):
        yield RawMail(f"cpython/{file.name}", file.read_bytes())


def _read_file(path: Path) -> Iterator[RawMail]:
    with path.open("rb") as stream:
        is_mbox = stream.read(5) == b"From "
    if not is_mbox:
        yield RawMail(path.name, path.read_bytes())
        return
    box = mailbox.mbox(path, create=False)
    try:
        for number, key in enumerate(box.iterkeys()):
            yield RawMail(f"{path.name}#{number}", box.get_bytes(key))
    finally:
        box.close()


def _is_maildir(path: Path) -> bool:
    return all((path / part).is_dir() for part in _MAILDIR_PARTS)


def _maildir_files(path: Path) -> list[Path]:
    folders = [path, *(sub for sub in sorted(path.iterdir()) if sub.name.startswith("."))]
    return [
        file
        for folder in folders
        for part in _MAILDIR_PARTS
        for file in sorted((folder / part).glob("*"))
        if file.is_file()
    ]


def _adopt(raw: RawMail, demo_id: str, envelope: Envelope) -> Mail:
    """Give a found message its id and envelope, and bring its lines into the form of SMTP."""
    data = _LINE_END.sub(b"\r\n", raw.data)
    if data.startswith(b"From "):
        data = data.partition(b"\r\n")[2]
    if not data.endswith(b"\r\n"):
        data += b"\r\n"
    field_name = _free_address_field(data)
    visible = envelope.visible if field_name else ()
    lines = [f"{ID_HEADER.decode()}: {demo_id}"]
    if visible:
        lines.append(f"{field_name}: " + ",\r\n ".join(visible))
    origin = raw.origin.encode("ascii", "replace").decode()
    # Last, because a damaged message may begin with a continuation line: it then belongs to this.
    lines.append(f"X-Demo-Origin: {origin[:200]}")
    return Mail(
        demo_id=demo_id,
        sender=envelope.sender,
        recipients=envelope.recipients,
        hidden=tuple(name for name in envelope.recipients if name not in visible),
        data="\r\n".join(lines).encode("ascii") + b"\r\n" + data,
        origin=raw.origin,
    )


def _free_address_field(data: bytes) -> str:
    """To or Cc, whichever the message does not use yet; empty when it uses both."""
    head = b"\r\n" + data.partition(b"\r\n\r\n")[0].lower()
    for name in ("To", "Cc"):
        if b"\r\n" + name.lower().encode() + b":" not in head:
            return name
    return ""
