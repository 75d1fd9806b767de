"""What the manager itself notes in index and journal: counters, the names of queues and readers,
what an operator does, what pool.writer has done, the end.

None of it is anything of a message; redo needs the names only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from omq.base.errors import SpoolFull
from omq.core.engine.disk_state import RESERVED
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import Core, Party
from omq.format.frame_rules import Reason
from omq.format.index import Counter, ReaderFlag
from omq.format.journal import FrameFlag, FrameType

_PAUSED, _GARBAGE, _REFUSED = int(Counter.PAUSED_MS), int(Counter.GARBAGE), int(Counter.REFUSED)


class Books:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._counters = core.t.counters
        self.lines: Callable[[], Iterable[bytes]] = tuple  # definitions (core.engine.queues)

    # names

    def name_everything(self, flags: FrameFlag = FrameFlag.REPEATED) -> None:
        """A journal file starts with the names of queues and readers, so that it reads alone."""
        for rules in self._core.rules.values():
            self._name(rules, flags)
        for line in self.lines():
            self._core.block.reserve(1, len(line))
            self._core.block.frame(FrameType.DEFINE, flags | FrameFlag.PERSISTENT, 0, 0,
                                   payload=line)
        t, block = self._core.t, self._core.block
        high = int(self._counters[Counter.READERS_HIGH])
        for row in np.flatnonzero(t.v["r_flags"][:high] & int(ReaderFlag.READS)).tolist():
            name = t.reader_name(row).encode()
            block.reserve(1, len(name))
            block.frame(FrameType.READER_UP, flags, t.r_queue[row], 0, client=t.r_client[row],
                        pid=t.r_pid[row], uid=t.r_uid[row], payload=name)

    def _name(self, rules: QueueRules, flags: FrameFlag) -> None:
        self._core.block.frame(FrameType.QUEUE, flags | FrameFlag.PERSISTENT, rules.queue, 0,
                               payload=rules.name.encode())

    def define_queues(self, changed: Sequence[QueueRules]) -> None:
        """Queues are new, or their rules have changed: all of them, or SpoolFull and none."""
        self._core.block.reserve(len(changed), sum(len(rules.name) for rules in changed))
        for rules in changed:
            self._name(rules, FrameFlag(0))
            self._core.define_queue(rules)
        self._core.times.look_again()  # who was kept may have to go

    # counters

    def garbage(self) -> None:
        """What cannot be a client's request was thrown away."""
        self._counters[_GARBAGE] += 1

    def refused(self) -> None:
        """A request or question was answered with an error."""
        self._counters[_REFUSED] += 1

    def paused(self, paused_ms: int) -> None:
        """So long in all the manager has waited for pool.writer."""
        self._counters[_PAUSED] = paused_ms

    def quarantined(self, parts: int) -> None:
        """So many damaged parts the start has set aside."""
        self._counters[Counter.QUARANTINED] = parts

    def events_dropped(self, count: int) -> None:
        """So many event messages more found no place."""
        self._counters[Counter.EVENTS_DROPPED] += count

    def space(self, low: int) -> None:
        """New messages are taken (0) from now on, or refused for want of bytes (1), inodes (2)."""
        self._core.space_left = not low
        self._counters[Counter.SPACE_LOW] = low
        if low:
            self._core.room.lacks = RESERVED[low - 1]

    def lag(self, size: int) -> None:
        """So many bytes of the journal lie after the checkpoint."""
        self._counters[Counter.LAG_BYTES] = size

    def counts_in(self, time_namespace: int) -> None:
        """The namespace of its time since boot."""
        self._counters[Counter.TIME_NAMESPACE] = time_namespace

    def clock_set(self) -> None:
        """Somebody has set the wall clock."""
        self._counters[Counter.CLOCK_STEPS] += 1

    def cleared(self) -> None:
        """A queue was cleared, up to here: pool.writer gives its space back."""
        self._counters[Counter.SPACE_WANTED] = self._core.block.lsn - 1

    def limit(self, messages: int, reserve_percent: int) -> None:
        """So many messages at most (0: what the tables hold), and this part of all rows kept."""
        core, layout = self._core, self._core.t.layout
        core.messages_total_max = messages or layout.messages
        core.index_reserve = min(layout.entries, layout.messages, core.messages_total_max
                                 ) * reserve_percent // 100

    def room(self) -> int:
        """What new messages the index has no row for: 0 it has for all, 1 those of members, 2 all,
        and only moves go on (core.engine.puts.rows_kept)."""
        core, t = self._core, self._core.t
        free = min(core.messages_total_max, t.layout.messages) - t.messages.used
        free, kept = min(free, t.entries.free), core.index_reserve
        low = int(free <= kept) + int(free <= kept // 2)
        self._counters[Counter.INDEX_LOW] = low
        return low

    # frames

    def checkpointed(self, party: Party, lsn: int) -> None:
        """pool.writer has taken a checkpoint."""
        core = self._core
        self._counters[Counter.CHECKPOINT_LSN] = lsn
        self._counters[Counter.CHECKPOINT_TIME] = core.now_ns
        core.block.reserve(1, 0)
        core.block.frame(FrameType.CHECKPOINT, 0, 0, 0, argument=lsn, pid=party.pid)

    def operator(self, party: Party, queue: int, argument: int, text: bytes) -> int:
        """What an operator does, and why: `text`. The frame's LSN."""
        block = self._core.block
        block.reserve(1, len(text))
        return block.frame(FrameType.OPERATOR, FrameFlag.PERSISTENT, queue, 0, client=party.client,
                           pid=party.pid, uid=party.uid, reason=Reason.OPERATOR, argument=argument,
                           payload=text)

    def stop(self) -> bool:
        """The manager ends in order. False: the disk has no room to say it, which only history
        misses."""
        block = self._core.block
        try:
            block.reserve(1, 0)
        except SpoolFull:
            return False
        block.frame(FrameType.STOP, FrameFlag.PERSISTENT, 0, 0)
        return True
