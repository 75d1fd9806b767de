"""Short lives for L1: each shows the journal, the pool or the bodies one kind of step. All take a
started instance and chance; what they do depends on the seed alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from omq.core.engine.operate import Action
from omq.core.engine.state import IDEL
from omq.format.definition import Definition, Kind
from omq.format.wire import Settlement
from tests.crash.sim.life import DEATH_S, SETTINGS, WIDE, A, B, C, Life

DONE, DEFER, FAIL, RELEASE = Settlement.DONE, Settlement.DEFER, Settlement.FAIL, Settlement.RELEASE
SIZES: Final = (10, 300, 1500, 3000)
SMALL_PAGES: Final = replace(SETTINGS, journal_page_bytes=512)


def plain(life: Life, random: Random) -> None:
    """Put, get, done."""
    for _ in range(2):
        life.put(A, size=random.choice(SIZES))
        life.commit()
    given = life.give(A, 2)
    life.commit()
    life.settle(DONE, given[: random.choice((1, 2))])
    life.commit()


def groups(life: Life, random: Random) -> None:
    """Several requests in one block; a block that is not synced in front of one that is."""
    for _ in range(3):
        for _ in range(random.randint(1, 4)):
            life.put(*random.choice(((A,), (B,), (A, B))), size=random.choice(SIZES),
                     priority=random.randrange(10), putter=random.randrange(2))
        life.commit()
        life.put(A, persistent=False)
        life.commit()
    given = life.give(A, 3)
    life.commit()
    for verdict in given:
        life.settle(random.choice((DONE, DEFER, RELEASE, FAIL)), [verdict])
    life.put(C)
    life.commit()


def checkpoints(life: Life, random: Random) -> None:
    """Messages of two pool files that live on over checkpoints, and such that do not."""
    for turn in range(3):
        for putter in (0, 1):
            life.put(random.choice((A, B)), size=random.choice(SIZES[:2]), putter=putter)
        life.put(A, B, putter=turn % 2)
        life.commit()
        if turn:
            given = life.give(A, random.randint(1, 3))
            life.commit()
            if given:
                life.settle(random.choice((DONE, DEFER)), given[:1])
                life.commit()
        life.checkpoint()


def moves(life: Life, random: Random) -> None:
    """Moves with and without new messages, over a checkpoint."""
    for _ in range(3):
        life.put(A, size=random.choice(SIZES[:2]))
    life.commit()
    if random.random() < 0.7:
        life.checkpoint()
    given = life.give(A, 3)
    life.commit()
    life.move(given[0], [B])
    life.move(given[1], random.choice(([B, C], [])), [C, B])
    life.commit()
    if len(given) > 2:
        life.move(given[2], [C], [A])
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()


def rotation(life: Life, random: Random) -> None:
    """Journal files fill up; bodies go to the store, old files to the archive, the store is
    compacted."""
    kept = [life.put(A, size=3000) for _ in range(2)]
    life.commit()
    for turn in range(2):
        for _ in range(3):
            life.put(B, size=5000)
            life.commit()
        given = life.give(B, 3)
        life.commit()
        life.settle(DONE, given)
        life.commit()
        if turn or random.random() < 0.5:
            life.checkpoint()
    life.checkpoint()
    assert kept
    given = life.give(A, 1)
    life.commit()
    life.settle(DONE, given)
    life.commit()
    life.checkpoint()
    life.checkpoint()


def generations(life: Life, random: Random) -> None:
    """A message put in one journal file and done in the next; then both files go. Its pool slot is
    not used again: else the next message would hide it, should it come back."""
    life.put(A, size=random.choice(SIZES), putter=1)
    life.commit()
    life.rotate()
    given = life.give(A)
    life.commit()
    life.settle(DONE, given)
    life.commit()
    life.rotate()
    for _ in range(3):
        life.put(B)
        life.commit()
        life.checkpoint()


def _ends_behind(life: Life, random: Random) -> None:
    """What is on A ends after pool.writer's checkpoint, and rounds come before the next."""
    given = life.give(A)
    life.commit()
    life.settle(DONE, given)
    life.commit()
    for _ in range(random.randint(2, 3)):
        life.round()


def behind(life: Life, random: Random) -> None:
    """pool.writer is behind: bodies end after its checkpoint, and rounds come before the next."""
    life.put(A, size=random.choice(SIZES), putter=1)
    life.commit()
    life.rotate()
    life.put(B)
    life.commit()
    life.checkpoint()
    _ends_behind(life, random)
    for _ in range(3):
        life.put(C)
        life.commit()
        life.checkpoint()


def behind_store(life: Life, random: Random) -> None:
    """As `behind`, of a body that has moved to a store file."""
    life.put(A, size=random.choice(SIZES), putter=1)
    life.commit()
    life.rotate()
    for _ in range(3):
        life.put(B)
        life.commit()
        life.checkpoint()
    _ends_behind(life, random)
    life.put(C)
    life.commit()
    life.checkpoint()


def emptied(life: Life, random: Random) -> None:
    """Nothing waits while pool.writer goes its rounds: the journal file in use has no body that is
    needed, and goes on."""
    for _ in range(2):
        life.put(A, size=random.choice(SIZES))
        life.commit()
        given = life.give(A)
        life.commit()
        life.settle(DONE, given)
        life.commit()
        for _ in range(3):
            life.checkpoint()
    life.put(B)
    life.commit()
    life.checkpoint()


def large(life: Life, random: Random) -> None:
    """Containers, from put to idel; the second and third are of those made ahead."""
    for _ in range(2):
        life.put_container(C, 1000)
        life.commit()
    life.put_container(A)
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()
    given = life.give(A, 1)
    life.commit()
    life.settle(DONE, given)
    life.put_container(B, 1000)
    life.commit()
    given = life.give(IDEL, 1)
    life.commit()
    life.settle(DONE, given)
    life.commit()


def poison(life: Life, random: Random) -> None:
    """Readers fail and die until POISON."""
    life.put(A)
    life.put(A, B)
    life.commit()
    for turn in range(3):
        given = [*life.give(A, 2), *life.give(A, 2)]  # alone, once they have failed
        life.commit()
        if random.random() < 0.5:
            life.reader_dies()
        else:
            life.settle(FAIL, given)
        life.commit()
        life.pass_time(31)
        life.tick()
        life.commit()
        if turn == random.randrange(3):
            life.checkpoint()


def restart(life: Life, random: Random) -> None:
    """An orderly end, and the next start: its cuts are those of a start."""
    life.put(A, size=300)
    life.commit()
    given = life.give(A, 1)
    life.put(B, putter=1)
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()
    if random.random() < 0.5:
        life.stop()
    else:
        life.disk.kill()
    after = Life(life.disk, life.settings, model=dict(life.model))
    after.put(C)
    after.commit()
    assert given


def wide(life: Life, random: Random) -> None:
    """Messages on more queues than a record names: longer, shorter, in another place, gone."""
    life.widen()
    for _ in range(2):  # the second has the next record, so that the first must move
        life.put(A)
    life.commit()
    life.checkpoint()
    (given,) = life.give(A, 1)
    life.commit()
    life.move(given, WIDE)
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()
        for queue in random.sample(WIDE, 4):
            got = life.give(queue, 1)
            life.commit()
            life.settle(DONE, got)
            life.commit()
        life.put(A, *WIDE, putter=1)
        life.commit()
        life.checkpoint()
    message = life.state()[given.qpool]
    life.operate(Action.DELETE, *((given.qpool, place.queue) for place in message.places))
    life.commit()
    life.checkpoint()


def batches(life: Life, random: Random) -> None:
    """Batches of messages, put and done together, over checkpoints that they outlive or not."""
    for turn in range(2):
        life.put_many(random.choice((A, B)), random.randint(12, 16), random.choice((10, 100)),
                      putter=turn)
        if random.random() < 0.5:
            life.put(A)
        life.commit()
        if random.random() < 0.5:
            life.checkpoint()
    for queue in (A, B):
        given = life.give(queue, 14)
        life.commit()
        if given:
            life.done_many(given, queue)
            life.commit()
    life.checkpoint()


def operators(life: Life, random: Random) -> None:
    """Hold, release, move, delete, and what takes that back; of messages that readers have, too."""
    ids = [life.put(A, size=random.choice(SIZES[:2]), putter=i % 2) for i in range(4)]
    ids.append(life.put_container(A, 1000))
    life.commit()
    if random.random() < 0.5:
        life.give(A, 2)
        life.commit()
    life.operate(Action.HOLD, (ids[0], A), (ids[1], A))
    life.operate(Action.MOVE, (ids[2], A), (ids[3], A), targets=(B, C))
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()
    life.operate(Action.RELEASE, (ids[1], A))
    life.operate(Action.DELETE, (ids[0], A), (ids[3], B), (ids[3], C), keep_s=600)
    life.commit()
    life.operate(Action.RESTORE, (ids[3], A))
    life.operate(Action.DELETE, (ids[4], A))
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()
    life.operate(Action.DELETE, (ids[2], B), (ids[2], C), (ids[1], A))
    life.commit()
    life.checkpoint()


def cancels(life: Life, random: Random) -> None:
    """Messages of every kind, cancelled by the programs that put them."""
    late = life.put(A, B, delay_s=600, putter=1)
    ready = life.put(A, size=random.choice(SIZES[:2]))
    large = life.put_container(A, 1000)
    brief = life.put(A, B, persistent=False)
    held = life.put(B)
    life.commit()
    life.operate(Action.HOLD, (held, B))
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()
    life.cancel(late, A, B, putter=1)
    life.cancel(ready, A)
    if random.random() < 0.5:
        life.commit()
    life.cancel(large, A)
    life.cancel(held, B)
    life.commit()
    life.cancel(brief, A, B)
    life.commit()
    life.checkpoint()


def cancels_in_work(life: Life, random: Random) -> None:
    """Messages that readers have, cancelled by those that put them, beside such that wait."""
    both = life.put(A, B, size=random.choice(SIZES[:2]))
    large, brief = life.put_container(A, 1000), life.put(A, persistent=False)
    stays, failed = life.put(A), life.put(C)
    life.commit()
    life.settle(FAIL, life.give(C))
    life.commit()
    life.pass_time(DEATH_S + 1)
    life.tick()
    life.give(C)
    given = life.give(A, 4)
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()
    life.cancel(both, A, B, in_work=True)
    if random.random() < 0.5:
        life.commit()
    life.cancel(large, A, in_work=True)
    life.cancel(failed, C, in_work=True)
    life.commit()
    life.cancel(brief, A, in_work=True)
    life.settle(random.choice((DONE, RELEASE)), [each for each in given if each.qpool == stays])
    life.commit()
    life.checkpoint()


def units(life: Life, random: Random) -> None:
    """Units of work: committed, in blocks larger than those of a group, and backed out."""
    for _ in range(5):
        life.put(random.choice((A, B)), size=random.choice(SIZES[:2]))
    life.put(A, B)
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()
    taken = [*life.give(A, 2), *life.give(B, 1)]
    life.commit()
    life.unit(taken, [(random.choice((A, B, C)), random.choice(SIZES))
                      for _ in range(random.choice((0, 2, 6)))])
    life.commit()
    back = [*life.give(A, 1), *life.give(B, 1)]
    life.commit()
    life.back_out(back)
    life.put(C)
    life.commit()
    life.unit([], [(C, 3000)] * 6)  # 18 kB: no group is so large
    if random.random() < 0.5:
        life.checkpoint()
    for _ in range(2):  # one that failed goes alone, and to POISON at last
        again = life.give(A, 1)
        life.commit()
        life.back_out(again)
        life.commit()


def doubts(life: Life, random: Random) -> None:
    """Units of work in doubt: over checkpoints, committed and backed out, in one window and not;
    what is put on several queues, and what fails for the last time."""
    for _ in range(4):
        life.put(random.choice((A, B)), size=random.choice(SIZES[:2]))
    life.put(A, B)
    life.commit()
    units = []
    for turn in range(3):
        taken = life.give(random.choice((A, B)), random.choice((1, 2)))
        life.commit()
        units.append(life.prepare(taken, [(random.choice((A, B, C)), random.choice(SIZES))
                                          for _ in range(random.choice((0, 2, 6)))]))
        life.commit()
        if random.random() < 0.5:
            life.checkpoint()
        if turn:
            life.end_unit(units.pop(random.randrange(len(units))), commit=random.random() < 0.5)
            life.commit()
    life.put(C, size=3000)
    life.commit()
    if random.random() < 0.5:
        life.checkpoint()
    life.end_unit(units.pop(), commit=random.random() < 0.5)
    life.commit()
    life.checkpoint()


def archived(life: Life, random: Random) -> None:
    """Retired journal files become archive files, old ones go; bodies stay readable."""
    life.put(A, size=3000)
    life.commit()
    for turn in range(2):
        life.put(B, size=random.choice((3000, 5000)))
        life.commit()
        life.rotate()
        given = life.give(B, 1)
        life.commit()
        life.settle(DONE, given)
        life.commit()
        for _ in range(3):
            life.checkpoint()
        life.archive()
        if turn:
            life.put(C)
            life.commit()


def times(life: Life, random: Random) -> None:
    """Messages whose time is over: moved, discarded, on two queues, and one that a reader has."""
    for turn in range(2):
        for number, queues in enumerate(((A,), (B,), (A, B), (A,))):
            life.put(*queues, size=random.choice(SIZES[:2]), expiry_s=1 + number / 10)
        life.put(A, delay_s=50, expiry_s=1.5)
        life.put(B)
        life.commit()
        given = life.give(A, 1)
        life.commit()
        if turn or random.random() < 0.5:
            life.checkpoint()
        life.pass_time(1.25)
        life.tick()
        life.commit()
        life.pass_time(5)
        life.tick()
        life.commit()
        if random.random() < 0.5:
            life.checkpoint()
        life.settle(random.choice((DONE, RELEASE)), given)
        life.tick()
        life.commit()
    life.checkpoint()


def queues(life: Life, random: Random) -> None:
    """Queues made, changed, renamed, rolled over and removed at run time, over checkpoints and
    beside messages."""
    local = Definition("R1", Kind.LOCAL, {"max_depth": "9"})
    life.define(lambda q: q.define(local))
    life.commit()
    life.put(A)
    life.define(lambda q: q.define(Definition("R2", Kind.ALIAS, {"target": "R1 B"})))
    life.commit()
    if random.random() < 0.6:
        life.checkpoint()
    life.define(lambda q: q.define(replace(local, keys={"max_depth": "8"}), known=True))
    life.commit()
    life.define(lambda q: q.roll_over("R1", "R3"))
    life.commit()
    if random.random() < 0.4:
        life.checkpoint()
    if random.random() < 0.5:
        life.rotate()
    life.define(lambda q: q.remove("R3"))
    life.commit()
    life.define(lambda q: q.remove("R2"))
    life.define(lambda q: q.rename("R1", "R4"))
    life.commit()
    life.put(B)
    life.commit()
    life.checkpoint()
    life.define(lambda q: q.remove("R4"))
    life.commit()


def in_groups(life: Life, random: Random) -> None:
    """Messages of groups: one of each at a time; some fail, are on two queues, or delayed."""
    for turn in range(2):
        for number in range(6):
            life.put(A, size=random.choice(SIZES[:2]), group=b"g%d" % (number % 2),
                     priority=random.choice((4, 7)))
        life.put(A, B, group=b"g0")
        life.put(A, group=b"g1", delay_s=3)
        life.commit()
        if turn or random.random() < 0.5:
            life.checkpoint()
        for kind in (DONE, FAIL, DONE):
            given = life.give(A, random.choice((1, 4)))
            life.commit()
            if given:
                life.settle(kind, given)
                life.commit()
        if random.random() < 0.5:
            life.checkpoint()
        life.pass_time(40)
        life.tick()
        life.commit()
        given = life.give(A, 2)
        life.commit()
        if given:
            life.settle(DONE, given)
            life.commit()
    life.checkpoint()


def keys(life: Life, random: Random) -> None:
    """Messages with ids that their queue takes once; some are done, some come again."""
    for turn in range(3):
        for _ in range(4):
            life.put_keyed(f"k{random.randrange(8)}", persistent=random.random() < 0.8)
            if random.random() < 0.5:
                life.commit()
        life.put(A)
        life.commit()
        if turn or random.random() < 0.5:
            life.checkpoint()
        given = life.give(B, 2)
        life.commit()
        if given:
            life.settle(DONE, given)
            life.commit()
        if random.random() < 0.4:
            life.rotate()
    life.checkpoint()


def barriers(life: Life, random: Random) -> None:
    """Barriers whose members are done, fail, are cancelled, deleted or late, over checkpoints; one
    whose time is over; the last one behind another start."""
    for turn in range(2):
        ids = [life.put(queue) for queue in (A, A, B)]
        life.commit()
        life.barrier(ids[:2])
        life.barrier(ids[1:])
        lost = [life.put(B, size=random.choice(SIZES[:2])), life.put(A, expiry_s=2)]
        life.barrier([lost[turn], ids[0]])
        life.commit()
        if turn or random.random() < 0.5:
            life.checkpoint()
        given = life.give(A, random.choice((1, 2)))
        life.commit()
        life.settle(random.choice((DONE, FAIL)), given)
        life.tick()
        life.commit()
        if turn:
            life.pass_time(4)
            life.tick()
        elif random.random() < 0.5:
            life.cancel(lost[0], B)
        else:
            life.operate(Action.DELETE, (lost[0], B))
        life.commit()
        life.barrier(ids[2:], within_s=20)
        life.commit()
        life.pass_time(DEATH_S + 1)
        life.tick()
        life.commit()
        if random.random() < 0.5:
            life.checkpoint()
    member = life.put(B)
    life.barrier([member])
    life.commit()
    life.stop()
    after = Life(life.disk, life.settings, now_ns=life.wall_ns, model=dict(life.model))
    after.settle(DONE, after.give(B, 3))
    after.tick()
    after.commit()
    after.checkpoint()


def _ended(life: Life) -> None:
    """What is on A is done, and its container removed, or kept for the next."""
    for queue in (A, IDEL):
        given = life.give(queue, 3)
        life.commit()
        if given:
            life.settle(DONE, given)
            life.commit()


def recycled(life: Life, random: Random) -> None:
    """Containers that are written over: by a body of their size, a shorter and a longer one; over
    a checkpoint, and over another start."""
    sizes = random.choice(((1500, 1500, 1000), (1000, 1500, 1500), (1500, 1000, 1500)))
    life.put_container(A, sizes[0])
    life.put_container(B, 1000)
    life.commit()
    _ended(life)
    life.put_container(A, sizes[1])
    if random.random() < 0.5:
        life.commit()
        life.checkpoint()
    life.put_container(C, 1500)
    life.commit()
    _ended(life)
    life.put_container(A, sizes[2])
    life.commit()
    if random.random() < 0.5:
        _ended(life)  # one rests
    life.disk.kill()
    after = Life(life.disk, life.settings, model=dict(life.model))
    after.put_container(A, 1000)
    after.commit()


WORKLOADS: Final[dict[str, Callable[[Life, Random], None]]] = {
    "plain": plain, "groups": groups, "checkpoints": checkpoints, "moves": moves,
    "rotation": rotation, "generations": generations, "behind": behind,
    "behind_store": behind_store, "emptied": emptied, "large": large,
    "poison": poison, "restart": restart, "wide": wide, "batches": batches,
    "operators": operators, "archived": archived,
    "units": units, "doubts": doubts, "times": times, "in_groups": in_groups,
    "queues": queues, "keys": keys, "cancels": cancels,
    "cancels_in_work": cancels_in_work, "barriers": barriers, "recycled": recycled}
