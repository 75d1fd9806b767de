"""Header and body checks carried out: what happens to a mail, and its text with what was changed.

    [checks]                                         of routes.conf
    header, mime_header, nested_header, body = /path of a file (omq.services.mail.check_file)
    time_s = 10                      for all of a mail

Rules:
1. Each field and each line has the action of the first expression that matches it. The headers of
   parts and of attached messages are looked at as `header` says, where they have no file.
2. All expressions are matched before anything is done to the header: no field that an action
   made is looked at.
3. A check without an end in time, and a file that is wrong, have the mail wait: CheckFailed.
4. What is not named stays byte for byte.

It blocks: for a thread (smtp.server), or a reader's process (service.router).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from omq.base.amounts import duration
from omq.base.limits import KIB
from omq.services.mail.check_file import Action, CheckFile, Matched, Rules, reply_of
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.mime_pieces import Kind, Pieces

PIECE_BYTES_MAX: Final = 100 * KIB
"""Of a field or line, looked at: as Postfix's header_size_limit."""
NOTES_MAX: Final = 20
ADDED_MAX: Final = 100
Tick = Callable[[], None]


class CheckFailed(MapFailed):
    """A mail cannot be looked at now."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A mail after its checks. `refusal`: the reply; `held`: why it is set aside; `notes`: for
    mail.log."""

    text: bytes
    refusal: str = ""
    held: str = ""
    discarded: bool = False
    redirected: str = ""
    added: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Doing:
    """What is found while a text is looked at."""

    edits: list[tuple[int, int, bytes]] = field(default_factory=list)
    held: str = ""
    redirected: str = ""
    added: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Checks:
    """What routes.conf says."""

    files: dict[Kind, CheckFile] = field(default_factory=dict)
    time_s: float = 10.0

    def __bool__(self) -> bool:
        return bool(self.files)

    def of(self, text: bytes, scan_bytes: int, ends: float) -> Checked:
        """The text after its checks; `ends`: monotonic s. CheckFailed."""
        def tick() -> None:
            if time.monotonic() > ends:
                raise CheckFailed("[checks]", f"no end in {duration(self.time_s)}")

        tick()
        try:
            rules = {kind: file.rules() for kind, file in self.files.items()}
        except CheckFailed:
            raise
        except MapFailed as error:
            raise CheckFailed(error.source, error.reason) from error
        doing = _Doing()
        for piece in Pieces(text, scan_bytes):
            if not rules.keys() - {Kind.HEADER} and piece.kind is not Kind.HEADER:
                break
            known = rules.get(piece.kind)
            if known is None:
                continue
            matched = _first(known, text, piece.start, piece.end, tick)
            if matched is None:
                continue
            if matched.action is Action.PASS:
                break
            if matched.action in (Action.REJECT, Action.DISCARD):
                _note(doing, matched, text[piece.start : piece.end])
                refused = reply_of(matched) if matched.action is Action.REJECT else ""
                return Checked(text, refused, discarded=not refused, notes=tuple(doing.notes))
            _carry_out(doing, matched, text, piece.start, piece.end)
        return Checked(_edited(text, doing.edits), held=doing.held, redirected=doing.redirected,
                       added=tuple(doing.added), notes=tuple(doing.notes))

    def now(self, text: bytes, scan_bytes: int) -> Checked:
        """The same, with its time from now on."""
        return self.of(text, scan_bytes, time.monotonic() + self.time_s)


def _first(rules: Rules, text: bytes, start: int, end: int, tick: Tick) -> Matched | None:
    piece = text[start : min(end, start + PIECE_BYTES_MAX)].replace(b"\r\n", b"\n")
    return rules.first(piece.removesuffix(b"\n").decode("utf-8", "replace"), tick)


def _carry_out(doing: _Doing, matched: Matched, text: bytes, start: int, end: int) -> None:
    action, line = matched.action, matched.text.encode() + b"\r\n"
    if action is Action.PREPEND:
        doing.edits.append((start, start, line))
    elif action is Action.REPLACE:
        doing.edits.append((start, end, line))
    elif action in (Action.IGNORE, Action.STRIP):
        doing.edits.append((start, end, b""))
    elif action is Action.HOLD:
        doing.held = doing.held or matched.text or f"by {matched.where}"
    elif action is Action.REDIRECT:
        doing.redirected = matched.text
    elif action is Action.BCC and matched.text not in doing.added and (
            len(doing.added) < ADDED_MAX):
        doing.added.append(matched.text)
    if action not in (Action.IGNORE, Action.DUNNO, Action.OK, Action.PREPEND):
        _note(doing, matched, text[start:end])


def _note(doing: _Doing, matched: Matched, piece: bytes) -> None:
    if len(doing.notes) < NOTES_MAX:
        shown = " ".join(piece[:200].decode("utf-8", "replace").split())
        words = f": {matched.text}" if matched.text else ""
        doing.notes.append(f"{matched.action.value.lower()}: {shown[:150]!r} by "
                           f"{matched.where}{words}")


def _edited(text: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    if not edits:
        return text
    pieces, at = [], 0
    for start, end, new in edits:
        pieces += [text[at:start], new]
        at = end
    return b"".join([*pieces, text[at:]])
