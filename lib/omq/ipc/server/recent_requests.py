"""The last requests that a queue manager took, for its tombstone.

Kept as they came, a list a group, so that a request costs nothing and a group one append; they are
decoded when the manager dies. Memory is bounded by GROUPS groups of at most REQUESTS_PER_GROUP
requests. Tokens are never shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from omq.base.clock import iso_time
from omq.base.names import escape
from omq.format.wire import REQUEST, Operation
from omq.ipc.server.sessions import Session

GROUPS: Final = 32
SHOWN_MAX: Final = 100
_OPERATION_CHARACTERS_MAX: Final = 32
_OPERATIONS: Final = {int(operation): operation.name for operation in Operation}


class RecentRequests:
    """See the module. `under_way` is the request that is being carried out, empty between two."""

    def __init__(self) -> None:
        self.under_way = b""
        self.groups: deque[tuple[int, Sequence[bytes]]] = deque(maxlen=GROUPS)
        self._questions: deque[tuple[int, str, int]] = deque(maxlen=GROUPS)

    def group(self, wall_ns: int, requests: Sequence[bytes]) -> None:
        """A group begins."""
        if requests:
            self.groups.append((wall_ns, requests))

    def question(self, wall_ns: int, operation: str, session: Session | None) -> None:
        """A question of the control connection; None: of somebody who is not registered yet."""
        client = session.party.client if session is not None else 0
        self._questions.append((wall_ns, operation[:_OPERATION_CHARACTERS_MAX], client))

    def lines(self, clients: Mapping[int, str]) -> Iterator[str]:
        """The last SHOWN_MAX requests, the newest first, then the last questions. `clients`: who a
        client is."""
        newest = chain.from_iterable(
            ((wall_ns, raw) for raw in reversed(requests))
            for wall_ns, requests in reversed(self.groups))
        for wall_ns, raw in islice(newest, SHOWN_MAX):
            here = "  <- under way" if raw is self.under_way else ""
            yield f"{iso_time(wall_ns)} {_request(raw, clients)}{here}"
        for wall_ns, operation, client in reversed(self._questions):
            who = clients.get(client, f"client {client}") if client else "a new client"
            yield f"{iso_time(wall_ns)} question {escape(operation)} by {who}"


def _request(raw: bytes, clients: Mapping[int, str]) -> str:
    if len(raw) != REQUEST.size:
        return f"not a request: {len(raw)} bytes"
    found = REQUEST.as_dict(raw)
    name = _OPERATIONS.get(found["operation"], f"operation {found['operation']}")
    client = found["client"]
    return (f"{name} by {clients.get(client, f'client {client}')}, request {found['sequence']}, "
            f"queue {found['queue']}, count {found['count']}, length {found['length']}, "
            f"want {found['want']}")
