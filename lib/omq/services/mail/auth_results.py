"""Authentication-Results fields that say they are this host's, and came from outside: they go.

Whoever reads mail here believes such a field by its first word, the name of the host that checked
(RFC 8601 section 5): a stranger could write it into his own mail. Fields of other names stay.

No errors; a field whose name cannot be made out is kept, for nobody takes it for ours.
"""

from __future__ import annotations

import re
from typing import Final

from omq.services.mail import mail_message as mail

_FIELD: Final = b"authentication-results"
_COMMENT: Final = re.compile(r"\((?:[^()\\]|\\.)*\)")
_SERVER: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"(]+))')


def without_ours(text: bytes, hostname: str, scan_bytes: int) -> bytes:
    """The text without those of `hostname`; the very same object when there are none."""
    if _FIELD not in text[:scan_bytes].lower():
        return text
    cuts = [(start, end) for name, start, end in mail.header_fields(text, scan_bytes)
            if name == _FIELD and _server(text[start:end]) == hostname.lower().rstrip(".")]
    for start, end in reversed(cuts):
        text = text[:start] + text[end:]
    return text


def _server(field: bytes) -> str:
    value = " ".join(field.partition(b":")[2].decode("utf-8", "replace").split())
    before = ""
    while value != before:  # comments may lie in one another; each turn removes the inner ones
        before, value = value, _COMMENT.sub(" ", value)
    found = _SERVER.match(value)
    if found is None:
        return ""
    name = re.sub(r"\\(.)", r"\1", found[1]) if found[1] is not None else found[2]
    return name.lower().rstrip(".")
