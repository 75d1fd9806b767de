"""Which message an operator means: a QPoolId in decimal, or a message id: 48 hexadecimal digits, or
the text that a submitter gave (digits alone are a QPoolId).

An id that the queue manager made has the QPoolId in it. One that the submitter gave is found by its
hash in the index, then compared with the descriptor of each message that has this hash.

Errors: BadRequest (neither a number nor an id); a message that cannot be read does not match.
"""

from __future__ import annotations

from typing import Final

from omq.base.errors import AccessDenied, BadRequest, OmqError
from omq.base.names import escape, parse_message_id
from omq.base.paths import SpoolPaths
from omq.core.index.view import IndexView
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.storage.payloads import PayloadReader

_QPOOL_MAX: Final = 1 << 63
_ID_DIGITS: Final = 48


def known_qpool(text: str, uuid: bytes) -> int | None:
    """The QPoolId that `text` says by itself; None: it is an id that a submitter gave."""
    if text.isascii() and text.isdigit() and len(text) < _ID_DIGITS:
        qpool = int(text)
        if 0 < qpool < _QPOOL_MAX:
            return qpool
    elif len(text) == _ID_DIGITS:
        return message_format.qpool_of(parse_message_id(text), uuid) or None
    else:
        parse_message_id(text)  # a text that a submitter gave, or BadRequest
        return None
    raise BadRequest(reason=f"{escape(text, 64)!r} is neither a QPoolId (a number) nor a message "
                     "id (48 hexadecimal digits or a text)")


def find_qpool(text: str, uuid: bytes, view: IndexView, paths: SpoolPaths) -> int | None:
    """The QPoolId of the message that `text` names; None: an id that no message has now.

    A QPoolId is given back as it is: whether there is such a message is another question."""
    qpool = known_qpool(text, uuid)
    if qpool is not None:
        return qpool
    wanted = parse_message_id(text)
    payloads = PayloadReader(paths, files_max=1)
    try:
        for row in view.with_key(message_format.id_hash(wanted)):
            if _id_of(payloads, row.word, row.offset, row.length) == wanted:
                return row.qpool
    finally:
        payloads.close()
    return None


def _id_of(payloads: PayloadReader, word: int, offset: int, length: int) -> bytes:
    try:
        found = message_format.decode(payloads.read(word, offset, length))
    except AccessDenied:
        raise  # "no message has it" would be a guess
    except OmqError:
        return b""
    return b"" if isinstance(found, Finding) else found.descriptor.message_id
