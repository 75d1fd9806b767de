"""Does a system answer only after its sync? Asked by making every sync slow.

strace(1) is attached to the server (for a library: to the client), counts fsync and fdatasync, and
holds each of them up for DELAY_S. One client puts, then gets and finishes, one message after the
other. Who answers sooner than DELAY_S did not wait for the disk.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import multiprocess

from tests.bench.instance import BenchError
from tests.bench.peers.peer import Peer
from tests.bench.peers.processes import pause

COUNT = 20
DELAY_S = 0.03
_CALLS = "fsync,fdatasync,sync_file_range,msync,syncfs"
_ATTACH_BOUND_S = 10.0
_fork = multiprocess.get_context("fork")


def check(peer: Peer, folder: Path) -> dict[str, Any]:
    """`put_waits`, `done_waits`: answered after the sync; with the medians and syncs a message."""
    peer.thaw()
    ours, theirs = _fork.Pipe()
    client = _fork.Process(target=_client, args=(peer, theirs))
    client.start()
    theirs.close()
    trace = folder / f"{peer.name}.strace"
    try:
        assert ours.recv() == "ready"
        with traced(peer.pids() or [client.pid], trace):
            found: dict[str, Any] = {}
            for step in ("put", "done"):
                before = syncs(trace)
                ours.send(step)
                times = ours.recv()
                middle = statistics.median(times)
                found |= {f"{step}_ms": middle * 1000, f"{step}_waits": middle >= DELAY_S,
                          f"{step}_syncs": (syncs(trace) - before) / COUNT}
        ours.send("end")
        client.join()
    except EOFError:
        raise BenchError(f"{peer.title}: the client of the sync check failed") from None
    finally:
        client.kill()
        client.join()
        ours.close()
    if peer.waiting():
        raise BenchError(f"{peer.title}: the sync check left messages")
    peer.freeze()
    return found


def _client(peer: Peer, pipe: Any) -> None:
    """Does as it is told by words; answers with the seconds of each call."""
    putter, getter = peer.putter(), peer.getter(0, 1)
    pipe.send("ready")
    while (word := pipe.recv()) != "end":
        times: list[float] = []
        for _ in range(COUNT + (word == "done")):  # the first take finishes nothing
            began = time.monotonic()
            if word == "put":
                putter.put([os.urandom(1024)])
            else:
                getter.take(1, 1.0 if len(times) < COUNT else 0.0)
            times.append(time.monotonic() - began)
        pipe.send(times[-COUNT:])
    putter.close()
    getter.close()


class traced:
    """strace(1) on these processes while the `with` lasts; each sync is held up by `delay_s`."""

    def __init__(self, pids: list[int], trace: Path, delay_s: float = DELAY_S) -> None:
        self._pids, self._trace, self._delay_s = pids, trace, delay_s

    def __enter__(self) -> None:
        command: list[str | Path] = ["strace", "-f", "-qq", "-e", f"trace={_CALLS}", "-o",
                                    self._trace]
        if self._delay_s:
            command += ["-e", f"inject={_CALLS}:delay_enter={int(self._delay_s * 1e6)}"]
        for pid in self._pids:
            command += ["-p", str(pid)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        deadline = time.monotonic() + _ATTACH_BOUND_S
        while not all(map(_is_traced, self._pids)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"strace: {self._end()}")
            pause(0.01)

    def __exit__(self, *_error: object) -> None:
        self._end()

    def _end(self) -> str:
        """Ends it, if it still runs; what it complained about."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self._process.communicate()[1].decode(errors="replace")


def _is_traced(pid: int) -> bool:
    """Every thread of it."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return all("TracerPid:\t0\n" not in (thread / "status").read_text() for thread in threads)


def syncs(trace: Path) -> int:
    """Calls so far; what another thread's line interrupts is told twice, the end as `resumed`."""
    text = trace.read_text()
    return len(re.findall(rf"^\d+ +(?:{_CALLS.replace(',', '|')})\(", text, re.MULTILINE))
