"""Actors of dramatiq at planned times, by the schedules of an instance.

    broker.add_middleware(OmqPeriodic())

    @dramatiq.actor(periodic="0 3 * * *", periodic_zone="Europe/Berlin")
    def report():
        ...

A worker that boots writes down a schedule (omq.tasks.schedules) for each such actor, and takes out
those of its application that are no longer there; schedule.server puts the messages, each planned
time once, over the death of everything. `adopt(broker)` does the same without a worker. Options of
an actor: `periodic` (five fields of cron, or `every 15 min`), `periodic_zone` (UTC),
`periodic_catch_up` (skip, once, `all N`), `periodic_overlap` (allow, skip).

Invariants: 1. an actor whose options have not changed keeps its planned times; 2. only schedules
with the mark of this application are taken out. Errors: BadSchedule, with the actor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from dramatiq.middleware import Middleware

from omq.base.errors import BadSchedule
from omq.tasks.adopted_schedules import adopt_all, marks
from omq.tasks.dramatiq_broker import OmqBroker
from omq.tasks.names import queue_name
from omq.tasks.schedule import ID, MILLISECONDS, ONCE, Schedule
from omq.tasks.schedules import Schedules

MARK: Final = "omq.periodic"  # a property: the application whose actor it is
OPTIONS: Final = ("periodic", "periodic_zone", "periodic_catch_up", "periodic_overlap")


class OmqPeriodic(Middleware):
    """See the module. `application`: whose schedules these are."""

    def __init__(self, application: str = "dramatiq") -> None:
        self.application = application

    @property
    def actor_options(self) -> set[str]:
        return set(OPTIONS)

    def before_worker_boot(self, broker: Any, _worker: Any) -> None:
        """Write the schedules down."""
        adopt(broker, self.application)


def adopt(broker: OmqBroker, application: str = "dramatiq") -> None:
    """Let the schedules of this application be those of the broker's actors. BadSchedule; nothing
    was changed."""
    if not isinstance(broker, OmqBroker):
        raise BadSchedule(name=application, reason="the broker is not an OmqBroker, so there is no "
                          "place for its schedules")
    wanted = list(_wanted(broker.actors.values(), application))
    broker.with_native(lambda native: adopt_all(Schedules(native), wanted, MARK, application))


def _wanted(actors: Iterable[Any], application: str) -> Iterable[Schedule]:
    for actor in actors:
        options = {name: actor.options[name] for name in OPTIONS if name in actor.options}
        if "periodic" not in options:
            if options:
                raise BadSchedule(name=actor.actor_name, reason="it says how, and no `periodic`")
            continue
        said = json.dumps([actor.actor_name, actor.queue_name, options], sort_keys=True)
        yield Schedule(
            queue_name(actor.actor_name), queue_name(actor.queue_name), str(options["periodic"]),
            str(options.get("periodic_zone", "UTC")), _body(actor),
            {"actor": actor.actor_name[:200], "id": ID, **marks(MARK, application, said)},
            catch_up=str(options.get("periodic_catch_up", ONCE)),
            overlap=str(options.get("periodic_overlap", "allow"))).checked()


def _body(actor: Any) -> str:
    """The message that the actor would be sent, with the id and the time of each planned time."""
    message = actor.message().copy(message_id=ID, message_timestamp=MILLISECONDS)
    try:
        text = str(message.encode(), "utf-8")
    except UnicodeDecodeError:
        raise BadSchedule(name=actor.actor_name, reason="messages are not text: let the encoder be "
                          "JSON") from None
    return text.replace(f'"{MILLISECONDS}"', MILLISECONDS)
