"""omq-spark follow: the tables grow as archive files come, in one session that stays.

Each INTERVAL the archive is listed; a file that is new, late or replaced makes a batch, as `run
--incremental` would. Each AUDIT the audit is made and the report drawn, if anything is new. The JVM
starts with the first batch, not before. It keeps its memory for as long as it lives, so the process
ends (exit code 0, and systemd starts it again) after IDLE seconds without a file or after BATCHES:
its memory is bounded by that of the JVM and given back.

Of the archive it holds what it has not read yet, from the next file on, so history may go behind
it. OUT is locked while a batch is made, not between: `compact` and `report` have their turn.

In the middle of a crash: a batch counts or does not (pipeline.py); who starts next goes on. SIGTERM
and SIGINT end it after the batch at hand.
Errors: those of run and audit. No archive file yet is none: it waits for the first.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from types import FrameType
from typing import Any, Final

from omq.base.errors import NoArchive, OutBusy, OutHeld
from omq.format.archive import ArchiveHeader
from omqtools.omqspark import archive_holds, plan
from omqtools.omqspark.job import unknown
from omqtools.omqspark.out_directory import Out
from omqtools.omqspark.output_lines import say
from omqtools.omqspark.plan import Listed

STREAM: Final = "follow"
UNIT: Final = """# Made by omq-spark follow --unit, for /etc/systemd/system/omq-follow.service
[Unit]
Description=OMQ analytics: tables that follow the archive {archive}
After=local-fs.target time-sync.target

[Service]
Type=exec
User=omq
ExecStart={program} follow --archive {archive} --out {out}
# It ends by itself to give its memory back, and is started again without a JVM.
Restart=always
RestartSec=5
# Wrong options, damaged or mixed archives, no Java: another start does not help.
RestartPreventExitStatus=64 65 69
CacheDirectory=omq-spark
Nice=15
MemoryMax=4G
TimeoutStopSec=10min
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=yes
ReadWritePaths={out} {spool}

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Pace:
    """Seconds between two looks, and between two audits; when it ends: after so many seconds
    without a file while it has a session, or after so many batches."""

    interval_s: float = 10.0
    audit_s: float = 3600.0
    idle_s: float = 1800.0
    batches_max: int = 2000


class Following:
    """One run of it. `batch` makes what is new a batch, `audit` judges and draws; both begin with
    what `begin` gives, the session, at the first batch."""

    def __init__(self, archive: str, out: str, pace: Pace, batch: Callable[[], Any],
                 audit: Callable[[], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.archive, self.out, self.pace = archive, Out(out), pace
        self._batch, self._audit, self._clock = batch, audit, clock
        self.batches = 0
        self._last = self._audited = clock()
        self._untold = False
        self._passed_over: dict[int, Listed] = {}

    def look(self) -> bool:
        """One round; False: it is at its end."""
        new = self._new()
        if new:
            try:
                self._batch()
            except (OutBusy, OutHeld) as error:
                say(f"{error}: the next round tries again")
                return True
            self.batches += 1
            self._last, self._untold = self._clock(), True
        if self._untold and self._clock() - self._audited >= self.pace.audit_s:
            self._audit()
            self._audited, self._untold = self._clock(), False
        if not self.batches:
            return True  # nothing was started yet, so there is nothing to be given back
        if self._clock() - self._last >= self.pace.idle_s or self.batches >= self.pace.batches_max:
            if self._untold:
                self._audit()
            return False
        return True

    def _new(self) -> bool:
        """Whether there is a file to read; from the first such on the archive is held."""
        known = self.out.manifest()
        spool = archive_holds.spool_of(self.archive)
        try:
            listed = plan.listing(self.archive)
        except NoArchive:
            archive_holds.keep(spool, STREAM, 0)
            return False
        found = [item for item in listed if unknown(known, item)]
        fresh = [item.number for item in found if item.number not in known.files]
        archive_holds.keep(spool, STREAM, min(fresh, default=listed[-1].number + 1))
        new = False
        for item, head in plan.heads(self.archive, found, bytes.fromhex(known.uuid)):
            if isinstance(head, ArchiveHeader):
                record = known.files.get(item.number)
                new |= record is None or not record.is_of(head, item.size)
            elif self._passed_over.get(item.number) != item:
                self._passed_over[item.number] = item
                say(f"{item.path} is passed over until it is another: {plan.bad_text(head)}")
        return new


@contextmanager
def ended_by_signal() -> Iterator[Event]:
    """An event that SIGTERM and SIGINT set."""
    ended = Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(following: Following, ended: Event) -> None:
    """Until the end of one of them."""
    while not ended.is_set() and following.look():
        ended.wait(following.pace.interval_s)
    say(f"ends after {following.batches} batches; the next start goes on")
