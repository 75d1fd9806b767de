"""What the host asks of a connection, whichever AMQP it speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from omq.services.network.accounts import Account

if TYPE_CHECKING:
    from omq.services.amqp.host import Host


class Guest(Protocol):
    """`links`: of AMQP 1.0; `busy`: something was received and is not on the disk."""

    host: Host
    peer: str
    user: Account | None
    gone: bool
    temporary: set[str]
    asks: asyncio.Lock

    @property
    def links(self) -> Mapping[Any, Any]: ...
    @property
    def busy(self) -> bool: ...
    def kick(self) -> None: ...
    def recheck(self) -> None: ...
    def goodbye(self) -> None: ...
    def abort(self) -> None: ...
    def unauthorized(self, reason: str) -> None: ...
