"""Functions for the workers of test_worker."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import omq
from omq.base.errors import MessageCancelled
from omq.tasks.task import progress
from tests.waiting import pause

NOT_A_FUNCTION = 1


def line(path: str, text: object) -> None:
    """One write, so that lines of several processes do not mix."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


def note(task: dict[str, Any]) -> None:
    line(task["path"], task["number"])


def note_bytes(body: bytes) -> None:
    assert type(body) is bytes
    line(body.decode(), "bytes")


def answer(message: omq.Message) -> None:
    message.reply(message.body + b" done")


def work(task: dict[str, Any]) -> None:
    """Begins, and is over when a pipe at `go` can be read; what it is told to do meanwhile."""
    do = task.get("do")
    if do == "miss":
        miss_one()
    line(task["path"], os.getpid())
    if do == "raise":
        raise ValueError(f"not {task['number']} \udc80")
    if do == "exit":
        raise SystemExit(3)
    if do == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "swallow":
        while True:
            with suppress(BaseException):
                signal.pause()
    if do == "hang":
        hang()
    try:
        Path(task["go"]).read_bytes()
    finally:
        line(task["path"] + ".ended", task["number"])


def miss_one() -> None:
    """The next interruption comes to nothing, as one does that comes just before a call blocks."""
    before = signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *_: signal.signal(signal.SIGUSR1, before))


def hang() -> None:
    """In C code that holds the GIL, and that no signal ends: it locks a mutex twice."""
    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    for _ in range(2):
        libc.pthread_mutex_lock(mutex)


async def coroutine(task: object) -> None: ...


def long_one(task: dict[str, Any]) -> None:
    """Says how far it is until it is cancelled, or its steps are over."""
    steps = count(1) if "steps" not in task else range(task["steps"])
    try:
        for step in steps:
            progress(f"step {step}")
            pause()
    except MessageCancelled:
        line(task["path"], "told")
        raise
    line(task["path"], "done")
