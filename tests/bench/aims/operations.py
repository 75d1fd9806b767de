"""What an operation costs at depths from 1,000 to --depth: it should not matter.

The cost is the manager's own CPU time (/proc/PID/schedstat), which a busy disk does not change; a
browse reads the index without the manager, so there it is the time of the caller. Moves and deletes
are of messages anywhere in the queue, by id, in orders of a hundred. Behind each filling
pool.writer's work is waited for: what the manager notes of it is the filling's, not the
operation's.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import omq
from omq.format.index import Counter
from omq.ipc.client.operator import Operator
from tests.bench.aims.finding import Finding, Setting, at_most, said
from tests.bench.instance import MANAGER, QUEUE, BenchError
from tests.bench.peers.omq_peer import OmqPeer
from tests.bench.peers.rounds import running

DEPTHS = (1000, 100_000, 1_000_000)
OTHER = "OTHER"
BODY = bytes(200)
BATCH, ORDER = 100, 100
COUNT, COUNT_QUICK = 10_000, 100  # messages of one sample
BROWSES, BROWSE_ROWS = 20, 100
LISTING_ROWS, LISTING_S_MAX = 100_000, 1.0
CHANGE_MAX = 1.2
_FILL = 1000


class Deck:
    """A queue that is filled step by step, and the QPoolIds of what waits on it."""

    def __init__(self, peer: OmqPeer, stack: ExitStack, count: int) -> None:
        spool = peer.instance.paths.root
        self.peer, self.count = peer, count
        self.connection = stack.enter_context(omq.connect(spool=spool, name="deck"))
        reading = stack.enter_context(omq.connect(spool=spool, name="deck"))
        self.reader = stack.enter_context(reading.reader(QUEUE, batch=BATCH))
        self.operator = Operator(self.connection, command="bench")
        self.waiting: list[int] = []
        self._random = random.Random(1)

    def fill(self, depth: int) -> None:
        while len(self.waiting) < depth:
            bodies = [BODY] * min(_FILL, depth - len(self.waiting))
            ids = self.connection.put_many(QUEUE, bodies)
            self.waiting += [parse_qpool(each) for each in ids]

    def put_get_done(self) -> None:
        for _ in range(self.count // BATCH):
            ids = self.connection.put_many(QUEUE, [BODY] * BATCH)
            self.waiting += [parse_qpool(each) for each in ids]
            messages = self.reader.next(BATCH, 10.0)
            for message in messages:
                message.done()
            taken = {message.qpool_id for message in messages}
            if len(taken) != BATCH:
                raise BenchError(f"{len(taken)} messages came, not {BATCH}")
            del self.waiting[:BATCH]  # the oldest; what moved away is not among them
        self.reader.flush()

    def move(self) -> None:
        """Away and back: two moves, the second to the end of the queue."""
        for some in self._drawn(self.count // 2):
            for source, target in ((QUEUE, OTHER), (OTHER, QUEUE)):
                report = self.operator.move([(each, source, 0) for each in some], [target])
                if len(report.done) != len(some):
                    raise BenchError(f"not moved: {report.refused[:1]}")
            self.waiting += some

    def delete(self) -> None:
        for some in self._drawn(self.count):
            report = self.operator.delete([(each, QUEUE, 0) for each in some], keep_s=0.0)
            if len(report.done) != len(some):
                raise BenchError(f"not deleted: {report.refused[:1]}")

    def browse(self) -> None:
        for _ in range(BROWSES):
            found = sum(1 for _ in self.connection.browse(QUEUE, BROWSE_ROWS))
            if found != BROWSE_ROWS:
                raise BenchError(f"{found} messages are seen, not {BROWSE_ROWS}")

    def listing_s(self) -> float:
        """Processor time of a listing of 100,000 rows, with the facts that a listing shows."""
        before = time.thread_time()
        rows = [(each.message_id, each.priority, each.state, each.put_time_ns, each.size)
                for each in self.connection.browse(QUEUE, LISTING_ROWS)]
        took = time.thread_time() - before
        if len({row[0] for row in rows}) != min(LISTING_ROWS, len(self.waiting)):
            raise BenchError(f"{len(rows)} messages are seen")
        return took

    def _drawn(self, count: int) -> list[list[int]]:
        """So many messages from anywhere, off our list, in orders; the list keeps its order."""
        count = min(count, len(self.waiting) // 2)
        places = set(self._random.sample(range(len(self.waiting)), count))
        drawn = [self.waiting[place] for place in places]
        self.waiting = [each for place, each in enumerate(self.waiting) if place not in places]
        return [drawn[at : at + ORDER] for at in range(0, count, ORDER)]


def parse_qpool(message_id: str) -> int:
    """The QPoolId is the last part of an id that the manager gave."""
    return int(message_id[-16:], 16)


def bench(setting: Setting) -> list[Finding]:
    depths = [*(depth for depth in DEPTHS if depth < setting.depth), setting.depth]
    peer = OmqPeer(setting.folder("operations"), setting.depth + 50_000, (OTHER,))
    costs: dict[str, dict[int, float]] = {}
    with running([peer]):
        peer.thaw()
        with ExitStack() as stack:
            deck = Deck(peer, stack, COUNT_QUICK if setting.quick else COUNT)
            for depth in depths:
                deck.fill(depth)
                peer.settle()
                for name, cost in _costs(deck, depth, setting.timing.rounds).items():
                    costs.setdefault(name, {})[depth] = cost
                    said(f"operations: {name} at {depth:,}: {cost:.1f} us\n")
            listing = statistics.median(deck.listing_s() for _ in range(setting.timing.rounds))
    rows = min(LISTING_ROWS, setting.depth)
    return [*(_finding(name, found) for name, found in costs.items()),
            at_most("browse of 100,000 rows < 1 s of processor time", listing, LISTING_S_MAX,
                    f"{listing:.2f} s of the caller for {rows:,} rows with id, priority, state, "
                    f"time and size, {setting.depth:,} on the queue")]


def _finding(name: str, found: dict[int, float]) -> Finding:
    first = next(iter(found.values()))
    most = max(found.values()) / first
    told = ", ".join(f"{cost:.1f} us at {depth:,}" for depth, cost in found.items())
    return at_most(f"{name}: the same cost at every depth, within 20 %", most, CHANGE_MAX,
                   f"at most {most:.2f} x: {told}", costs=found)


def _costs(deck: Deck, depth: int, rounds: int) -> dict[str, float]:
    """Microseconds of each operation, medians; the depth is the same again before each."""
    manager = deck.peer.instance.pid(MANAGER)
    moved = min(deck.count // 2, depth // 2) * 2
    deleted = min(deck.count, depth // 2)
    works: dict[str, tuple[Callable[[], None], Callable[[], float], int]] = {
        "put, get and done": (deck.put_get_done, lambda: _cpu_ns(manager), deck.count),
        "move by id": (deck.move, lambda: _cpu_ns(manager), moved),
        "delete by id": (deck.delete, lambda: _cpu_ns(manager), deleted),
        f"browse of {BROWSE_ROWS}": (deck.browse, time.thread_time_ns, BROWSES),
    }
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, (work, clock, count) in works.items():
            deck.fill(depth)
            deck.peer.settle()
            before = clock()
            work()
            found.setdefault(name, []).append((clock() - before) / count / 1000)
    waiting = deck.peer.instance.counters()[Counter.MESSAGES]
    if waiting != len(deck.waiting):
        raise BenchError(f"{waiting:,} messages wait, not {len(deck.waiting):,}")
    return {name: statistics.median(each) for name, each in found.items()}


def _cpu_ns(pid: int) -> float:
    """Time on a processor of all its threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
