"""Attach and detach as they come: which link of a session they are of.

Errors: Malformed, with the condition that ends the connection.
"""

from __future__ import annotations

from typing import Any

from omq.amqp.links import Receiver, Sender, field
from omq.amqp.session import Session
from omq.amqp.states import condition_of
from omq.format.amqp_types import Malformed, Uint


def attached(session: Session, fields: list[Any]) -> Receiver | Sender:
    """The peer's link, which is a new one, or its answer to ours."""
    name, handle = field(fields, 0, str, None), field(fields, 1, Uint, None)
    role = field(fields, 2, bool, None)
    if name is None or handle is None or role is None:
        raise Malformed("an attach has no name, handle or role")
    if int(handle) in session.remote_handles:
        raise Malformed("a handle has a link", "amqp:session:handle-in-use")
    link = session.named.pop((name, not role), None)
    if not isinstance(link, Receiver | Sender):
        link = (Sender if role else Receiver)(session, name)
    link.came(fields)
    session.remote_handles[int(handle)] = link
    return link


def detached(session: Session, fields: list[Any]) -> tuple[Receiver | Sender, bool]:
    """The link, and whether it is over for good."""
    handle = field(fields, 0, Uint, None)
    link = session.remote_handles.pop(int(handle), None) if handle is not None else None
    if not isinstance(link, Receiver | Sender):
        raise Malformed("a detach of no link", "amqp:session:unattached-handle")
    link.detached = True
    link.remote_condition = condition_of(field(fields, 2, object, None))
    session.gone(link)
    return link, field(fields, 1, bool, None) is True
