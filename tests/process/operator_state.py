"""All that an operator can set while an instance runs, of every kind, and what it says of that.

A new kind of queue, key of one, list of definitions or command of queues that is not known here
fails `complete`, so whatever carries state from one place to another is asked for it, too.
"""

from __future__ import annotations

from typing import Any, Final

from omq.base.config import QUEUE_KEYS
from omq.cli.operate import omq_queue
from omq.cli.operate.definition_set import LISTS, exchange_records
from omq.core.engine.queue_judge import OWN_KEYS
from omq.format.definition import Kind
from omq.ipc.client.connection import Client
from omq.ipc.client.operator import Operator
from omq.services.amqp091 import exchanges
from omq.services.amqp091.binding_index import Binding
from omq.tasks.schedules import Schedules

KEYS: Final = {
    "max_depth": "77", "max_length": "999", "put": "inhibited", "get": "inhibited",
    "persistent": "no", "priority": "7", "attempts_max": "9", "death_delay_s": "3",
    "lease_s": "44", "expiry_max_s": "5000", "expired_to": "KEYED", "retry_delay_ms": "250",
    "retry_backoff": "linear", "retry_max_s": "66", "retry_jitter": "5", "dead_letter": "KEYED",
    "dedupe_s": "40", "duplicates": "refused", "dedupe_keys_max": "30", "trigger": "depth",
    "trigger_depth": "8", "trigger_program": "PROGRAM", "in_work_max": "6", "rate": "1000/s",
    "rate_burst": "5", "limit_by": "property:tenant", "key_in_work_max": "2", "key_rate": "90/s",
    "key_rate_burst": "3", "fair_turns": "yes", "limit_keys_max": "1000",
    "description": "each key, said"}
"""A value for each key of a queue, none of them its default."""
QUEUES: Final[dict[str, tuple[Kind, dict[str, str]]]] = {
    "KEYED": (Kind.LOCAL, {"limit_by": "group", "note": "for programs"}),
    "PAUSED": (Kind.LOCAL, {"limit_by": "property:tenant"}),
    "ALL": (Kind.LOCAL, KEYS),
    "ALIAS": (Kind.ALIAS, {"target": "KEYED", "description": "another name"}),
    "MODEL": (Kind.MODEL, {"lifetime": "permanent", "max_depth": "7"}),
    "EAST": (Kind.TRANSMISSION, {"note": '{"channel":{"host":"127.0.0.1","state":"stopped"}}'}),
    "REMOTE": (Kind.REMOTE, {"remote_queue": "Q", "remote_manager": "EAST",
                             "transmission": "EAST"})}
PAUSES: Final = {"KEYED": ["", "a, b", "tenant 7", "\u20ac"], "PAUSED": ["x"]}
"""Keys by their queue; PAUSED has no `limit_by` any more, so that its pause waits."""
COMMANDS: Final = {"define", "alter", "pause", "resume", "rename", "roll-over", "delete", "clear",
                   "truncate", "show", "list", "why"}
"""Of queues. Those after resume move, remove or show what is there: there is nothing to carry."""


def complete() -> None:
    """Nothing is missing here."""
    assert set(KEYS) == set(QUEUE_KEYS)
    assert {kind for kind, _ in QUEUES.values()} == set(Kind) - {Kind.TEMPORARY, Kind.PAUSE}
    for kind, keys in OWN_KEYS.items():
        said = {key for own, given in QUEUES.values() if own is kind for key in given}
        assert kind is Kind.TEMPORARY or set(keys) - set(QUEUE_KEYS) <= said, kind
    assert set(LISTS) == {"queues", "exchanges", "bindings", "schedules", "rights"}
    assert set(omq_queue._COMMANDS) == COMMANDS


def set_all(connection: Client) -> None:
    """As an operator would."""
    queues = connection.queues
    for name, (kind, keys) in QUEUES.items():
        queues.define_by(name, kind.value, keys)
    for name, paused in PAUSES.items():
        for key in paused:
            queues.pause(name, key)
    queues.alter("PAUSED", limit_by=None)
    for record in ({"exchange": "shop", "kind": "topic", "auto_delete": False, "internal": True},
                   exchanges.binding_record("shop", Binding("order.*", "KEYED")),
                   exchanges.binding_record("amq.topic", Binding("order.#", "", "shop"))):
        exchanges.keep(connection, record)
    schedules = Schedules(connection)
    schedules.define("NIGHTLY", "KEYED", "0 3 * * *", body="{}")
    schedules.define("OFTEN", "KEYED", "every 5 min")
    schedules.pause("OFTEN")
    qpool = int(connection.put("KEYED", b"held", group_id="g")[32:], 16)
    Operator(connection, "test").hold([(qpool, "KEYED", 0)])


def found(connection: Client, *, messages: bool = True) -> dict[str, Any]:
    """What there is of it; `messages`: which are held, too."""
    listed = [each for each in connection.queues.list() if each.name in QUEUES]
    told: dict[str, Any] = {
        "queues": {each.name: (each.kind, each.by, {
            key: value for key, value in each.keys.items() if key != "born"}, list(each.paused))
            for each in listed},
        "schedules": {each.name: (each.queue, each.when, each.paused)
                      for each in Schedules(connection).list()},
        **exchange_records(connection)}
    if messages:
        told["held"] = [(row.body, row.state.name) for row in connection.browse("KEYED")]
    return told


def whole(told: dict[str, Any]) -> None:
    """All that `set_all` set is there."""
    assert {name: paused for name, (*_, paused) in told["queues"].items() if paused} == {
        name: paused for name, paused in PAUSES.items() if paused}
    for name, (kind, keys) in QUEUES.items():
        own = {key: value for key, value in keys.items()
               if name != "PAUSED"}.items()  # its limit_by was taken away
        assert told["queues"][name][0] == kind.value and own <= told["queues"][name][2].items()
    assert told["schedules"]["OFTEN"][2] and not told["schedules"]["NIGHTLY"][2]
    assert len(told["exchanges"]) == 1 and len(told["bindings"]) == 2
    assert told.get("held", [(b"held", "HELD")]) == [(b"held", "HELD")]
