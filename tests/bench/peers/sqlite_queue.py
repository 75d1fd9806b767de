"""A queue in one SQLite file, the last done and the next get in one commit."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from tests.bench.peers.peer import Peer, Wire
from tests.bench.peers.processes import polled

BUSY_S = 120
_CACHE = "PRAGMA cache_size = -64000"


class SqlitePeer(Peer):
    name = "sqlite"
    title = "SQLite, WAL"
    journal = "wal"
    settings = (
        "synchronous FULL, journal_mode WAL; a put is one INSERT for all, one commit; done of the "
        "last and get of the next (UPDATE ... RETURNING) are one BEGIN IMMEDIATE transaction; a "
        "reader that finds nothing looks again after 1 ms")

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    @property
    def path(self) -> Path:
        return self.folder / "queue.db"

    def start(self) -> None:
        connection = self.connect()
        connection.execute("CREATE TABLE IF NOT EXISTS queue "
                           "(id INTEGER PRIMARY KEY, status INTEGER NOT NULL, body BLOB NOT NULL)")
        connection.execute(
            "CREATE INDEX IF NOT EXISTS ready ON queue (id) WHERE status = 0")
        connection.close()

    def stop(self) -> None:
        """No server."""

    def putter(self) -> Wire:
        return SqliteWire(self.connect())

    def getter(self, number: int, batch: int) -> Wire:
        del number, batch
        return SqliteWire(self.connect())

    def waiting(self) -> int:
        connection = self.connect()
        (found,) = connection.execute("SELECT count(*) FROM queue").fetchone()
        connection.close()
        return int(found)

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        connection.execute(f"PRAGMA journal_mode = {self.journal}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(_CACHE)
        return connection


class RollbackPeer(SqlitePeer):
    name = "sqlite-rollback"
    title = "SQLite, rollback journal"
    journal = "truncate"
    settings = "as SQLite, WAL, with journal_mode TRUNCATE"


class SqliteWire:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._held: list[int] = []

    def put(self, bodies: list[bytes]) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO queue (status, body) VALUES (0, ?)",
                                     [(body,) for body in bodies])
        execute("COMMIT")

    def take(self, count: int, timeout_s: float) -> list[bytes]:
        found = polled(lambda: self._step(count), timeout_s, self._any)
        self._held = [row[0] for row in found]
        return [row[1] for row in found]

    def _any(self) -> bool:
        return self._connection.execute(
            "SELECT 1 FROM queue WHERE status = 0 LIMIT 1").fetchone() is not None

    def _step(self, count: int) -> list[Any]:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        self._delete()
        found = execute("UPDATE queue SET status = 1 WHERE id IN (SELECT id FROM queue "
                        "WHERE status = 0 ORDER BY id LIMIT ?) RETURNING id, body", (count,)
                        ).fetchall()
        execute("COMMIT")
        return found

    def _delete(self) -> None:
        self._connection.executemany("DELETE FROM queue WHERE id = ?",
                                     [(number,) for number in self._held])
        self._held = []

    def close(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._delete()
        self._connection.execute("COMMIT")
        self._connection.close()

    def abandon(self) -> None:
        self._connection.close()
