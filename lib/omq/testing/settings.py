"""The configuration of a test instance: the project's own, with the sizes of a test below it.

`queues.conf`, `authority.conf`, schemas and whatever else the project has in its folder are taken
as they are; of `omq.conf` each key counts that it has, and SETTINGS fills in the rest: small tables
and files, so that a start is quick. `services.conf` is always ours: nobody but the test starts
daemons.
"""

from __future__ import annotations

import configparser
import io
from pathlib import Path
from typing import Final

SETTINGS: Final[dict[str, dict[str, int]]] = {
    "index": {"messages_max": 20000, "queue_entries_max": 25000},
    "journal": {"journal_file_bytes": 1 << 22, "block_bytes_max": 1 << 20,
                "journal_files_kept": 1},
    "pool": {"checkpoint_interval_s": 1},
    "store": {"disk_reserve_bytes": 0},
    "ipc": {"reconnect_grace_s": 1},
    "daemons": {"drain_timeout_s": 1},
}
SERVICES: Final = """\
[qmgr]
number = 100
kind = manager
program = queue.manager
nonstop = yes

[pool]
number = 101
kind = pool
program = pool.writer
nonstop = yes

[idel]
number = 102
kind = deleter
program = idel.server
queue = IDEL

[schedule]
number = 103
kind = reader
program = schedule.server
queue = SYSTEM.SCHEDULES
batch = 1
"""
SCHEMAS: Final = "schemas"
_OWN: Final = ("omq.conf", "services.conf")
_NO_QUEUES: Final = b"# Queues are defined by the tests.\n[*]\n"


def write(folder: Path, given: Path | None) -> None:
    """Into `folder`, of the project's folder `given` (None: it has none). OSError."""
    if given is not None:
        for path in sorted(given.iterdir()):
            if path.is_file() and path.name not in _OWN:
                (folder / path.name).write_bytes(path.read_bytes())
        for path in sorted((given / SCHEMAS).glob("*.json")):
            (folder / SCHEMAS).mkdir(exist_ok=True)
            (folder / SCHEMAS / path.name).write_bytes(path.read_bytes())
    if not (folder / "queues.conf").exists():
        (folder / "queues.conf").write_bytes(_NO_QUEUES)
    (folder / "services.conf").write_text(SERVICES, encoding="utf-8")
    own = None if given is None else given / "omq.conf"
    text = own.read_text(encoding="utf-8") if own is not None and own.exists() else ""
    (folder / "omq.conf").write_text(merged(text), encoding="utf-8")


def merged(text: str) -> str:
    """omq.conf: `text`, and SETTINGS for the keys that it does not have."""
    found = configparser.RawConfigParser(strict=False)
    found.read_dict({name: {key: str(value) for key, value in keys.items()}
                     for name, keys in SETTINGS.items()})
    found.read_string(text)
    out = io.StringIO()
    found.write(out)
    return out.getvalue()
