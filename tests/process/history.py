"""What a client did and saw, one JSON line each, written so that a SIGKILL loses no line before it.

    try    {"op": "try", "key", "queue", "priority", "crc", "ns"}   before a put is asked for
    ok     {"op": "ok", "key", "id", "ns"}                          the put was acknowledged
    no     {"op": "no", "key", "error", "ns"}                       the put was refused
    got    {"op": "got", "key", "queue", "priority", "crc", "lease", "redelivered", "who", "ns"}
    ending {"op": "ending", "key", "queue", "lease", "ns"}          done was decided, not yet asked
    done   {"op": "done", "key", "queue", "lease", "ns"}            done was acknowledged
    back   {"op": "back", "key", "queue", "ns"}                     given back on purpose
    death  {"op": "death", "ns"}                                    the test killed a manager

A key is "producer:number", producers count from 0 for each queue and priority of theirs. `ns` is
CLOCK_MONOTONIC, which all processes share.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class History:
    """One client's file; lines are in the kernel when `say` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def say(self, *lines: Line) -> None:
        now = time.monotonic_ns()
        os.write(self._file, "".join(json.dumps({**line, "ns": now}) + "\n"
                                     for line in lines).encode())

    def close(self) -> None:
        os.close(self._file)


def read_histories(folder: Path) -> list[Line]:
    """All lines of all clients. A line cut by a kill is the last of its file and is left out."""
    found: list[Line] = []
    for path in sorted(folder.iterdir()):
        text = path.read_text()
        found += [json.loads(line) for line in text.split("\n")[:-1]]
    return found
