"""A message that waits can be cancelled by its id, by who put it or by an operator, and nobody
else; the state of a message says why a reader is not given it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

import omq
from omq import aio
from omq.base.errors import (
    BadArgument,
    MessageBusy,
    NoMessage,
    NotInState,
)
from omq.cli import launch
from omq.ipc.client.operator import Operator
from tests.process.instance import MANAGER, QUEUES, WRITER, Instance
from tests.process.processes import start
from tests.process.trust_world import (
    CLIENTS,
    MEMBER,
    OPERATOR,
    OPERATORS,
    TrustInstance,
    trust_instance,
)
from tests.waiting import until

STRANGER = MEMBER + 7


def on(connection: omq.Connection, queue: str) -> list[bytes]:
    return [row.body for row in connection.browse(queue)]


def hold(connection: omq.Connection, message_id: str, queue: str = "A") -> None:
    done = Operator(connection, "test").hold([(int(message_id[32:], 16), queue, 0)])  # type: ignore[arg-type]
    assert not done.refused


def test_what_waits_can_be_cancelled_in_every_state(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        ready, later, held = c.put("A", b"ready"), c.put("A", b"later", delay_s=3600), c.put("A")
        hold(c, held)
        deferred = c.put("B", b"deferred")
        with c.reader("B") as reader:
            reader.next(1, 10)[0].defer(3600)
        named = c.put("B", b"named", message_id="order-7", delay_s=3600)
        assert [c.state(each)[0].state for each in (ready, later, held, deferred, named)] == [
            "ready", "deferred", "held", "deferred", "deferred"]
        for each in (ready, later, held, deferred, "order-7"):
            c.cancel(each)
            for ask in (c.cancel, c.state):
                with pytest.raises(NoMessage):
                    ask(each)
        assert on(c, "A") == on(c, "B") == []
        assert named == "order-7"


def test_it_leaves_all_of_its_queues_or_none(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("worker") as worker:
        both = c.put(["A", "B"], b"both")
        reader = worker.reader("A")
        (message,) = reader.next(1, 10)
        with pytest.raises(MessageBusy, match="worker"):
            c.cancel(both)
        assert {each.queue: (each.state, each.reader) for each in c.state(both)} == {
            "A": ("active", f"worker[{os.getpid()}]"), "B": ("ready", "")}
        message.release()
        reader.flush()
        c.cancel(both)
        assert on(c, "A") == on(c, "B") == []
        taken = c.put("A", b"taken")
        (message,) = reader.next(1, 10)
        message.done()
        reader.flush()
        with pytest.raises(NoMessage):
            c.cancel(taken)


def test_a_unit_in_doubt_keeps_its_messages(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        took = c.put("A", b"order")
        unit = c.unit()
        unit.get("A", 10)
        unit.put("B", b"invoice")
        with omq_instance.connect("other") as other, pytest.raises(MessageBusy):
            other.cancel(took)
        unit.prepare("ledger")
        for each in (took, unit.ids[0]):
            with pytest.raises(NotInState, match="in doubt"):
                c.cancel(each)
            assert c.state(each)[0].state == "prepared"
        unit.commit()
        c.cancel(unit.ids[0])
        assert on(c, "B") == []


def test_the_id_is_an_id(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        for wrong in ("", b"", bytes(24), 7, None, "x" * 25):
            for ask in (c.cancel, c.state):
                with pytest.raises(BadArgument):
                    ask(wrong)  # type: ignore[arg-type]
        c.put("A", b"given", message_id="given")
        made = c.put("A", b"made")
        with pytest.raises(NoMessage):  # a number that another id has
            c.cancel(made[:32] + f"{int(made[32:], 16) - 1:016x}")
        assert on(c, "A") == [b"given", b"made"]


def test_several_with_one_id_go_together(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("worker") as worker:
        for queue in ("A", "B"):
            c.put(queue, queue.encode(), message_id="twice")
        reader = worker.reader("B")
        (message,) = reader.next(1, 10)
        with pytest.raises(MessageBusy):
            c.cancel("twice")
        assert on(c, "A") == [b"A"]
        message.release()
        reader.flush()
        c.cancel("twice")
        assert on(c, "A") == on(c, "B") == []


@pytest.mark.parametrize("checkpointed", [True, False])
def test_cancelled_once_over_the_death_of_the_manager(
        omq_instance: Instance, checkpointed: bool) -> None:  # noqa: FBT001
    """The right outlives it: who put a message is in its frame, and in its pool record. The answer
    that was lost is that of the cancel, not of a second one."""
    omq_instance.start(MANAGER, WRITER) if checkpointed else omq_instance.start(MANAGER)
    with omq_instance.connect() as c:
        kept = c.put("A", b"kept", delay_s=3600)
        gone = [c.put("A", b"gone", delay_s=3600) for _ in range(30)]
    omq_instance.kill(MANAGER)

    def cancel() -> int:
        with omq_instance.connect("again") as again:
            for each in gone:
                again.cancel(each)
        return 0

    victim = omq_instance.start(MANAGER, fault="journal.after_sync:kill:12")
    canceller = start("canceller", cancel, output=omq_instance.output)
    assert victim.wait() == -signal.SIGKILL
    omq_instance.start(MANAGER)
    assert canceller.wait() == 0, omq_instance.said()
    with omq_instance.connect() as c:
        assert on(c, "A") == [b"kept"]
        for each in gone:
            with pytest.raises(NoMessage):
                c.cancel(each)
        assert c.state(kept)[0].state == "deferred"


def test_a_cancelled_large_body_leaves_nothing(omq_instance: Instance) -> None:
    omq_instance.start(MANAGER, "idel.server")
    with omq_instance.connect() as c:
        large = c.put("A", b"x" * 3_000_000, delay_s=3600)
        c.cancel(large)
        until(lambda: not [each for _, _, files in os.walk(omq_instance.paths.data)
                           for each in files], omq_instance.said)


def test_the_journal_says_who(omq_instance: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        gone = c.put("A", b"gone")
        c.cancel(gone)
    capfd.readouterr()
    assert launch.run("omqlog", ["--message", gone, "--spool", str(omq_instance.root)]) == 0
    told = capfd.readouterr().out
    assert "deleted" in told and f"cancel {gone}" in told, told


def test_in_a_shell(omq_instance: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    omq_instance.start()

    def run(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = launch.run("omq", ["cancel", *words, "--spool", str(omq_instance.root)])
        return code, *capfd.readouterr()

    with omq_instance.connect() as c, omq_instance.connect("worker") as worker:
        c.put("A", b"in work", message_id="busy")
        worker.reader("A").next(1, 10)
        c.put("A", b"ready", message_id="order-7")
        c.put("B", b"later", message_id="order-8", delay_s=3600)
        assert run("--state", "order-7", "busy") == (
            0, f"order-7 A: ready\nbusy A: active by worker[{os.getpid()}]\n", "")
        code, out, _ = run("--state", "order-8")
        assert code == 0 and out.startswith("order-8 B: deferred until 2")
        code, out, err = run("order-7", "busy", "order-8")
        assert (code, out) == (75, "order-7 is cancelled\n") and "worker" in err
        assert run("order-8")[:2] == (0, "order-8 is cancelled\n")
        assert run("order-8")[0] == 1
        assert on(c, "B") == []


def test_asyncio(omq_instance: Instance) -> None:
    omq_instance.start()

    async def work() -> None:
        async with aio.connect(omq_instance.root) as c:
            gone = await c.put("A", b"gone", delay_s=3600)
            (place,) = await c.state(gone)
            assert (place.queue, place.state) == ("A", "deferred")
            await c.cancel(gone)
            with pytest.raises(NoMessage):
                await c.state(gone)

    asyncio.run(work())


@pytest.fixture
def trusting() -> Iterator[TrustInstance]:
    with trust_instance() as made:
        yield made


@pytest.mark.parametrize("restarted", [True, False])
def test_who_put_it_and_operators_alone(
        trusting: TrustInstance, restarted: bool) -> None:  # noqa: FBT001
    """A foreigner learns nothing: the same error as of what is not there. Messages come by each way
    of putting, and to places in the index that others had before."""
    (trusting.conf / "authority.conf").write_text(
        f"[A]\nuser:{MEMBER} = put\nuser:{STRANGER} = put\nuser:{OPERATOR} = admin\n")
    trusting.start()
    noted = trusting.root.parent / "ids"
    noted.touch()
    noted.chmod(0o666)

    def put() -> None:
        with trusting.connect("member") as c:
            for each in [c.put("A", b"early"), *c.put_many("A", [b"early"] * 20)]:
                c.cancel(each)
            late = [c.put("A", b"late", delay_s=3600), c.put("A", b"another", delay_s=3600)]
            c.put("A", b"named", message_id="named")
            c.cancel("named")
            c.put("A", b"named", message_id="named")
            noted.write_text("\n".join([*late, c.put("A", b"plain"),
                                        *c.put_many("A", [b"many"] * 20)]))

    def foreign() -> None:
        with trusting.connect("stranger") as c:
            said = []
            for each in (*own, theirs, theirs[:32] + "00000000000fffff", "no such"):
                for ask in (c.cancel, c.state):
                    with pytest.raises(NoMessage) as caught:
                        ask(each)
                    said.append(str(caught.value))
            assert len(set(said)) == 1
            c.put("A", b"mine", delay_s=3600, message_id="named")
            c.cancel("named")  # his own alone

    def cancel_own() -> None:
        with trusting.connect("again") as c:
            for each in own:
                c.cancel(each)
            with pytest.raises(NoMessage):
                c.cancel(theirs)

    def operate() -> None:
        with trusting.connect("operator") as c:
            c.cancel(other)

    with trusting.connect("root") as c:
        for each in c.put_many("A", [b"early"] * 20):
            c.cancel(each)
    trusting.as_user(MEMBER, put)
    late, other, *more = noted.read_text().split("\n")
    own = (late, "named", *more)
    with trusting.connect("root") as c:
        theirs = c.put("A", b"root's", delay_s=3600)
        if restarted:
            trusting.kill(MANAGER)
            trusting.start()
        trusting.as_user(STRANGER, foreign)
        assert len(on(c, "A")) == 25
        trusting.as_user(MEMBER, cancel_own)
        assert sorted(on(c, "A")) == [b"another", b"root's"]
        trusting.as_user(OPERATOR, operate, (CLIENTS, OPERATORS))
        assert on(c, "A") == [b"root's"]


def test_on_poison_it_is_the_operators(trusting: TrustInstance) -> None:
    """Also of who put it, and even where everybody may put."""
    (trusting.conf / "authority.conf").write_text(
        f"[A]\nuser:{MEMBER} = put get\n[POISON]\nuser:{MEMBER} = put\n")
    trusting.queues(QUEUES.replace("attempts_max = 200", "attempts_max = 1"))
    trusting.start()

    def fail() -> None:
        with trusting.connect("member") as c:
            failed = c.put("A", b"failed")
            with c.reader("A") as reader:
                reader.next(1, 10)[0].fail("never")
                reader.flush()
            with pytest.raises(NoMessage):
                c.cancel(failed)

    trusting.as_user(MEMBER, fail)
    with trusting.connect("root") as c:
        assert on(c, "POISON") == [b"failed"]


def test_an_id_that_is_remembered_stays_so(omq_instance: Instance) -> None:
    """Its memory is not the message, and is not cancelled with it."""
    omq_instance.queues(QUEUES.replace("[A]", "[A]\ndedupe_s = 3600"))
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"once", unique_key="once", delay_s=3600)
        c.cancel("once")
        with pytest.raises(NoMessage):
            c.cancel("once")
        c.put("A", b"once more", unique_key="once")  # absorbed
        assert on(c, "A") == []
