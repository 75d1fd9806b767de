"""The logs of the Delta tables: what no version of the last days is read by goes.

    OUT/TABLE/_delta_log/NNNNNNNNNNNNNNNNNNNN.json                 a commit
    OUT/TABLE/_delta_log/NNNNNNNNNNNNNNNNNNNN.checkpoint.parquet   all of them up to that version

A version is read from the last checkpoint before it on. So what is older than the last checkpoint
that the oldest version to be kept can be read from is of no use: its data files are gone as well
(tables.vacuum). Where only what is published now is kept, a checkpoint of it is made, if what goes
then takes more than that does.

In the middle of a crash: the shorter checkpoint takes its place by rename. Of what goes the oldest
entries go first, and a reader begins at a checkpoint, so what is left is read as before; the next
call goes on.
"""

from __future__ import annotations

import re
import time
from typing import Final

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from omq.base.clock import NS_PER_S
from omqtools.omqspark import plan, tables
from omqtools.omqspark.out_directory import Out

DAY_NS: Final = 86_400 * NS_PER_S
CHECKPOINT_BYTES: Final = 16 * 1024
"""What a checkpoint of a small table takes."""
_ENTRY: Final = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")
Entries = dict[str, pafs.FileInfo]


def trim(lake: Out, keep_days: float) -> int:
    """Remove them, of all tables; how many."""
    until = time.time_ns() - int(keep_days * DAY_NS)
    removed = 0
    for name, published in tables.versions(lake)["versions"].items():
        fs, where = plan.filesystem(f"{lake.path(name)}/_delta_log")
        entries = _entries(fs, where)
        if _would_go(entries, published, until) > CHECKPOINT_BYTES:
            DeltaTable(lake.path(name), version=published).create_checkpoint()
            _shorten(fs, f"{where}/{_checkpoint(published)}")
            entries = _entries(fs, where)
        for entry in useless(_plain(entries), published, until):
            fs.delete_file(f"{where}/{entry}")
            removed += 1
    return removed


def _entries(fs: pafs.FileSystem, where: str) -> Entries:
    return {info.base_name: info for info in fs.get_file_info(pafs.FileSelector(where))
            if _ENTRY.fullmatch(info.base_name)}


def _plain(entries: Entries) -> dict[str, tuple[int, int]]:
    return {name: (int(name[:20]), info.mtime_ns) for name, info in entries.items()}


def _checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def _shorten(fs: pafs.FileSystem, path: str) -> None:
    """The same rows and columns, compressed, and without the extremes of sixty columns, which
    delta-rs writes and no reader of a checkpoint asks for."""
    with fs.open_input_file(path) as file:
        rows = pq.read_table(file)
    pq.write_table(rows, f"{path}.tmp", filesystem=fs, compression="zstd", store_schema=False,
                   write_statistics=False)
    fs.move(f"{path}.tmp", path)


def _would_go(entries: Entries, published: int, until_ns: int) -> int:
    """Bytes that a checkpoint of what is published would make useless now."""
    checkpoint = _checkpoint(published)
    if checkpoint in entries:
        return 0
    gone = useless(_plain(entries) | {checkpoint: (published, until_ns)}, published, until_ns)
    return sum(entries[name].size for name in gone)


def useless(entries: dict[str, tuple[int, int]], published: int, until_ns: int) -> list[str]:
    """Names of a log's files (name -> version, when written) that no version is read by which was
    there at `until_ns` or came later; `published`: the version that is. In their order."""
    commits = {version: at for name, (version, at) in entries.items() if name.endswith(".json")}
    oldest = max([version for version, at in commits.items()
                  if version <= published and at <= until_ns], default=0)
    begin = max([version for name, (version, _) in entries.items()
                 if version <= oldest and not name.endswith(".json")], default=0)
    return sorted(name for name, (version, _) in entries.items() if version < begin)
