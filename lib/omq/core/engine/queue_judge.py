"""Whether a queue may be what a definition says: its keys, and the queues that it names.

Errors: BadDefinition, TooManyQueues. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from omq.base import limits
from omq.base.config import QUEUE_KEYS, QueueConf
from omq.base.errors import BadDefinition
from omq.base.names import SPECIAL_NAMES, escape
from omq.format.definition import LINE_BYTES_MAX, Definition, Kind, pause_line

NOTE: Final = "note"
"""What a program writes down next to a queue that it made, for programs; omq does not look into
it."""
OWN_KEYS: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.LOCAL: (*QUEUE_KEYS, NOTE), Kind.TRANSMISSION: (*QUEUE_KEYS, NOTE),
    Kind.TEMPORARY: (*QUEUE_KEYS, NOTE),
    Kind.MODEL: (*QUEUE_KEYS, "lifetime"),
    Kind.ALIAS: ("target", "description"),
    Kind.REMOTE: ("remote_queue", "remote_manager", "transmission", "description"),
}
"""What may be said of a queue of each kind."""
SYSTEM_KEYS: Final = ("model", "owner", "born", "drains")
"""What the manager says of one."""
KEY_CHARACTERS_MAX: Final = 200
LIFETIMES: Final = ("temporary", "permanent")
Definitions = Mapping[str, Definition]


def judge_line(definition: Definition) -> None:
    """It fits a frame."""
    if len(definition.line()) > LINE_BYTES_MAX:
        raise BadDefinition(queue=definition.name, key="all of it", reason="too long",
                            allowed=f"{LINE_BYTES_MAX} bytes")


def judge_key(queue: str, key: str) -> None:
    """It may be paused (core.engine.key_pauses)."""
    if len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise BadDefinition(queue=queue, key="key", reason=f"{escape(key, 32)}: not a key",
                            allowed=f"up to {KEY_CHARACTERS_MAX} printable characters")
    judge_line(pause_line(queue, key))


def judge_alias(definition: Definition, definitions: Definitions, exists: Callable[[str], bool]
                ) -> None:
    """Its targets are there, hold messages in the end, and do not lead back to it."""
    name, targets = definition.name, definition.words("target")
    if not 0 < len(targets) <= limits.QUEUES_PER_MESSAGE_MAX:
        raise BadDefinition(queue=name, key="target", reason="no queues, or too many",
                            allowed=f"1 to {limits.QUEUES_PER_MESSAGE_MAX} queues")
    seen, following = set[str](), list(targets)
    while following:
        target = following.pop()
        if target == name:
            raise BadDefinition(queue=name, key="target", reason="a ring: it leads to itself",
                                allowed="a queue that holds messages in the end")
        if not exists(target) or target in SPECIAL_NAMES:
            raise BadDefinition(queue=name, key="target", reason=f"there is no queue {target}",
                                allowed="a queue that is there")
        known = definitions.get(target)
        if known is not None and target not in seen:
            seen.add(target)
            following += known.words("target")
            if known.kind is Kind.MODEL or (known.kind is Kind.REMOTE and len(targets) > 1):
                raise BadDefinition(
                    queue=name, key="target", reason=f"{target} is of kind {known.kind.value}",
                    allowed="queues that hold messages, or one remote queue")


def judge_remote(definition: Definition, definitions: Definitions) -> None:
    """It says where, and its transmission queue is one."""
    name = definition.name
    for key in ("remote_queue", "remote_manager", "transmission"):
        if not definition.keys.get(key):
            raise BadDefinition(queue=name, key=key, reason="it is missing", allowed="a name")
    way = definitions.get(definition.keys["transmission"])
    if way is None or way.kind is not Kind.TRANSMISSION:
        raise BadDefinition(queue=name, key="transmission", reason="not a transmission queue",
                            allowed="a queue of this kind that is there")


def judge_lifetime(definition: Definition) -> None:
    """Of what is made of a model."""
    if definition.keys.get("lifetime", LIFETIMES[0]) not in LIFETIMES:
        raise BadDefinition(queue=definition.name, key="lifetime", reason="not known",
                            allowed=" or ".join(LIFETIMES))


def judge_ring(name: str, confs: Mapping[str, QueueConf]) -> None:
    """What fails everywhere ends on POISON."""
    at = name
    for _ in confs:
        at = confs[at].dead_letter if at in confs else ""
    if at:
        raise BadDefinition(queue=name, key="dead_letter", allowed="one without dead_letter",
                            reason="a ring: a message would go round for ever")
