"""How a line ends, as an error: what the other side says of it decides what is done.

ChannelOutOfStep: people must look. ChannelRefused: the same will be said again until somebody
changes something there. ChannelBroken: all else; again.
"""

from __future__ import annotations

from typing import Any, Final

from omq.base.errors import ChannelBroken, ChannelOutOfStep, ChannelRefused
from omq.services.channel.definition import Channel
from omq.services.channel.greeting import OUT_OF_STEP

_REFUSALS: Final = frozenset((
    "amqp:unauthorized-access", "amqp:not-found", "amqp:invalid-field", "amqp:not-allowed",
    "amqp:precondition-failed", "amqp:not-implemented", "amqp:resource-deleted"))


def ended(channel: Channel, condition: Any) -> ChannelOutOfStep | ChannelRefused | ChannelBroken:
    """The other side has ended a link, a session or all of it."""
    if condition is None:
        return broken(channel, "closed")
    name, reason = condition.name, f"{condition.name}: {condition.description or ''}"
    if name == OUT_OF_STEP:
        return ChannelOutOfStep(channel=channel.name, reason=reason)
    return (refused if name in _REFUSALS else broken)(channel, reason)


def broken(channel: Channel, reason: str) -> ChannelBroken:
    """The line is to be made anew."""
    return ChannelBroken(channel=channel.name, peer=channel.peer, reason=reason)


def refused(channel: Channel, reason: str) -> ChannelRefused:
    """Made anew it would be as now."""
    return ChannelRefused(channel=channel.name, peer=channel.peer, reason=reason)
