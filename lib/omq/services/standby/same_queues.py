"""Would a promoted standby have the same queues? A standby says at its connection what its
queues.conf has, its primary compares that with its own, and shows what differs (`omq standby
status`, an alarm).

Each queue is sent as name and a digest of what its file says of it besides defaults, so comments
and the order of keys do not count, and a key that one side's omq does not know yet counts where it
is used. The files are read at each connection: a later change shows at the next one.

Nothing is refused for it: messages come anyway, and the file may be fixed before a promotion.

Errors: none: what cannot be read is reported so; what was not sent (by an omq from before) is not
reported.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from omq.base.config import QueueConf, load_queues
from omq.base.errors import OmqError

SAID: Final = "queues"
"""The field of HELLO; null: it cannot be read there."""
_NAMED_MAX: Final = 3
_DIGEST_BYTES: Final = 8

Digests = dict[str, str]


def digests(conf_dir: Path | None) -> Digests | None:
    """Of each queue; None: the file cannot be read."""
    try:
        queues = load_queues(conf_dir)
    except OmqError:
        return None
    return {name: _digest(queue) for name, queue in queues.items()}


def _digest(queue: QueueConf) -> str:
    said = [(each.name, getattr(queue, each.name)) for each in sorted(
        fields(queue), key=lambda each: each.name) if getattr(queue, each.name) != each.default]
    return hashlib.blake2b(repr(said).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def difference(conf_dir: Path | None, said: dict[str, Any]) -> str:
    """What people read; empty: they are alike, or the standby says nothing of it."""
    if SAID not in said:
        return ""
    own, other = digests(conf_dir), said[SAID]
    if own is None or not isinstance(other, dict):
        return f"queues.conf of {'the primary' if own is None else 'the standby'} cannot be read"
    names = sorted(name for name in own.keys() | other.keys() if own.get(name) != other.get(name))
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    told = ", ".join(ascii(str(name)[:100])[1:-1] for name in names[:_NAMED_MAX])
    return f"queues.conf differs: {told}{more}"
