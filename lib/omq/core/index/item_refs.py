"""Item references as listings show them: a large message's container, else where its bytes lie.

In the original every message had a container (`~/data/0000005/000084u`). Here only large ones have;
the payload of such a message ends in the reference. Any other message is shown by the place of its
payload, in the same manner: `~/journal/0000000007.jnl:4224`.

Invariants: 1. `of` always gives one printable word, whatever the numbers are; 2. a reference is
shown only if it has the form that storage.containers accepts; 3. nothing is read for a message
without a container.
Errors: none; a payload that cannot be read gives the place instead.
"""

from __future__ import annotations

import re
from typing import Final

from omq.base import limits
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.format.findings import Finding
from omq.format.location import NUMBER_MASK, LocationKind, kind_of, location, number_of
from omq.format.message import DESCRIPTOR, PART, decode
from omq.format.pool import RecordFlag
from omq.storage import containers, journal, store, volatile
from omq.storage.payloads import PayloadReader

_REF_BYTES_MAX: Final = 64
_CONTAINER: Final = int(RecordFlag.CONTAINER)  # `&` of enum members costs more than the rest
_PAYLOAD_BYTES_MAX: Final = (
    DESCRIPTOR.size + limits.QUEUES_MAX * PART.size + limits.PROPERTIES_BYTES_MAX + _REF_BYTES_MAX)
"""The payload of a container has no body, so a longer one is not one."""
_PLACE: Final = re.compile(r"(~/(?:journal|store|volatile)/)0*([0-9]+)\.[a-z]+(:[0-9]*)")
_SHOWN: Final = re.compile(
    r"~/(journal|archive|store|volatile)/0*([0-9]{1,10})(?:\.[a-z]+)?:([0-9]{1,18})")
_KINDS: Final = {"journal": LocationKind.JOURNAL, "archive": LocationKind.JOURNAL,
                 "store": LocationKind.STORE, "volatile": LocationKind.VOLATILE}
_FILES_MAX: Final = 8  # open files; neighbours in a listing mostly lie in the same one


def place(word: int, offset: int) -> str:
    """`~/journal/0000000007.jnl:4224`: directory and file of a location word, offset in bytes."""
    kind, number = kind_of(word), number_of(word)
    if kind == LocationKind.JOURNAL:
        return f"~/journal/{journal.file_name(number)}:{offset}"
    if kind == LocationKind.STORE:
        return f"~/store/{store.file_name(number)}:{offset}"
    if kind == LocationKind.VOLATILE:
        return f"~/volatile/{volatile.file_name(number)}:{offset}"
    return f"~/unknown/{word:#010x}:{offset}"


def brief(ref: str) -> str:
    """`~/journal/7:4224` of `~/journal/0000000007.jnl:4224`: for listings of 80 columns. What is no
    place stays as it is."""
    return _PLACE.sub(r"\1\2\3", ref)


def place_of(ref: str) -> tuple[int, int] | None:
    """(location word, offset) of a place, as `place` or `brief` shows it; None: it is none."""
    match = _SHOWN.fullmatch(ref)
    if match is None or int(match[2]) > NUMBER_MASK:
        return None
    return location(_KINDS[match[1]], int(match[2])), int(match[3])


class ItemRefs:
    """Finds references for the messages of one spool; keeps payload files open until `close`."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._payloads = PayloadReader(paths, files_max=_FILES_MAX)

    def of(self, word: int, offset: int, length: int, flags: int) -> str:
        """The reference of a message; `flags` as in a pool record or in the index."""
        if flags & _CONTAINER and length <= _PAYLOAD_BYTES_MAX:
            ref = self._container(word, offset, length)
            if ref:
                return ref
        return place(word, offset)

    def _container(self, word: int, offset: int, length: int) -> str:
        try:
            raw = self._payloads.read(word, offset, length)
            payload = decode(raw)
            if isinstance(payload, Finding):
                return ""
            ref = raw[payload.body_at : payload.end].decode("ascii", "backslashreplace")
            containers.relative_path(ref)  # BadItemRef when it has not the form of one
        except OmqError:
            return ""  # the place says more than a reference that cannot be trusted
        return ref

    def close(self) -> None:
        """Close the payload files; `of` opens them again."""
        self._payloads.close()
