"""The parts of a queue manager and the order in which they are made and ended.

Order of making: manager lock, left-over IPC objects removed, pool lock (free once the last
manager is gone), recovery, index, tables from the pool, journal epoch, queues, wire, ids published,
pool lock released. A failure leaves only files that the next start uses or ignores.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from typing import cast

import sysv_ipc

from omq.base import clock, events, form, modes, side_files
from omq.base.config import QueueConf, load_authority, load_queues
from omq.base.defined_queue import load_common
from omq.base.errors import ConfigError, SpoolLocked
from omq.base.event_log import WARNING
from omq.base.groups import Groups, groups_of
from omq.base.paths import SpoolPaths
from omq.base.rated_log import RatedLog
from omq.core.engine.block import Block
from omq.core.engine.engine import Engine
from omq.core.engine.relocation import relocate
from omq.core.engine.state import Core
from omq.core.engine.statistics import Statistics
from omq.core.load.missing_bodies import missing_bodies
from omq.core.load.new_index import new_index
from omq.core.load.pool_columns import Loaded, PlainRows, reserve_slots
from omq.core.load.rebuild import load
from omq.core.load.recovery import UNSYNCED_FRAMES_MAX, Recovered, recover, refuse_newer
from omq.core.redo.checkpoint import settle_changes
from omq.format.index import IndexFlag, IndexHeader, IndexLayout
from omq.format.journal import FrameFlag
from omq.ipc.server.admission import Admission, Limits
from omq.ipc.server.control_plane import ControlPlane
from omq.ipc.server.doorkeeper import Doorkeeper
from omq.ipc.server.make_server import make_server
from omq.ipc.server.objects import ObjectList, make_requests
from omq.ipc.server.reader_notes import LeftNote, left_note, notes_of
from omq.ipc.server.registration import Registrar
from omq.ipc.server.request_server import RequestServer
from omq.ipc.server.requests import Requests
from omq.ipc.server.sessions import Sessions
from omq.ipc.server.units import UnitLimits
from omq.services.daemon.daemon import DaemonContext
from omq.services.daemon.spool_access import restrict_access
from omq.services.daemon.start_progress import StartProgress
from omq.services.manager.descriptors import raise_limit
from omq.services.manager.findings import mark_damage, report, set_aside
from omq.services.manager.home import move_in
from omq.services.manager.queue_changes import say_changes
from omq.services.manager.tombstone import write_of_predecessor
from omq.services.manager.units_in_doubt import take_barriers, take_in_doubt
from omq.storage import disk_reserve, durable, poolctrl, segment, spool
from omq.storage.files import File
from omq.storage.home import Alone
from omq.storage.journal import PREPARED, JournalWriter, numbers_in
from omq.storage.journal_trim import give_back
from omq.storage.payloads import PayloadReader
from omq.storage.pool import PoolFiles
from omq.storage.slots import SlotAllocator
from omq.storage.volatile import VolatileBodies


@dataclass(slots=True)
class Parts:
    """Everything a running manager consists of."""

    paths: SpoolPaths
    lock: File
    alone: Alone
    engine: Engine
    writer: JournalWriter
    sessions: Sessions
    server: RequestServer
    control: ControlPlane
    doorkeeper: Doorkeeper
    requests: Requests
    index: sysv_ipc.SharedMemory
    listed: ObjectList
    rated: RatedLog
    epoch: int
    term: int
    new_term: bool

    def begin(self, mono_ns: int, grace_s: int) -> None:
        """It can be reached from now on: the time begins in which clients of an earlier manager
        come back. However long the start has taken, it is not a fault of theirs. After a promotion
        none of them can: they were clients of the primary's spool."""
        grace_ns = 0 if self.new_term else grace_s * clock.NS_PER_S
        self.engine.limbo_until = mono_ns + grace_ns
        self.control.queues.ends.begin(mono_ns, grace_ns)

    def close_in_order(self, wall_ns: int, mono_ns: int) -> bool:
        """A clean end, after a group that is committed: clients get it, the journal says STOP,
        the IPC objects go. False: the disk has no room for the STOP, which only history misses."""
        engine = self.engine
        engine.begin(wall_ns, mono_ns)
        self.sessions.say_ended(self.server.is_held)
        self.doorkeeper.stop()
        for session in list(self.sessions.by_id.values()):
            self.control.end(session, died=False)
        said = engine.books.stop()
        self.control.bodies.stop()
        engine.old_notes.close()
        engine.commit(sync=True)
        self.sessions.close_gone()
        self.writer.close()
        side_files.remove(self.paths.ids)
        self.server.close()
        engine.release()
        with contextlib.suppress(sysv_ipc.ExistentialError):
            self.index.remove()
        with contextlib.suppress(sysv_ipc.ExistentialError):
            self.requests.queue.remove()
        self.listed.clear_left_overs(os.geteuid())
        self.alone.close()
        self.lock.close()
        return said


def build(context: DaemonContext) -> Parts:
    """See the module."""
    paths, settings = context.paths, context.settings
    groups = groups_of(settings, paths.root)
    queues = load_queues(context.conf_dir)
    authority = load_authority(context.conf_dir, owner_uid=os.geteuid())
    limits = Limits.of(settings, raise_limit(settings, context.log))
    info = spool.open_spool(paths.root, writer=True)
    lock = spool.lock(paths.manager_lock, "queue.manager")
    alone = move_in(context, paths, info.instance)
    restrict_access(paths, context.log)
    _refuse_small_disk(context)
    listed = ObjectList(paths)
    old_notes: list[LeftNote] = []
    if context.left_stack is not None:
        write_of_predecessor(paths, context.left_stack, settings.load_sample_period_s)
    if left := _clear_dead_manager(paths, listed, old_notes):
        context.log.event(events.LEFT_OVERS, WARNING, objects=left)
    progress = StartProgress(context.notifier, settings.start_timeout_s)
    progress.step("waiting for the message pool")
    pool_lock = _wait_for_pool(context)
    progress.step("reading the message pool")
    pool = PoolFiles(paths, info.uuid)
    recovered = recover(paths, settings, info.uuid, pool, progress, term=info.instance.term)
    progress.step("loading the index")
    memory, core = _index(context, recovered, info.uuid, listed, groups)
    loaded = _load(context, core, pool, progress, recovered.aside)
    mark_damage(core, recovered, loaded)
    set_aside(context, recovered, loaded)
    settle_changes(paths, pool, dict.fromkeys(loaded.duplicates))
    pool.close()
    writer = _epoch(core, context, recovered, info.uuid)
    give_back(paths, recovered.journal)
    engine = Engine(core, Statistics(core.t, settings.load_sample_period_s, core.mono_ns))
    engine.books.counts_in(clock.time_namespace())
    engine.books.limit(settings.messages_total_max, settings.index_reserve_percent)
    _define(context, engine, core, queues, recovered)
    _list_queues(paths, core)
    engine.limbo = loaded.limbo
    engine.old_notes.by_token = notes_of(old_notes, recovered.clients)
    report(context, recovered, loaded, engine.books)
    parts = _wire(context, engine, core, writer, memory, authority, listed, recovered, lock,
                  alone, info.uuid, limits, groups)
    progress.step("looking at units of work in doubt")
    take_in_doubt(context, core, engine.in_doubt, loaded, parts.server.bodies)
    take_barriers(core, loaded, parts.server.bodies)
    pool_lock.close()
    return parts


def _refuse_small_disk(context: DaemonContext) -> None:
    """An instance that holds nothing yet does not begin where it would never take a message. One
    with messages starts on any disk: they are to be taken. ConfigError."""
    paths, settings = context.paths, context.settings
    if numbers_in(paths.journal) or durable.status(paths.journal / PREPARED) is not None:
        return
    if small := disk_reserve.too_small(paths.journal, settings):
        raise ConfigError(file=context.conf_dir / "omq.conf", line=0, key=small.key,
                          reason=small.text, allowed=f"{small.most} or less")


def _clear_dead_manager(paths: SpoolPaths, listed: ObjectList, notes: list[LeftNote]) -> int:
    """Segment and IPC objects of a manager that was killed; `notes` gets those of its readers."""
    removed = 0
    ids = segment.read_ids(paths)
    if ids is not None and ids.boot == clock.boot_id().hex():
        removed += segment.remove(ids.segment, os.geteuid())
    side_files.remove(paths.ids)

    def keep(memory: sysv_ipc.SharedMemory) -> bool:
        note = left_note(memory)
        notes.extend([note] if note else [])
        return note is not None

    return removed + listed.clear_left_overs(os.geteuid(), keep)


def _wait_for_pool(context: DaemonContext) -> File:
    """The pool lock; pool.writer releases it when it sees that its manager is gone."""
    deadline = time.monotonic() + context.settings.stop_timeout_s
    while True:
        try:
            return spool.lock(context.paths.pool_lock, "queue.manager, recovering")
        except SpoolLocked:
            if time.monotonic() >= deadline or context.signals.stopping:
                raise
            context.notifier.extend(context.settings.start_timeout_s)
            context.notifier.status("waiting for pool.writer's last checkpoint")
            context.signals.wait(context.settings.pool_poll_ms / 1000)


def _index(context: DaemonContext, recovered: Recovered, uuid: bytes, listed: ObjectList,
           groups: Groups) -> tuple[sysv_ipc.SharedMemory, Core]:
    settings, paths = context.settings, context.paths
    layout = IndexLayout.of(settings.messages_max, settings.queue_entries_max, 1000,
                            settings.clients_max)
    memory = listed.make("shm", lambda key: segment.create(layout.size, groups.index_mode, key))
    if groups.operators is not None:
        memory.gid = groups.operators
    now, pid = clock.wall_ns(), os.getpid()
    tables = new_index(memoryview(memory), layout, IndexHeader(
        uuid, clock.boot_id(), recovered.epoch, pid, clock.process_start_ticks(pid) or 0, now,
        layout.messages, layout.entries, layout.queues, layout.readers, layout.size,
        flags=IndexFlag.POOL_NOT_READ if settings.qm_dont_read_messages_at_start else 0),
        recovered.first_lsn - 1)
    core = Core(tables, SlotAllocator(), VolatileBodies(paths, settings, uuid), uuid)
    core.now_ns, core.mono_ns = now, clock.monotonic_ns()
    core.next_qpool, core.failures.known_max = recovered.next_qpool, settings.failures_known_max
    return memory, core


def _epoch(core: Core, context: DaemonContext, recovered: Recovered, uuid: bytes) -> JournalWriter:
    settings = context.settings
    writer = JournalWriter.open_epoch(
        context.paths, settings, uuid, recovered.epoch, recovered.first_lsn, recovered.lsn,
        recovered.journal, recovered.next_qpool, core.now_ns, recovered.term)
    core.block = Block(writer, recovered.first_lsn, settings.block_frames_max,
                       settings.block_bytes_max, UNSYNCED_FRAMES_MAX)
    core.block.time_ns = core.now_ns
    core.block.next_qpool = core.next_qpool
    return writer


def _define(context: DaemonContext, engine: Engine, core: Core, queues: dict[str, QueueConf],
            recovered: Recovered) -> None:
    """The queues; the epoch's first block names them all, so that its file reads alone."""
    core.limits.payloads = PayloadReader(context.paths)
    changes = engine.queues.start(queues, load_common(context.conf_dir), context.settings,
                                  recovered.queues, recovered.definitions)
    engine.begin(core.now_ns, core.mono_ns)
    engine.books.name_everything(FrameFlag(0))
    engine.queues.told(changes)
    engine.commit(sync=True)
    say_changes(context.log, changes)


def _load(context: DaemonContext, core: Core, pool: PoolFiles, progress: StartProgress,
          aside: frozenset[int]) -> Loaded:
    """The messages of the pool; none of them when the configuration says so. NewerFormat."""
    slots = cast(SlotAllocator, core.slots)
    if context.settings.qm_dont_read_messages_at_start:
        reserve_slots(pool, slots, aside)
        context.log.event(events.MESSAGES_NOT_READ, WARNING)
        return Loaded()
    loaded = load(core, pool, slots, progress, plain_rows())
    refuse_newer(context.paths.msgpool, loaded.findings)
    loaded.bodies = missing_bodies(core, context.paths, progress)
    return loaded


def plain_rows() -> PlainRows | None:
    """The loop over plain records; None: numpy is quicker, or wanted. ConfigError."""
    if form.wanted() == form.OFF:
        return None
    from omq.fast.pool_rows import PoolRows, usable  # neither loaded nor compiled where it is off

    return PoolRows() if usable() else None


def _list_queues(paths: SpoolPaths, core: Core) -> None:
    """poolctrl lists the queues at once (option L reads it). The pool lock is still held here."""
    names, (control, _) = {n: rules.name for n, rules in core.rules.items()}, poolctrl.load(paths)
    if control is not None and control.queues != names:
        poolctrl.store(paths, replace(control, generation=control.generation + 1, queues=names))


def _wire(context: DaemonContext, engine: Engine, core: Core, writer: JournalWriter,
          memory: sysv_ipc.SharedMemory, authority: object, listed: ObjectList,
          recovered: Recovered, lock: File, alone: Alone, uuid: bytes, limits: Limits,
          groups: Groups) -> Parts:
    paths, settings = context.paths, context.settings
    owner = paths.root.stat().st_uid
    queue = make_requests(listed, settings.request_queue_bytes)
    sessions = Sessions(settings.clients_max, authority, core.rules)  # type: ignore[arg-type]
    server, problem = make_server(engine, sessions, PayloadReader(paths), recovered.epoch,
                                  lambda rows: relocate(core, rows), settings.batch_messages_max,
                                  UnitLimits.of(settings))
    if problem:
        context.log.event(events.NOT_COMPILED, WARNING, reason=problem)
    rated = RatedLog(context.log, settings.event_burst, settings.event_period_s)
    admission = Admission(limits, (0, owner, os.geteuid()))
    doorkeeper = Doorkeeper(paths.socket, queue, groups.clients, admission,
                            settings.register_timeout_s, rated)
    registrar = Registrar(
        engine, sessions, doorkeeper, listed, uuid=uuid, epoch=recovered.epoch,
        requests=(queue.key, queue.id), owner=owner, channel_bytes=settings.channel_bytes,
        threshold=min(settings.container_threshold_bytes, settings.channel_bytes // 4),
        answered=recovered.clients, units=server.units.limits)
    control = ControlPlane(server, doorkeeper, registrar, context.log, rated, settings,
                           recovered.epoch)
    pid = os.getpid()
    ids = segment.RuntimeIds(
        recovered.epoch, clock.boot_id().hex(), uuid.hex(), pid,
        clock.process_start_ticks(pid) or 0, memory.id, (queue.key, queue.id), clock.wall_ns(),
        {"form": server.form})
    side_files.replace(paths.ids, ids.text(), modes.PUBLIC)
    return Parts(paths, lock, alone, engine, writer, sessions, server, control, doorkeeper,
                 Requests(queue, control.garbage, server.intake), memory, listed, rated,
                 recovered.epoch, recovered.term, recovered.new_term)
