"""The programs of WITH-POSTGRESQL.md beside a real server: killed before and behind everything that
they ask of either side, and started again, each order is booked once and has one invoice.

Skipped where there is no PostgreSQL (make setup-peers) or no psycopg (the extra `peers`).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.instance import BenchError
from tests.bench.peers import software
from tests.bench.peers.processes import Server, unprivileged
from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: the extra `peers`")

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "lib/omq/docs/WITH-POSTGRESQL.md").read_text(encoding="utf-8")
PROGRAMS = dict(zip(("receipts", "prepared"), re.findall(
    r"^```python\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL), strict=True))
QUEUES = "[*]\ndeath_delay_s = 0\nattempts_max = 200\n\n[ORDERS]\n\n[INVOICES]\n\n[RECEIPTS]\n"
BIN = "usr/lib/postgresql/*/bin"
KILLED_AT = """
import os, signal, psycopg
from omq.ipc.client.link import Link
left = [int(os.environ["KILL_AT"])]
def step():
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
def stepping(function):
    def run(*args, **kwargs):
        step()
        out = function(*args, **kwargs)
        step()
        return out
    return run
psycopg.Connection.execute = stepping(psycopg.Connection.execute)
Link.request = stepping(Link.request)
"""
"""Before the program: it dies at the n-th step, one before and one behind each call."""


class Database:
    """A server of its own on a Unix socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server("postgresql", folder)

    def start(self) -> None:
        data = self.folder / "data"
        if os.geteuid() == 0:
            os.chown(self.folder, 65534, 65534)
        done = subprocess.run(
            [software.program(f"{BIN}/initdb"), "-D", data, "-U", "test", "-A", "trust",
             "--locale", "C.UTF-8", "-E", "UTF8"], env=software.environment(), cwd=self.folder,
            check=False, capture_output=True, text=True, **unprivileged())
        assert done.returncode == 0, done.stderr
        self.server.start(
            [software.program(f"{BIN}/postgres"), "-D", data, "-k", self.folder,
             "-c", "listen_addresses=", "-c", "max_prepared_transactions=10",
             "-c", "shared_buffers=16MB"], software.environment(), as_nobody=True)
        self.server.wait_until(self._answers, "answer")
        with self.connect() as c:
            c.execute("CREATE TABLE ledger (number text)")

    @property
    def address(self) -> str:
        return f"host={self.folder} dbname=postgres user=test"

    def connect(self) -> Any:
        return psycopg.connect(self.address, autocommit=True)

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def booked(self) -> list[str]:
        with self.connect() as c:
            assert c.execute("SELECT gid FROM pg_prepared_xacts").fetchall() == []
            return sorted(number for (number,) in c.execute("SELECT number FROM ledger"))


@pytest.fixture
def database() -> Iterator[Database]:
    try:
        software.program(f"{BIN}/postgres")
    except BenchError as error:
        pytest.skip(str(error))
    folder = Path(tempfile.mkdtemp(prefix="omq-pg-"))  # a path that the server's user may go
    made = Database(folder)
    try:
        made.start()
        yield made
    finally:
        made.server.stop(signal.SIGINT)
        shutil.rmtree(folder)


def run(instance: Instance, database: Database, program: str, wanted: int, kill_at: int = 0) -> int:
    """The program; its return code."""
    before = KILLED_AT if kill_at else ""
    done = subprocess.run(
        [sys.executable, "-c", before + program, str(instance.root), database.address,
         str(wanted)], capture_output=True, text=True, timeout=WAIT_S, check=False,
        env={**os.environ, "KILL_AT": str(kill_at), "PYTHONPATH": str(ROOT / "lib")})
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def agree(instance: Instance, database: Database, orders: list[str]) -> None:
    """Each order is booked once and has one invoice."""
    assert database.booked() == orders
    with instance.connect() as c:
        invoices = sorted(row.body.decode() for row in c.browse("INVOICES"))
        assert invoices == [f"invoice for {order}" for order in orders]
        assert list(c.browse("ORDERS")) == [] and c.units_in_doubt() == []


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_killed_at_every_step(omq_instance: Instance, database: Database, program: str) -> None:
    omq_instance.queues(QUEUES)
    omq_instance.start()
    orders: list[str] = []
    steps = 0
    while True:
        steps += 1
        with omq_instance.connect() as c:
            orders.append(f"{len(orders):04d}")
            c.put("ORDERS", orders[-1].encode())
        killed = run(omq_instance, database, program, len(orders), steps) != 0
        if killed:
            assert run(omq_instance, database, program, len(orders)) == 0
        agree(omq_instance, database, orders)
        if not killed:
            break
    assert steps > 20  # of the start and of one order: so many places there are to die at
    omq_instance.drain("INVOICES")
    omq_instance.drain("RECEIPTS")


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("point", ["engine.before_append", "engine.before_reply"])
def test_the_manager_dies(omq_instance: Instance, database: Database, point: str, program: str
                          ) -> None:
    omq_instance.queues(QUEUES)
    victim = omq_instance.start(fault=f"{point}:kill:25")
    orders = [f"{i:04d}" for i in range(20)]
    with omq_instance.connect() as c:
        c.put_many("ORDERS", [order.encode() for order in orders])
    with subprocess.Popen(
            [sys.executable, "-c", program, str(omq_instance.root), database.address, "20"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "lib")}) as running:
        assert victim.wait() == -signal.SIGKILL
        omq_instance.start(MANAGER)
        assert running.wait(WAIT_S) == 0
    agree(omq_instance, database, orders)
    omq_instance.drain("INVOICES")
    omq_instance.drain("RECEIPTS")
