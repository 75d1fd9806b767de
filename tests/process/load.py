"""Rounds of work for tests that wait for a process to die: put some, take what is there, again."""

from __future__ import annotations

import select
from collections.abc import Sequence
from pathlib import Path

from omqtools.omqtest.history import HistoryFile, Verdict, judge, read_histories
from tests.process.clients import Work, left, read, submit
from tests.process.instance import Instance
from tests.process.processes import WAIT_S, Child, start

ROUNDS_MAX = 200
KEEP_ROUNDS = 3  # queue B is only read in each third round, so that bodies outlive journal files


class Load:
    """Clients in rounds; what they saw is judged at the end."""

    def __init__(self, instance: Instance, root: Path, *, messages: int = 24) -> None:
        self.instance = instance
        self.messages = messages
        self.rounds = 0
        self.output = root / "clients"
        stop = root / "stop"
        stop.touch()  # readers leave as soon as their queue is empty
        self.work = Work(instance.root, root / "histories", stop, 1, gentle=False)
        self.work.histories.mkdir()
        self.deaths = HistoryFile(self.work.histories / "deaths")

    def round(self) -> list[Child]:
        """The clients of one more round, running."""
        self.rounds += 1
        name = f"s{self.rounds}"
        clients = [start(name, lambda: submit(self.work, name, self.messages), output=self.output)]
        queues = "ABC" if self.rounds % KEEP_ROUNDS == 0 else "AC"
        return clients + [self._reader(queue, f"r{self.rounds}{queue}") for queue in queues]

    def _reader(self, queue: str, name: str) -> Child:
        return start(name, lambda: read(self.work, name, queue, 10, auxiliary=False),
                     output=self.output)

    def until_dead(self, victim: Child) -> list[Child]:
        """Rounds until `victim` has died; the clients that were at work then."""
        while True:
            clients = self.round()
            if wait_all(clients, victim):
                return clients
            self.join(clients)
            assert self.rounds < ROUNDS_MAX, f"{victim.name} does not come to the point"

    def join(self, clients: Sequence[Child]) -> None:
        for client in clients:
            assert client.wait() == 0, self.output.read_text()

    def verdict(self) -> Verdict:
        """Empty the queues and judge."""
        for _ in range(ROUNDS_MAX):
            if not left(self.instance.root):
                break
            self.rounds += 1
            self.join([self._reader(q, f"l{self.rounds}{q}") for q in ("A", "B", "C", "POISON")])
        assert left(self.instance.root) == 0
        return judge(read_histories(self.work.histories))


def wait_all(children: Sequence[Child], victim: Child) -> bool:
    """Until all children have ended, or the victim: whether it was the victim."""
    while victim.running:
        alive = [child for child in children if child.running]
        if not alive:
            return False
        poll = select.poll()
        for child in (victim, *alive):
            poll.register(child.pidfd, select.POLLIN)
        assert poll.poll(WAIT_S * 1000), "nothing happens"
    return True
