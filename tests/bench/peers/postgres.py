"""PostgreSQL as a queue: rows taken with FOR UPDATE SKIP LOCKED and deleted in one transaction."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from importlib.metadata import version as distribution
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq

from tests.bench.instance import BenchError
from tests.bench.peers import software
from tests.bench.peers.peer import ServerPeer, Wire
from tests.bench.peers.processes import free_port, polled, unprivileged

_BIN = "usr/lib/postgresql/15/bin"
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
_TAKE = (b"DELETE FROM queue WHERE id = ANY(ARRAY(SELECT id FROM queue ORDER BY id "
         b"FOR UPDATE SKIP LOCKED LIMIT $1)) RETURNING body")
_PUT = b"INSERT INTO queue (body) SELECT unnest($1::bytea[])"
_PUT_ONE = b"INSERT INTO queue (body) VALUES ($1)"
_COUNT = struct.Struct("!q")
_LENGTH = struct.Struct("!i")
_ARRAY = struct.Struct("!iiIii")
_BYTEA_OID = 17


class PostgresPeer(ServerPeer):
    name = "postgresql"
    title = "PostgreSQL, SKIP LOCKED"
    lean = True
    settings = (
        ", ".join(f"{key} {value}" for key, value in OPTIONS.items())
        + "; psycopg's libpq interface, prepared statements, binary parameters (its cursors cost "
        "a third more), over a Unix socket; a put of many is one INSERT of an array; get is DELETE "
        "of n rows chosen FOR UPDATE SKIP LOCKED, its COMMIT (done) goes in one pipeline with the "
        "next BEGIN and DELETE")

    def version(self) -> str:
        said = software.version([software.program(f"{_BIN}/postgres"), "--version"])
        return f"{said}; psycopg {distribution('psycopg')}"

    def start(self) -> None:
        self.port = free_port()
        data = self.folder / "data"
        if not data.exists():
            _make(self.folder, data)
        options = [word for key, value in OPTIONS.items() for word in ("-c", f"{key}={value}")]
        self.server.start(
            [software.program(f"{_BIN}/postgres"), "-D", data, "-p", str(self.port),
             "-k", self.folder, "-c", "listen_addresses=127.0.0.1", *options],
            software.environment(), as_nobody=True)
        self.server.wait_until(self._answers, "answer")
        with self._connect() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS queue "
                               "(id bigserial PRIMARY KEY, body bytea NOT NULL)")
            connection.execute("ALTER TABLE queue ALTER body SET STORAGE EXTERNAL")
            connection.execute("ALTER TABLE queue SET (autovacuum_vacuum_scale_factor = 0, "
                               "autovacuum_vacuum_threshold = 10000)")

    def stop(self) -> None:
        self.server.stop(signal.SIGINT)  # "fast": clients are ended, a checkpoint is written

    def putter(self) -> Wire:
        return PostgresWire(self._connect(), gets=False)

    def getter(self, number: int, batch: int) -> Wire:
        del number, batch
        return PostgresWire(self._connect(), gets=True)

    def waiting(self) -> int:
        with self._connect() as connection:
            row = connection.execute("SELECT count(*) FROM queue").fetchone()
            assert row is not None
            return int(row[0])

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(self.folder), port=self.port, dbname="postgres",
                               user="bench", autocommit=True)

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True


class PostgresWire:
    """Prepared statements through libpq itself: psycopg's cursors would cost more than the server.

    Errors of the server are BenchError with its words."""

    def __init__(self, connection: psycopg.Connection[Any], *, gets: bool) -> None:
        self._connection = connection
        self._libpq = libpq = connection.pgconn
        self._open = False
        self._prepare(b"put", _PUT)
        self._prepare(b"put one", _PUT_ONE)
        if gets:
            self._prepare(b"take", _TAKE)
            self._prepare(b"begin", b"BEGIN")
            self._prepare(b"commit", b"COMMIT")
            libpq.enter_pipeline_mode()

    def _prepare(self, name: bytes, statement: bytes) -> None:
        _good(self._libpq.prepare(name, statement))

    def put(self, bodies: list[bytes]) -> None:
        if len(bodies) == 1:
            _good(self._libpq.exec_prepared(b"put one", bodies, [1], 1))
        else:
            _good(self._libpq.exec_prepared(b"put", [_array(bodies)], [1], 1))

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        return polled(lambda: self._step(count), timeout_s)

    def _step(self, count: int) -> list[bytes]:
        """COMMIT, BEGIN and the DELETE in one exchange."""
        libpq = self._libpq
        statements = 3 if self._open else 2
        if self._open:
            libpq.send_query_prepared(b"commit", None)
        libpq.send_query_prepared(b"begin", None)
        libpq.send_query_prepared(b"take", [_COUNT.pack(count)], [1], 1)
        found = self._answers(statements)
        self._open = True
        return [found.get_value(row, 0) for row in range(found.ntuples)]

    def _answers(self, statements: int) -> Any:
        """The last of so many answers; each ends with None, all with the synchronization."""
        libpq = self._libpq
        libpq.pipeline_sync()
        last: Any = None
        for _ in range(statements):
            last = _good(libpq.get_result())
            assert libpq.get_result() is None, "more than one answer to a statement"
        sync = libpq.get_result()
        assert sync is not None and sync.status == pq.ExecStatus.PIPELINE_SYNC
        return last

    def close(self) -> None:
        if self._open:
            self._libpq.send_query_prepared(b"commit", None)
            self._answers(1)
        self._connection.close()

    def abandon(self) -> None:
        self._connection.close()


def _good(answer: Any) -> Any:
    if answer is None or answer.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        words = answer.error_message.decode(errors="replace") if answer else "no answer"
        raise BenchError(f"PostgreSQL: {words}")
    return answer


def _array(bodies: list[bytes]) -> bytes:
    """bytea[] in the binary form of array_send: dimensions, no nulls, element type, size, from 1;
    then each with its length."""
    head = _ARRAY.pack(1, 0, _BYTEA_OID, len(bodies), 1)
    return head + b"".join(part for body in bodies for part in (_LENGTH.pack(len(body)), body))


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
