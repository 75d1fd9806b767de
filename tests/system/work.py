"""Work for an installed instance: messages put and counted, a reader that notes what it got."""

from __future__ import annotations

import json

from tests.system.box import PREFIX, Box

PYTHON = f"{PREFIX}/bin/python"
CORE = ("omq-queue-manager", "omq-pool-writer", "omq-idel")
MAIL = ("omq-router", "omq-local", "omq-unix", "omq-error", "omq-smtp")
SEEN = "/var/lib/omq/seen"
READER = "omq-read@ORDERS.service"
_PUT = """\
import sys, omq
with omq.connect(name="work") as connection:
    first, last = int(sys.argv[2]), int(sys.argv[3])
    connection.put_many(sys.argv[1], [b"%d\\n" % n for n in range(first, last)])
"""
_DEPTHS = """\
import json, omq
with omq.connect(name="look") as connection:
    names = "ORDERS", "AUDIT", "POISON"
    print(json.dumps({name: len(list(connection.browse(name))) for name in names}))
"""


def put(box: Box, first: int, last: int, queue: str = "ORDERS") -> None:
    """Messages numbered from `first` to before `last`, acknowledged when this returns."""
    box.run(PYTHON, "-c", _PUT, queue, str(first), str(last))


def depths(box: Box) -> dict[str, int]:
    """Messages on each queue."""
    return {str(name): int(count)
            for name, count in json.loads(box.run(PYTHON, "-c", _DEPTHS)).items()}


def install_reader(box: Box) -> None:
    """omq-read@ORDERS: appends each message to a file."""
    box.write("/etc/omq/readers/ORDERS", f"#!/bin/sh\nexec cat >> {SEEN}\n", "755")
    box.sh("chgrp -R omq /etc/omq/readers")


def seen(box: Box) -> list[int]:
    """The numbers that the reader noted, in its order."""
    return [int(line) for line in box.sh(f"cat {SEEN} 2>/dev/null || true").split()]


def start(box: Box) -> None:
    """All of it. The target is up before its drain is, which a stop or restart needs."""
    box.run("systemctl", "start", "omq.target", "omq-drain.service")


def pids(box: Box, units: tuple[str, ...]) -> dict[str, int]:
    found = box.show_each([f"{unit}.service" for unit in units], "MainPID")
    return dict(zip(units, map(int, found), strict=True))


def states(box: Box, units: tuple[str, ...]) -> set[str]:
    """The states that these services are in."""
    return set(box.show_each([f"{unit}.service" for unit in units], "ActiveState"))


def moment(box: Box, unit: str, name: str) -> int:
    """Microseconds since boot of a change of a unit's state."""
    return int(box.show(f"{unit}.service", f"{name}TimestampMonotonic"))
