"""What the two ends of a channel know, and what follows from it. No I/O: tests explore all of it.

Messages travel in batches, which are numbered from 1 without a gap. A message says the number of
its batch, its own number in it and how many there are. The sending side makes a batch *in doubt*
in its queue manager (a prepared unit of work, named by the number) before its first byte leaves.
The receiving side puts all of a batch and its number (the *record* of the channel) in one unit of
work, and then says so. Then the sending side commits its own unit. Up to `pipeline` batches are
under way.

Invariants: 1. a batch whose unit of work the sending side has ended by a commit is on the receiving
side; 2. the record is the number of the last batch there, batches are put there in the order of
their numbers, each once; 3. whoever meets a number that cannot be changes nothing (OutOfStep).

Crash argument. In whatever state either side or the line ends, three durable things are left: the
transmission queue, the units in doubt (numbers n ... m), and the record r. A unit was in doubt
before anything of it was sent and a commit follows only the answer, so r is at least n - 1; it is
at most m, as nothing was sent that was not in doubt. So r says of each unit in doubt what became of
it: up to r it is there (commit), above r it is not, and never will be, because whoever tells r has
first ended what an earlier connection was about to do. Then it is sent again under its number, or
backed out, when its messages are not in memory.

Errors: OutOfStep.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


class OutOfStep(Exception):
    """The two sides do not know of the same channel: one of them has lost something, or was
    restored. Only people can say what is to be done."""


@dataclass(frozen=True, slots=True)
class Resync:
    """What happens to the batches in doubt, in this order."""

    commit: tuple[int, ...]
    resend: tuple[int, ...]
    back_out: tuple[int, ...]


@dataclass(slots=True)
class Sending:
    """The sending side, in memory. `held`: batches that are in doubt and whose messages are in
    memory, in order; `flying`: those of them that were given to this connection; `ending`: those
    that the last resync has yet to commit or back out. Nothing new is taken meanwhile: what is
    backed out belongs before what is still on the queue."""

    pipeline: int = 2
    next: int = 0
    connected: bool = False
    held: list[int] = field(default_factory=list)
    flying: list[int] = field(default_factory=list)
    ending: set[int] = field(default_factory=set)

    def resync(self, last: int, in_doubt: Iterable[int]) -> Resync:
        """A connection is there, and the other side has batches up to `last`. OutOfStep. What it
        says is to be done before anything else: `settled` and `send` say that it was."""
        numbers = sorted(in_doubt)
        if numbers and not numbers[0] - 1 <= last <= numbers[-1]:
            raise OutOfStep(f"batches {numbers[0]} to {numbers[-1]} are in doubt here, and the "
                            f"other side has seen batch {last} last")
        lost = [each for each in numbers if each > last and each not in self.held]
        # A batch that cannot be sent any more is backed out, and those after it with it: their
        # numbers would leave a gap.
        cut = min(lost, default=0)
        back = tuple(each for each in numbers if cut and each >= cut)
        resend = tuple(each for each in numbers if each > last and each not in back)
        commit = tuple(each for each in numbers if each <= last)
        self.connected, self.flying, self.ending = True, [], {*commit, *back}
        self.next = max((last, *resend)) + 1
        return Resync(commit, resend, back)

    @property
    def room(self) -> bool:
        """A batch may be taken off the transmission queue."""
        return self.connected and not self.ending and len(self.held) < self.pipeline

    def prepared(self) -> int:
        """A batch is in doubt from now on; its number was `next`."""
        number, self.next = self.next, self.next + 1
        self.held.append(number)
        return number

    def send(self, number: int) -> None:
        """A batch that is in doubt goes out over this connection."""
        assert self.connected and number in self.held
        if self.flying and number != self.flying[-1] + 1:
            raise OutOfStep(f"batch {number} behind batch {self.flying[-1]}")
        self.flying.append(number)

    def confirmed(self, number: int) -> None:
        """The other side has it: its unit of work is to be committed, then `settled`. OutOfStep."""
        if number not in self.flying or number != self.flying[0]:
            raise OutOfStep(f"batch {number} was confirmed, and {self.flying} are under way")
        self.flying.remove(number)

    def settled(self, number: int) -> None:
        """Its unit of work has ended."""
        self.ending.discard(number)
        if number in self.held:
            self.held.remove(number)

    def cut(self) -> None:
        """The connection is gone."""
        self.connected, self.flying = False, []


@dataclass(slots=True)
class Receiving:
    """The receiving side of one connection, in memory. `last`: of the record."""

    last: int
    number: int = 0  # the batch that comes in; 0: none
    have: int = 0
    whole: list[int] = field(default_factory=list)  # not committed yet

    def arrived(self, batch: int, sequence: int, count: int) -> bool:
        """A message; True: its batch is whole. OutOfStep."""
        expected = (self.whole[-1] if self.whole else self.last) + 1
        if (batch != expected or sequence != self.have + 1 or not sequence <= count
                or (self.number and self.number != batch)):
            raise OutOfStep(f"message {sequence} of {count} of batch {batch} came, and message "
                            f"{self.have + 1} of batch {expected} was expected")
        self.number, self.have = batch, sequence
        if sequence < count:
            return False
        self.whole.append(batch)
        self.number = self.have = 0
        return True

    def committed(self, number: int) -> None:
        """The record says it."""
        assert self.whole and self.whole[0] == number == self.last + 1
        self.whole.pop(0)
        self.last = number
