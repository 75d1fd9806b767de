"""What the steps of an audit have found, kept until it has ended.

    OUT/beside/audit-KEY/state.json      intervals, and what each step found that has ended
    OUT/beside/audit-KEY/NAME/STEP.parquet  rows that a step hands to later ones

KEY is of what is judged: batches, files, limits. An audit that is killed leaves the folder, and the
next one of the same goes on there; behind its end it is gone. While one audit works in it, another
of the same has a folder of its own, and begins anew; so it is where no file can be locked.

In the middle of a crash: state.json names a step when its files are closed, by rename. A file that
a power cut took back has no end, or other rows than the state says: then its step is done again.
What nobody goes on with goes when a day has passed (`ids.swept`).
Errors: those of the file system.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from omqtools.omqspark import encodings, parquet, plan
from omqtools.omqspark.ids import swept
from omqtools.omqspark.out_directory import BESIDE, LOCK, Out

STATE: Final = "state.json"
VERSION: Final = 1
Look = Callable[[], tuple[Any, Mapping[str, pa.Table]]]
"""A step: what it found (JSON), and rows by name."""


class Kept:
    """See the module."""

    def __init__(self, lake: Out, folder: str) -> None:
        self._lake, self._folder = lake, folder
        self._fs, self._path = plan.filesystem(lake.path(folder))
        self._fs.create_dir(self._path)
        told = json.loads(lake.get(f"{folder}/{STATE}") or b"{}")
        self._once: dict[str, Any] = told.get("once", {})
        self._steps: dict[str, Any] = told.get("steps", {})

    def has(self, step: str) -> bool:
        """Whether a step has ended, with all its rows."""
        return step in self._steps and all(
            self._rows(name, step) == rows for name, rows in self._steps[step]["rows"].items())

    def once(self, name: str, make: Callable[[], list[tuple[int, int]]]) -> list[tuple[int, int]]:
        """Intervals, as they were the first time."""
        if name not in self._once:
            self._once[name] = make()
            self._put()
        return [(first, last) for first, last in self._once[name]]

    def step(self, step: str, look: Look) -> Any:
        """What a step found, now or before."""
        if not self.has(step):
            found, tables = look()
            for name, rows in tables.items():
                self._fs.create_dir(f"{self._path}/{name}")
                pq.write_table(rows, f"{self._path}/{name}/{step}.parquet", filesystem=self._fs,
                               **encodings.how(rows.schema, len(rows)))
            self._steps[step] = {"found": found, "rows": {
                name: len(rows) for name, rows in tables.items()}}
            self._put()
        return self._steps[step]["found"]

    def dataset(self, name: str, schema: pa.Schema) -> ds.Dataset:
        """The rows of a name, of all steps."""
        paths = [info.path for info in parquet.files_of(self._lake.path(f"{self._folder}/{name}"))]
        if not paths:
            return ds.dataset(schema.empty_table())
        return ds.dataset(paths, schema, "parquet", filesystem=self._fs)

    def _rows(self, name: str, step: str) -> int:
        try:
            with self._fs.open_input_file(f"{self._path}/{name}/{step}.parquet") as file:
                return int(pq.read_metadata(file).num_rows)
        except (FileNotFoundError, pa.ArrowInvalid):
            return -1

    def _put(self) -> None:
        self._lake.put(f"{self._folder}/{STATE}", json.dumps(
            {"once": self._once, "steps": self._steps}).encode())


@contextmanager
def at_work(lake: Out, key: Any) -> Iterator[Kept]:
    """Where an audit of `key` keeps what it finds."""
    swept(lake)
    name = hashlib.sha256(json.dumps([VERSION, key]).encode()).hexdigest()[:32]
    folder = f"{BESIDE}/audit-{name}"
    fs, where = plan.filesystem(lake.path(folder))
    with _locked(fs, where) as mine:
        if not mine:
            folder = f"{BESIDE}/audit-{uuid.uuid4().hex}"
            where = plan.filesystem(lake.path(folder))[1]
        yield Kept(lake, folder)
        fs.delete_dir(where)


@contextmanager
def _locked(fs: pafs.FileSystem, where: str) -> Iterator[bool]:
    """Whether the folder is this process's own, meanwhile."""
    if not isinstance(fs, pafs.LocalFileSystem):
        yield False
        return
    Path(where).mkdir(parents=True, exist_ok=True)
    with (Path(where) / LOCK).open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
