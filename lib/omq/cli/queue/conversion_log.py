"""What omqconv has done so far, in `omqconv.progress` beside the old queue files.

    {"omqconv": 1, "uuid": UUID, "lsn": LSN}     the instance; where its journal was at the start
    {"put": ITEM_REF, "queues": [NAME]}          this message will be put next
    {"done": ITEM_REF} / {"left": ITEM_REF}      it was put / it could not be

The line of a message is on the disk before its put is asked for; what became of the one before it
goes with the same write. So after a crash at most one message is in doubt (`doubt`), and the
journal from LSN on says whether it was put.

In the middle of a crash: a line that is cut was followed by nothing; it is written over.
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
VERSION: Final = 1
_BYTES_MAX: Final = 1 << 30


class ConversionLog:
    """See the module. A context manager; leaving it writes what is still to be said."""

    def __init__(self, folder: Path, uuid: bytes) -> None:
        self.put: dict[str, list[str]] = {}  # item reference -> queues, of what was put
        self.doubt: tuple[str, list[str]] | None = None
        self.lsn = 0
        self._path = folder / NAME
        self._file: File | None = None
        self._at = 0
        self._pending: list[dict[str, Any]] = []
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
            raise InputUnreadable(file=self._path, reason="it is no progress of omqconv: "
                                  f"{escape(str(error))}") from error

    def _take(self, record: dict[str, Any], *, first: bool) -> None:
        if first:
            if int(record["omqconv"]) != VERSION or record["uuid"] != self._uuid:
                raise ValueError("another version, or another instance")
            self.lsn = int(record["lsn"])
        elif "put" in record:
            self.doubt = str(record["put"]), [str(queue) for queue in record["queues"]]
        else:
            if self.doubt is None:
                raise ValueError("a result without its message")
            ref, queues = self.doubt
            if "done" in record:
                self.put[ref] = queues
            self.doubt = None

    def begin(self, lsn: int) -> None:
        """The first run of this directory."""
        if self._file is None:
            self.lsn = lsn
            self._file = create_file(self._path)
            self._write({"omqconv": VERSION, "uuid": self._uuid, "lsn": lsn})
            self._file.sync_all(new=True)
            durable.sync_directory(self._path.parent)

    def will_put(self, ref: str, queues: list[str]) -> None:
        """On the disk when this returns."""
        self._write(*self._pending, {"put": ref, "queues": queues})
        self._pending.clear()
        assert self._file is not None
        self._file.sync_all(new=True)
        self.doubt = ref, queues

    def was_put(self) -> None:
        """The message of the last will_put, or the one in doubt."""
        assert self.doubt is not None
        ref, self.put[ref] = self.doubt
        self._pending.append({"done": ref})
        self.doubt = None

    def was_left(self) -> None:
        """The same, of one that was not put."""
        assert self.doubt is not None
        self._pending.append({"left": self.doubt[0]})
        self.doubt = None

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
