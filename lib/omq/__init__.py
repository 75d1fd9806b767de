"""omq: durable message queues for one Linux host; this module is the public Python interface.

    with omq.connect(name="example") as connection:
        message_id = connection.put("ORDERS", b"body", priority=5)

The names below come from `omq.ipc.client` and are loaded on first use, so that importing a part of
the package (a tool that only reads files, say) costs neither the client nor its System V module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omq.base.errors import OmqError
    from omq.ipc.client import Connection, Message, Outgoing, Reader, connect

__version__ = "0.1.0"

__all__ = ["Connection", "Message", "OmqError", "Outgoing", "Reader", "__version__", "connect"]

_HOME = {
    "Connection": "omq.ipc.client",
    "Message": "omq.ipc.client",
    "OmqError": "omq.base.errors",
    "Outgoing": "omq.ipc.client",
    "Reader": "omq.ipc.client",
    "connect": "omq.ipc.client",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'omq' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
