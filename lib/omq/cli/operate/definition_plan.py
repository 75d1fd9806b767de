"""Takes in a file of definitions (`definition_set`): judged whole, then one after the other.

First everything is judged against what is there and what the rest of the file says, by the rules of
the queue manager; if one is wrong the whole file is refused (DefinitionsRefused) with each mistake
and its place. Then what differs is changed: queues in the order in which they name each other, keys
of them that are paused, exchanges, bindings, schedules, rights. Nothing is ever removed; what a
file does not name stays.

Crash argument: each definition is one frame, one message or one rename of a file, so it is there
wholly or not. A death in between leaves the first ones in force (DefinitionsStopped says how many);
the same file taken in again finds them the same, and goes on. What is to come is noted in the
journal, with the reason, before the first change.

Errors: DefinitionsRefused, DefinitionsStopped; those of the connection, ConfigError.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from omq.base.authority import FILE_NAME, check_grant
from omq.base.config import QUEUE_KEYS, QUEUES_FILE, QueueConf, load_queues
from omq.base.defined_queue import check_keys, check_name, conf_of, keys_of, load_common
from omq.base.errors import (
    BadRequest,
    DefinitionsRefused,
    DefinitionsStopped,
    NoPermission,
    OmqError,
)
from omq.base.limits import CONF_FILE_BYTES_MAX, NAMED_QUEUES_MAX
from omq.base.names import check_queue_name, escape
from omq.base.paths import shipped_conf
from omq.base.services_conf import ServiceKind, load_services
from omq.base.settings_file import conf_path
from omq.cli.operate import connections
from omq.cli.operate import definition_set as files
from omq.cli.operate.definition_pauses import pause_steps
from omq.cli.operate.definition_step import CHANGED, NEW, SAME, Step, in_order
from omq.cli.operate.queue_hold import Pause, alter_file
from omq.cli.operate.services_edit import replace_file, with_section_key
from omq.core.engine.queue_judge import (
    OWN_KEYS,
    SYSTEM_KEYS,
    judge_alias,
    judge_lifetime,
    judge_line,
    judge_remote,
    judge_ring,
)
from omq.format.definition import Definition, Kind
from omq.ipc.client.connection import Client
from omq.ipc.client.operator import Operator
from omq.services.amqp091 import exchanges
from omq.services.amqp091.binding_index import Binding
from omq.services.daemon import pid_file
from omq.services.daemon.options import Location
from omq.storage.files import read_file
from omq.tasks.schedule import FILE as SCHEDULES_FILE
from omq.tasks.schedule import Schedule, check_types
from omq.tasks.schedules import QueueMissing, Schedules, missing_queue

DEFINITIONS_MAX: Final = 20_000
MISTAKES_MAX: Final = 100
_Records = Mapping[str, Sequence[dict[str, Any]]]
_NAMES_OTHERS: Final = ("target", "transmission", "expired_to", "dead_letter")
_SHAPES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "queues": (("name",), ("kind", "by", "keys", "paused")),
    "exchanges": (("name", "kind"), ("auto_delete", "internal")),
    "bindings": (("exchange",), ("key", "queue", "to")),
    "schedules": (("name", "queue", "when"), ("by", "paused", *files.SCHEDULE_KEYS)),
    "rights": (("section", "who", "may"), ()),
}
"""Of each list: the keys that a record must have, as texts, and those that it may have."""


@dataclass(slots=True)
class Plan:
    """What a file would change. `rights`: whether authority.conf is one of it: then what reads it
    has to read it again. `lacking`: a line for each schedule whose queue is neither here nor in
    the file; it is defined all the same, as `omq schedule define` does."""

    steps: list[Step] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)

    @property
    def changes(self) -> list[Step]:
        return [each for each in self.steps if each.work is not None]

    @property
    def rights(self) -> bool:
        return any(each.kind == "right" for each in self.changes)

    @property
    def exchanges(self) -> bool:
        return any(each.kind in ("exchange", "binding") for each in self.changes)


def plan(location: Location, connection: Client, found: object, reason: str,
         pause: Pause | None = None) -> Plan:
    """Judge a file; nothing is changed. `pause`: how to wait, in a thread that no signal reaches.
    DefinitionsRefused."""
    judge = _Judge(location, connection, reason, pause)
    made = judge.plan(found)
    if judge.mistakes:
        error = DefinitionsRefused(count=len(judge.mistakes), first=judge.mistakes[0])
        error.mistakes = tuple(judge.mistakes[:MISTAKES_MAX])
        raise error
    return made


def carry_out(connection: Client, made: Plan, command: str, reason: str) -> None:
    """Have it so. DefinitionsStopped: some of it is not."""
    changes = made.changes
    if not changes:
        return
    Operator(connection, command).note((), len(changes), reason=reason, things="definitions")
    for done, each in enumerate(changes):
        try:
            assert each.work is not None
            each.work()
        except OmqError as error:
            raise DefinitionsStopped(done=done, count=len(changes), name=each.name,
                                     reason=str(error)) from error


def reload(location: Location, made: Plan) -> None:
    """Have those read again what was changed, who read it once: rights the queue manager and
    amqp.server, exchanges amqp.server. NoPermission, ServerAway."""
    if not made.rights and not made.exchanges:
        return
    connections.reload(location)
    for each in load_services(location.conf_dir).values() if made.rights else ():
        if each.kind is ServiceKind.MANAGER:
            pid = pid_file.running(location.paths.pid_file(each.name))
            try:
                if pid:
                    os.kill(pid, signal.SIGHUP)
            except ProcessLookupError:  # it has ended meanwhile
                continue
            except PermissionError as error:
                raise NoPermission(action=f"reload {each.name}", what=f"process {pid}") from error


class _Judge:
    """One file against one instance."""

    def __init__(self, location: Location, connection: Client, reason: str, pause: Pause | None
                 ) -> None:
        self.mistakes: list[str] = []
        self._location, self._connection = location, connection
        self._reason, self._pause = reason, pause
        self._there = {each.name: each for each in files.whole(location, connection)}
        self._schedules = Schedules(connection)
        self._grants: list[tuple[str, str, str]] = []
        self._named = set[str]()  # queues of the file
        self._lacking: list[str] = []

    def plan(self, found: object) -> Plan:
        lists = self._lists(found)
        if self.mistakes:
            return Plan()
        steps = in_order(self._queues(lists["queues"]))
        steps += self._pauses(lists["queues"])
        durable = files.exchange_records(self._connection)
        steps += self._exchanges(lists["exchanges"], durable)
        steps += self._bindings(lists["bindings"], lists["exchanges"], durable)
        steps += self._all("schedules", lists["schedules"], self._schedule_of())
        steps += self._all("rights", lists["rights"], self._right_of())
        if self._grants and not self.mistakes:
            with self._noted("rights"):
                self._may_write()
        return Plan(steps, self._lacking)

    # shapes

    def _lists(self, found: object) -> dict[str, list[dict[str, Any]]]:
        if not isinstance(found, dict) or found.get("version") != files.VERSION:
            self._wrong("the file", f"it is an object with \"version\": {files.VERSION}")
            return {}
        for key in found.keys() - {"version", *files.LISTS}:
            self._wrong("the file", f"unknown key {escape(str(key), 64)}: "
                        f"{', '.join(files.LISTS)} are known")
        lists = {each: found.get(each, []) for each in files.LISTS}
        for key, listed in lists.items():
            if not isinstance(listed, list):
                self._wrong(key, "it is a list")
        if self.mistakes:
            return {}
        if (count := sum(map(len, lists.values()))) > DEFINITIONS_MAX:
            self._wrong("the file", f"{count} definitions: {DEFINITIONS_MAX} is the most")
            return {}
        for key, listed in lists.items():
            self._shapes(key, listed)
        return lists

    def _shapes(self, key: str, listed: Sequence[object]) -> None:
        needed, more = _SHAPES[key]
        seen = dict[tuple[str, ...], int]()
        for at, each in enumerate(listed):
            place = f"{key}[{at}]"
            if not isinstance(each, dict) or not all(
                    isinstance(each.get(name), str) for name in needed):
                self._wrong(place, f"it is an object with the texts {', '.join(needed)}")
            elif odd := each.keys() - {*needed, *more}:
                self._wrong(_place(key, at, each), f"unknown key {escape(str(min(odd)), 64)}: "
                            f"{', '.join((*needed, *more))} are known")
            else:
                first = seen.setdefault(_identity(key, each), at)
                if first != at:
                    self._wrong(_place(key, at, each), f"it is the same as {key}[{first}]")

    def _wrong(self, place: str, reason: str) -> None:
        self.mistakes.append(f"{place}: {reason}")

    @contextmanager
    def _noted(self, place: str) -> Iterator[None]:
        """An error of what is judged in the block is a mistake of the file."""
        try:
            yield
        except OmqError as error:
            self._wrong(place, str(error))

    def _all(self, key: str, listed: Sequence[dict[str, Any]],
             step: Callable[[dict[str, Any]], Step]) -> list[Step]:
        steps = []
        for at, each in enumerate(listed):
            with self._noted(_place(key, at, each)):
                steps.append(step(each))
        return steps

    # queues

    def _queues(self, listed: Sequence[dict[str, Any]]) -> list[Step]:
        found = dict[str, tuple[int, Definition]]()
        for at, each in enumerate(listed):
            with self._noted(_place("queues", at, each)):
                made = _definition(each)
                found[made.name] = at, made
        known = {name: Definition(name, Kind(info.kind), files.said(info))
                 for name, info in self._there.items()}
        known |= {name: made for name, (_, made) in found.items()}
        common = load_common(self._location.conf_dir)
        confs, steps = dict[str, QueueConf](), list[Step]()
        holding = {name for name, each in known.items() if each.holds}
        self._named = set(found)
        for name, old in known.items():
            if old.kind not in (Kind.ALIAS, Kind.REMOTE) and name not in found:
                with self._noted(name):
                    confs[name] = conf_of(name, old.keys, common, holding)
        for name, (at, made) in found.items():
            with self._noted(_place("queues", at, listed[at])):
                judge_line(made)
                if made.kind is Kind.ALIAS:
                    judge_alias(made, known, known.__contains__)
                elif made.kind is Kind.REMOTE:
                    judge_remote(made, known)
                else:
                    judge_lifetime(made)
                    confs[name] = conf_of(name, made.keys, common, holding)
                    judge_ring(name, confs)
                steps.append(self._queue(made))
        count = sum(each.number > 0 for each in self._there.values()) + sum(
            made.holds and name not in self._there for name, (_, made) in found.items())
        if count > NAMED_QUEUES_MAX:
            self._wrong("queues", f"{count} would hold messages: {NAMED_QUEUES_MAX} is the most")
        return steps

    def _queue(self, made: Definition) -> Step:
        old, queues = self._there.get(made.name), self._connection.queues
        others = tuple(word for key in _NAMES_OTHERS for word in made.words(key))
        wanted = {**files.defaults(made.name, made.kind.value), **made.keys}
        if old is None:
            here = self._defaults_here(made)
            new = {key: value for key, value in wanted.items() if here.get(key) != value}
            return Step("queue", made.name, NEW, lambda: queues.define_by(
                made.name, made.kind.value, new, reason=self._reason), others)
        if old.kind != made.kind.value:
            raise BadRequest(reason=f"it is there, and {old.kind}: a kind does not change")
        if old.by not in (files.RUN_TIME, QUEUES_FILE):
            raise BadRequest(reason=f"it is there, defined by {old.by}")
        had = {key: value for key, value in old.keys.items() if key not in SYSTEM_KEYS}
        keys = {key: value for key, value in wanted.items() if had.get(key, "") != value}
        if old.by == QUEUES_FILE:
            return self._of_file(made, keys)
        gone = dict.fromkeys(had.keys() - wanted.keys())
        if not keys and not gone:
            return Step("queue", made.name, SAME)
        return Step("queue", made.name, CHANGED, lambda: queues.alter_by(
            made.name, {**keys, **gone}, reason=self._reason), others)

    def _of_file(self, made: Definition, keys: dict[str, str]) -> Step:
        if not keys:
            return Step("queue", made.name, SAME)
        check_keys(made.name, keys, QUEUE_KEYS)
        conf_of(made.name, keys, load_common(self._location.conf_dir),
                load_queues(self._location.conf_dir))
        return Step("queue", made.name, CHANGED, lambda: alter_file(
            self._location, made.name, keys, self._reason, self._pause))

    def _defaults_here(self, made: Definition) -> dict[str, str]:
        """What it would be like if nothing were said of it: [*] of queues.conf."""
        if made.kind in (Kind.ALIAS, Kind.REMOTE):
            return {}
        return keys_of(conf_of(made.name, {}, load_common(self._location.conf_dir), self._there))

    def _pauses(self, listed: Sequence[dict[str, Any]]) -> list[Step]:
        """Keys to pause and to resume, when their queues are there."""
        steps = []
        for at, each in enumerate(listed):
            with self._noted(_place("queues", at, each)):
                there = self._there.get(each["name"])
                steps += pause_steps(each, () if there is None else there.paused,
                                     self._connection.queues, self._reason)
        return steps

    # exchanges and bindings

    def _exchanges(self, listed: Sequence[dict[str, Any]], durable: _Records) -> list[Step]:
        there = {each["name"]: each for each in durable["exchanges"]}
        names = {*there, *(each["name"] for each in listed)}
        if len(names) > exchanges.EXCHANGES_MAX:
            self._wrong("exchanges", f"{len(names)}: {exchanges.EXCHANGES_MAX} is the most")
        return self._all("exchanges", listed, lambda each: self._exchange(each, there))

    def _exchange(self, each: dict[str, Any], there: Mapping[str, dict[str, Any]]) -> Step:
        name = _short(each["name"])
        made = {"name": name, "kind": each["kind"],
                "auto_delete": each.get("auto_delete", False),
                "internal": each.get("internal", False)}
        if made["kind"] not in exchanges.KINDS:
            raise BadRequest(reason=f"its kind is one of {', '.join(exchanges.KINDS)}")
        if not isinstance(made["auto_delete"], bool) or not isinstance(made["internal"], bool):
            raise BadRequest(reason="auto_delete and internal are true or false")
        if name.startswith("amq."):
            raise BadRequest(reason="names that begin with amq. are the server's")
        if (old := there.get(name)) is not None:
            if old != made:
                raise BadRequest(reason="it is there, and another than this: delete it first")
            return Step("exchange", name, SAME)
        record = {"exchange": name, **{key: made[key] for key in (
            "kind", "auto_delete", "internal")}}
        return Step("exchange", name, NEW, lambda: exchanges.keep(self._connection, record))

    def _bindings(self, listed: Sequence[dict[str, Any]], made: Sequence[dict[str, Any]],
                  durable: _Records) -> list[Step]:
        known = {*exchanges.GIVEN, *(each["name"] for each in (*durable["exchanges"], *made))}
        old = {(each["exchange"], exchanges.binding_of(each)) for each in durable["bindings"]}
        if (count := len(old) + len(listed)) > exchanges.BINDINGS_MAX:
            self._wrong("bindings", f"{count}: {exchanges.BINDINGS_MAX} is the most")
        queues = {*self._there, *self._named}
        return self._all("bindings", listed, lambda each: self._binding(each, known, old, queues))

    def _binding(self, each: dict[str, Any], known: set[str],
                 old: set[tuple[str, Binding]], queues: set[str]) -> Step:
        exchange, key = each["exchange"], each.get("key", "")
        if exchange not in known:
            raise BadRequest(reason="there is no exchange of this name, here or in the file")
        if not isinstance(key, str) or len(key) > exchanges.NAME_MAX:
            raise BadRequest(reason=f"its key is a text of up to {exchanges.NAME_MAX} characters")
        places = [each[name] for name in ("queue", "to") if name in each]
        if len(places) != 1 or not isinstance(places[0], str):
            raise BadRequest(reason="it says `queue`, or `to` for another exchange: one text")
        if "to" in each and places[0] not in known:
            raise BadRequest(reason=f"there is no exchange {escape(places[0], 64)}, here or in the "
                             "file")
        if "queue" in each and check_queue_name(places[0]) not in queues:
            raise BadRequest(reason=f"there is no queue {places[0]}, here or in the file")
        binding = exchanges.binding_of({"key": key, **each})
        name = f"{exchange} {key} -> {binding.queue or f'exchange {binding.to}'}"
        if (exchange, binding) in old:
            return Step("binding", name, SAME)
        record = exchanges.binding_record(exchange, binding)
        return Step("binding", name, NEW, lambda: exchanges.keep(self._connection, record))

    # schedules

    def _schedule_of(self) -> Callable[[dict[str, Any]], Step]:
        there = {each.name: each for each in self._schedules.list()}
        return lambda each: self._schedule(each, there.get(each["name"]))

    def _schedule(self, each: dict[str, Any], old: Schedule | None) -> Step:
        given: dict[str, Any] = {key: each[key] for key in files.SCHEDULE_KEYS if key in each}
        paused = each.get("paused", False)
        check_types(each["name"], {**given, "paused": paused})
        made = Schedule(each["name"], each["queue"], each["when"], **given).checked()
        if made.queue not in self._named and self._schedules.lacks_queue(made):
            self._lacking.append(missing_queue(made))
        same = old is not None and all(
            getattr(old, key) == getattr(made, key)
            for key in ("queue", "when", *files.SCHEDULE_KEYS))
        if same and old is not None and old.paused == paused:
            return Step("schedule", made.name, SAME)
        if old is not None and old.by == SCHEDULES_FILE:
            raise BadRequest(reason=f"it is one of {SCHEDULES_FILE}, and another than this: "
                             "change it there")

        def work() -> None:
            if not same:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", QueueMissing)  # the plan says it
                    self._schedules.define(made.name, made.queue, made.when, **given)
            if paused != (old is not None and old.paused):
                (self._schedules.pause if paused else self._schedules.resume)(made.name)

        return Step("schedule", made.name, NEW if old is None else CHANGED, work)

    # rights

    def _right_of(self) -> Callable[[dict[str, Any]], Step]:
        there = {(each["section"], each["who"]): each["may"]
                 for each in files.rights(self._location)}
        return lambda each: self._right(each, there)

    def _right(self, each: dict[str, Any], there: Mapping[tuple[str, str], str]) -> Step:
        section, who, may = each["section"], each["who"], " ".join(each["may"].split())
        check_grant(section, who, may)
        name, old = f"[{section}] {who}", there.get((section, who))
        if old is not None and set(old.split()) == set(may.split()):
            return Step("right", name, SAME)
        self._grants.append((section, who, may))
        first = len(self._grants) == 1  # one new file has all of them
        return Step("right", name, NEW if old is None else CHANGED,
                    self._write_rights if first else _nothing)

    def _may_write(self) -> None:
        path = self._location.conf_dir / FILE_NAME
        if path.parent == shipped_conf():
            raise BadRequest(reason=f"the shipped {FILE_NAME} is not changed: copy it to conf/ in "
                             "the spool or to /etc/omq, restart, and try again")
        if (size := len(self._new_rights())) > CONF_FILE_BYTES_MAX:
            raise BadRequest(reason=f"{FILE_NAME} would have {size} bytes: {CONF_FILE_BYTES_MAX} "
                             "is the most")

    def _new_rights(self) -> bytes:
        text = read_file(conf_path(self._location.conf_dir, FILE_NAME),
                         CONF_FILE_BYTES_MAX).decode()
        for section, who, may in self._grants:
            text = with_section_key(text, section, who, may)
        return text.encode()

    def _write_rights(self) -> None:
        replace_file(self._location.conf_dir / FILE_NAME, self._new_rights())


def _nothing() -> None:
    """The new file has it."""


def _definition(each: dict[str, Any]) -> Definition:
    kind, keys = each.get("kind", Kind.LOCAL.value), each.get("keys", {})
    name = check_name(each["name"])
    if kind not in files.KINDS:
        raise BadRequest(reason=f"its kind is one of {', '.join(files.KINDS)}")
    if not isinstance(keys, dict) or not all(isinstance(value, str) for value in keys.values()):
        raise BadRequest(reason="keys is an object of texts")
    made = Definition(name, Kind(kind), keys)
    check_keys(name, keys, OWN_KEYS[made.kind])
    return made


def _short(name: str) -> str:
    if not 0 < len(name) <= exchanges.NAME_MAX:
        raise BadRequest(reason=f"its name has 1 to {exchanges.NAME_MAX} characters")
    return name


def _identity(key: str, each: dict[str, Any]) -> tuple[str, ...]:
    names = {"bindings": ("exchange", "key", "queue", "to"), "rights": ("section", "who")}
    return tuple(str(each.get(name, "")) for name in names.get(key, ("name",)))


def _place(key: str, at: int, each: dict[str, Any]) -> str:
    return f"{key}[{at}] ({escape(' '.join(_identity(key, each)), 80)})"
