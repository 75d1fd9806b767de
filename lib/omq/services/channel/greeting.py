"""How to recognize a link of a channel, and what both sides say at its attach.

The sending side has link properties CHANNEL (its name), SPOOL (32 hexadecimal digits), MANAGER (its
name), PING (true: it only asks) and RESET (names.Reset as text: the record is to say that first).
The answer has LAST (the batch that the record knows), MARK (its mark), SPOOL, MANAGER, BATCH_MAX
(messages of a batch), BATCH_BYTES (of their bodies: they are one unit of work there), BUNDLES
(true: messages of a batch may come together, in one transfer) and RESET (as it was said: it is
done); an older omq does not say the last three. OUT_OF_STEP is the
condition of a link that people must look at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from omq.format.amqp_types import Symbol

CHANNEL: Final = Symbol("omq-channel")
SPOOL: Final = Symbol("omq-spool")
MANAGER: Final = Symbol("omq-manager")
PING: Final = Symbol("omq-ping")
LAST: Final = Symbol("omq-last")
MARK: Final = Symbol("omq-mark")
BATCH_MAX: Final = Symbol("omq-batch-max")
BATCH_BYTES: Final = Symbol("omq-batch-bytes")
BUNDLES: Final = Symbol("omq-bundles")
RESET: Final = Symbol("omq-reset")
_SPOOL: Final = re.compile(r"[0-9a-f]{32}")
_LAST_MAX: Final = 1 << 61
OUT_OF_STEP: Final = "omq:channel:out-of-step"


@dataclass(frozen=True, slots=True)
class Hello:
    """Who we are."""

    manager: str
    spool: str
    ping: bool = False
    reset: str = ""

    def properties(self, channel: str) -> dict[Any, Any]:
        """Of the attach of a channel."""
        said = {CHANNEL: channel, SPOOL: self.spool, MANAGER: self.manager, PING: self.ping}
        return {**said, RESET: self.reset} if self.reset else said


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the other side said at attach. Of a foreign one nothing is known."""

    last: int = 0
    spool: str = ""
    manager: str = ""
    batch_max: int = 0
    bytes_max: int = 0
    mark: str = ""
    bundles: bool = False
    reset: str = ""
    batch_bytes: int = 0


def asks(link: Any) -> bool:
    """A link that is attached is one of a channel."""
    said = link.remote_properties
    return bool(said) and CHANNEL in said


def answered(link: Any) -> Greeting:
    """What the answer to our attach says. ValueError: nothing that a channel can use."""
    said = link.remote_properties
    if not said or LAST not in said:
        raise ValueError(
            "it is not an omq instance that accepts channels; peer=foreign is for others")
    try:
        found = Greeting(int(said[LAST]), str(said.get(SPOOL, "")), str(said.get(MANAGER, "")),
                         int(said.get(BATCH_MAX, 0)), int(link.remote_max_message_size or 0),
                         str(said.get(MARK, "")), said.get(BUNDLES) is True,
                         str(said.get(RESET, "")), int(said.get(BATCH_BYTES, 0)))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError("what it says of itself makes no sense") from error
    if (not _SPOOL.fullmatch(found.spool) or not 0 <= found.last < _LAST_MAX
            or min(found.batch_max, found.batch_bytes, found.bytes_max) < 0):
        raise ValueError("what it says of itself makes no sense")
    return found
