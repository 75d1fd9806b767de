"""A real spool, made by the engine, with something of everything; and what must come back."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from omq.base.checksum import crc32c
from omq.base.paths import SpoolPaths
from omq.core.engine.state import CONTAINER, PERSISTENT, Party
from omq.core.load.recovery import Recovered, recover
from omq.core.redo.checkpoint import Checkpointer
from omq.core.redo.redo import Redo
from omq.format.findings import Kind
from omq.format.location import LocationKind, location
from omq.format.message import Descriptor, encode
from omq.format.wire import MOVED, Settlement
from omq.storage import poolctrl
from omq.storage.containers import create
from omq.storage.files import File, open_file
from omq.storage.journal import file_name, numbers_in
from omq.storage.journal_retire import retire
from omq.storage.payloads import read_payload
from omq.storage.pool import PoolFiles
from omq.storage.store import StoreWriter
from tests.unit.core.redo_world import SETTINGS, TIME_NS, Known, World, found, messages

SMALL = replace(SETTINGS, journal_file_bytes=256 * 1024)


class Spool(World):
    """`life` makes a history: several journal files, the older ones archived, a checkpoint in the
    middle of the last ones, and changes behind it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, SMALL)
        # Three submitters, and a pool file for each.
        self.parties = [self.party, Party(3, 1, 4243, 1000, 78), Party(4, 2, 4244, 1000, 79)]
        self.redo: Redo | None = None
        self.pool_files = self.pool()

    def life(self) -> None:
        """Born, given, deferred, moved, poisoned, ended; on many queues; small and large."""
        chance = random.Random(1)
        for i in range(120):
            self.party = self.parties[i % 3]
            self.put([3 + i % 3], chance.randbytes(9_000))
            if i % 10 == 9:
                self.commit()
        self.party = self.parties[0]
        self.put(range(3, 3 + 37), b"on many queues")
        self.container(b"c" * 300_000)
        self.commit()
        for entry in self.give(3, 8)[:6]:
            self.settle(entry)
        self.commit()
        entries = self.give(4, 6)
        self.settle(entries[0], Settlement.DEFER, 10**12)
        self.move(entries[1], [7, 8])
        self.move(entries[2], range(9, 9 + 20))
        self.poison(entries[3])
        self.commit()
        self.checkpoint_here()
        self.to_store(5)
        self.checkpoint_here()
        for number in numbers_in(self.paths.journal):
            if number < self.writer.file_number - 1:
                retire(self.paths, number, keep=True)
        for i in range(12):
            self.put([3 + i % 2], chance.randbytes(3_000))
        self.put(range(5, 5 + 20), b"young, on many queues")
        self.commit()
        for entry in self.give(3, 3)[:2]:
            self.settle(entry)
        self.commit()

    def container(self, body: bytes) -> int:
        """A message whose body is a file of its own."""
        ref, size, crc = create(self.paths, [body])
        payload = encode(Descriptor(), [], b"", ref.encode(), size, crc)
        new = replace(self.message([5]), flags=PERSISTENT | CONTAINER, size=size,
                      crc=crc32c(payload), payload=payload, parts=0)
        self.sequence += 1
        return self.engine.put(self.party, new, self.sequence)

    def checkpoint_here(self) -> None:
        """What pool.writer does: redo up to here, write the pool, move the checkpoint."""
        if self.redo is None:
            self.redo = self.restart(self.pool_files)
        self.redo.apply(self.blocks(self.redo.lsn))
        assert self.redo.findings == []
        Checkpointer(self.pool_files, self.redo, self.paths, self.info.uuid, self.settings).take(
            1, self.writer.file_number, self.writer.offset, TIME_NS)

    def to_store(self, count: int) -> None:
        """The bodies of the oldest messages move to the store, and the journal says so."""
        store = StoreWriter(self.paths, self.settings, self.info.uuid)
        t = self.core.t
        for slot in self.live()[:count]:
            payload = read_payload(self.paths, t.m_location[slot], t.m_offset[slot],
                                   t.m_length[slot])
            number, at = store.append(t.m_qpool[slot], payload)
            store.sync()
            self._relocated(slot, location(LocationKind.STORE, number), at)
        store.close()
        self.commit()

    def _relocated(self, slot: int, word: int, offset: int) -> None:
        from omq.core.engine.relocation import relocate

        t = self.core.t
        row = MOVED.pack(t.m_qpool[slot], word, offset, t.m_record[slot], t.m_file[slot],
                         slot, 0)
        assert relocate(self.core, memoryview(row)) == 1

    def blocks(self, after: int = 0) -> list[Any]:
        """Behind the redo's position only: files before it may be archived."""
        from omq.storage.journal_reader import scan_journal

        return [block for block in scan_journal(self.paths, self.info.uuid)
                if block.header.last_lsn > after]

    def stop(self) -> Known:
        """The manager is gone, without a good-bye; what it knew."""
        known = self.expected()
        self.pool_files.close()
        self.close()
        return known


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """omqrecover in this process: exit code, output, messages."""
    from omq.cli.launch import run as launch

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = launch("omqrecover", [str(each) for each in arguments])
    return int(code), out.getvalue(), err.getvalue()


def scan(root: Path) -> tuple[int, list[dict[str, Any]]]:
    """Exit code, and the findings."""
    code, out, err = run("scan", root, "--json")
    assert err == "", err
    return code, [line for line in map(json.loads, out.splitlines()) if "finding" in line]


def repair(root: Path, *options: str) -> str:
    """plan, then apply; what apply said."""
    plan = root.parent / "plan"
    run("plan", root, "--save", plan)
    code, out, err = run("apply", root, plan, *options)
    assert code == 0, (code, out, err)
    return out


def start(root: Path, uuid: bytes) -> tuple[Recovered, Known]:
    """What a manager's start makes of the spool: its recovery, then the pool's messages."""
    paths = SpoolPaths(root)
    pool = PoolFiles(paths, uuid)
    try:
        recovered = recover(paths, SMALL, uuid, pool, lambda _: None)
        for message in messages(pool):
            data = read_payload(paths, message.location, message.offset, message.length)
            assert crc32c(data) == message.crc, f"body of message {message.qpool}"
        return recovered, found(pool)
    finally:
        pool.close()


def damaged(recovered: Recovered) -> list[str]:
    """What a start would report."""
    return [str(f) for f in recovered.findings if f.kind not in (Kind.END, Kind.TORN)]


def change(path: Path, edit: Callable[[File], None]) -> None:
    """A foreign hand in a file."""
    file = open_file(path, write=True)
    try:
        edit(file)
    finally:
        file.close()


def overwrite(path: Path, offset: int, data: bytes) -> None:
    change(path, lambda file: file.write([data], offset))


def control_of(paths: SpoolPaths) -> Any:
    made, _ = poolctrl.load(paths)
    assert made is not None
    return made


__all__ = ["Spool", "change", "control_of", "damaged", "file_name", "overwrite", "repair", "run",
           "scan", "start"]
