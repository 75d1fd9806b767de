"""services.conf: which services an instance has, what each reads, and in which order they start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from omq.base import conf_values as values
from omq.base import limits
from omq.base.config_file import Entry, Section, read_sections
from omq.base.errors import BadName
from omq.base.mistakes import Mistakes
from omq.base.names import QUEUE_RULE, SERVICE_RULE, check_queue_name, check_service_name
from omq.base.paths import shipped_conf
from omq.base.settings_file import conf_path

SERVICES_FILE: Final = "services.conf"
SERVICE_KEYS: Final = (
    *("title", "number", "kind", "program", "queue", "auxiliaries", "batch", "nonstop"),
    *("enabled", "subservices"),
)


class ServiceKind(Enum):
    """What a service is to the supervisor, in the order of starting; stopping is in STOP_ORDER."""

    MANAGER = "manager"  # queue.manager
    POOL = "pool"  # pool.writer: recovery that never stops
    DELETER = "deleter"  # idel.server
    READER = "reader"  # takes messages from a queue
    SUBMITTER = "submitter"  # only puts messages: the first to stop


START_ORDER: Final = tuple(ServiceKind)
STOP_ORDER: Final = (
    *(ServiceKind.SUBMITTER, ServiceKind.READER, ServiceKind.DELETER),
    *(ServiceKind.MANAGER, ServiceKind.POOL),
)


@dataclass(frozen=True, slots=True)
class ServiceConf:
    """One service: a main process and `auxiliaries` more."""

    name: str
    title: str  # how listings and logs name it
    number: int  # as in the original: Service Router 2, Queue Manager 100
    kind: ServiceKind
    program: str  # launcher in bin/
    queue: str = ""  # which it reads; "" for one that reads none
    auxiliaries: int = 0
    batch: int = 1  # messages a reader takes at once
    nonstop: bool = False  # not stopped by "all", only with the whole instance
    enabled: bool = True
    subservices: tuple[str, ...] = ()  # run inside this one, once


def load_services(conf_dir: Path | None = None) -> dict[str, ServiceConf]:
    """The services by short name (router, local, ...), in the order of the file."""
    sections = _completed(read_sections(conf_path(conf_dir, SERVICES_FILE)))
    services: dict[str, ServiceConf] = {}
    numbers: dict[int, str] = {}
    mistakes = Mistakes()
    for section in sections.values():
        for unknown in section.unknown(SERVICE_KEYS):
            with mistakes.noted():
                raise unknown
        service = mistakes.built(partial(_of_entries, section), section.entries)
        if service is None:
            continue
        with mistakes.noted():
            if service.number in numbers:
                taken = numbers[service.number]
                raise section.entries["number"].error(f"also that of [{taken}]",
                                                      "a number of its own")
        numbers[service.number] = service.name
        services[service.name] = service
    mistakes.end()
    return services


def _of_entries(section: Section, entries: dict[str, Entry]) -> ServiceConf:
    return _service(replace(section, entries=entries))


def _completed(said: dict[str, Section]) -> dict[str, Section]:
    """A section without `kind` says what differs from the shipped one of its name. A file of such
    sections alone is a change of the shipped file: what it does not name is as shipped."""
    if all("kind" in section.entries for section in said.values()):
        return said
    shipped = read_sections(shipped_conf() / SERVICES_FILE)
    changes_all = not any("kind" in section.entries for section in said.values())
    found = dict(shipped) if changes_all else {}
    for name, section in said.items():
        if "kind" not in section.entries and name in shipped:
            section = replace(section, entries={**shipped[name].entries, **section.entries})
        found[name] = section
    return found


def _service(section: Section) -> ServiceConf:
    entries = section.entries
    for key in ("number", "kind", "program"):
        if key not in entries:
            raise section.error(f"the key {key} is missing", f"{key} = ...")
    try:
        name = check_service_name(section.name)
        program = check_service_name(entries["program"].value)
    except BadName as error:
        raise section.error(str(error), SERVICE_RULE) from error
    kind = ServiceKind(values.choice(entries, "kind", tuple(kind.value for kind in ServiceKind)))
    return ServiceConf(
        name=name,
        title=values.text(entries, "title", name),
        number=entries["number"].integer(1, 9999),
        kind=kind,
        program=program,
        queue=_service_queue(section, kind),
        auxiliaries=values.integer(entries, "auxiliaries", 0, 0, limits.AUXILIARIES_MAX),
        batch=values.integer(entries, "batch", 1, 1, limits.BATCH_MAX),
        nonstop=values.truth(entries, "nonstop", default=False),
        enabled=values.truth(entries, "enabled", default=True),
        subservices=tuple(entries["subservices"].value.split()) if "subservices" in entries else (),
    )


def _service_queue(section: Section, kind: ServiceKind) -> str:
    entry = section.entries.get("queue")
    reads = kind in (ServiceKind.READER, ServiceKind.DELETER)
    if entry is None or not entry.value:
        if reads:
            raise section.error(f"a {kind.value} reads a queue", "queue = NAME")
        return ""
    if not reads:
        raise entry.error(f"a {kind.value} reads no queue", "no queue")
    try:
        return check_queue_name(entry.value)
    except BadName as error:
        raise entry.error("not a queue name", QUEUE_RULE) from error
