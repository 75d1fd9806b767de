"""Which queues there are: those of queues.conf, and those that were made at run time.

A queue has one author (ADR 0049): its section in queues.conf, or a definition made at run time. If
there are both, the file counts and the definition goes. A definition is a DEFINE frame that says
all of it; it is what it was after every restart, because redo has the last one of each name, and a
checkpoint takes them into poolctrl. What holds messages has a number besides, by a QUEUE frame. A
queue that nobody defines any more keeps its number and its messages, and takes none. So does one
whose name is lost: it is called LOST and its number.

Errors: UnknownQueue, TooManyQueues, WrongKind, SpoolFull.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omq.base import limits
from omq.base.config import QueueConf
from omq.base.config_file import Entry
from omq.base.defined_queue import conf_of
from omq.base.errors import BadDefinition, OmqError, UnknownQueue, WrongKind
from omq.base.settings import Settings
from omq.core.engine.key_pauses import Pauses
from omq.core.engine.limits_shown import Facts, message_told, queue_told
from omq.core.engine.manager_notes import Books
from omq.core.engine.queue_rows import QueueRows
from omq.core.engine.queue_rules import keepers, rules_of
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import SPECIAL_QUEUES, Core
from omq.format.definition import Definition, Kind, read_line
from omq.format.journal import FrameFlag, FrameType


@dataclass(slots=True)
class Changes:
    """What a start or a reload has changed, by name."""

    defined: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    taken_over: list[str] = field(default_factory=list)  # definitions that the file has replaced
    unusable: list[OmqError] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # of messages whose queue nobody knows any more


class QueueBook:
    """See the module."""

    def __init__(self, core: Core, books: Books) -> None:
        self._core, self._books = core, books
        self.rows = QueueRows(core)
        self.numbers: dict[str, int] = {}
        self.definitions: dict[str, Definition] = {}
        self.confs: dict[str, QueueConf] = {}  # of all that hold messages and are defined
        self._newer: dict[str, str] = {}  # lines that this omq does not understand
        self._file: dict[str, QueueConf] = {}
        self._common: Mapping[str, Entry] = {}
        self._settings = Settings()
        self._going: set[int] = set()
        self.pauses = Pauses(core)
        self.triggered = core.triggered  # numbers of queues that have a trigger
        books.lines = lambda: [line.encode() for line in self.lines()]

    def lines(self) -> list[str]:
        """All definitions, as frames have them."""
        listed = (*self.definitions.values(), *self.pauses.lines.values())
        return [*(each.line() for each in listed), *self._newer.values()]

    # the start, and queues.conf

    def start(self, file: dict[str, QueueConf], common: Mapping[str, Entry], settings: Settings,
              known: Mapping[int, str], lines: Mapping[str, str]) -> Changes:
        """Fill the tables; the caller journals all names then (Books.name_everything), and `told`.
        TooManyQueues."""
        changes = Changes()
        for name, line in lines.items():
            definition = read_line(line)
            if definition is not None and definition.kind is Kind.PAUSE:
                self.pauses.lines[name] = definition
            elif name in file:
                changes.taken_over.append(name)
            elif definition is None:
                self._newer[name] = line
            else:
                self.definitions[name] = definition
        self.numbers = {name: number for number, name in {**known, **SPECIAL_QUEUES}.items()}
        for number in self.rows.unknown(self.numbers.values()):
            changes.lost.append(self._unknown_name(number))
            self.numbers[changes.lost[-1]] = number
        self.rows.start(self.numbers.values())
        self._read(file, common, settings, changes)
        for rules in self._all_rules():
            self._core.define_queue(rules)
            self._note_going(rules)
        self._core.limits.starting = False
        for name, number in self.numbers.items():
            self.pauses.apply(name, number)
        return changes

    def _unknown_name(self, number: int) -> str:
        """Of a number that has messages and no name, as omqrecover gives it: damage took the frame
        that said it. No queue that is made later may have its messages."""
        name = plain = f"LOST{number}"
        tries = 1
        while name in self.numbers or name in self.definitions or name in self._newer:
            tries += 1
            name = f"{plain}.{tries}"
        return name

    def told(self, changes: Changes) -> None:
        """Journal what the start has changed."""
        self._core.block.reserve(len(changes.taken_over), limits.QUEUE_NAME_BYTES * len(
            changes.taken_over))
        for name in changes.taken_over:
            self._forget_line(name)

    def reload(self, file: dict[str, QueueConf], common: Mapping[str, Entry], settings: Settings
               ) -> Changes:
        """queues.conf was read again. SpoolFull, TooManyQueues: nothing has changed."""
        changes, core = Changes(), self._core
        changes.taken_over = [name for name in self.definitions if name in file]
        before, free = dict(core.rules), self.rows.free_now()
        state = (self._file, self._common, self._settings, dict(self.definitions),
                 dict(self.numbers), dict(self.confs))
        for name in changes.taken_over:
            del self.definitions[name]
        try:
            self._read(file, common, settings, changes)
            new = [rules for rules in self._all_rules() if rules != before.get(rules.queue)]
            core.block.reserve(len(new) + len(changes.taken_over), limits.QUEUE_NAME_BYTES * (
                len(new) + len(changes.taken_over)))
        except OmqError:
            (self._file, self._common, self._settings, self.definitions, self.numbers, self.confs
             ) = state
            self.rows.back_to(free)
            raise
        for name in changes.taken_over:
            self._forget_line(name)
        self._books.define_queues(new)
        for rules in new:
            self._note_going(rules)
            told = (changes.defined if rules.queue not in before
                    else changes.removed if rules.name not in self.confs else changes.changed)
            told.append(rules.name)
        return changes

    def _read(self, file: dict[str, QueueConf], common: Mapping[str, Entry], settings: Settings,
              changes: Changes) -> None:
        """What is defined, and a number for each that holds messages."""
        self._file, self._common, self._settings = dict(file), dict(common), settings
        self.confs, known = dict(file), self._known()
        for name, definition in self.definitions.items():
            if definition.holds:
                try:
                    self.confs[name] = conf_of(name, definition.keys, common, known)
                except BadDefinition as error:  # it names a queue that the file had once
                    changes.unusable.append(error)
        for name in sorted(self.confs):
            if name not in self.numbers:
                self.numbers[name] = self.rows.take(self.rows.choose())

    # questions

    def remembered(self, name: str) -> int:
        """How many ids this queue remembers (core.engine.duplicates)."""
        return self._core.duplicates.count(self._core, name)

    def limits_told(self, number: int) -> Facts:
        """What its limits of work do now."""
        return queue_told(self._core, number)

    def keys_forgotten(self, now: int) -> list[tuple[str, int, int]]:
        """As core.engine.limits says, by name."""
        rules = self._core.rules
        return [(rules[number].name, count, most)
                for number, count, most in self._core.limits.forgotten(now) if number in rules]

    def message_told(self, number: int, qpool: int) -> str:
        """Why its limits do not let this message go; "": they do, or it is not there."""
        slot = self._core.t.slot_of(qpool)
        entry = self._core.t.entry_on(slot, number) if slot >= 0 else -1
        return message_told(self._core, entry) if entry >= 0 else ""

    def kind(self, name: str) -> Kind | None:
        """What it is; None: there is no such queue."""
        if name in self.definitions:
            return self.definitions[name].kind
        return Kind.LOCAL if name in self.numbers else None

    def all_names(self) -> list[str]:
        """Of every queue of every kind."""
        return sorted({*self.numbers, *self.definitions})

    def going(self) -> list[QueueRules]:
        """Queues that end by themselves: with their client, or when they are empty."""
        return [self._core.rules[number] for number in self._going]

    @property
    def any_going(self) -> bool:
        """Whether there are any; asked in each group."""
        return bool(self._going)

    def oldest_ns(self, number: int) -> int:
        """When the oldest message came that a reader could have; 0: there is none."""
        return self._core.oldest_ns(number)

    def number(self, name: str) -> int:
        """Of a queue that holds messages. UnknownQueue, WrongKind."""
        number = self.numbers.get(name)
        if number is None:
            if name in self.definitions:
                raise WrongKind(queue=name, kind=self.definitions[name].kind.value,
                                reason="it holds no messages itself")
            raise UnknownQueue(queue=name)
        return number

    def resolve(self, name: str) -> tuple[list[str], Definition | None]:
        """The queues that a name stands for, and the remote queue if it is one. UnknownQueue;
        WrongKind for a model."""
        definition = self.definitions.get(name)
        if definition is None or definition.holds:
            self.number(name)
            return [name], None
        if definition.kind is Kind.REMOTE:
            return [definition.keys["transmission"]], definition
        if definition.kind is Kind.MODEL:
            raise WrongKind(queue=name, kind=definition.kind.value,
                            reason="queues are made of it, none is there by itself")
        found: dict[str, None] = {}
        for target in definition.words("target"):
            queues, remote = self.resolve(target)
            if remote is not None:
                return queues, remote
            found.update(dict.fromkeys(queues))
        return list(found), None

    # the tables

    def _known(self) -> set[str]:
        """Queues that another may name."""
        return {name for name, each in self.definitions.items() if each.holds} | set(self._file)

    def _all_rules(self) -> list[QueueRules]:
        keeping = keepers(self.confs)
        return [rules_of(name, number, self.confs.get(name), self.numbers, keeping,
                         self._settings, self.definitions.get(name))
                for name, number in self.numbers.items()]

    def _name(self, name: str) -> None:
        """Its number has this name and these rules; the caller has reserved."""
        self._books.define_queues([rules := rules_of(
            name, self.numbers[name], self.confs.get(name), self.numbers, keepers(self.confs),
            self._settings, self.definitions.get(name))])
        self._note_going(rules)
        self._follow()

    def _follow(self) -> None:
        """Queues that name another have its number in their rules, and a queue keeps what is over
        while another names it: both follow what there is now. Names and numbers are as they were,
        so the journal has nothing to learn."""
        core, keeping = self._core, keepers(self.confs)
        for name, number in self.numbers.items():
            conf, rules = self.confs.get(name), core.rules.get(number)
            if rules is None:  # it gets them with its name
                continue
            names = conf is not None and (conf.expired_to or conf.dead_letter)
            if names or rules.expires == (name in keeping):
                now = rules_of(name, number, conf, self.numbers, keeping, self._settings,
                               self.definitions.get(name))
                if now != rules:
                    core.define_queue(now)
        core.times.look_again()

    def _note_going(self, rules: QueueRules) -> None:
        (self._going.add if rules.owner or rules.drains else self._going.discard)(rules.queue)

    def _tell(self, definition: Definition) -> None:
        self.definitions[definition.name] = definition
        self._core.block.frame(FrameType.DEFINE, FrameFlag.PERSISTENT,
                               self.numbers.get(definition.name, 0), 0,
                               payload=definition.line().encode())

    def _forget_line(self, name: str, number: int = 0) -> None:
        self._core.block.frame(FrameType.UNDEFINE, FrameFlag.PERSISTENT, number, 0,
                               payload=name.encode())
