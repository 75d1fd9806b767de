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
        FileChanged,
        FileNotPut,
        FileNotShared,
        GetInhibited,
        IndexFull,
        KeysFull,
        LeaseLost,
        ManagerHung,
        ManagerUnavailable,
        MemberFailed,
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
        NotMember,
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
        TooManyMembers,
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
    from omq.ipc.client.browsed import Browsed
    from omq.ipc.client.cancelling import MessageState
    from omq.ipc.client.connection import Connection, connect
    from omq.ipc.client.failures import Failure
    from omq.ipc.client.file_puts import FilePut
    from omq.ipc.client.group import Group, GroupReader
    from omq.ipc.client.in_doubt import UnitInDoubt
    from omq.ipc.client.message import Message
    from omq.ipc.client.queues import QueueInfo
    from omq.ipc.client.reader import Reader
    from omq.ipc.client.request_reply import Reply
    from omq.ipc.client.unit import Unit
    from omq.ipc.wire.outgoing import Outgoing

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
    "FileChanged",
    "FileNotPut",
    "FileNotShared",
    "FilePut",
    "GetInhibited",
    "Group",
    "GroupReader",
    "IndexFull",
    "KeysFull",
    "LeaseLost",
    "ManagerHung",
    "ManagerUnavailable",
    "MemberFailed",
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
    "NotMember",
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
    "TooManyMembers",
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

_CLIENT = {"Browsed": "omq.ipc.client.browsed", "Connection": "omq.ipc.client.connection",
           "Failure": "omq.ipc.client.failures", "FilePut": "omq.ipc.client.file_puts",
           "Group": "omq.ipc.client.group", "GroupReader": "omq.ipc.client.group",
           "Message": "omq.ipc.client.message", "MessageState": "omq.ipc.client.cancelling",
           "Outgoing": "omq.ipc.wire.outgoing",
           "QueueInfo": "omq.ipc.client.queues",
           "Reader": "omq.ipc.client.reader", "Reply": "omq.ipc.client.request_reply",
           "Unit": "omq.ipc.client.unit",
           "UnitInDoubt": "omq.ipc.client.in_doubt", "connect": "omq.ipc.client.connection"}


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
