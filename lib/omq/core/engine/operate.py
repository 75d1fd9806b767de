"""Operator commands: hold, release, move, delete and restore messages that are on queues.

One order is one unit: an OPERATOR frame that says who did what and why (uid and pid in the
frame, the words in its payload), then one frame a message that carries its LSN as `unit`. Each
message is judged on its own: those that refuse are listed with their error, the others change.

    HOLD     READY, DEFERRED  -> HELD; nobody gets it until it is released
    RELEASE  HELD, DEFERRED   -> READY at its old place
    MOVE     off this queue, on others; no target = the queue it came to POISON from, marked
             REPLAYED so that a second failure shows
    DELETE   off this queue; off its last one it waits on IDEL for `keep_ns`, and can come back
    RESTORE  on a queue again, from IDEL or besides its other queues

A message in the hands of a reader is refused (MessageBusy) unless `force` takes it back first: its
reader then finds its lease lost. `lsn` of an item refuses a message that has changed since
(MessageChanged), so a plan that was looked at is what is carried out. Sources: transitions.py; the
original's omqdump M, D, Z.

In the middle of a crash: all frames of an order are in one block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from omq.base.errors import (
    BadRequest,
    MessageBusy,
    MessageChanged,
    NoMessage,
    NotInState,
    OmqError,
    UnknownQueue,
)
from omq.core.engine.barrier_ends import failing, room
from omq.core.engine.barriers import MEMBER
from omq.core.engine.moves import grow_records, move_entry
from omq.core.engine.puts import check_queue, check_together
from omq.core.engine.settle import frame_for, give_back
from omq.core.engine.state import (
    CONTAINER,
    IDEL,
    PERSISTENT,
    POISON,
    REMEMBERS,
    REPLAYED,
    Core,
    Party,
)
from omq.core.engine.transitions import Event, after
from omq.format.frame_rules import Reason
from omq.format.index import EntryState
from omq.format.journal import FrameFlag, FrameType
from omq.format.message import PART, Part, pack_parts

_ACTIVE, _READY = int(EntryState.ACTIVE), int(EntryState.READY)
_DEFERRED, _HELD = int(EntryState.DEFERRED), int(EntryState.HELD)
_PREPARED = int(EntryState.PREPARED)
_LAST, _IDEL = int(FrameFlag.LAST_PART), int(FrameFlag.TO_IDEL)
ITEMS_MAX = 500  # messages of one order: bounds what one group of the manager does
FRAMES_PER_ITEM = 2  # a message taken back from its reader, and what then happens to it


class Action(Enum):
    """What an operator may order."""

    HOLD = "hold"
    RELEASE = "release"
    MOVE = "move"
    DELETE = "delete"
    RESTORE = "restore"


_EVENTS = {Action.HOLD: Event.HOLD, Action.RELEASE: Event.RELEASE, Action.MOVE: Event.MOVE,
           Action.DELETE: Event.DELETE}


@dataclass(frozen=True, slots=True)
class Item:
    """A message on a queue. `lsn`: of the last frame that changed it, when it was looked at; 0:
    whatever happened since. For RESTORE `queue` is where it is to be."""

    qpool: int
    queue: int
    lsn: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """One command."""

    action: Action
    items: tuple[Item, ...]
    text: bytes  # JSON: the command and the reason, as the journal keeps it
    targets: tuple[int, ...] = ()  # of a MOVE; none = back to the queue of origin
    priority: int | None = None  # of a MOVE or RESTORE; None = as it was
    keep_ns: int = 0  # of a DELETE: how long it can be brought back
    force: bool = False


@dataclass(slots=True)
class Outcome:
    """What became of an order."""

    done: list[int] = field(default_factory=list)  # QPoolIds
    refused: list[tuple[int, OmqError]] = field(default_factory=list)
    lsn: int = 0  # of the OPERATOR frame, 0 = nothing was done


@dataclass(slots=True)
class _Chosen:
    """A message that the order applies to."""

    item: Item
    slot: int
    entry: int  # -1: RESTORE of a message that is not on IDEL
    targets: tuple[Part, ...] = ()


def operate(core: Core, party: Party, order: Order, take_back: Callable[[int], None]) -> Outcome:
    """Carry out one order; `take_back(entry)` makes the manager forget who holds an entry."""
    outcome = Outcome()
    if len(order.items) > ITEMS_MAX:
        raise BadRequest(reason=f"{len(order.items)} messages, an order takes {ITEMS_MAX}")
    parts = max(1, len(order.targets)) * PART.size
    core.block.flush()  # puts of this group are seen in the index: first they are on the disk
    frames, size = room(core, _members(core, order)) if order.action is Action.DELETE else (0, 0)
    core.block.reserve(1 + FRAMES_PER_ITEM * len(order.items) + frames,
                       len(order.text) + parts * len(order.items) + size)
    for item in order.items:
        try:
            one = _choose(core, order, item, outcome.lsn)
            _may_go(core, one)
        except OmqError as error:
            outcome.refused.append((item.qpool, error))
            continue
        if not outcome.lsn:
            outcome.lsn = say_who(core, party, len(order.items), order.text)
        if one.entry >= 0 and core.t.e_state[one.entry] == _ACTIVE:
            take_back(one.entry)
            give_back(core, one.entry, None, 0, 0)
        _APPLY[order.action](core, party, order, one, outcome.lsn)
        outcome.done.append(item.qpool)
    return outcome


def _members(core: Core, order: Order) -> list[int]:
    """The slots of its messages."""
    found = (core.t.slot_of(item.qpool) for item in order.items if item.qpool > 0)
    return [slot for slot in found if slot >= 0]


def say_who(core: Core, party: Party, count: int, text: bytes) -> int:
    """The OPERATOR frame before the frames of an order about so many messages; its LSN."""
    return core.block.frame(
        FrameType.OPERATOR, PERSISTENT, 0, 0, client=party.client, pid=party.pid, uid=party.uid,
        token=party.token, unit=core.block.lsn, reason=Reason.OPERATOR, argument=count,
        payload=text)


def _choose(core: Core, order: Order, item: Item, own_lsn: int) -> _Chosen:
    """The entry that is meant, if the order may be carried out on it.

    `own_lsn`: of this order, if it has changed something: the message on another of its queues."""
    t = core.t
    slot = t.slot_of(item.qpool) if item.qpool > 0 else -1
    name = core.rules[item.queue].name if item.queue in core.rules else str(item.queue)
    if slot < 0:
        raise NoMessage(queue=name)
    ours = own_lsn and t.m_lsn[slot] > own_lsn
    if item.lsn and t.m_lsn[slot] != item.lsn and not ours:
        raise MessageChanged(qpool_id=item.qpool, then=item.lsn, now=t.m_lsn[slot])
    if t.m_flags[slot] & REMEMBERS:
        raise NotInState(qpool_id=item.qpool, queue=name, action=order.action.value,
                         state="what is remembered of a message id")
    if order.action is Action.RESTORE:
        return _choose_restored(core, order, item, slot, name)
    entry = t.entry_on(slot, item.queue)
    if entry < 0:
        raise NoMessage(queue=name)
    state = t.e_state[entry]
    if state == _ACTIVE and not order.force:
        raise MessageBusy(qpool_id=item.qpool, queue=name, reader="a reader")
    if item.queue == IDEL and order.action in (Action.HOLD, Action.RELEASE):
        raise NotInState(qpool_id=item.qpool, queue=name, action=order.action.value,
                         state="waiting to be deleted")
    if after(_EVENTS[order.action], _READY if state == _ACTIVE else state) is None:
        raise NotInState(qpool_id=item.qpool, queue=name, action=order.action.value,
                         state=EntryState(state).name.lower())
    return _Chosen(item, slot, entry, _targets(core, order, slot, entry))


def _choose_restored(core: Core, order: Order, item: Item, slot: int, name: str) -> _Chosen:
    t = core.t
    if t.entry_on(slot, item.queue) >= 0:
        raise NotInState(qpool_id=item.qpool, queue=name, action="restore", state="on the queue")
    entry = t.entry_on(slot, IDEL)
    if entry >= 0 and t.e_state[entry] == _ACTIVE:
        raise MessageBusy(qpool_id=item.qpool, queue=core.rules[IDEL].name, reader="a reader")
    if any(t.e_state[each] == _PREPARED for each in t.entries_of(slot)):
        raise NotInState(qpool_id=item.qpool, queue=name, action="restore", state="prepared")
    priority = t.e_priority[entry if entry >= 0 else t.m_first[slot] - 1]
    if order.priority is not None:
        priority = order.priority
    return _Chosen(item, slot, entry, (Part(item.queue, priority),))


def _targets(core: Core, order: Order, slot: int, entry: int) -> tuple[Part, ...]:
    if order.action is not Action.MOVE:
        return ()
    t = core.t
    queues = order.targets or (t.m_origin[slot],)
    if not queues[0]:
        raise UnknownQueue(queue="of origin (none is known: name one)")
    if any(queue in (IDEL, POISON) for queue in queues):
        raise BadRequest(reason="only the queue manager puts messages on IDEL and POISON")
    priority = t.e_priority[entry] if order.priority is None else order.priority
    return tuple(Part(queue, priority) for queue in queues)


def _may_go(core: Core, one: _Chosen) -> None:
    own = core.t.e_queue[one.entry] if one.entry >= 0 else 0
    for part in one.targets:
        if part.queue != own:
            check_queue(core, part.queue, core.t.m_size[one.slot], part.priority, 0)
    check_together(core, one.slot, one.entry, one.targets, (), 0)  # an operator makes room


def _hold(core: Core, party: Party, order: Order, one: _Chosen, unit: int) -> None:
    entry = one.entry
    frame_for(core, FrameType.HOLD, 0, entry, party, unit=unit, reason=Reason.OPERATOR)
    if core.t.e_state[entry] == _READY:
        core.detach(entry)
    core.set_state(entry, _HELD)
    core.t.e_until[entry] = core.now_ns  # since when, for the dumps


def _release(core: Core, party: Party, order: Order, one: _Chosen, unit: int) -> None:
    frame_for(core, FrameType.RELEASE, 0, one.entry, party, unit=unit, reason=Reason.OPERATOR)
    core.back(one.entry)


def _move(core: Core, party: Party, order: Order, one: _Chosen, unit: int) -> None:
    t = core.t
    replayed = t.e_queue[one.entry] == POISON
    raw = pack_parts(one.targets)
    move_entry(core, one.entry, party, 0, int(FrameFlag.REPLAY) if replayed else 0, one.targets,
               raw, unit=unit)
    if replayed:
        t.m_flags[one.slot] |= REPLAYED


def _delete(core: Core, party: Party, order: Order, one: _Chosen, unit: int) -> None:
    if core.t.e_queue[one.entry] != IDEL:
        delete(core, party, one.entry, order.keep_ns, unit)
    elif core.t.e_state[one.entry] == _DEFERRED:  # it is deleted already: now, please
        _release(core, party, order, one, unit)


def delete(core: Core, party: Party, entry: int, keep_ns: int, unit: int, sequence: int = 0,
           flags: int = 0) -> None:
    """Off its queue, which is not IDEL. `sequence`, `flags`: of the request that it carries out."""
    t, slot = core.t, core.t.e_message[entry]
    queue, priority = t.e_queue[entry], t.e_priority[entry]
    if t.m_flags[slot] & MEMBER:
        failing(core, slot, f"it was deleted from {core.rules[queue].name}")
    last = t.m_parts[slot] == 1
    until = core.now_ns + keep_ns if keep_ns else 0
    if last and (until or t.m_flags[slot] & CONTAINER):
        lsn = frame_for(core, FrameType.DELETE, flags | _IDEL, entry, party, sequence,
                        argument=until, unit=unit, reason=Reason.OPERATOR)
        t.m_origin[slot] = queue
        core.drop_entry(entry)
        t.m_parts[slot] = 1
        core.new_entry(slot, IDEL, priority, lsn, until)
        return
    frame_for(core, FrameType.DELETE, flags | (_LAST if last else 0), entry, party, sequence,
              unit=unit, parts=core.runs.get(slot, 1) if last else 0, reason=Reason.OPERATOR)
    core.drop_entry(entry)
    if last:
        t.q_ever[IDEL] += 1
        core.processed(IDEL)
        core.drop_message(slot)


def _restore(core: Core, party: Party, order: Order, one: _Chosen, unit: int) -> None:
    raw = pack_parts(one.targets)
    if one.entry >= 0:
        move_entry(core, one.entry, party, 0, 0, one.targets, raw, unit=unit)
        return
    t, slot, part = core.t, one.slot, one.targets[0]
    old = t.m_record[slot]
    grow_records(core, slot, t.m_parts[slot] + 1)
    lsn = core.block.frame(
        FrameType.MOVE, t.m_flags[slot] & PERSISTENT, 0, t.m_qpool[slot], priority=part.priority,
        size=t.m_size[slot], client=party.client, pid=party.pid, uid=party.uid, file=t.m_file[slot],
        record=t.m_record[slot], token=party.token, reason=old, unit=unit, parts=1, payload=raw)
    t.m_lsn[slot] = lsn
    t.m_parts[slot] += 1
    core.new_entry(slot, part.queue, part.priority, lsn)


_APPLY: dict[Action, Callable[[Core, Party, Order, _Chosen, int], None]] = {
    Action.HOLD: _hold, Action.RELEASE: _release, Action.MOVE: _move, Action.DELETE: _delete,
    Action.RESTORE: _restore}
