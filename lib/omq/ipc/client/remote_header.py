"""What a message says that is on its way to another queue manager: properties named `omq.*`.

    omq.remote.manager, omq.remote.queue    where it goes in the end
    omq.reply.manager, omq.reply.queue      (it came over a channel) where its reply goes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REMOTE_MANAGER: Final = "omq.remote.manager"
REMOTE_QUEUE: Final = "omq.remote.queue"
REPLY_MANAGER: Final = "omq.reply.manager"
REPLY_QUEUE: Final = "omq.reply.queue"


def reply_header(request: Mapping[str, str]) -> dict[str, str]:
    """What a reply says, by the properties of its request; nothing where that is from here."""
    queue = request.get(REPLY_QUEUE)
    return {REMOTE_MANAGER: request.get(REPLY_MANAGER, ""), REMOTE_QUEUE: queue} if queue else {}
