"""Clients of a real instance at work with messages of every kind, writing down what they do.

Scenes are played by processes of their own, each with its notebook (recorded.py): they share
nothing but the instance. A kind of message that is new is one more function in SCENES.
"""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import omq
from tests.crash.daemons.world import until
from tests.process.operator_world import WAIT_S, Instance
from tests.process.processes import popen
from tests.spark.recorded import LARGE, Clerk, Notebook, Rules

QUEUES: Final = """[*]
death_delay_s = 0
[A]
[B]
[ERROR]
[LOCAL]
[ORDERS]
[AUDIT]
[REPLIES]
[SHIPPED]
[STORM]
[P]
[Q]
[R]
[LATE]
[DEAD]
[SHORT]
[GROUPS]
[WHOLE]
[PAIRS]
[TIMED]
expired_to = LATE
[RETRY]
attempts_max = 2
retry_delay_ms = 5
retry_backoff = exponential
dead_letter = DEAD
[WEAK]
attempts_max = 1
[HUGE]
[ONCE]
attempts_max = 1
[KEYED]
dedupe_s = 600
[FEW]
in_work_max = 2
key_in_work_max = 1
limit_by = property:customer
"""
RULES: Final = {"TIMED": Rules(expired_to="LATE"), "RETRY": Rules(2, "DEAD"), "WEAK": Rules(1),
                "ONCE": Rules(1)}
Scene = Callable[["Stage"], None]


class Stage:
    """What a scene needs: the instance, and where notes are kept."""

    def __init__(self, live: Instance, folder: Path) -> None:
        self.live, self.folder, self._count = live, folder, 0

    def clerk(self, name: str) -> Clerk:
        """A client of this process."""
        return Clerk(self.live.connect(name), Notebook(self.folder, f"{name}-{os.getpid()}"))

    def played(self, name: str, play: Callable[[Clerk], None], *, dies: bool = False) -> None:
        """By a process of its own, to its end."""
        self.ended(self.begun(name, play), dies=dies)

    def begun(self, name: str, play: Callable[[Clerk], None]) -> int:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                clerk = self.clerk(name)
                play(clerk)
                clerk.connection.close()
                code = 0
            finally:
                os._exit(code)
        return child

    def ended(self, child: int, *, dies: bool = False) -> None:
        _, status = os.waitpid(child, 0)
        if dies:
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        else:
            assert status == 0, status

    def gone(self, qpool: int, queue: str) -> None:
        until(lambda: qpool not in self.live.on(queue), f"{qpool} to leave {queue}", WAIT_S)


def plain_and_wide(stage: Stage) -> None:
    """Priorities, several queues, delays, batches; not persistent ones stay until the manager
    dies."""
    clerk = stage.clerk("plain")
    for priority in (2, 9, 4, 0):
        clerk.put("A", b"x" * (100 * priority + 1), priority=priority)
    clerk.put(["A", "B", "LOCAL"], b"wide", priority=6)
    clerk.put(["A", "B"], b"soft and wide", persistent=False, priority=5)
    clerk.put("B", b"softly later", persistent=False, delay_s=7200)
    clerk.put("B", b"later", delay_s=7200, priority=7)
    clerk.put("B", b"soft", persistent=False)
    clerk.put_many("A", [b"batch %d" % n for n in range(12)])
    with clerk.connection.reader("A", batch=5) as reader:
        for _ in range(3):
            for message in clerk.take(reader, 5):
                clerk.settle(message, "done")
            reader.flush()
    clerk.connection.close()


def moved(stage: Stage) -> None:
    """To one and several queues, with new ones, to a queue that it is on; given back; put off."""
    clerk = stage.clerk("mover")
    for n in range(5):
        clerk.put("LOCAL", b"to be moved %d" % n, priority=3)
    with clerk.connection.reader("LOCAL", batch=1) as reader:
        # the wide one of the scene before comes first
        one, two, three, four, five, six = (clerk.take(reader)[0] for _ in range(6))
        clerk.move(one, ["SHIPPED"])
        t0 = time.time_ns()
        clerk.move(two, ["AUDIT", "SHIPPED"], [omq.Outgoing(b"new beside", queues=("AUDIT",))])
        (new,) = [q for q in stage.live.on("AUDIT") if q > two.qpool_id]
        clerk.born(new, "AUDIT", b"new beside", t0)
        clerk.settle(three, "defer", 7200.0, "not today")
        clerk.settle(four, "release")
        clerk.settle(six, "release")
        clerk.settle(five, "done")
        reader.flush()
        (again,) = clerk.take(reader)
        clerk.settle(again, "done")
        reader.flush()
    clerk.connection.close()


def failing(stage: Stage) -> None:
    """Retries with growing pauses into a dead_letter; at once into POISON; a reader that dies."""
    clerk = stage.clerk("fails")
    clerk.put("RETRY", b"never good")
    clerk.put("WEAK", b"once is enough")
    for queue, times in (("RETRY", 2), ("WEAK", 1)):
        with clerk.connection.reader(queue) as reader:
            for _ in range(times):
                (message,) = clerk.take(reader)
                clerk.settle(message, "fail", "no good")
                reader.flush()
    with clerk.connection.reader("DEAD") as reader:
        (message,) = clerk.take(reader)
        clerk.settle(message, "done")
        reader.flush()
    clerk.put("ERROR", b"kills its reader once", priority=1)

    def dies(mine: Clerk) -> None:
        (found,) = mine.take(mine.connection.reader("ERROR"))
        mine.die(found)

    stage.played("dies", dies, dies=True)
    with clerk.connection.reader("ERROR") as reader:
        (message,) = clerk.take(reader)
        clerk.settle(message, "done")
        reader.flush()
    clerk.connection.close()


def timed(stage: Stage) -> None:
    """Discarded when their time is over, or moved to where time does not count."""
    clerk = stage.clerk("timed")
    t0 = time.time_ns()
    short = clerk.put("SHORT", b"not for long", expiry_s=0.05)
    away = clerk.put("TIMED", b"goes to LATE", expiry_s=0.05, priority=8)
    both = clerk.put(["SHORT", "TIMED"], b"half of it goes", expiry_s=0.05)
    kept = clerk.put("TIMED", b"in time", expiry_s=7200.0, priority=9)
    for qpool, queue in ((short, "SHORT"), (away, "TIMED"), (both, "SHORT"), (both, "TIMED")):
        stage.gone(qpool, queue)
        clerk.notes.write("expire", qpool, queue, t0)
    with clerk.connection.reader("TIMED") as reader:
        (message,) = clerk.take(reader)
        assert message.qpool_id == kept
        clerk.settle(message, "done")
        reader.flush()
    with clerk.connection.reader("LATE") as reader:
        (message,) = clerk.take(reader)
        assert message.qpool_id == away
        clerk.settle(message, "done")
        reader.flush()
    clerk.connection.close()


def in_units(stage: Stage) -> None:
    """Commit: takes from two queues, puts on several. Backout: at its old place; at the limit it
    goes to POISON. A unit whose program dies. A unit that only puts."""
    clerk = stage.clerk("units")
    clerk.put("ORDERS", b"order 1")
    clerk.put("AUDIT", b"audit 1", priority=9)
    with clerk.connection.unit() as unit:
        taken = clerk.take_in(unit, "ORDERS") + clerk.take_in(unit, "AUDIT")
        unit.put("SHIPPED", b"parcel")
        unit.put(["AUDIT", "REPLIES"], b"billed", priority=2)
        t0 = time.time_ns()
    for message, queue in zip(taken, ("ORDERS", "AUDIT"), strict=True):
        clerk.notes.write("done", message.qpool_id, queue, t0)
    clerk.born(number_of_id(unit.ids[0]), "SHIPPED", b"parcel", t0)
    clerk.born(number_of_id(unit.ids[1]), ["AUDIT", "REPLIES"], b"billed", t0, priority=2)
    for queue, body in (("ORDERS", b"order 2"), ("WEAK", b"weak")):
        clerk.put(queue, body)
        unit = clerk.connection.unit()
        (message,) = clerk.take_in(unit, queue)
        unit.put("SHIPPED", b"never was")
        t0 = time.time_ns()
        unit.backout()
        clerk.notes.write("backout", message.qpool_id, queue, t0)

    def dies(mine: Clerk) -> None:
        mine.die(mine.take_in(mine.connection.unit(), "ORDERS")[0])

    stage.played("unit-dies", dies, dies=True)
    with clerk.connection.unit() as unit:
        unit.put("SHIPPED", b"only put")
        t0 = time.time_ns()
    clerk.born(number_of_id(unit.ids[0]), "SHIPPED", b"only put", t0)
    clerk.connection.close()


def in_doubt(stage: Stage) -> None:
    """Units that are prepared: committed, backed out, over the death of the manager; one stays in
    doubt. What a unit puts is there when it is committed, or has never been."""
    clerk = stage.clerk("doubts")
    for name, how in (("first", "commit"), ("second", "backout"), ("third", "dead"),
                      ("fourth", "")):
        clerk.put("PAIRS", name.encode(), priority=3)
        unit = clerk.connection.unit()
        (taken,) = clerk.take_in(unit, "PAIRS")
        t0 = time.time_ns()
        unit.put("SHIPPED", b"if", priority=1)
        unit.put(["PAIRS", "REPLIES"], b"if both", priority=1)
        unit.prepare(name)
        for message_id, queues, body in zip(unit.ids, ("SHIPPED", ["PAIRS", "REPLIES"]),
                                            (b"if", b"if both"), strict=True):
            clerk.born(number_of_id(message_id), queues, body, t0, priority=1)
        clerk.notes.write("prepare", taken.qpool_id, "PAIRS", t0)
        if how == "dead":
            manager_dies(stage)
        t0 = time.time_ns()
        if how == "backout":
            clerk.connection.back_out_unit(name)
        elif how:
            clerk.connection.commit_unit(name)
        ended = {"commit": "commit", "dead": "commit", "backout": "unmade"}.get(how)
        if ended:
            clerk.notes.write("done" if ended == "commit" else "backout", taken.qpool_id, "PAIRS",
                              t0)
            for place, queues in enumerate((["SHIPPED"], ["PAIRS", "REPLIES"])):
                for queue in queues:
                    clerk.notes.write(ended, number_of_id(unit.ids[place]), queue, t0)
    clerk.connection.close()


def grouped(stage: Stage) -> None:
    """Of a group one at a time, so later ones of the same sender come first; whole groups, one that
    fails as a whole."""
    clerk = stage.clerk("groups")
    for body, name in ((b"g1", "g"), (b"g2", "g"), (b"plain", ""), (b"h1", "h"), (b"g3", "g")):
        clerk.put("GROUPS", body, group_id=name)
    with clerk.connection.reader("GROUPS", batch=5) as reader:
        bodies = []
        while messages := clerk.take(reader, 5, 0.0):
            for message in messages:
                bodies.append(message.body)
                clerk.settle(message, "done")
            reader.flush()
    assert sorted(bodies) == [b"g1", b"g2", b"g3", b"h1", b"plain"] and bodies[1] != b"g2"
    for number in (2, 3, 1):
        clerk.put("WHOLE", b"%d" % number, group_id="w", group_sequence=number,
                  last_in_group=number == 3)
    clerk.put("WHOLE", b"never whole", group_id="half", group_sequence=1)
    with clerk.connection.group_reader("WHOLE") as whole:
        for how in ("release", "done"):
            t0 = time.time_ns()
            group = whole.next(WAIT_S)
            assert group is not None and group.body == b"123"
            for each in group:
                clerk.notes.write("give", each.qpool_id, "WHOLE", t0)
            t0 = time.time_ns()
            getattr(group, how)()
            for each in group:
                clerk.notes.write(how, each.qpool_id, "WHOLE", t0)
    clerk.connection.close()


def in_batches(stage: Stage) -> None:
    """A batch that moves by one request: each gives way to new ones, to several, to none."""
    clerk = stage.clerk("batches")
    for n in range(4):
        clerk.put("ORDERS", b"to move %d" % n, priority=7)
    with clerk.connection.reader("ORDERS", batch=4) as reader:
        messages = clerk.take(reader, 4)
        new = [[b"a"], [b"bb", b"ccc"], [], [b"dddd"]]
        before = set(stage.live.on("REPLIES"))
        t0 = time.time_ns()
        reader.move_many([(each, [omq.Outgoing(body, queues=("REPLIES",)) for body in bodies])
                          for each, bodies in zip(messages, new, strict=True)])
        for each in messages:
            clerk.notes.write("done", each.qpool_id, "ORDERS", t0)
        found = sorted(set(stage.live.on("REPLIES")) - before)
        for qpool, body in zip(found, [body for bodies in new for body in bodies], strict=True):
            clerk.born(qpool, "REPLIES", body, t0)
    clerk.connection.close()


def defined(stage: Stage) -> None:
    """Queues made, renamed, emptied and removed while the manager runs, and one that gets the name
    of another that was; a message stays on the queue that it came to, whatever that is called."""
    clerk = stage.clerk("definer")
    queues = clerk.connection.queues
    queues.define("BRIEF")
    queues.define("FORMER")
    gone = [clerk.put("BRIEF", b"cleared %d" % n) for n in range(2)]
    t0 = time.time_ns()
    assert queues.clear("BRIEF") == 2
    for qpool in gone:
        clerk.notes.write("clear", qpool, "BRIEF", t0)
    queues.delete("BRIEF")
    first = clerk.put("FORMER", b"before the change")
    with clerk.connection.reader("FORMER") as reader:
        (message,) = clerk.take(reader)
        assert message.qpool_id == first
        clerk.settle(message, "done")
        reader.flush()
    for n in range(2):
        clerk.put("FORMER", b"stays %d" % n)
    queues.rename("FORMER", "LATTER")
    clerk.notes.write("rename", 0, "FORMER", time.time_ns(), to="LATTER")
    queues.define("FORMER")
    clerk.put("FORMER", b"on another")
    clerk.put("LATTER", b"under its new name")
    for queue, count in (("LATTER", 3), ("FORMER", 1)):
        with clerk.connection.reader(queue) as reader:
            for _ in range(count):
                (message,) = clerk.take(reader)
                clerk.settle(message, "done")
                reader.flush()
    clerk.connection.close()


def asked(stage: Stage) -> None:
    """Requests, some not persistent, and their replies."""
    def serve(mine: Clerk) -> None:
        with mine.connection.reader("ORDERS") as reader:
            answered = 0
            while answered < 2:
                (message,) = mine.take(reader)
                if not message.reply_to:
                    mine.settle(message, "done")
                    reader.flush()
                    continue
                t0 = time.time_ns()
                assert message.reply(b"answer")
                mine.notes.write("done", message.qpool_id, "ORDERS", t0)
                answered += 1

    server = stage.begun("server", serve)
    clerk = stage.clerk("asks")
    for persistent in (True, False):
        t0 = time.time_ns()
        request = clerk.connection.put("ORDERS", b"question", reply_to="REPLIES", priority=8,
                                       persistent=persistent)
        clerk.born(number_of_id(request), "ORDERS", b"question", t0, persistent=persistent,
                   priority=8)
        with clerk.connection.reader("REPLIES") as reader:
            given_t0 = time.time_ns()
            (message,) = reader.next(1, WAIT_S, correlation=request)
            clerk.born(message.qpool_id, "REPLIES", b"answer", t0, persistent=persistent,
                       priority=8)
            clerk.notes.write("give", message.qpool_id, "REPLIES", given_t0)
            clerk.settle(message, "done")
            reader.flush()
    stage.ended(server)
    clerk.connection.close()


def picked(stage: Stage) -> None:
    """Taken by an id, by a selector, and one that was browsed, the last one first; with numbers
    in their properties that are none."""
    clerk = stage.clerk("picks")
    for n in range(3):
        clerk.put("SHIPPED", b"picked", correlation_id=f"p-{n}", properties={
            "region": f"eu-{n}", "share": math.nan, "most": math.inf, "least": -math.inf})
    with clerk.connection.reader("SHIPPED") as reader:
        for how, what in (("correlation", "p-2"), ("where", "region = 'eu-1'")):
            t0 = time.time_ns()
            (message,) = reader.next(1, WAIT_S, **{how: what})
            clerk.notes.write("give", message.qpool_id, "SHIPPED", t0)
            clerk.settle(message, "done")
            reader.flush()
        (row,) = clerk.connection.browse("SHIPPED", where="region = 'eu-0'")
        t0 = time.time_ns()
        taken = reader.take(row)
        assert taken is not None
        clerk.notes.write("give", taken.qpool_id, "SHIPPED", t0)
        clerk.settle(taken, "done")
        reader.flush()
    clerk.connection.close()


def known_by_id(stage: Stage) -> None:
    """Put again under the id that a queue has had; cancelled while it waits and in work, behind
    what its reader says of it; limits of work, of a queue and of keys: a later one comes first."""
    clerk = stage.clerk("ids")
    connection = clerk.connection
    t0 = time.time_ns()
    for _ in range(2):
        connection.put("KEYED", b"once", message_id=b"job-1")
    with connection.reader("KEYED") as reader:
        given_t0 = time.time_ns()
        (message,) = reader.next(2, WAIT_S)
        clerk.born(message.qpool_id, "KEYED", b"once", t0)
        clerk.notes.write("give", message.qpool_id, "KEYED", given_t0)
        clerk.settle(message, "done")
        reader.flush()
        assert reader.next(1, 0.0) == [], "the second one was absorbed"
    ids = []
    for body, customer in ((b"a1", "a"), (b"a2", "a"), (b"b1", "b"), (b"c1", "c")):
        t0 = time.time_ns()
        ids.append(connection.put("FEW", body, properties={"customer": customer}))
        clerk.born(number_of_id(ids[-1]), "FEW", body, t0)
    with connection.reader("FEW", batch=4) as reader:
        first, second = clerk.take(reader, 4)
        assert (first.body, second.body) == (b"a1", b"b1"), "one of a customer, two in all"
        first.touch("half of it")
        t0 = time.time_ns()
        connection.cancel(ids[0], in_work=True)
        clerk.notes.write("release", first.qpool_id, "FEW", t0)
        clerk.notes.write("clear", first.qpool_id, "FEW", t0)
        t0 = time.time_ns()
        connection.cancel(ids[3])
        clerk.notes.write("clear", number_of_id(ids[3]), "FEW", t0)
        clerk.settle(second, "done")
        reader.flush()
        (third,) = clerk.take(reader, 4)
        assert third.body == b"a2"
        clerk.settle(third, "done")
        reader.flush()
    connection.close()


def operated(stage: Stage) -> None:
    """Hold, release, move, delete, undo of it, and back from POISON."""
    clerk, live = stage.clerk("operator"), stage.live
    held, away, lost, back = (clerk.put("B", b"operated %d" % n, priority=1) for n in range(4))

    def order(do: str, qpool: int, queue: str, name: str, *words: str, **more: Any) -> None:
        t0 = time.time_ns()
        said = live.run(name, *words, "--reason", "test", "--yes")
        assert said.code == 0, said
        clerk.notes.write(do, qpool, queue, t0, **more)

    order("hold", held, "B", "omhold", str(held))
    order("free", held, "B", "omrelease", str(held))
    order("move", away, "B", "omqdump", "-e", f"M B SHIPPED --where id={away}",
          onto=["SHIPPED"])
    order("delete", lost, "B", "omqdump", "-e", f"D B --where id={lost}")
    order("delete", back, "B", "omqdump", "-e", f"D B --where id={back}")
    order("move", back, "IDEL", "omqdump", "--undo", str(back), onto=["B"])
    (poisoned, *_) = live.on("POISON")
    order("move", poisoned, "POISON", "omrequeue", str(poisoned), onto=["WEAK"])
    with clerk.connection.reader("WEAK") as reader:
        (message,) = clerk.take(reader)
        assert message.qpool_id == poisoned
        clerk.settle(message, "done")
        reader.flush()
    clerk.connection.close()


def crowded(stage: Stage) -> None:
    """Several processes at once, by chance: two put, two read, one of these dies often."""
    total, dead = 120, 3

    def puts(seed: int) -> Callable[[Clerk], None]:
        def play(mine: Clerk) -> None:
            pick = random.Random(seed)
            for n in range(total // 2):
                mine.put("AUDIT" if n % 3 else ["AUDIT", "SHIPPED"], pick.randbytes(n % 50),
                         priority=pick.choice([4, 4, 9, 1]))
        return play

    def reads(seed: int, *, die_at: int = 0) -> Callable[[Clerk], None]:
        def play(mine: Clerk) -> None:
            pick = random.Random(seed)
            with mine.connection.reader("AUDIT", batch=3) as reader:
                done = 0
                # Who is to die waits for what it dies of, however slow the writers are.
                while found := mine.take(reader, 3, WAIT_S if die_at else 1.0):
                    for message in found:
                        done += 1
                        if done == die_at:
                            reader.flush()
                            mine.die(message)
                        mine.settle(message, pick.choice(["done", "done", "done", "release"]))
                    reader.flush()
        return play

    writers = [stage.begun(f"writer-{n}", puts(n)) for n in range(2)]
    for n in range(dead):
        stage.played(f"mortal-{n}", reads(n, die_at=5 + n), dies=True)
    steady = stage.begun("steady", reads(7))
    for child in [*writers, steady]:
        stage.ended(child)
    stage.played("last", reads(9))


def stormy(stage: Stage) -> None:
    """The manager is killed while clients work."""
    def puts(mine: Clerk) -> None:
        for n in range(80):
            mine.put("STORM", b"storm %d" % n, persistent=n % 4 > 0)

    def reads(mine: Clerk) -> None:
        with mine.connection.reader("STORM", batch=2) as reader:
            while found := mine.take(reader, 2, 1.0):
                for message in found:
                    t0 = time.time_ns()
                    try:
                        message.done()
                        reader.flush()
                    except omq.LeaseLost:
                        continue
                    mine.notes.write("done", message.qpool_id, "STORM", t0)

    writer, reader = stage.begun("storm-puts", puts), stage.begun("storm-reads", reads)
    until(lambda: all(any(path.read_bytes().count(b"\n") > 10 for path in stage.folder.glob(name))
                      for name in ("storm-puts-*", "storm-reads-*")), "the storm", WAIT_S)
    manager_dies(stage)
    stage.ended(writer)
    stage.ended(reader)


def large(stage: Stage) -> None:
    """Bodies that are containers, with every end there is: idel.server, which removes them, is not
    what ended them."""
    clerk = stage.clerk("large")
    body = bytes(LARGE)
    connection = clerk.connection
    done, taken = clerk.put("HUGE", body, priority=9), clerk.put("ORDERS", body, priority=9)
    with connection.reader("HUGE") as reader:
        (message,) = clerk.take(reader)
        clerk.settle(message, "done")
        reader.flush()
    with connection.unit() as unit:
        (message,) = clerk.take_in(unit, "ORDERS")
        assert message.qpool_id == taken
        t0 = time.time_ns()
    clerk.notes.write("done", taken, "ORDERS", t0)
    t0 = time.time_ns()
    short = clerk.put("SHORT", body, expiry_s=0.05)
    stage.gone(short, "SHORT")
    clerk.notes.write("expire", short, "SHORT", t0)
    connection.queues.define("BRIEF")
    cleared = clerk.put("BRIEF", body)
    t0 = time.time_ns()
    assert connection.queues.clear("BRIEF") == 1
    clerk.notes.write("clear", cleared, "BRIEF", t0)
    unit = connection.unit()
    t0 = time.time_ns()
    unit.put("HUGE", body)
    unit.prepare("large")
    undone = number_of_id(unit.ids[0])
    clerk.born(undone, "HUGE", body, t0)
    t0 = time.time_ns()
    connection.back_out_unit("large")
    clerk.notes.write("unmade", undone, "HUGE", t0)
    wide = clerk.put(["HUGE", "ONCE"], body, priority=9)
    for queue, how in (("HUGE", "done"), ("ONCE", "fail")):
        with connection.reader(queue) as reader:
            (message,) = clerk.take(reader)
            assert message.qpool_id == wide
            clerk.settle(message, how)
            reader.flush()
    deleted = clerk.put("B", body)
    t0 = time.time_ns()
    said = stage.live.run("omqdump", "-e", f"D B --where id={deleted}", "--reason", "test", "--yes")
    assert said.code == 0, said
    clerk.notes.write("delete", deleted, "B", t0)
    sweeper = popen("idel.server", stage.live.arguments)
    for qpool in (done, taken, short, cleared, undone):
        stage.gone(qpool, "IDEL")
    sweeper.terminate()
    assert sweeper.wait(WAIT_S) == 0
    connection.close()


def manager_dies(stage: Stage) -> None:
    """And with it all that is not persistent."""
    notes = Notebook(stage.folder, "driver")
    stage.live.kill()
    notes.write("manager", 0, "", time.time_ns())
    stage.live.start()


def number_of_id(message_id: str) -> int:
    return int(message_id[32:], 16)


SCENES: Final[tuple[Scene, ...]] = (
    plain_and_wide, moved, failing, timed, in_units, picked, known_by_id, operated, asked, crowded,
    grouped, in_batches, in_doubt, defined, large, manager_dies, stormy)
