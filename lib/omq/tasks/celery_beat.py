"""A scheduler of Celery's beat whose store is the schedules of an instance.

    celery -A tasks beat -S omq.tasks.celery_beat:OmqScheduler

The entries of `beat_schedule` become schedules of omq (omq.tasks.schedules), and schedule.server
puts their tasks: each planned time once, over the death of everything, with no beat running. So
beat sends nothing; when it starts it writes the entries down and takes out those that are no longer
there, and it can be ended then. What is put is the message that Celery would have sent, with an id
of its own for each planned time.

Invariants: 1. an entry that has not changed keeps its planned times; 2. only schedules with the
mark of this application (its name) are taken out.

Errors: BadSchedule for an entry that omq cannot do: solar, parts of a second, days of the month and
of the week together, countdown, eta, a body that is not text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from celery.beat import Scheduler
from celery.schedules import crontab, schedule
from kombu import Connection as Kombu
from kombu.utils.json import dumps

import omq.ipc.client.browsing  # noqa: F401 (else in its middle a signal, whose handler needs it)
from omq.base.errors import BadSchedule
from omq.ipc.client.connection import Connection, connect
from omq.tasks import envelope, kombu_plugin  # noqa: F401 (the plugin registers the transport)
from omq.tasks.adopted_schedules import adopt_all, marks
from omq.tasks.names import queue_name
from omq.tasks.natives import place_of
from omq.tasks.schedule import ID, Schedule
from omq.tasks.schedules import Schedules

MARK: Final = "omq.beat"  # a property: the application whose entry it is
_NOT_YET: Final = ("countdown", "eta")


class OmqScheduler(Scheduler):
    """See the module."""

    def setup_schedule(self) -> None:
        """Write the entries down."""
        self.install_default_entries(self.data)
        self.merge_inplace(self.app.conf.beat_schedule)
        self.sync()

    def tick(self, *_: Any, **__: Any) -> float:
        """Nothing is due here, ever."""
        return float(self.max_interval)

    def sync(self) -> None:
        """The schedules of the instance are the entries."""
        with _connected(self.app) as connection:
            adopt(self.app, Schedules(connection), self.schedule)

    def close(self) -> None:
        """Nothing is kept here."""

    def get_schedule(self) -> dict[str, Any]:
        return self.data

    def set_schedule(self, entries: dict[str, Any]) -> None:
        self.data = entries

    schedule = property(get_schedule, set_schedule)

    @property
    def info(self) -> str:
        return "    . schedules -> omq, put by schedule.server"


def adopt(app: Any, schedules: Schedules, entries: dict[str, Any]) -> None:
    """Let the schedules of this application be these entries. BadSchedule; nothing was changed."""
    wanted = [_wanted(app, name, entry) for name, entry in entries.items()]
    adopt_all(schedules, wanted, MARK, _of(app))


def _wanted(app: Any, name: str, entry: Any) -> Schedule:
    when, options = when_of(name, entry.schedule), dict(entry.options)
    if set(options) & set(_NOT_YET):
        raise BadSchedule(name=name, reason="countdown and eta are moments of one task: leave them")
    expiry_s = options.pop("expires", None)
    if expiry_s is not None and not isinstance(expiry_s, int | float):
        raise BadSchedule(name=name, reason="expires: it is a number of seconds")
    said = dumps([name, entry.task, entry.args, entry.kwargs, options, when, expiry_s,
                  str(app.timezone)])
    queue, message = message_of(app, name, entry, options)
    made = envelope.outgoing(message, native_eta=False, threshold=0)
    try:
        body = made.body.decode()
    except UnicodeDecodeError:
        raise BadSchedule(name=name, reason="its body is not text: let task_serializer be json"
                          ) from None
    return Schedule(
        queue_name(name), queue_name(queue), when, str(app.timezone), body,
        {**made.properties, **marks(MARK, _of(app), said)},
        made.priority, None if expiry_s is None else float(expiry_s)).checked()


def when_of(name: str, said: Any) -> str:
    """The words of omq for a schedule of Celery's. BadSchedule."""
    if isinstance(said, crontab):
        fields = [_field(each) for each in (
            said._orig_minute, said._orig_hour, said._orig_day_of_month,
            said._orig_month_of_year, said._orig_day_of_week)]
        if fields[2] != "*" and fields[4] != "*":
            raise BadSchedule(name=name, reason="days of the month and of the week together: "
                              "Celery means both, cron means either; make it two entries")
        return " ".join(fields)
    if type(said) is schedule:
        seconds = said.run_every.total_seconds()
        if seconds >= 1 and seconds == int(seconds):
            return " ".join(("every", str(int(seconds)), "s"))
        raise BadSchedule(name=name, reason=f"{said.run_every}: an interval is whole seconds")
    raise BadSchedule(name=name, reason=f"omq has no schedules of kind {type(said).__name__}")


def message_of(app: Any, name: str, entry: Any, options: dict[str, Any]) -> tuple[str, Any]:
    """The queue and the message that Celery would send for an entry now, with ID for its id."""
    found: list[tuple[str, Any]] = []
    with Kombu(app.conf.broker_write_url or app.conf.broker_url,
               transport_options=app.conf.broker_transport_options) as connection:
        channel = connection.channel()
        channel.record = found.append
        with app.amqp.Producer(channel, auto_declare=False) as producer:
            task = app.tasks.get(entry.task)
            send = app.send_task if task is None else task.apply_async
            named = (entry.task,) if task is None else ()
            send(*named, args=entry.args, kwargs=entry.kwargs, producer=producer, task_id=ID,
                 retry=False, **options)
    if len(found) != 1:
        raise BadSchedule(name=name, reason=f"its task goes to {len(found)} queues, not to one")
    return found[0]


def _field(said: Any) -> str:
    if isinstance(said, str | int):
        return str(said).replace(" ", "")
    return ",".join(map(str, sorted(said)))


def _of(app: Any) -> str:
    return str(app.main or "celery")


@contextmanager
def _connected(app: Any) -> Iterator[Connection]:
    url = app.conf.broker_write_url or app.conf.broker_url
    with connect(**place_of(url), name="celery-beat") as connection:
        yield connection
