"""PostgreSQL as a queue: rows taken with FOR UPDATE SKIP LOCKED and deleted in one transaction."""

from __future__ import annotations

import os
import signal
import subprocess
from importlib.metadata import version as distribution
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.instance import BenchError
from tests.bench.peers import software
from tests.bench.peers.peer import Peer, Wire
from tests.bench.peers.processes import Server, free_port, pause, unprivileged

_BIN = "usr/lib/postgresql/15/bin"
_POLL_S = 0.001
OPTIONS = {
    "synchronous_commit": "on",
    "fsync": "on",
    "wal_sync_method": "fdatasync",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "wal_buffers": "16MB",
    "checkpoint_timeout": "15min",
    "autovacuum_naptime": "2s",
    "autovacuum_vacuum_cost_delay": "0",
    "jit": "off",
}
# Taking is deleting; the row comes back if the transaction is not committed.
_TAKE = ("DELETE FROM queue WHERE id = ANY(ARRAY(SELECT id FROM queue ORDER BY id "
         "FOR UPDATE SKIP LOCKED LIMIT %s)) RETURNING body")
_PUT = "INSERT INTO queue (body) SELECT unnest(%s::bytea[])"
_PUT_ONE = "INSERT INTO queue (body) VALUES (%s)"


class PostgresPeer(Peer):
    name = "postgresql"
    title = "PostgreSQL, SKIP LOCKED"
    settings = (
        ", ".join(f"{key} {value}" for key, value in OPTIONS.items())
        + "; psycopg with C, binary parameters, prepared statements, over a Unix socket; a put of "
        "many is one INSERT of an array; get is DELETE of n rows chosen FOR UPDATE SKIP LOCKED, "
        "its COMMIT (done) goes in one pipeline with the next BEGIN and DELETE")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = Server(self.name, folder)
        self.servers = [self._server]
        self._port = free_port()

    def version(self) -> str:
        said = software.version([software.program(f"{_BIN}/postgres"), "--version"])
        return f"{said}; psycopg {distribution('psycopg')}"

    def start(self) -> None:
        self._port = free_port()
        data = self.folder / "data"
        if not data.exists():
            _make(self.folder, data)
        options = [word for key, value in OPTIONS.items() for word in ("-c", f"{key}={value}")]
        self._server.start(
            [software.program(f"{_BIN}/postgres"), "-D", data, "-p", str(self._port),
             "-k", self.folder, "-c", "listen_addresses=127.0.0.1", *options],
            software.environment(), as_nobody=True)
        self._server.wait_until(self._answers, "answer")
        with self._connect() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS queue "
                               "(id bigserial PRIMARY KEY, body bytea NOT NULL)")
            connection.execute("ALTER TABLE queue ALTER body SET STORAGE EXTERNAL")
            connection.execute("ALTER TABLE queue SET (autovacuum_vacuum_scale_factor = 0, "
                               "autovacuum_vacuum_threshold = 10000)")

    def stop(self) -> None:
        self._server.stop(signal.SIGINT)  # "fast": clients are ended, a checkpoint is written

    def putter(self) -> Wire:
        return PostgresWire(self._connect())

    def getter(self, number: int, batch: int) -> Wire:
        del number, batch
        return PostgresWire(self._connect())

    def waiting(self) -> int:
        with self._connect() as connection:
            row = connection.execute("SELECT count(*) FROM queue").fetchone()
            assert row is not None
            return int(row[0])

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(self.folder), port=self._port, dbname="postgres",
                               user="bench", autocommit=True, prepare_threshold=0)

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True


class PostgresWire:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._cursor = connection.cursor(binary=True)
        self._open = False

    def put(self, bodies: list[bytes]) -> None:
        if len(bodies) == 1:
            self._cursor.execute(_PUT_ONE, (bodies[0],), binary=True)
        else:
            self._cursor.execute(_PUT, (bodies,), binary=True)

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        found = self._step(count)
        waited = 0.0
        while not found and waited < timeout_s:
            pause(_POLL_S)
            waited += _POLL_S
            found = self._step(count)
        return found

    def _step(self, count: int) -> list[bytes]:
        connection = self._connection
        with connection.pipeline() as pipeline:
            if self._open:
                connection.execute("COMMIT")
            connection.execute("BEGIN")
            cursor = self._cursor.execute(_TAKE, (count,))
            self._open = True
            pipeline.sync()
            return [bytes(row[0]) for row in cursor.fetchall()]

    def close(self) -> None:
        if self._open:
            self._connection.execute("COMMIT")
        self._connection.close()

    def abandon(self) -> None:
        self._connection.close()


def _make(folder: Path, data: Path) -> None:
    """A new cluster, as the user that the server will run as."""
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    done = subprocess.run(
        [software.program(f"{_BIN}/initdb"), "-D", data, "-U", "bench", "-A", "trust",
         "-E", "UTF8", "--locale", "C.UTF-8"],
        env=software.environment(), cwd=folder, check=False, capture_output=True, text=True,
        **unprivileged())
    if done.returncode:
        raise BenchError(f"initdb: {done.stdout}{done.stderr}")
