"""Clients of job queues in Python, and their workers where they are no command of their own.

    python -m tests.bench.tasks.jobs.python_jobs {omq|procrastinate|sql} {client|worker|make} WHERE
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from tests.bench.peers.processes import pause

QUEUE: Final = "BENCH"
BODY: Final = '{"id": 7}'
Put = Callable[[int], None]
# As River does it: a job keeps its row, and its state changes twice.
_TABLE = """CREATE TABLE job (id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'available',
priority smallint NOT NULL DEFAULT 1, scheduled_at timestamptz NOT NULL DEFAULT now(),
attempt smallint NOT NULL DEFAULT 0, attempted_at timestamptz, finalized_at timestamptz,
args jsonb NOT NULL)"""
_INDEX = "CREATE INDEX ON job (state, priority, scheduled_at, id)"
_TAKE = """UPDATE job SET state = 'running', attempt = attempt + 1, attempted_at = now()
WHERE id IN (SELECT id FROM job WHERE state = 'available' AND scheduled_at <= now()
ORDER BY priority, scheduled_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, args"""
_DONE = "UPDATE job SET state = 'completed', finalized_at = now() WHERE id = %s"
_IDLE_S = 0.05


def _serve(put: Put) -> None:
    for line in sys.stdin:
        _, total, batch = line.split()
        for _ in range(int(total) // int(batch)):
            put(int(batch))
        print("put", flush=True)


def omq_client(where: str) -> None:
    import omq

    with omq.connect(spool=where, name="bench") as connection:
        body = BODY.encode()

        def put(count: int) -> None:
            if count == 1:
                connection.put(QUEUE, body)
            else:
                connection.put_many(QUEUE, [body] * count)

        _serve(put)


def _app(connector: Any) -> tuple[Any, Any]:
    import procrastinate

    def work(id: int) -> None:
        from tests.bench.tasks.jobs.counting_worker import job

        job(id)

    app = procrastinate.App(connector=connector)
    return app, app.task(name="job", queue=QUEUE)(work)


def procrastinate_client(where: str) -> None:
    import procrastinate

    app, task = _app(procrastinate.SyncPsycopgConnector(conninfo=where))

    def put(count: int) -> None:
        if count == 1:
            task.defer(id=7)
        else:
            task.batch_defer(*({"id": 7} for _ in range(count)))

    with app.open():
        _serve(put)


def procrastinate_worker(where: str) -> None:
    import procrastinate

    app, _ = _app(procrastinate.PsycopgConnector(conninfo=where))
    with app.open():
        app.run_worker(queues=[QUEUE], concurrency=1)


def procrastinate_make(where: str) -> None:
    import procrastinate

    app, _ = _app(procrastinate.SyncPsycopgConnector(conninfo=where))
    with app.open():
        app.schema_manager.apply_schema()


def sql_client(where: str) -> None:
    import psycopg

    with psycopg.connect(where, autocommit=True) as line:

        def put(count: int) -> None:
            line.execute("INSERT INTO job (args) SELECT unnest(%s::jsonb[])", ([BODY] * count,))

        _serve(put)


def sql_worker(where: str) -> None:
    import psycopg

    from tests.bench.tasks.jobs.counting_worker import job

    with psycopg.connect(where, autocommit=True) as line:
        while True:
            if (row := line.execute(_TAKE).fetchone()) is None:
                pause(_IDLE_S)
                continue
            job(row[1])
            line.execute(_DONE, (row[0],))


def sql_make(where: str) -> None:
    import psycopg

    with psycopg.connect(where, autocommit=True) as line:
        line.execute(_TABLE)
        line.execute(_INDEX)


if __name__ == "__main__":
    globals()[f"{sys.argv[1]}_{sys.argv[2]}"](sys.argv[3])
