"""What an instance has defined, as one file: queues with their limits, exchanges, bindings,
schedules, and the rights of authority.conf.

    {"version": 1,
     "queues":    [{"name": "ORDERS", "kind": "local", "by": "run time",
                    "keys": {"limit_by": "group"}, "paused": ["tenant7"]}],
     "exchanges": [{"name": "shop", "kind": "topic", "auto_delete": false, "internal": false}],
     "bindings":  [{"exchange": "shop", "key": "order.*", "queue": "ORDERS"},
                   {"exchange": "shop", "key": "order.#", "to": "audit"}],
     "schedules": [{"name": "NIGHTLY", "queue": "ORDERS", "when": "0 3 * * *", ...}],
     "rights":    [{"section": "ORDERS", "who": "user:alice", "may": "put get"}]}

`by` says where a queue or schedule was defined; `keys` are those that differ from what omq has
by default, [*] of queues.conf included; `paused` are all keys that are paused of a queue that has
`limit_by`, or such keys. A binding leads to a queue or (`to`) to another exchange.
Not in it: queues whose names begin with SYSTEM.,
which make themselves; IDEL and POISON; temporary queues; messages; passwords and tokens.

`definition_plan` takes such a file in. Errors: those of the connection, ConfigError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from omq.base.authority import FILE_NAME
from omq.base.config import QUEUES_FILE
from omq.base.config_file import read_sections
from omq.base.defined_queue import conf_of, keys_of, load_common
from omq.base.names import SPECIAL_NAMES
from omq.base.settings_file import conf_path
from omq.core.engine.queue_judge import SYSTEM_KEYS
from omq.format.definition import HOLDING, Kind
from omq.ipc.client.connection import Client
from omq.ipc.client.queues import QueueInfo
from omq.services.amqp091 import exchanges
from omq.services.daemon.options import Location
from omq.tasks.schedule import Schedule
from omq.tasks.schedules import Schedules

VERSION: Final = 1
LIMIT_BY: Final = "limit_by"
RUN_TIME: Final = "run time"
LISTS: Final = ("queues", "exchanges", "bindings", "schedules", "rights")
"""The lists of the file, in the order in which they take effect."""
KINDS: Final = tuple(each.value for each in (
    Kind.LOCAL, Kind.ALIAS, Kind.MODEL, Kind.REMOTE, Kind.TRANSMISSION))
SCHEDULE_KEYS: Final = ("zone", "body", "properties", "priority", "expiry_s", "jitter_s",
                        "catch_up", "overlap")


def exported(location: Location, connection: Client) -> dict[str, Any]:
    """All of it."""
    queues = [queue_record(each) for each in whole(location, connection) if is_exported(each)]
    schedules = [schedule_record(each) for each in Schedules(connection).list()]
    return {"version": VERSION, "queues": queues, **exchange_records(connection),
            "schedules": schedules, "rights": rights(location)}


def whole(location: Location, connection: Client) -> list[QueueInfo]:
    """All queues. A model is listed with what was said of it alone: here with what it has of [*],
    too, as the queues that are made of it will have."""
    found = connection.queues.list()
    common, known = load_common(location.conf_dir), {each.name for each in found}
    return [each if each.kind != Kind.MODEL.value else replace(each, keys={
        **keys_of(conf_of(each.name, {}, common, known)), **each.keys}) for each in found]


def is_exported(info: QueueInfo) -> bool:
    return (info.by in (RUN_TIME, QUEUES_FILE) and info.kind in KINDS
            and info.name not in SPECIAL_NAMES and not info.name.startswith("SYSTEM."))


def queue_record(info: QueueInfo) -> dict[str, Any]:
    keys = said(info)
    record = {"name": info.name, "kind": info.kind, "by": info.by, "keys": keys}
    return {**record, "paused": list(info.paused)} if info.paused or (
        LIMIT_BY in keys and Kind(info.kind) in HOLDING) else record


def said(info: QueueInfo) -> dict[str, str]:
    """What is to be said of a queue so that it is as it is: what omq's own default is not, whatever
    [*] says here, and not what the queue manager says by itself."""
    plain = defaults(info.name, info.kind)
    return {key: value for key, value in info.keys.items()
            if key not in SYSTEM_KEYS and plain.get(key) != value}


def defaults(name: str, kind: str) -> dict[str, str]:
    """The keys of a queue that neither its section nor [*] sets."""
    if kind in (Kind.ALIAS.value, Kind.REMOTE.value):
        return {}
    return keys_of(conf_of(name, {}, {}, ()))


def exchange_records(connection: Client) -> dict[str, list[dict[str, Any]]]:
    """Exchanges and bindings that are durable, by name."""
    found = [each for each in exchanges.load(connection) if each is not None]
    made = [{"name": each["exchange"], "kind": each["kind"], "auto_delete": each["auto_delete"],
             "internal": each["internal"]} for each in found if "kind" in each]
    bound = [exchanges.binding_record(each["exchange"], exchanges.binding_of(each))
             for each in found if "kind" not in each]
    return {"exchanges": sorted(made, key=lambda each: str(each["name"])),
            "bindings": sorted(bound, key=lambda each: tuple(each.values()))}


def schedule_record(each: Schedule) -> dict[str, Any]:
    told = {key: getattr(each, key) for key in SCHEDULE_KEYS}
    return {"name": each.name, "queue": each.queue, "when": each.when, "by": each.by, **told,
            "properties": dict(each.properties), "paused": each.paused}


def rights(location: Location) -> list[dict[str, str]]:
    """The lines of authority.conf, in their order."""
    return [{"section": section.name, "who": entry.key, "may": " ".join(entry.value.split())}
            for section in read_sections(conf_path(location.conf_dir, FILE_NAME)).values()
            for entry in section.entries.values()]


def counted(found: Mapping[str, Any]) -> str:
    """`3 queues, 1 exchange`: what a file has."""
    words = ((len(found.get(each, ())), each) for each in LISTS)
    return ", ".join(f"{count} {each if count != 1 else each[:-1]}"
                     for count, each in words if count) or "nothing"
