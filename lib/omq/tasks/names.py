"""Names of queues: those of Celery and dramatiq are any text, those of omq 16 of few characters.

A name that is legal in upper case, and is written in one case, is that: `celery` is CELERY. Every
other one keeps its beginning and gets 50 bits of its SHA-256 after it, so that two never meet:
`mail-out` is MAIL_.QK3XB72M6A. `orders` and `ORDERS` are one queue.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from omq.base.errors import BadName
from omq.base.names import SPECIAL_NAMES, check_queue_name

_STEM_BYTES: Final = 5
_DIGEST_CHARACTERS: Final = 10
_NOT_IN_NAMES: Final = re.compile(r"[^A-Z0-9_]")


def queue_name(name: str) -> str:
    """The queue of omq that a queue of this name is."""
    upper = name.upper()
    if name in (upper, name.lower()) and upper not in SPECIAL_NAMES:
        try:
            return check_queue_name(upper)
        except BadName:
            pass  # it gets one of the other kind
    digest = base64.b32encode(hashlib.sha256(name.encode()).digest()).decode()
    return f"{_NOT_IN_NAMES.sub('_', upper)[:_STEM_BYTES]}.{digest[:_DIGEST_CHARACTERS]}"
