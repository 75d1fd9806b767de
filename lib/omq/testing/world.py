"""The processes of a test instance: its host, and the daemons that the host forks for it.

`World` starts and ends programs by their name and knows what they said; what they mean to a test is
`omq.testing.instance`'s. Every wait has an end. Errors: InstanceFailed, ExtraMissing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from omq.base.errors import ExtraMissing, InstanceFailed
from omq.testing.shifted import ShiftedClock

HOST_MODULE: Final = "omq.testing.host"
WAIT_S: Final = 60.0
"""For a program of ours to start or end: longer than a loaded machine needs."""
_NEEDED: Final = ("numpy", "zstandard")
_FOREIGN: Final = ("OMQ_SPOOL", "OMQ_CONF", "OMQ_FAULT", "OMQ_FAULT_LOG", "NOTIFY_SOCKET",
                   "JOURNAL_STREAM", "LISTEN_FDS", "WATCHDOG_USEC")
_PACKET_BYTES_MAX: Final = 1 << 16


class World:
    """See the module. `folder`: `spool`, `output` and the log of unsynced writes lie in it;
    `soon`: the programs that will be started first."""

    def __init__(self, folder: Path, soon: tuple[str, ...] = ("queue.manager",)) -> None:
        for package in _NEEDED:
            if importlib.util.find_spec(package) is None:
                raise ExtraMissing(command="omq.testing", package=package, extra="omq-suite")
        self.folder = folder
        self.output = folder / "output"
        self.unsynced = folder / "unsynced"
        self.clock = ShiftedClock()
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        with its, self.output.open("ab") as output:
            numbers = its.fileno(), self.clock.descriptor
            self._host = subprocess.Popen(
                [sys.executable, "-P", "-m", HOST_MODULE, *map(str, numbers), str(self.unsynced),
                 *soon],
                pass_fds=numbers, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True)
        ours.settimeout(2 * WAIT_S)

    def start(self, name: str, argv: list[str], environ: Mapping[str, str], cwd: Path | None = None
              ) -> int:
        """A program of omq by its name; its pid."""
        own = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
        return int(self._ask({
            "op": "start", "name": name, "argv": argv, "output": str(self.output),
            "environ": own | dict(environ), "cwd": str(cwd or Path.cwd())}, name)["pid"])

    def prepare(self, *names: str) -> None:
        """Have these programs imported while another one starts and is waited for."""
        self._ask({"op": "prepare", "names": names}, "the host")

    def end(self, pid: int, number: int, wait_s: float = WAIT_S) -> int | None:
        """Send it signal `number` (0: none) and wait; its exit code, None: it still runs."""
        code: int | None = self._ask(
            {"op": "end", "pid": pid, "number": number, "wait_s": wait_s}, "the host")["code"]
        return code

    def code(self, pid: int) -> int | None:
        """Its exit code; None while it runs."""
        code: int | None = self._ask({"op": "running", "pid": pid}, "the host")["code"]
        return code

    def said(self) -> str:
        """The end of what all programs wrote to standard error."""
        return self.output.read_text(encoding="utf-8", errors="replace")[-2000:]

    def failed(self, program: str, reason: str) -> InstanceFailed:
        """The error, with what was said in a note."""
        error = InstanceFailed(folder=self.folder, program=program, reason=reason,
                                   output=self.output)
        if said := self.said().strip():
            error.add_note(said)
        return error

    def close(self) -> None:
        """End the host, which ends what it has started."""
        self._channel.close()
        try:
            self._host.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._host.kill()
            self._host.wait()
        self.clock.close()

    def _ask(self, question: dict[str, Any], program: str) -> dict[str, Any]:
        try:
            self._channel.send(json.dumps(question).encode())
            data = self._channel.recv(_PACKET_BYTES_MAX)
        except OSError as error:
            raise self.failed(program, f"cannot be reached: the host of its daemons: {error}"
                              ) from error
        if not data:
            raise self.failed(program, "cannot be started: the host of its daemons has ended")
        answer: dict[str, Any] = json.loads(data)
        return answer
