"""A checkpoint's changes in batches that the pool writes all or nothing, in an order that loses
nothing.

storage.pool makes one batch atomic by its double-write file. Between two batches a crash may fall;
redo then starts at the old checkpoint, over a pool that holds the first batches already. What redo
needs from the pool must not be gone then: the old records of messages that live on.

1. A record and its continuations go in one batch: half of a message is none. A continuation that a
   message needs no more is cleared in the batch that shortens it: redo would not find it again.
2. A message that lives on in another record (a MOVE gave it a longer run) and whatever takes its
   old slots go in one batch: else it would be in neither place.
3. Slots that are only cleared come last: until then an old record does no harm, redo clears it
   again.

Births need nothing from the pool, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from omq.base.arrays import Rows, picked
from omq.core.redo import births
from omq.core.redo.held_records import HeldRecords
from omq.format.double_write import COUNT_MAX, FREE, Images
from omq.format.pool import PARTS_PER_RECORD, RECORD_BYTES, Message, encode_message

Slot = tuple[int, int]  # pool file, record
Group = dict[Slot, bytes | None]  # written together; None frees the slot


class Changed(Protocol):
    """What core.redo.redo has collected since the last checkpoint."""

    dirty: dict[int, Message | None]
    images: HeldRecords
    clears: set[int]  # file << 32 | record, as Images.slots
    homes: dict[int, list[int]]


def batches(changed: Changed, limit: int = COUNT_MAX) -> Iterator[Images]:
    """The changes in the order to write them, each batch at most `limit` records (more only if that
    many messages take each other's places)."""
    left = _left_places(changed)
    singles: Group = {}
    groups: list[Group] = []
    for message in changed.dirty.values():
        if message is not None:
            made = _records(message)
            if len(made) == 1:
                singles.update(made)
            else:
                groups.append(made)
    born = _Born(changed.images)
    singles.update(born.taken_out([*left, *_continuations(changed)], singles))
    groups = _shortened(groups, singles, changed)
    groups = _joined(groups, singles, left)
    taken = {slot for group in groups for slot in group}
    written = _places([*singles, *taken])
    for group in _packed(groups, limit):
        yield _images(group)
    yield from born.merged(_images(singles), limit)
    free = np.sort(np.fromiter(changed.clears, dtype=np.int64, count=len(changed.clears)))
    free = free[~np.isin(free, written) & ~np.isin(free, born.slots)]
    for first in range(0, len(free), limit):
        slots = free[first : first + limit]
        yield Images(slots, np.zeros((len(slots), RECORD_BYTES), dtype="u1"))


def _places(slots: Iterable[Slot]) -> Rows:
    """As Images.slots."""
    return np.array([file << 32 | record for file, record in slots], dtype=np.int64)


def _images(group: Group) -> Images:
    return Images.of((file, record, FREE if image is None else image)
                     for (file, record), image in group.items())


class _Born:
    """The records of new messages, in the order of their slots."""

    def __init__(self, images: HeldRecords) -> None:
        self.slots = images.slots()
        self._rows = births.joined(images.rows())
        if not bool((self.slots[:-1] <= self.slots[1:]).all()):
            self._choose(np.argsort(self.slots, kind="stable"))

    def _choose(self, which: Rows) -> None:
        self.slots, self._rows = self.slots[which], picked(self._rows, which)

    def taken_out(self, slots: Iterable[Slot], instead: Group) -> Group:
        """Leave these places to others: their records are the caller's. Those that are in `instead`
        give way to what is there."""
        wanted = np.isin(self.slots, _places(slots))
        out: Group = {(file, record): image
                      for file, record, image in births.images(picked(self._rows, wanted))
                      } if wanted.any() else {}
        wanted |= np.isin(self.slots, _places(instead))
        if wanted.any():
            self._choose(~wanted)
        return {slot: image for slot, image in out.items() if slot not in instead}

    def merged(self, others: Images, limit: int) -> Iterator[Images]:
        """With these single records, all in the order of their slots."""
        count = len(others)
        if not count:
            for first in range(0, len(self.slots), limit):
                rows = self._rows[first : first + limit]
                yield Images(self.slots[first : first + limit], births.sealed(rows))
            return
        slots = np.concatenate((others.slots, self.slots))
        order = np.argsort(slots, kind="stable")
        for first in range(0, len(order), limit):
            part = order[first : first + limit]
            data: Rows = np.empty((len(part), RECORD_BYTES), dtype="u1")
            born = part >= count
            if born.any():
                data[born] = births.sealed(picked(self._rows, part[born] - count))
            data[~born] = others.data[part[~born]]
            yield Images(slots[part], data)


def _continuations(changed: Changed) -> Iterator[Slot]:
    """Where messages that live lay with their continuations."""
    for qpool, home in changed.homes.items():
        message = changed.dirty.get(qpool)
        if len(home) > 1 and message is not None and message.record == home[0]:
            yield from ((message.file, number) for number in home)


def _records(message: Message) -> Group:
    """The record of a message and its continuations, which lie in a row after it."""
    run = max(1, -(-len(message.parts) // PARTS_PER_RECORD))
    message.more = [message.record + i for i in range(1, run)]
    return {(message.file, number): image for number, image in encode_message(message)}


def _shortened(groups: list[Group], singles: Group, changed: Changed) -> list[Group]:
    """Rule 1: the continuations that messages have no more, with the messages."""
    owner: dict[Slot, Group] = {slot: group for group in groups for slot in group}
    for qpool, home in changed.homes.items():
        message = changed.dirty.get(qpool)
        if len(home) == 1 or message is None or message.record != home[0]:
            continue
        places = [(message.file, number) for number in home]
        left = [slot for slot in places if slot not in owner and slot not in singles]
        if left:
            group = _group_at(places[0], owner, singles)
            assert group is not None, "what lives is written"
            group.update(dict.fromkeys(left))
            owner.update(dict.fromkeys(left, group))
    return list({id(group): group for group in (*groups, *owner.values())}.values())


def _left_places(changed: Changed) -> dict[Slot, Slot]:
    """Slots in which the pool holds a message that now lives elsewhere -> its new first record."""
    out: dict[Slot, Slot] = {}
    for qpool, home in changed.homes.items():
        message = changed.dirty.get(qpool)
        if message is not None and message.record != home[0]:
            out.update(((message.file, number), (message.file, message.record)) for number in home)
    return out


def _joined(groups: list[Group], singles: Group, left: dict[Slot, Slot]) -> list[Group]:
    """Rule 2: groups (and singles, which are taken out) that take the old slots of a message are
    joined with the group that holds it now."""
    if not left:
        return groups
    owner: dict[Slot, Group] = {slot: group for group in groups for slot in group}
    for slot, now in left.items():
        pair = [_group_at(place, owner, singles) for place in (slot, now)]
        old, new = pair
        if old is None or new is None or old is new:
            continue
        new.update(old)
        owner.update(dict.fromkeys(old, new))
    return list({id(group): group for group in owner.values()}.values())


def _group_at(slot: Slot, owner: dict[Slot, Group], singles: Group) -> Group | None:
    """The group that writes a slot; a single record becomes a group of its own."""
    if slot not in owner and slot in singles:
        owner[slot] = {slot: singles.pop(slot)}
    return owner.get(slot)


def _packed(groups: Iterable[Group], limit: int) -> Iterator[Group]:
    batch: Group = {}
    for group in groups:
        if batch and len(batch) + len(group) > limit:
            yield batch
            batch = {}
        batch.update(group)
    if batch:
        yield batch
