"""omq for asyncio: the same queues, rules and errors, awaited.

    async with await omq.aio.connect(name="shop") as connection:
        message_id = await connection.put("ORDERS", b"body", priority=5)
        async with connection.reader("ORDERS", batch=10) as reader:
            async for message in reader:
                async with message:  # done at its end, failed by an exception
                    await work(message.body)

Native connections (omq.Connection) do the work, each in a thread of its own; coroutines share them.
Any number of coroutines may use one connection at once. lib/omq/docs/PYTHON.md has the guide.
"""

from __future__ import annotations

from omq.aio.connection import AsyncConnection, connect
from omq.aio.message import AsyncMessage
from omq.aio.reader import AsyncReader
from omq.aio.unit import AsyncUnit

__all__ = ["AsyncConnection", "AsyncMessage", "AsyncReader", "AsyncUnit", "connect"]
