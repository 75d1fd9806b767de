"""omq: durable message queues for one Linux host; this module is the public Python interface.

    with omq.connect(name="example") as connection:
        message_id = connection.put("ORDERS", b"body", priority=5)
        with connection.reader("ORDERS") as reader:
            for message in reader:
                print(message.body)
                message.done()

The guide is lib/omq/docs/PYTHON.md: every class, rule and recipe.

On another system than Linux the pure parts can be imported (omq.codec, omq.base.errors); a name
that needs Linux says so in one line (PlatformUnsupported).

All names are loaded on first use, so that importing a part of the package (a tool that only reads
files, say) costs neither the client nor its System V module.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omq.base.errors import (
        AccessDenied,
        BadArgument,
        BadDefinition,
        BadName,
        BadPriority,
        BadProperty,
        BadRequest,
        BadSelector,
        BodyDamaged,
        BodyNotRead,
        BodyRefused,
        BodyUnavailable,
        ConnectionBusy,
        ConnectionClosed,
        ConnectionForked,
        DuplicateKey,
        GetInhibited,
        IndexFull,
        KeysFull,
        LeaseLost,
        ManagerHung,
        ManagerUnavailable,
        MessageBusy,
        MessageCancelled,
        MessageInGroup,
        MessageInUnit,
        MessageTooLong,
        NoAuthority,
        NoDeduplication,
        NoMessage,
        NoReply,
        NotInState,
        NotOperator,
        NotRemote,
        NoTruncate,
        OmqError,
        PutInhibited,
        QueueExists,
        QueueFull,
        QueueGone,
        QueueInUse,
        QueueNotEmpty,
        QueueOfFile,
        ReaderClosed,
        RemoteLost,
        RemoteRefused,
        SchemaWrong,
        ShuttingDown,
        SpoolFull,
        SpoolMissing,
        TimedOut,
        TooManyClients,
        TooManyInDoubt,
        TooManyOfUser,
        TooManyQueues,
        UnitBackedOut,
        UnitEnded,
        UnitNameTaken,
        UnitNotPrepared,
        UnitOpen,
        UnitResolved,
        UnitsFull,
        UnitTooLarge,
        UnitUnknown,
        UnknownQueue,
        WrongKind,
    )
    from omq.ipc.asking import Reply
    from omq.ipc.browsed import Browsed
    from omq.ipc.cancelling import MessageState
    from omq.ipc.client import Connection, connect
    from omq.ipc.failures import Failure
    from omq.ipc.group import Group, GroupReader
    from omq.ipc.in_doubt import UnitInDoubt
    from omq.ipc.message import Message
    from omq.ipc.outgoing import Outgoing
    from omq.ipc.queues import QueueInfo
    from omq.ipc.reader import Reader
    from omq.ipc.unit import Unit

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "BadArgument",
    "BadDefinition",
    "BadName",
    "BadPriority",
    "BadProperty",
    "BadRequest",
    "BadSelector",
    "BodyDamaged",
    "BodyNotRead",
    "BodyRefused",
    "BodyUnavailable",
    "Browsed",
    "Connection",
    "ConnectionBusy",
    "ConnectionClosed",
    "ConnectionForked",
    "DuplicateKey",
    "Failure",
    "GetInhibited",
    "Group",
    "GroupReader",
    "IndexFull",
    "KeysFull",
    "LeaseLost",
    "ManagerHung",
    "ManagerUnavailable",
    "Message",
    "MessageBusy",
    "MessageCancelled",
    "MessageInGroup",
    "MessageInUnit",
    "MessageState",
    "MessageTooLong",
    "NoAuthority",
    "NoDeduplication",
    "NoMessage",
    "NoReply",
    "NoTruncate",
    "NotInState",
    "NotOperator",
    "NotRemote",
    "OmqError",
    "Outgoing",
    "PutInhibited",
    "QueueExists",
    "QueueFull",
    "QueueGone",
    "QueueInUse",
    "QueueInfo",
    "QueueNotEmpty",
    "QueueOfFile",
    "Reader",
    "ReaderClosed",
    "RemoteLost",
    "RemoteRefused",
    "Reply",
    "SchemaWrong",
    "ShuttingDown",
    "SpoolFull",
    "SpoolMissing",
    "TimedOut",
    "TooManyClients",
    "TooManyInDoubt",
    "TooManyOfUser",
    "TooManyQueues",
    "Unit",
    "UnitBackedOut",
    "UnitEnded",
    "UnitInDoubt",
    "UnitNameTaken",
    "UnitNotPrepared",
    "UnitOpen",
    "UnitResolved",
    "UnitTooLarge",
    "UnitUnknown",
    "UnitsFull",
    "UnknownQueue",
    "WrongKind",
    "__version__",
    "connect",
]

_CLIENT = {"Browsed": "omq.ipc.browsed", "Connection": "omq.ipc.client",
           "Failure": "omq.ipc.failures",
           "Group": "omq.ipc.group", "GroupReader": "omq.ipc.group",
           "Message": "omq.ipc.message", "MessageState": "omq.ipc.cancelling",
           "Outgoing": "omq.ipc.outgoing",
           "QueueInfo": "omq.ipc.queues",
           "Reader": "omq.ipc.reader", "Reply": "omq.ipc.asking", "Unit": "omq.ipc.unit",
           "UnitInDoubt": "omq.ipc.in_doubt", "connect": "omq.ipc.client"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'omq' has no attribute {name!r}")
    home = _CLIENT.get(name, "omq.base.errors")
    if name in _CLIENT and sys.platform != "linux":
        from omq.base.errors import PlatformUnsupported

        raise PlatformUnsupported(what=name, platform=sys.platform)
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
