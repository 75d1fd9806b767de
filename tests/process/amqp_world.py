"""amqp.server beside an instance under test, and what its clients need. Users are accounts that
every Debian has: nobody (anonymous), daemon and bin (with passwords)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import argon2
import pytest

import omq
from omq.format.index import EntryState
from tests.process.instance import MANAGER, QUEUES, WRITER, Instance, instance
from tests.waiting import pause, until

SERVER = "amqp.server"
PASSWORD = "a secret"
AUTHORITY = """
[*]
user:nobody = put get browse

[A]
user:daemon = put get

[B]
user:bin = browse
"""


class AmqpWorld(Instance):
    """An instance whose amqp.server can be reached."""

    def amqp(self, **changed: Any) -> None:
        """Section [amqp] of omq.conf; start it."""
        self.configure(**changed)
        self.start(SERVER)
        self.await_port()

    def configure(self, **changed: Any) -> None:
        keys = {"amqp_listen_port": 0, "amqp_anonymous_user": "nobody", **changed}
        conf = self.conf / "omq.conf"
        base = conf.read_text().partition("[amqp]")[0]
        conf.write_text(base + "[amqp]\n" + "".join(
            f"{key} = {value}\n" for key, value in keys.items()))

    def users(self, *names: str) -> Path:
        """A file for amqp_users."""
        path = self.conf / "amqp.users"
        hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        path.write_text("".join(f"{name}:{hasher.hash(PASSWORD)}\n" for name in names))
        path.chmod(0o600)
        return path

    def await_port(self, file: str = "amqp.port") -> int:
        """Until it listens; its port."""
        deadline = time.monotonic() + 120
        child = self.children[SERVER]
        path = self.paths.run / file
        while True:
            started = [e for e in self.events(1585) if e["pid"] == child.pid]
            if started and path.exists():
                return int(path.read_text().split()[1])
            assert child.running, self.said() + str(self.events()[-3:])
            assert time.monotonic() < deadline
            pause()

    def given_back(self, queue: str) -> None:
        """Until nobody has any of it: what somebody had who left a moment ago comes back."""
        with self.connect("looks") as native:
            until(lambda: not any(row.state is EntryState.ACTIVE for row in native.browse(queue)),
                  self.said)

    def left(self, queue: str) -> list[omq.Message]:
        """Take all off it that clients have left there."""
        self.given_back(queue)
        return self.drain(queue)

    def clear(self, *queues: str) -> None:
        """Nothing is on them any more."""
        for queue in queues:
            self.left(queue)

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.await_port()}"


@contextmanager
def amqp_world(root: Path, *, queues: str = QUEUES, **settings: Any) -> Iterator[AmqpWorld]:
    """A manager, pool.writer and amqp.server."""
    with instance(root, kind=AmqpWorld) as made:
        assert isinstance(made, AmqpWorld)
        made.queues(queues)
        (made.conf / "authority.conf").write_text(AUTHORITY)
        made.start(MANAGER)
        made.ready()
        made.start(WRITER)
        made.amqp(**settings)
        yield made
        if made.children[SERVER].running:
            made.stop(SERVER)


def needs_proton() -> None:
    """At the head of a test module."""
    pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")
