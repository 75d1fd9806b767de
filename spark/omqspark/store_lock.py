"""The lock of an OUT in an object store, where no file can be locked: one object.

    OUT/.lock    {"host", "boot", "namespace", "pid", "started"}: whose it is

Invariants: 1. it is made only where there is none, or in place of one and the same dead one: the
store itself compares (If-None-Match, If-Match), so one of two wins. 2. Dead is a process of this
boot and this namespace of pids that does not run any more; of any other nobody here can know, and
a person has to remove the object. So no clock is compared, and a run that was stopped and goes on
has its lock still.

In the middle of a crash: the object stays. A run on the same host takes it over; elsewhere OutHeld
says whose it is and how it is removed.
Errors: OutHeld; SparkFailed, what the store says; ExtraMissing.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from omq.base import clock
from omq.base.errors import ExtraMissing, OutHeld, SparkFailed

NAME: Final = ".lock"
_PIDS: Final = "/proc/self/ns/pid"
_TEXT_MAX: Final = 300
RETRIES: Final = 3


@contextmanager
def held(out: str) -> Iterator[None]:
    """Nobody else changes OUT meanwhile; OutHeld."""
    try:
        import obstore
        from obstore.store import from_url
    except ImportError as error:
        raise ExtraMissing(package="obstore", command=f"tables in {out}",
                           extra="omq-suite[spark]") from error
    opens: Any = from_url
    says = obstore.exceptions
    mine = _mine()
    try:
        store: Any = opens(out, client_options={
            "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"},
            retry_config={"max_retries": RETRIES})
        while not _taken(obstore, store, mine, out):
            continue  # whose it was has ended meanwhile
    except says.BaseError as error:
        raise _refuses(out, error) from error
    try:
        yield
    finally:
        try:
            if _read(obstore, store)[0] == mine:  # a person may have given it to somebody else
                obstore.delete(store, NAME)
        except says.BaseError as error:
            raise _refuses(out, error) from error


def _taken(obstore: Any, store: Any, mine: bytes, out: str) -> bool:
    """Whether it is ours now; False: ask again. OutHeld."""
    says = obstore.exceptions
    try:
        obstore.put(store, NAME, mine, mode="create")
    except says.AlreadyExistsError:
        pass
    else:
        return True
    found, meta = _read(obstore, store)
    if found is None:
        return False
    whose = _decoded(found)
    if not _is_dead(whose):
        raise OutHeld(path=out, host=whose.get("host", "?"), pid=whose.get("pid", "?"),
                      since=f"{meta['last_modified']:%Y-%m-%dT%H:%M:%SZ}",
                      lock=f"{out.rstrip('/')}/{NAME}")
    try:
        obstore.put(store, NAME, mine, mode={"e_tag": meta["e_tag"]})
    except (says.PreconditionError, FileNotFoundError):
        return False
    return True


def _read(obstore: Any, store: Any) -> tuple[bytes | None, Any]:
    """(its bytes, what the store says of it); None: there is none."""
    try:
        found = obstore.get(store, NAME)
        return bytes(found.bytes()), found.meta
    except FileNotFoundError:
        return None, {}


def _mine() -> bytes:
    """What this process writes into it."""
    pid = os.getpid()
    return json.dumps({
        "host": socket.gethostname(), "boot": clock.boot_id().hex(),
        "namespace": os.readlink(_PIDS), "pid": pid,
        "started": clock.process_start_ticks(pid)}).encode()


def _decoded(data: bytes) -> dict[str, Any]:
    """Empty: somebody else wrote it, so nobody knows whose it is."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_dead(whose: dict[str, Any]) -> bool:
    """Whether it is known that this process does not run any more."""
    pid = whose.get("pid")
    here = (clock.boot_id().hex(), os.readlink(_PIDS))
    return isinstance(pid, int) and (whose.get("boot"), whose.get("namespace")) == here \
        and clock.process_start_ticks(pid) != whose.get("started")


def _refuses(out: str, error: Exception) -> SparkFailed:
    line = " ".join(str(error).partition("Debug source:")[0].split())
    return SparkFailed(reason=f"{out}: {line[:_TEXT_MAX]}")
