"""What the fast path reads and writes of a client with each request: the typed part of
ipc.server.sessions.Session (ADR 0212)."""

from __future__ import annotations

from omq.fast.party import Party
from omq.fast.waiter import Waiter


class ClientState:
    """See the module. `token`: 16 bytes; `reply`, `request`: the halves of its channel."""

    __slots__ = ("auxiliary", "cancelled", "gone", "last", "look_ns", "lost", "noted", "party",
                 "prompt", "queue", "reply", "request", "rights", "semaphore", "sequence", "token",
                 "trusted", "waiter")

    def __init__(self, party: Party, token: bytes, reply: memoryview, request: memoryview) -> None:
        self.party, self.token, self.reply, self.request = party, token, reply, request
        self.trusted = False  # it reads the spool's files itself
        self.sequence = 0  # last request taken
        self.queue = 0  # read by this client, 0 = none
        self.auxiliary = False
        self.prompt = False  # it keeps a note (ipc.server.reader_notes)
        self.look_ns = 0  # when the manager looks at it, 0 = it does not
        self.noted: set[tuple[int, int]] = set()  # carried out by a look
        self.waiter: Waiter | None = None
        self.cancelled = 0  # the request that is not to wait, as its client has said
        self.rights: dict[tuple[str, int], bool] = {}
        self.last = (0, 0, 0, 0)  # carried out: sequence, count, QPoolId, LSN
        self.lost = 0  # settlements of the request under way that did not hold
        self.gone = False
        self.semaphore = -1  # its id; -1: none

    def announce(self) -> None:
        """Release the semaphore, where the fast path has not."""
        raise NotImplementedError
