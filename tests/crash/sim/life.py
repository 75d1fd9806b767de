"""An instance in this process on a simulated disk: recovery, engine and journal as the manager
builds them, checkpoints and rounds of bodies as pool.writer takes them, and the model beside.

Every request is first noted in the log of the disk with its effect on the model, then carried out;
every commit is noted when it has returned. So the log says at each instant what had been
acknowledged and what was asked for.

The steps of a start are those of omq.services.manager.parts.build, without IPC.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from omq.base import clock, form
from omq.base.checksum import crc32c
from omq.base.config import QueueConf
from omq.base.errors import BodyUnavailable, DiskError, Exit, OmqError, SpoolFull
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.cli.operate import omq_archive
from omq.core.engine.barriers import BARRIER
from omq.core.engine.engine import Engine
from omq.core.engine.groups import GROUPED
from omq.core.engine.operate import Action, Item, Order, operate
from omq.core.engine.put_many import put_many
from omq.core.engine.puts import NewMessage
from omq.core.engine.queues import Queues
from omq.core.engine.relocation import relocate
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.settle import Verdict
from omq.core.engine.state import IDEL, POISON, REMEMBERS, Core, Party
from omq.core.engine.statistics import Statistics
from omq.core.engine.unit_facts import Facts
from omq.core.index.tables import Tables
from omq.core.load.pool_columns import Loaded
from omq.core.load.rebuild import load
from omq.core.load.recovery import Recovered, recover
from omq.fast.columns import Columns
from omq.fast.journal import Journal
from omq.format.findings import Finding, Kind
from omq.format.index import Counter, EntryState, IndexHeader, IndexLayout, write_header
from omq.format.journal import FRAME, FrameFlag, FrameType
from omq.format.members import MEMBERS, members_text
from omq.format.message import (
    DESCRIPTOR,
    Descriptor,
    Part,
    encode,
    encode_properties,
    id_hash,
    memory_of,
)
from omq.format.wire import PutFlag, Settlement
from omq.services.daemon.daemon import DaemonContext
from omq.services.manager import findings as manager_findings
from omq.services.manager import parts as manager_parts
from omq.services.pool.following import Following
from omq.services.pool.live_index import LiveIndex
from omq.storage import containers, durable, recycled_containers, spool
from omq.storage.payloads import PayloadReader, payload_paths
from omq.storage.pool import PoolFiles
from omq.storage.recycled_containers import Recycler
from omq.storage.slots import SlotAllocator
from omq.storage.spare_containers import SpareContainers
from omq.storage.volatile import VolatileBodies
from tests.crash.sim.disk import SimDisk
from tests.crash.sim.model import PREPARED, Effect, Known, Place

ROOT = "/spool"
NS = 1_000_000_000
START_NS = 1_700_000_000 * NS
A, B, C = 3, 4, 5
NAMES = {A: "A", B: "B", C: "C"}
WIDE = tuple(range(6, 24))
"""More queues than a pool record names."""
ATTEMPTS_MAX = 3
DEATH_S = 30
DEDUPE_S = 600
SETTINGS = replace(
    Settings(), journal_file_bytes=32 * 1024, journal_page_bytes=4096, block_bytes_max=16 * 1024,
    block_frames_max=64, store_file_bytes=16 * 1024, volatile_file_bytes=16 * 1024,
    journal_files_kept=0, checkpoint_interval_s=1, disk_reserve_bytes=0)


@dataclass(frozen=True, slots=True)
class Ask:
    """In the log: a request is about to be carried out."""

    effect: Effect
    token: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """In the log: these requests were answered with an error; they must have changed nothing."""

    count: int


@dataclass(frozen=True, slots=True)
class Ack:
    """In the log: all that was asked for is answered. `lsn`, `qpool`: the highest ones given."""

    lsn: int
    qpool: int


@dataclass(frozen=True, slots=True)
class Define:
    """In the log: queues are about to be this, by name: the number (0: none) and the definition."""

    queues: Mapping[str, tuple[int, str]]


@dataclass
class Log:
    """An event log that is kept; see omq.base.event_log."""

    events: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def event(self, event: Any, level: Any = None, /, **fields: Any) -> None:
        self.events.append((event.number, fields))


def queues_of(numbers: Mapping[str, int], definitions: Mapping[str, str]
              ) -> dict[str, tuple[int, str]]:
    """What a manager knows of the queues of the workload `queues`: those with R."""
    names = {name for name in (*numbers, *definitions) if name.startswith("R")}
    return {name: (numbers.get(name, 0), definitions.get(name, "")) for name in names}


class BodyGone(Exception):
    """pool.writer took a file away that the pool still needs."""


class _Index(LiveIndex):
    """pool.writer's view of tables in this process."""

    def __init__(self, core: Core, epoch: int, uuid: bytes) -> None:
        self._attached = cast(Any, SimpleNamespace(buffer=core.t.buffer, close=lambda: None))
        self._layout = core.t.layout
        self._counters = core.t.buffer[2048:4096].cast("Q")
        self.epoch, self.uuid = epoch, uuid
        self.pidfd = -1

    @property
    def running(self) -> bool:
        return True


@contextmanager
def fixed(seed: int) -> Iterator[None]:
    """Nothing depends on the hour or on chance: the same workload makes the same bytes."""
    names = SimpleNamespace(pid=os.getpid(), count=seed * 1000)

    def following() -> tuple[str, str]:
        names.count += 1
        return containers._base36(seed), containers._base36(names.count)

    names.next = following
    with mock.patch.object(clock, "wall_ns", lambda: START_NS), \
            mock.patch.object(containers, "_names", names), \
            mock.patch.object(recycled_containers, "_nonce", lambda: f"{names.count:016x}"), \
            mock.patch("omq.storage.spool.uuid_module.uuid4",
                       lambda: SimpleNamespace(bytes=seed.to_bytes(16, "big"))):
        yield


def damage(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that an operator would be told of: a crash alone must not make any."""
    return [f for f in findings if f.kind not in (Kind.END, Kind.TORN)]


@dataclass(slots=True)
class Found:
    """What a start made of a disk."""

    view: dict[int, Known]
    recovered: Recovered
    loaded: Loaded


LAYOUT = IndexLayout.of(256, 512, WIDE[-1] + 1, 4)


class _Paths(SpoolPaths):
    """The paths of ROOT, made once: a recovery asks for them some fifty times."""


for _name in ("journal", "archive", "msgpool", "store", "data", "spares", "volatile", "quarantine",
              "run"):
    setattr(_Paths, _name, getattr(SpoolPaths(Path(ROOT)), _name))
PATHS = _Paths(Path(ROOT))


def write_at_once(engine: Engine) -> None:
    """Blocks are written by omq.fast.journal where a manager would do so."""
    if form.expected() != form.OFF:
        engine.core.block.write = Journal(engine, Columns(engine.core.t)).write


def tables() -> Tables:
    return Tables(memoryview(bytearray(LAYOUT.size)), LAYOUT, bytes(16))


def recover_into(disk: SimDisk, settings: Settings, now_ns: int
                 ) -> tuple[Found, Core, list[spool.Lock]]:
    """The first half of a start: locks, recovery, the index loaded from the pool."""
    durable.use(disk)
    paths = PATHS
    info = spool.open_spool(paths.root, writer=True)
    locks = [spool.lock(paths.manager_lock, "queue.manager"),
             spool.lock(paths.pool_lock, "queue.manager, recovering")]
    pool = PoolFiles(paths, info.uuid)
    recovered = recover(paths, settings, info.uuid, pool, lambda text: None,
                        term=info.instance.term)
    core = Core(tables(), SlotAllocator(), cast(Any, None), info.uuid)
    core.now_ns, core.mono_ns = now_ns, 1000 * NS
    core.next_qpool = recovered.next_qpool
    core.messages_total_max = 200
    loaded = load(core, pool, cast(SlotAllocator, core.slots),
                  plain=manager_parts.plain_rows())
    context = _context(paths, settings, Log())
    manager_findings.set_aside(context, recovered, loaded)
    if loaded.duplicates:
        pool.write(dict.fromkeys(loaded.duplicates))
    pool.close()
    return Found(view_of(core, paths), recovered, loaded), core, locks


def _context(paths: SpoolPaths, settings: Settings, log: Log) -> DaemonContext:
    location = SimpleNamespace(instance=None, paths=paths, conf_dir=paths.conf)
    notifier = SimpleNamespace(status=lambda text: None)
    return DaemonContext("sim", "sim", cast(Any, None), cast(Any, location), settings,
                         cast(Any, log), cast(Any, notifier), cast(Any, None))


def view_of(core: Core, paths: SpoolPaths) -> dict[int, Known]:
    """Every message of the index, its body read from where the index says."""
    t = core.t
    reader = PayloadReader(paths)
    out: dict[int, Known] = {}
    for slot in range(t.messages.high):
        qpool = t.m_qpool[slot]
        if not qpool:
            continue
        try:
            payload = reader.read(t.m_location[slot], t.m_offset[slot], t.m_length[slot])
        except BodyUnavailable as error:
            payload = f"unavailable: {error.__cause__ or error}".encode()
        places = tuple(
            Place(t.e_queue[e], t.e_priority[e], t.e_state[e], t.e_attempts[e], t.e_retries[e],
                  t.e_until[e] // NS if t.e_state[e] == EntryState.DEFERRED else 0,
                  t.e_sequence[e])
            for e in t.entries_of(slot))
        item, content = "", b""
        if t.m_flags[slot] & FrameFlag.CONTAINER:
            item = payload[-len("~/data/0000000/0000000") :].decode("ascii", "replace")
            try:
                content = containers.read_item(paths, item, t.m_size[slot])
            except OmqError as error:
                content = f"unavailable: {error}".encode()
        out[qpool] = Known(payload, places, item=item, content=content, expiry=t.m_expiry[slot],
                           group=int(core.groups.keys[slot]) if t.m_flags[slot] & GROUPED else 0,
                           members=() if t.m_flags[slot] & BARRIER else None,
                           memory=_memory(core, payload, t.m_flags[slot] & REMEMBERS))
    reader.close()
    return out


def _memory(core: Core, payload: bytes, remembers: int) -> str:
    """The id that B has had, of a message that remembers it."""
    if not remembers:
        return ""
    key, identifier = memory_of(payload)
    known = {(each, one) for each, one, _ in core.duplicates.items()}
    return identifier.rstrip(b"\0").decode("ascii", "replace") if (
        key, identifier) in known else "forgotten"


class Life:
    """A started instance; see the module. `model`: what is acknowledged; `flight`: not yet."""

    def __init__(self, disk: SimDisk, settings: Settings = SETTINGS, *, now_ns: int = START_NS,
                 model: dict[int, Known] | None = None) -> None:
        self.disk, self.settings = disk, settings
        self.wall_ns, self.mono_ns = now_ns, 1000 * NS
        self.model: dict[int, Known] = model or {}
        self.flight: list[Effect] = []
        self.order = 0
        self.log = Log()
        self.paths = PATHS
        self.spares = SpareContainers(PATHS)
        self.recycler = Recycler(PATHS, settings)
        self._recycles = False  # no life without large bodies has the folder
        self.found, core, locks = recover_into(disk, settings, now_ns)
        self._start(core, locks)
        self.recycler.give_back()

    def _start(self, core: Core, locks: list[spool.Lock]) -> None:
        recovered, loaded = self.found.recovered, self.found.loaded
        self.context = _context(self.paths, self.settings, self.log)
        core.volatile = VolatileBodies(self.paths, self.settings, core.uuid)
        self.core, self.uuid = core, core.uuid
        self.writer = manager_parts._epoch(core, self.context, recovered, core.uuid)
        self.engine = Engine(core, Statistics(core.t, 5, core.mono_ns))
        write_at_once(self.engine)
        confs = {name: QueueConf(name, 10_000, 1 << 20, attempts_max=ATTEMPTS_MAX,
                                 death_delay_s=DEATH_S, expired_to="C" if number == A else "",
                                 dedupe_s=DEDUPE_S if number == B else 0)
                 for number, name in NAMES.items()}
        self.engine.queues.start(confs, {}, self.settings, NAMES | {
            number: name for number, name in recovered.queues.items() if name.startswith("R")},
            recovered.definitions)
        self.engine.begin(core.now_ns, core.mono_ns)
        self.engine.books.name_everything(FrameFlag(0))
        self.engine.commit(sync=True)
        manager_parts._list_queues(self.paths, core)
        self.engine.limbo = loaded.limbo
        self.engine.limbo_until = core.mono_ns + 30 * NS
        self.engine.in_doubt.limit = 10
        reader = PayloadReader(self.paths)
        assert self.engine.in_doubt.load(loaded.prepared, lambda slot: reader.read(
            core.t.m_location[slot], core.t.m_offset[slot], core.t.m_length[slot])[
                DESCRIPTOR.size :]) == []
        core.barriers.load(core, loaded.barriers, lambda slot: reader.read(
            core.t.m_location[slot], core.t.m_offset[slot], core.t.m_length[slot]))
        reader.close()
        locks.pop().close()
        self.lock = locks.pop()
        layout = core.t.layout
        write_header(core.t.buffer, IndexHeader(
            core.uuid, bytes(16), recovered.epoch, 1, 0, 0, layout.messages, layout.entries,
            layout.queues, layout.readers, layout.size))
        self.putters = [Party(1 + i, 0, 101 + i, 0, 11 + i) for i in range(2)]
        self.reader = Party(9, 1, 109, 0, 19)
        answered = recovered.clients
        self.sequences = {p.token: answered[p.token].sequence if p.token in answered else 0
                          for p in (*self.putters, self.reader)}
        self.order = 1 + max((p.order for m in self.model.values() for p in m.places), default=0)
        self._follower: Following | None = None
        self._open = False
        self.dead = False  # the manager met an error of the disk

    # a group

    def pass_time(self, seconds: float) -> None:
        """Between two groups."""
        assert not self._open
        self.wall_ns += int(seconds * NS)
        self.mono_ns += int(seconds * NS)

    def group(self) -> None:
        """The next request stands in a group; it begins one if need be."""
        if not self._open:
            self._open = True
            self.engine.begin(self.wall_ns, self.mono_ns)

    def commit(self) -> None:
        """The group is durable and answered."""
        self.group()
        try:
            self.engine.commit()
        except BaseException:
            self.dead = True
            raise
        self._open = False
        self.acknowledge()

    def acknowledge(self) -> None:
        for effect in self.flight:
            _apply(self.model, effect)
        self.flight.clear()
        self.disk.mark(Ack(self.core.block.first_lsn - 1, self.core.next_qpool - 1))

    def _ask(self, effect: Effect, party: Party | None = None) -> int:
        """Note a request; its number."""
        self.group()
        token = party.token if party else 0
        if party:
            self.sequences[token] += 1
        sequence = self.sequences[token] if party else 0
        self.flight.append(effect)
        self.disk.mark(Ask(effect, token, sequence))
        self.order += 1
        return sequence

    def refuse(self, count: int = 1) -> None:
        """The last requests were refused: nobody may see anything of them."""
        del self.flight[len(self.flight) - count :]
        self.disk.mark(Refuse(count))

    @contextmanager
    def refusable(self, count: int = 1) -> Iterator[None]:
        """A request is refused, and that is all; unless the disk failed for good: the commit of
        the group finds that out, and nobody is answered."""
        try:
            yield
        except (SpoolFull, DiskError):
            if durable.latched() is None:
                self.refuse(count)
            raise

    def state(self) -> dict[int, Known]:
        """The model with what is asked for."""
        out = dict(self.model)
        for effect in self.flight:
            _apply(out, effect)
        return out

    # requests

    def put(self, *queues: int, size: int = 20, priority: int = 4, persistent: bool = True,
            putter: int = 0, delay_s: int = 0, expiry_s: float = 0, group: bytes = b"") -> int:
        """A message of its own bytes; its QPoolId."""
        new, known = self._message(queues or (A,), size, priority, delay_s, persistent=persistent,
                                   group=group)
        if expiry_s:
            new.expiry = self.wall_ns + int(expiry_s * NS)
            known = replace(known, expiry=new.expiry)
        qpool = self.core.next_qpool
        party = self.putters[putter]
        sequence = self._ask({qpool: known}, party)
        with self.refusable():
            assert self.engine.put(party, new, sequence) == qpool
        return qpool

    def put_keyed(self, key: str, *, persistent: bool = True) -> None:
        """A message on B, which takes its id once."""
        known_ids = {known.memory for known in self.state().values()}
        new, known = self._message((B,), 20, persistent=persistent)
        identifier = key.encode().ljust(24, b"\0")
        new.payload = encode(Descriptor(message_id=identifier), [], b"",
                             new.payload[DESCRIPTOR.size :])
        new.crc, new.key = crc32c(new.payload), id_hash(identifier)
        qpool, party = self.core.next_qpool, self.putters[0]
        until = Part.later(IDEL, 0, self.wall_ns + DEDUPE_S * NS)
        memory = encode(Descriptor(message_id=identifier,
                                   trace_id=id_hash(b"B").to_bytes(16, "little")),
                        [until], b"", b"")
        effect: Effect = {} if key in known_ids else {
            qpool: replace(known, payload=new.payload),
            qpool + 1: Known(memory, (Place(IDEL, 0, int(EntryState.DEFERRED), until=until.until,
                                            order=self.order),), persistent, memory=key)}
        sequence = self._ask(effect, party)
        with self.refusable():
            self.engine.put(party, new, sequence)

    def _message(self, queues: Sequence[int], size: int, priority: int = 4, delay_s: int = 0, *,
                 persistent: bool = True, salt: int = 0, group: bytes = b""
                 ) -> tuple[NewMessage, Known]:
        seed = self.core.next_qpool + salt
        body = (b"%08d" % seed + bytes((seed * 31 + i * 7) & 0xFF for i in range(251)) * (
            size // 251 + 1))[:size]
        until = self.wall_ns // NS + delay_s if delay_s else 0
        parts = [Part(q, priority, 0, until) for q in queues]
        if len(parts) == 1 and not until:
            parts = []
        payload = encode(Descriptor(group_id=group.ljust(24, b"\0")), parts, b"", body)
        flags = int(persistent) | (PutFlag.GROUPED if group else 0)
        new = NewMessage(queues[0], priority, flags, size, crc32c(payload), 0, 0, 0, len(parts),
                         payload)
        state = int(EntryState.DEFERRED if until else EntryState.READY)
        places = tuple(Place(q, priority, state, until=until, order=self.order) for q in queues)
        return new, Known(payload, places, persistent, group=id_hash(group))

    def barrier(self, members: Sequence[int], queue: int = C, within_s: int = 3600) -> int:
        """A message that waits for these."""
        until = self.wall_ns // NS + within_s
        parts = [Part(queue, 4, 0, until)]
        properties = encode_properties({MEMBERS: members_text(members)})
        payload = encode(Descriptor(), parts, properties, b"all")
        new = NewMessage(queue, 4, int(PutFlag.PERSISTENT | PutFlag.BARRIER), 3, crc32c(payload), 0,
                         0, 0, 1, payload)
        place = Place(queue, 4, int(EntryState.DEFERRED), until=until, order=self.order)
        qpool, party = self.core.next_qpool, self.putters[0]
        sequence = self._ask({qpool: Known(payload, (place,), members=tuple(members))}, party)
        with self.refusable():
            assert self.engine.put(party, new, sequence) == qpool
        return qpool

    def _given_up(self, *members: int) -> Effect:
        """The barriers that wait for these will never be ready."""
        return {qpool: known.given_up(self.order) for qpool, known in self.state().items()
                if known.members and set(known.members) & set(members)
                and known.places[0].state == EntryState.DEFERRED}

    def _barriers(self) -> None:
        """Those whose members are all done, one of which is on POISON, or whose time is over."""
        for qpool, known in self.state().items():
            place, state = known.places[0], self.state()
            if known.members is None or place.state != EntryState.DEFERRED:
                continue
            left = [state[each] for each in known.members if each in state]
            if not left:
                self._ask({qpool: known.freed(place.queue)})
            elif place.until <= self.wall_ns // NS or any(each.on(POISON) for each in left):
                self._ask({qpool: known.given_up(self.order)})

    def put_container(self, queue: int = A, size: int = 3000) -> int:
        """A message whose body is a file of its own; the file is there before it is put."""
        content = bytes((self.core.next_qpool * 17 + i) & 0xFF for i in range(251)) * (size // 251)
        if not self._recycles:
            self.recycler.open()
            self.recycler.look_behind()
            self._recycles = True
        ref, length, crc = containers.create(self.paths, [content], self.spares, len(content))
        payload = encode(Descriptor(), [], b"", ref.encode(), length, crc)
        flags = int(FrameFlag.PERSISTENT | FrameFlag.CONTAINER)
        new = NewMessage(queue, 4, flags, length, crc32c(payload), 0, 0, 0, 0, payload)
        qpool, party = self.core.next_qpool, self.putters[0]
        known = Known(payload, (Place(queue, 4, order=self.order),), item=ref, content=content)
        sequence = self._ask({qpool: known}, party)
        with self.refusable():
            assert self.engine.put(party, new, sequence) == qpool
        return qpool

    def give(self, queue: int = A, want: int = 1) -> list[Verdict]:
        """Hand out; the settlements to fill in. What is given is what the model says."""
        state = self.state()
        there = sorted((place.order, qpool, place) for qpool, message in state.items()
                       if (place := message.on(queue)))
        first = {state[qpool].group: qpool for _, qpool, _ in reversed(there)}
        ready = sorted((-place.priority, order, qpool) for order, qpool, place in there
                       if place.state == EntryState.READY and (
                           not state[qpool].group or first[state[qpool].group] == qpool)
                       and not (queue == IDEL and self._held(qpool, IDEL)))
        wanted: list[int] = []
        for _, _, qpool in ready[:want]:
            place = state[qpool].on(queue)
            alone = place is not None and place.attempts > 0 and queue > POISON  # it has failed
            if not (alone and wanted):
                wanted.append(qpool)
            if alone:
                break
        # What is handed out from IDEL is not journaled, so nothing of it is asked after a crash.
        effect: Effect = {} if queue == IDEL else {q: state[q].given(queue) for q in wanted}
        sequence = self._ask(effect, self.reader)
        self.engine.wait(self.reader, queue, want, sequence, 0, auxiliary=False)
        try:
            entries = [entry for _, given in self.engine.dispatch() for entry in given]
        except DiskError:  # nobody catches it there
            self.dead = True
            raise
        self.engine.expire()
        if not entries and not self.core.space_left:
            self.refuse()
            self.core.space_left = True
            return []
        t = self.core.t
        got = [t.m_qpool[t.e_message[entry]] for entry in entries]
        assert got == wanted, f"handed out {got}, the order is {wanted}"
        return [Verdict(1, e, t.m_qpool[t.e_message[e]], t.e_lease[e]) for e in entries]

    def settle(self, kind: Settlement, verdicts: Sequence[Verdict], *, delay_s: int = 60) -> None:
        """Done, defer, fail, release: all in one request, each for itself."""
        queue_of = {v.qpool: self.core.t.e_queue[v.entry] for v in verdicts}
        effects: list[Effect] = []
        state = self.state()
        for verdict in verdicts:
            # A failed one comes back as the queue has it.
            verdict.kind, verdict.argument = kind, delay_s * NS if kind == Settlement.DEFER else 0
            message, queue = state[verdict.qpool], queue_of[verdict.qpool]
            if queue == IDEL:
                self.recycler.end(message.item)
            effects.append({verdict.qpool: self._settled(kind, message, queue, delay_s)})
        self.group()
        for effect in effects[:-1]:
            self.flight.append(effect)
            self.disk.mark(Ask(effect, 0, 0))
            self.order += 1
        sequence = self._ask(effects[-1], self.reader)
        with self.refusable(len(effects)):
            lost = self.engine.settle(self.reader, verdicts, sequence)
        assert lost == 0, f"{lost} leases lost"

    def _settled(self, kind: Settlement, message: Known, queue: int, delay_s: int) -> Known | None:
        now = self.wall_ns
        if kind == Settlement.DONE:
            return message.done(queue, self.order)
        if queue == IDEL:
            return message
        if kind == Settlement.DEFER:
            return message.deferred(queue, -(-(now + delay_s * NS) // NS), failed=False)
        if kind == Settlement.RELEASE:
            return message.released(queue)
        assert kind == Settlement.FAIL
        return message.failed(queue, -(-(now + DEATH_S * NS) // NS), ATTEMPTS_MAX, self.order)

    def move(self, verdict: Verdict, targets: Sequence[int], new: Sequence[int] = ()) -> int:
        """Off its queue, onto others, with new messages (one on each queue of `new`)."""
        state = self.state()
        queue = self.core.t.e_queue[verdict.entry]
        made = [self._message([q], 30, salt=i) for i, q in enumerate(new)]
        message = state[verdict.qpool]
        effect: Effect = {verdict.qpool: message.moved(queue, [(q, 4) for q in targets], self.order)
                          if targets else message.done(queue, self.order)}
        first = self.core.next_qpool
        for i, (_, known) in enumerate(made):
            place = replace(known.places[0], order=self.order + 1)
            effect[first + i] = replace(known, places=(place,))
            self.order += 1
        sequence = self._ask(effect, self.reader)
        with self.refusable():
            return self.engine.move(self.reader, verdict, [Part(q, 4) for q in targets],
                                    [n for n, _ in made], sequence)

    def unit(self, taken: Sequence[Verdict], new: Sequence[tuple[int, int]]) -> int:
        """A unit of work: what it took, and messages (queue, bytes)."""
        state, effect = self.state(), cast(Effect, {})
        for verdict in taken:
            queue = self.core.t.e_queue[verdict.entry]
            message = cast(Known, effect.get(verdict.qpool, state[verdict.qpool]))
            effect[verdict.qpool] = message.done(queue, self.order)
        made = [self._message([q], size, salt=i) for i, (q, size) in enumerate(new)]
        first = self.core.next_qpool
        for i, (_, known) in enumerate(made):
            self.order += 1
            effect[first + i] = replace(known, places=(replace(known.places[0],
                                                               order=self.order),))
        sequence = self._ask(effect, self.reader)
        with self.refusable():
            return self.engine.units.commit(self.reader, taken, [n for n, _ in made], sequence)

    def prepare(self, taken: Sequence[Verdict], new: Sequence[tuple[int, int]]) -> int:
        """A unit of work is in doubt; the QPoolId of its message."""
        state, effect = self.state(), cast(Effect, {})
        for verdict in taken:
            queue = self.core.t.e_queue[verdict.entry]
            message = cast(Known, effect.get(verdict.qpool, state[verdict.qpool]))
            effect[verdict.qpool] = message.prepared(queue)
        facts = Facts("", "sim", 0, self.reader.pid, len(taken), len(new))
        own = self.core.next_qpool
        effect[own] = Known(encode(Descriptor(), [], b"", facts.encode()),
                            (Place(IDEL, 0, PREPARED, order=self.order),))
        made = [self._message([q], size, salt=1 + i) for i, (q, size) in enumerate(new)]
        for i, (_, known) in enumerate(made):
            self.order += 1
            effect[own + 1 + i] = replace(known, places=(replace(
                known.places[0], state=PREPARED, order=self.order),))
        sequence = self._ask(effect, self.reader)
        with self.refusable():
            assert self.engine.in_doubt.prepare(self.reader, taken, [n for n, _ in made], facts,
                                                sequence) == own
        return own

    def end_unit(self, own: int, *, commit: bool) -> None:
        """The unit in doubt ends."""
        state, effect = self.state(), cast(Effect, {own: None})
        in_doubt, t = self.engine.in_doubt, self.core.t
        unit = next(unit for unit in in_doubt.units.values() if unit.qpool == own)
        for entry in unit.entries:
            qpool, queue = t.m_qpool[t.e_message[entry]], t.e_queue[entry]
            message = cast(Known, effect.get(qpool, state[qpool]))
            if t.e_attempts[entry] and not commit:
                effect[qpool] = message.backed_out(queue, ATTEMPTS_MAX, self.order)
            elif t.e_attempts[entry] or not commit:
                effect[qpool] = message.done(queue, self.order)
            else:
                effect[qpool] = message.freed(queue)
        sequence = self._ask(effect, self.reader)
        with self.refusable():
            in_doubt.end(unit, self.reader, sequence, commit=commit)

    def back_out(self, taken: Sequence[Verdict]) -> None:
        """A unit of work is backed out: each message by itself."""
        self.group()
        for verdict in taken:
            queue = self.core.t.e_queue[verdict.entry]
            message = self.state()[verdict.qpool]
            self._ask({verdict.qpool: message.backed_out(queue, ATTEMPTS_MAX, self.order)})
        with self.refusable(len(taken)):
            assert self.engine.units.back_out(self.reader, taken) == 0

    def reader_dies(self, *, orderly: bool = False) -> None:
        """All that the reader holds comes back."""
        self.group()
        for qpool, message in self.state().items():
            for place in message.places:
                if place.state == EntryState.ACTIVE and self._held(qpool, place.queue):
                    until = -(-(self.wall_ns + DEATH_S * NS) // NS)
                    after = message.released(place.queue) if orderly else message.failed(
                        place.queue, until, ATTEMPTS_MAX, self.order)
                    message = after
                    self._ask({qpool: after})
        self.engine.forget(self.reader, [], {"reader": "sim"}, orderly=orderly)

    def _held(self, qpool: int, queue: int) -> bool:
        t = self.core.t
        entry = t.entry_on(t.slot_of(qpool), queue)
        return bool(t.e_reader[entry])

    def tick(self) -> None:
        """What time brings: due messages, and limbo whose readers did not come back."""
        self.group()
        now_s = self.wall_ns // NS
        t = self.core.t
        if self.engine.limbo and self.engine.limbo_until <= self.mono_ns:
            for entry in list(self.engine.limbo):
                qpool, queue = t.m_qpool[t.e_message[entry]], t.e_queue[entry]
                after = self.state()[qpool].failed(queue, now_s, ATTEMPTS_MAX, self.order)
                self._ask({qpool: after})
        self._expire()
        self._barriers()
        self.engine.tick()
        for qpool, message in self.state().items():
            places = message.places
            for place in places:
                if place.state != EntryState.DEFERRED:
                    continue
                entry = t.entry_on(t.slot_of(qpool), place.queue)
                if t.e_state[entry] == EntryState.READY:
                    message = message.put_on(replace(place, state=int(EntryState.READY)))
                    self.model[qpool] = message

    def _expire(self) -> None:
        """Those whose time is over, in its order: off A to C, off B for good."""
        late = sorted((known.expiry, qpool) for qpool, known in self.state().items()
                      if known.expiry and known.expiry <= self.wall_ns)
        for _, qpool in late:
            for place in reversed(self.state()[qpool].places):
                if place.queue in (A, B) and place.state in (EntryState.READY, EntryState.DEFERRED):
                    after = self.state()[qpool].expired(
                        place.queue, C if place.queue == A else 0, C, self.order)
                    self._ask({qpool: after, **self._given_up(qpool)})

    def widen(self) -> None:
        """A reload that adds many queues."""
        self.group()
        for queue in WIDE:
            self.engine.books.define_queues([QueueRules(queue, f"W{queue}", 10_000, 1 << 20)])
        self.commit()

    def define(self, change: Callable[[Queues], None]) -> None:
        """A change of queues that are made at run time, as a client asks for it."""
        self.group()
        queues = self.engine.queues
        before = len(self.core.block.payloads)
        change(queues)
        assert len(self.core.block.payloads) > before, "nothing was written"
        self.disk.mark(Define(queues_of(queues.numbers, {
            name: each.line() for name, each in queues.definitions.items()})))

    # batches, as clients and operators ask for them

    def put_many(self, queue: int, count: int, size: int = 20, putter: int = 0) -> None:
        """One request, one block: all of them or none."""
        made = [self._message([queue], size, salt=i) for i in range(count)]
        first, party = self.core.next_qpool, self.putters[putter]
        effect: Effect = {}
        for i, (_, known) in enumerate(made):
            effect[first + i] = replace(known, places=(replace(known.places[0],
                                                               order=self.order + i),))
        heads = bytearray(count * FRAME.size)
        rows = FRAME.array(heads, count)
        for row, (new, _) in zip(rows, made, strict=True):
            row["priority"], row["flags"] = new.priority, int(FrameFlag.PERSISTENT)
            row["size"], row["crc"], row["length"] = new.size, new.crc, len(new.payload)
        payloads = b"".join(new.payload for new, _ in made)
        sequence = self._ask(effect, party)
        self.order += count
        with self.refusable():
            assert put_many(self.engine, party, memoryview(heads), memoryview(payloads), count,
                            queue, sequence) == first

    def done_many(self, verdicts: Sequence[Verdict], queue: int) -> None:
        """DONE of a batch in one request."""
        state = self.state()
        effect: Effect = {v.qpool: state[v.qpool].done(queue, self.order) for v in verdicts}
        sequence = self._ask(effect, self.reader)
        with self.refusable():
            assert not self.engine.settle(self.reader, verdicts, sequence)

    def operate(self, action: Action, *items: tuple[int, int], targets: Sequence[int] = (),
                keep_s: int = 0) -> None:
        """An order of an operator about messages (QPoolId, queue): one unit of work."""
        state, effect = self.state(), cast(Effect, {})
        until = -(-(self.wall_ns + keep_s * NS) // NS) if keep_s else 0
        for turn, (qpool, queue) in enumerate(items):
            message = cast(Known, effect.get(qpool, state[qpool]))
            order = self.order + turn
            if action is not Action.RESTORE:
                message = message.taken_back(queue)
            if action is Action.HOLD:
                effect[qpool] = message.held(queue)
            elif action is Action.RELEASE:
                effect[qpool] = message.freed(queue)
            elif action is Action.DELETE:
                effect[qpool] = message.deleted(queue, until, order)
            elif action is Action.MOVE:
                place = message.on(queue)
                assert place is not None
                effect[qpool] = message.moved(queue, [(t, place.priority) for t in targets], order)
            else:
                idle = message.on(IDEL)
                assert idle is not None
                effect[qpool] = message.moved(IDEL, [(queue, idle.priority)], order)
        if action is Action.DELETE:
            effect |= self._given_up(*(qpool for qpool, _ in items))
        self._ask(effect)
        self.order += len(items)
        order_of = Order(action, tuple(Item(*item) for item in items), b'{"sim": 1}',
                         tuple(targets), keep_ns=keep_s * NS, force=True)
        with self.refusable():
            outcome = operate(self.core, Party(8, 2, 108, 0, 0), order_of,
                              self.engine.forget_reader)
        assert not outcome.refused, outcome.refused

    def cancel(self, qpool: int, *queues: int, putter: int = 0, in_work: bool = False) -> None:
        """A program takes its message off all of its queues, out of the hands of its reader if that
        is wanted: one request, asked for again after a death."""
        left: Known | None = self.state()[qpool]
        for turn, queue in enumerate(queues):
            assert left is not None
            left = left.deleted(queue, 0, self.order + turn)
        sequence = self._ask({qpool: left, **self._given_up(qpool)}, self.putters[putter])
        self.order += len(queues)
        by_id = self.engine.by_id
        entries = by_id.places(self.core.t.slot_of(qpool))
        assert len(entries) == len(queues)
        with self.refusable():
            by_id.cancel(self.putters[putter], entries, sequence, b'{"sim": 2}',
                         self.engine.forget_reader if in_work else None)

    # pool.writer and the archive

    def archive(self) -> None:
        """What omq-archive does from its timer."""
        info = spool.SpoolInfo(self.uuid, self.paths)
        code = omq_archive.run(info, self.settings, cast(Any, self.log), now_ns=self.wall_ns,
                               dry=False)
        assert code == Exit.OK, self.log.events[-3:]

    def follower(self) -> Following:
        """pool.writer, attached to this manager."""
        if self._follower is None:
            index = _Index(self.core, self.found.recovered.epoch, self.uuid)
            pulse = SimpleNamespace(beat=lambda: None, wait=lambda: None, short=lambda: None,
                                    busy=lambda text: None)
            lock = spool.lock(self.paths.pool_lock, "pool.writer")
            made = Following(self.context, cast(Any, pulse), lambda paths, timeout: _Line(self),
                             index, lock)
            assert made.start()
            self._follower = made
        return self._follower

    def checkpoint(self, *, bodies: bool = True) -> None:
        """What pool.writer does when a checkpoint is due."""
        following = self.follower()
        following._next_file.prepare(following._index.counter(Counter.JOURNAL_FILE), 0)
        following._checkpoint()
        if bodies:
            following._round()
        durable.check_latch()

        if bodies:
            self._pool_has_its_bodies()

    def round(self) -> None:
        """Bodies, without a checkpoint before: pool.writer is behind, or its disk is full."""
        self.follower()._round()
        durable.check_latch()
        self._pool_has_its_bodies()

    def _pool_has_its_bodies(self) -> None:
        """Nothing is gone that a record on the disk names: whatever becomes of the journal behind
        the checkpoint, each message that the pool has can be handed out (services.pool.bodies). Of
        a store file that was removed the header stays."""
        pool = PoolFiles(self.paths, self.uuid, write=False)
        try:
            for file in pool.files():
                for chunk in pool.scan(file):
                    live = chunk.records[chunk.live]
                    for word in set(live["location"].tolist()):
                        last = live[live["location"] == word]
                        end = int((last["offset"].astype("<u8") + last["length"]).max())
                        found = map(durable.status, payload_paths(self.paths, word))
                        if not any(each is not None and each.st_size >= end for each in found):
                            raise BodyGone(f"the pool names a body in {word:#x}, which is gone")
        finally:
            pool.close()

    def writer_dies(self) -> None:
        """pool.writer is gone without a word; the manager goes on, and so does its latch."""
        self._follower = None
        self.disk.unlock(str(self.paths.pool_lock))
        self.disk.mark("pool.writer died")
        durable.use(self.disk)

    def rotate(self) -> None:
        """On to the next journal file."""
        self.group()
        self.core.block.flush()
        self.core.block.rotate()
        self.commit()

    def stop(self) -> None:
        """The orderly end of the manager."""
        self.reader_dies(orderly=True)
        self.core.block.reserve(1, 0)
        self.core.block.frame(FrameType.STOP, FrameFlag.PERSISTENT, 0, 0)
        self.engine.commit(sync=True)
        self._open = False
        self.acknowledge()
        self.close()

    def close(self) -> None:
        """The end of both processes."""
        following, self._follower = self._follower, None
        if following is not None:
            following.close()
        self.writer.close()
        self.lock.close()


@dataclass(frozen=True, slots=True)
class _Line:
    """pool.writer's connection to the manager."""

    life: Life
    registrations: int = 1

    def control(self, question: dict[str, Any]) -> dict[str, Any]:
        """The manager is told of a checkpoint: a frame of history."""
        self.life.group()
        self.life.core.block.reserve(1, 0)
        self.life.core.block.frame(FrameType.CHECKPOINT, 0, 0, 0, argument=int(question["lsn"]))
        self.life.commit()
        return {}

    def relocate(self, rows: bytes) -> int:
        self.life.group()
        taken = relocate(self.life.core, memoryview(rows))
        self.life.commit()
        return taken

    def close(self) -> None:
        return None


def _apply(model: dict[int, Known], effect: Effect) -> None:
    for qpool, after in effect.items():
        if after is None:
            model.pop(qpool, None)
        else:
            model[qpool] = after


def make_spool(disk: SimDisk) -> None:
    """An empty spool, whole and saved."""
    durable.use(disk)
    spool.create_spool(Path(ROOT))
