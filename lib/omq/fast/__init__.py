"""The fast path: plain requests, from the bytes of a request to those of its reply; and the
client's side of them.

It is tried before the engine. Each of its entry points looks at columns of the index and at bytes
that it has copied. If the request is not a plain one it returns False, with nothing changed yet,
and the engine handles the untouched bytes. Once it begins to change something, nothing can fail any
more. So the engine stays the reference, and the two may alternate from request to request: this
package keeps no state of its own, all numbers are in the engine's objects and in the tables.

    request         the numbers of a request       columns       the tables, as C sees them
    put             one message, a batch, several  frames        frames of the block being built
    births          the birth of one message       records       pool slots of a message
    done            settlements, the wait after    groups        groups, and return lanes
    settled         the end of one message         limited_keys  limits of work, without rates
    values          properties of payloads         in_doubt      units of work in two phases
    move            a reply: one ends, one is put  reply         replies, and their announcement
    requester_put   a request, after what it had   journal       the block, written and synced
    unit            a unit of work in one request  find_by_id    hand-outs to who waits for an id
    give            hand-outs to waiting readers   attempts      one hand-out
    intake          requests off the queue         pool_rows     the pool, at a start
    plain_requests  which of these a request is
    group_commit    a group from its requests to its replies, and when time alone brings one
    plain_groups    the manager's loop, as long as groups are plain
    company         how many requests a group waits for

and what they touch of a client with each request (ADR 0212):

    client_state    the typed part of a session    party         a client, to the engine
    waiter          a reader that waits            look_line     whose note is looked at next

and of a queue (ADR 0231):

    lane            messages that came back, or take a late turn

and for clients, which do not import the engine:

    client_request   a request down to the kernel   batch        bodies as a PUT_MANY carries them
    handed_messages  messages of a reader           reader_note  what it is processing, noted

and AMQP 1.0 (omq.amqp, amqp.server), which imports neither:

    amqp_decoding  values out of bytes             amqp_frames   frames that came
    amqp_encoding  and into them                   amqp_sending  frames to go
    amqp_message   the sections of a message

and AMQP 0-9-1 (amqp.server, ADR 0138):

    amqp091_frames      frames that came           amqp091_sending  frames to go
    amqp091_properties  the properties of a content, both ways

The modules are written in Cython's pure Python mode (omq.base.shim): one source, which runs
interpreted or compiled; the `*.pxd` next to them give the C types of their classes. What one module
of this package imports from another must be declared there.

Invariants: 1. frames, their order, the index and the replies are those of the engine, byte for byte
(tests/forms); 2. what a client can write is copied before it is judged; 3. every index into a table
or buffer is checked, also when compiled, so a wrong one raises IndexError and ends the manager,
and never touches other memory.
"""

from __future__ import annotations

import sys
from importlib import import_module

from omq.base import form
from omq.base.errors import ConfigError

CLIENT = ("client_request", "batch", "handed_messages", "reader_note")
"""The modules that clients need, which import nothing of the engine. Of the others a build that has
these is as good: they were made together."""


def _load() -> tuple[str, str]:
    """The form, and why it is not the compiled one though there is a build."""
    try:
        said = form.wanted()
    except ConfigError:  # a manager refuses to start (ipc.server.make_server); clients go on
        said = form.INTERPRETED
    found = form.build() if said in (form.AUTO, form.COMPILED) else None
    if found is None:
        return form.INTERPRETED, "there is no build of these sources" * (said == form.COMPILED)
    __path__.insert(0, str(found))
    try:
        for name in CLIENT:
            import_module(f"{__name__}.{name}")
    except ImportError as error:  # a build of another machine, say
        __path__.remove(str(found))
        for name in CLIENT:
            sys.modules.pop(f"{__name__}.{name}", None)
        return form.INTERPRETED, str(error)
    return form.COMPILED, ""


FORM, PROBLEM = _load()
