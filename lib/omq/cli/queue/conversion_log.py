"""What omqconv has done so far, in `omqconv.progress` next to the old queue files.

    {"omqconv": 2, "uuid": UUID, "lsn": LSN}     the instance; where its journal was at the start
    {"put": ITEM_REF, "queues": [NAME]}          this message will be put next, or with the next
    {"done": ITEM_REF} / {"left": ITEM_REF}      it was put / it could not be

The lines of messages that are put together are on the disk before their put is asked for; what
became of those before them goes with the same write. So after a crash only those of one batch are
in doubt (`doubt`), and the journal from LSN on says which of them were put.

Version 1 had batches of one message; its files are read, and are of version 2 from then on.

In the middle of a crash: a line that is cut was followed by nothing; it is written over. Lines of
messages whose put was not asked for yet are in doubt like the others: none of them was born.
Errors: InputUnreadable (not ours, or of another instance), DiskError, SpoolFull.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Self

from omq.base.errors import InputUnreadable
from omq.base.names import escape
from omq.storage import durable
from omq.storage.files import File, create_file, open_file

NAME: Final = "omqconv.progress"
VERSION: Final = 2
_BYTES_MAX: Final = 1 << 30


class ConversionLog:
    """See the module. A context manager; leaving it writes what is still to be said."""

    def __init__(self, folder: Path, uuid: bytes) -> None:
        self.put: dict[str, list[str]] = {}  # item reference -> queues, of what was put
        self.doubt: dict[str, list[str]] = {}  # will be put, or have been: nobody has said
        self.lsn = 0
        self._path = folder / NAME
        self._file: File | None = None
        self._at = 0
        self._pending: list[dict[str, Any]] = []
        self._version = VERSION
        self._uuid = uuid.hex()
        self._read()

    def _read(self) -> None:
        try:
            self._file = open_file(self._path, write=True)
        except FileNotFoundError:
            return
        lines = self._file.read(_BYTES_MAX, 0).split(b"\n")[:-1]
        try:
            for number, line in enumerate(lines):
                self._take(json.loads(line), first=number == 0)
                self._at += len(line) + 1
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            self._file.close()
            raise InputUnreadable(file=self._path, reason="it is not a progress file of omqconv: "
                                  f"{escape(str(error))}") from error

    def _take(self, record: dict[str, Any], *, first: bool) -> None:
        if first or "omqconv" in record:
            self._version = int(record["omqconv"])
            if self._version not in (1, VERSION) or record["uuid"] != self._uuid:
                raise ValueError("another version, or another instance")
            self.lsn = int(record["lsn"])
        elif "put" in record:
            self.doubt[str(record["put"])] = [str(queue) for queue in record["queues"]]
        else:
            ref = str(record["done"] if "done" in record else record["left"])
            if ref not in self.doubt:
                raise ValueError("a result without its message")
            queues = self.doubt.pop(ref)
            if "done" in record:
                self.put[ref] = queues

    def begin(self, lsn: int) -> None:
        """The first run of this directory."""
        if self._file is None:
            self.lsn = lsn
            self._file = create_file(self._path)
            self._write({"omqconv": VERSION, "uuid": self._uuid, "lsn": lsn})
            self._file.sync_all(new=True)
            durable.sync_directory(self._path.parent)
        elif self._version != VERSION:  # so that an earlier omqconv refuses what follows
            self._version = VERSION
            self._pending.append({"omqconv": VERSION, "uuid": self._uuid, "lsn": self.lsn})

    def will_put(self, together: dict[str, list[str]]) -> None:
        """Item references with their queues; on the disk when this returns."""
        assert not self.doubt, "what became of the last batch comes first"
        self._write(*self._pending, *({"put": ref, "queues": queues}
                                      for ref, queues in together.items()))
        self._pending.clear()
        assert self._file is not None
        self._file.sync_all(new=True)
        self.doubt = dict(together)

    def was_put(self, ref: str) -> None:
        """One of the last will_put, or of those in doubt."""
        self.put[ref] = self.doubt.pop(ref)
        self._pending.append({"done": ref})

    def was_left(self, ref: str) -> None:
        """The same, of one that was not put."""
        del self.doubt[ref]
        self._pending.append({"left": ref})

    def _write(self, *records: dict[str, Any]) -> None:
        assert self._file is not None
        data = "".join(json.dumps(record) + "\n" for record in records).encode()
        self._file.write([data], self._at, new=True)
        self._at += len(data)

    def remove(self) -> None:
        """All flag files are there: they say the same."""
        durable.unlink(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            try:
                if self._pending:
                    self._write(*self._pending)
            finally:
                self._file.close()
