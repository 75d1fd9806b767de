"""L2: long lives by Hypothesis. Everything that clients, pool.writer, the disk, the clock and the
power company do, in any order; after each start the model judges what is there.

`make crash` runs it with fresh seeds (OMQ_CRASH_EXAMPLES says how many lives); CI always the
first of the same ones (tests.share).
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from omq.base.errors import DiskError, SpoolFull
from omq.core.check.invariants import Rule, check
from omq.core.engine.settle import Verdict
from omq.core.engine.state import IDEL
from omq.format.wire import Settlement
from omq.storage import durable
from omq.storage.disk import Disk
from omq.storage.recycled_containers import PREFIX
from tests.crash.sim.choices import selections
from tests.crash.sim.disk import Mark, SimDisk
from tests.crash.sim.explore import History, Outcome, index_errors, record, start, verdict
from tests.crash.sim.faulted import EIO, FULL, SHORT, UNREADABLE, Fault, Injector
from tests.crash.sim.life import SETTINGS, A, B, C, Life, fixed, make_spool
from tests.crash.sim.model import Known
from tests.crash.sim.platter import Platter, image_of
from tests.crash.sim.workloads import _ended
from tests.share import part

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = int(os.environ.get("OMQ_CRASH_EXAMPLES", "0"))
STEPS = 40
QUEUES = st.sampled_from((A, B, C))
HOUR_S, YEAR_S = 3600, 365 * 86400


class Lives(RuleBasedStateMachine):
    """One machine with one disk; managers come and go on it."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._stack.enter_context(fixed(5))
        disk = SimDisk(record=True, faults=True)
        make_spool(disk)
        assert disk.log is not None
        disk.log.clear()
        self.platter, self.history = Platter(image_of(disk)), History()
        self.held: list[Verdict] = []
        self.life = Life(disk)
        self._feed()

    def teardown(self) -> None:
        durable.use(Disk())
        self._stack.close()

    # the machine

    def _feed(self) -> None:
        log = self.life.disk.log
        assert log is not None
        for event in log:
            self.platter.feed(event)
            if isinstance(event, Mark):
                self.history.feed(event.what)
        log.clear()

    def _do(self, request: Callable[[], object]) -> None:
        """A request in a group of its own, as the manager's loop has it."""
        life = self.life
        try:
            try:
                request()
            except (SpoolFull, DiskError):  # the server refuses it and goes on to the commit
                if life.dead:
                    raise
            life.commit()
        except DiskError:
            self._again()
            return
        self._feed()
        if not life.disk.hook:
            # Who is registered is the business of omq.ipc, which is not here.
            broken = [b for b in check(life.engine) if b.rule is not Rule.READER]
            assert not broken, broken[0]

    def _begin(self, disk: SimDisk, model: dict[int, Known] | None) -> None:
        before = self.life
        self.held = []
        wall_ns = before.wall_ns
        disk.hook, disk.capacity = None, None
        self.life = Life(disk, SETTINGS, now_ns=wall_ns, model=model)
        if model is None:
            found = Outcome(self.life.found, "; ".join(index_errors(self.life.core)))
            self.life.model = self._judged(found)
            self.life.order = 1 + max(
                (p.order for m in self.life.model.values() for p in m.places), default=0)
        self._feed()

    def _judged(self, outcome: Outcome) -> dict[int, Known]:
        wrong, now = verdict(outcome, self.history, self.life.wall_ns)
        assert not wrong, wrong[0]
        before = self.history
        self.history = History(acked=dict(now), answered=before.answered, lsn=before.lsn,
                               next_id=before.next_id, sure_id=before.next_id)
        return dict(now)

    def _again(self) -> None:
        """The manager is gone, the machine is not: the next one finds the page cache."""
        self._feed()
        self.life.disk.kill()
        self._begin(self.life.disk, None)

    # clients

    @rule(queues=st.sets(QUEUES, min_size=1), size=st.sampled_from((0, 20, 400, 3000, 9000)),
          priority=st.integers(0, 9), putter=st.integers(0, 1), persistent=st.integers(0, 4),
          delay_s=st.sampled_from((0, 0, 0, 10, 100)), more=st.integers(0, 2))
    def put(self, queues: set[int], size: int, priority: int, putter: int, persistent: int,
            delay_s: int, more: int) -> None:
        def request() -> None:
            for _ in range(1 + more):
                self.life.put(*sorted(queues), size=size, priority=priority, putter=putter,
                              persistent=persistent > 0, delay_s=delay_s)

        if len(self.life.state()) < 40:
            self._do(request)

    @rule(queue=QUEUES)
    def put_container(self, queue: int) -> None:
        def request() -> None:
            try:
                self.life.put_container(queue, 1500)
            except DiskError:
                if not self.life.flight:  # the submitter met it, not the manager
                    durable.use(self.life.disk)
                raise

        if len(self.life.state()) < 40:
            self._do(request)

    @rule(queue=st.sampled_from((A, A, B, C, IDEL)), want=st.integers(1, 4))
    def give(self, queue: int, want: int) -> None:
        got: list[Verdict] = []
        self._do(lambda: got.extend(self.life.give(queue, want)))
        self.held += [v for v in got if self._still(v)]

    def _still(self, verdict: Verdict) -> bool:
        t = self.life.core.t
        return bool(verdict.entry < t.entries.high and t.e_lease[verdict.entry] == verdict.lease
                    and t.m_qpool[t.e_message[verdict.entry]] == verdict.qpool)

    @precondition(lambda self: self.held)
    @rule(kind=st.sampled_from((Settlement.DONE, Settlement.DONE, Settlement.DEFER,
                                Settlement.FAIL, Settlement.RELEASE)),
          count=st.integers(1, 3), delay_s=st.sampled_from((0, 5, 60)))
    def settle(self, kind: Settlement, count: int, delay_s: int) -> None:
        chosen, self.held = self.held[:count], self.held[count:]
        t = self.life.core.t
        if any(t.e_queue[v.entry] == IDEL for v in chosen):
            kind = Settlement.DONE
        if len({v.qpool for v in chosen}) < len(chosen):
            chosen = chosen[:1]
        self._do(lambda: self.life.settle(kind, chosen, delay_s=delay_s))

    @precondition(lambda self: self.held)
    @rule(onto=st.sets(QUEUES, max_size=2), new=st.lists(QUEUES, max_size=2))
    def move(self, onto: set[int], new: list[int]) -> None:
        verdict = self.held.pop(0)
        if self.life.core.t.e_queue[verdict.entry] != IDEL:
            self._do(lambda: self.life.move(verdict, sorted(onto), new))

    @rule(orderly=st.booleans())
    def reader_dies(self, orderly: bool) -> None:  # noqa: FBT001
        self.held = []
        self._do(lambda: self.life.reader_dies(orderly=orderly))

    # time, pool.writer

    @rule(seconds=st.sampled_from((1, 20, 70)))
    def time_passes(self, seconds: int) -> None:
        self.life.pass_time(seconds)
        self._do(self.life.tick)

    @rule(jump_s=st.sampled_from((-HOUR_S, HOUR_S, 10 * YEAR_S, -10 * YEAR_S)))
    def the_clock_jumps(self, jump_s: int) -> None:
        if 0 < self.life.wall_ns // 10**9 + jump_s < 1 << 32:
            self.life.wall_ns += jump_s * 10**9

    @rule(bodies=st.booleans())
    def checkpoint(self, bodies: bool) -> None:  # noqa: FBT001
        def request() -> None:
            try:
                self.life.checkpoint(bodies=bodies)
            except (DiskError, SpoolFull):
                if self.life.dead:
                    raise
                self.life.writer_dies()

        self._do(request)

    @rule()
    def rotate(self) -> None:
        self._do(self.life.rotate)

    # ends and faults

    @rule()
    def stop(self) -> None:
        try:
            self.life.stop()
        except (DiskError, SpoolFull):
            durable.use(self.life.disk)  # it ends all the same, and not in order
        self._again()

    @rule()
    def kill(self) -> None:
        self._again()

    @rule(seed=st.integers(0, 1 << 16))
    def cut(self, seed: int) -> None:
        """The power fails: one of the states that it may leave is the disk of the next machine."""
        self._feed()
        random = Random(seed)
        _, selection = random.choice(list(selections(self.platter.pending, random, 12)))
        image = self.platter.image(selection)
        now = self._judged(start(image, SETTINGS, self.life.wall_ns))
        self.platter = Platter(image)
        self._begin(image.mount(record=True, faults=True), now)

    @rule(fault=st.sampled_from((EIO, FULL, SHORT, Fault(errno.EIO, ("fdatasync", "fsync")),
                                 UNREADABLE)), number=st.integers(1, 30))
    def the_disk_will_fail(self, fault: Fault, number: int) -> None:
        self.life.disk.hook = Injector(fault, number)

    @rule(room=st.sampled_from((0, 4096, 40_000)))
    def the_disk_is_nearly_full(self, room: int) -> None:
        self.life.disk.capacity = self.life.disk.used() + room

    @rule()
    def the_disk_has_room(self) -> None:
        self.life.disk.capacity = None


def live() -> None:
    """All examples, in this process."""
    settings = hypothesis.settings(
        max_examples=EXAMPLES or part(60), stateful_step_count=STEPS, deadline=None, database=None,
        derandomize=not EXAMPLES, print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck))
    run_state_machine_as_test(Lives, settings=settings)


def test_long_lives() -> None:
    """In a process of its own: Hypothesis draws from the constants of all modules that are loaded,
    so beside other tests the lives would be others each time."""
    done = subprocess.run([sys.executable, "-c", f"import {__name__} as lives; lives.live()"],
                          cwd=ROOT, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


def test_a_cut_leaves_no_spare_that_does_not_say_so() -> None:
    """Nobody takes it here: whatever a cut leaves under its name has the label, which is what the
    next idel.server knows it by."""
    def workload(life: Life, _: Random) -> None:
        life.put_container(A, 1500)
        life.commit()
        _ended(life)

    made = record("recycled", workload, 3)
    platter, renamed = Platter(made.begin), 0
    for cut, event in enumerate(made.log):
        platter.feed(event)
        for label, selection in selections(platter.pending, Random(cut)):
            for path, content in platter.image(selection).content().items():
                if "/data/" in path and path.rpartition("/")[2].startswith(PREFIX):
                    renamed += 1
                    text = path.replace("/spool", "~")
                    assert content.startswith(b"OMQSPARE" + text.encode()), (cut, label)
    assert renamed > 5
