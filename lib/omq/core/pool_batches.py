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

from omq.format.double_write import COUNT_MAX, Image
from omq.format.pool import PARTS_PER_RECORD, Message, encode_message

Slot = tuple[int, int]  # pool file, record
Batch = dict[Slot, bytes | None]


class Images(Protocol):
    """Records of new messages."""

    def values(self) -> Iterable[Image]: ...


class Changed(Protocol):
    """What core.redo has collected since the last checkpoint."""

    dirty: dict[int, Message | None]
    clears: set[Slot]
    homes: dict[int, list[int]]

    @property
    def images(self) -> Images: ...


def batches(changed: Changed, limit: int = COUNT_MAX) -> Iterator[Batch]:
    """The changes in the order to write them, each batch at most `limit` records (more only if that
    many messages take each other's places)."""
    singles: Batch = {(file, record): image for file, record, image in changed.images.values()}
    groups: list[Batch] = []
    for message in changed.dirty.values():
        if message is not None:
            made = _records(message)
            if len(made) == 1:
                singles.update(made)
            else:
                groups.append(made)
    groups = _shortened(groups, singles, changed)
    groups = _joined(groups, singles, _left_places(changed))
    taken = {slot for group in groups for slot in group}
    yield from _packed(groups, limit)
    yield from _sliced(sorted(singles.items()), limit)
    free = sorted(changed.clears - singles.keys() - taken)
    yield from _sliced([(slot, None) for slot in free], limit)


def _records(message: Message) -> Batch:
    """The record of a message and its continuations, which lie in a row behind it."""
    run = max(1, -(-len(message.parts) // PARTS_PER_RECORD))
    message.more = [message.record + i for i in range(1, run)]
    return {(message.file, number): image for number, image in encode_message(message)}


def _shortened(groups: list[Batch], singles: Batch, changed: Changed) -> list[Batch]:
    """Rule 1: the continuations that messages have no more, with the messages."""
    owner: dict[Slot, Batch] = {slot: group for group in groups for slot in group}
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


def _joined(groups: list[Batch], singles: Batch, left: dict[Slot, Slot]) -> list[Batch]:
    """Rule 2: groups (and singles, which are taken out) that take the old slots of a message are
    joined with the group that holds it now."""
    if not left:
        return groups
    owner: dict[Slot, Batch] = {slot: group for group in groups for slot in group}
    for slot, now in left.items():
        pair = [_group_at(place, owner, singles) for place in (slot, now)]
        old, new = pair
        if old is None or new is None or old is new:
            continue
        new.update(old)
        owner.update(dict.fromkeys(old, new))
    return list({id(group): group for group in owner.values()}.values())


def _group_at(slot: Slot, owner: dict[Slot, Batch], singles: Batch) -> Batch | None:
    """The group that writes a slot; a single record becomes a group of its own."""
    if slot not in owner and slot in singles:
        owner[slot] = {slot: singles.pop(slot)}
    return owner.get(slot)


def _packed(groups: Iterable[Batch], limit: int) -> Iterator[Batch]:
    batch: Batch = {}
    for group in groups:
        if batch and len(batch) + len(group) > limit:
            yield batch
            batch = {}
        batch.update(group)
    if batch:
        yield batch


def _sliced(items: list[tuple[Slot, bytes | None]], limit: int) -> Iterator[Batch]:
    for first in range(0, len(items), limit):
        yield dict(items[first : first + limit])
