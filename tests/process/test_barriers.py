"""Barriers of programs: ready once when all is done, whoever dies in between; failed with a reason;
and what Python, asyncio, units, workers and commands do with them."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

import omq
from omq import aio
from omq.base.errors import (
    BadArgument,
    BadRequest,
    MemberFailed,
    NotMember,
    OmqError,
    TooManyMembers,
    UnitEnded,
)
from omq.base.limits import BARRIER_MEMBERS_MAX
from omq.cli import launch
from omq.ipc.client.barriers import as_barrier
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S

QUEUES = "[*]\ndeath_delay_s = 0\nattempts_max = 1\n\n[A]\n\n[B]\ndead_letter = C\n\n[C]\n"


@pytest.fixture
def running(omq_instance: Instance) -> Instance:
    omq_instance.queues(QUEUES)
    omq_instance.start(MANAGER, WRITER)
    return omq_instance


def work(c: omq.Connection, queue: str, count: int = 1, *, fail: bool = False) -> list[bytes]:
    """Take and end so many; their bodies."""
    out: list[bytes] = []
    with c.reader(queue) as reader:
        while len(out) < count:
            came = reader.next(count - len(out), WAIT_S)
            assert came, f"nothing more on {queue} after {out}"
            for message in came:
                out.append(message.body)
                message.fail("no such parcel") if fail else message.done()
        reader.flush()
    return out


def ready(c: omq.Connection, queue: str) -> list[bytes]:
    with c.reader(queue) as reader:
        found = []
        for message in reader.next(100, 0.0):
            found.append(message.body)
            message.release()
    return found


@pytest.mark.parametrize("batch", [3, 40])
def test_it_comes_when_all_are_done(running: Instance, batch: int) -> None:
    with running.connect() as c:
        ids = c.put_many("A", [b"%d" % i for i in range(batch)])
        other = c.put_many("A", [b"other"] * 5)
        own = c.barrier("B", ids, b"report", properties={"kind": "all"})
        assert c.state(own)[0].waits_for == batch
        with c.reader("A", batch=batch) as reader:
            messages = reader.next(batch, 30)
            assert len(messages) == batch
            for message in messages[1:]:
                message.done()
            reader.flush()
            assert c.state(own)[0].waits_for == 1
            with running.connect("look") as looks:
                assert ready(looks, "B") == []
            messages[0].done()
            reader.flush()
        with c.reader("B") as reader:
            (report,) = reader.next(1, 30)
            assert (report.body, report.properties["kind"]) == (b"report", "all")
            report.done()
        assert len(other) == 5 and len(work(c, "A", 5)) == 5


def test_once_over_the_deaths_of_the_manager(running: Instance) -> None:
    with running.connect() as c:
        ids = [c.put("A", b"%d" % i) for i in range(12)]
        own = c.barrier("B", ids, b"report")
        for _ in range(4):
            work(c, "A", 3)
            running.kill()
            running.start()
        assert work(c, "B") == [b"report"]
        running.kill(MANAGER, WRITER)
        running.start(MANAGER, WRITER)
        assert ready(c, "B") == []
        with pytest.raises(OmqError):
            c.state(own)


def test_a_member_that_fails_too_often_fails_it(running: Instance) -> None:
    with running.connect() as c:
        bad, good = c.put("A", b"bad"), c.put("A", b"good")
        c.barrier("B", [bad, good], b"report")
        work(c, "A", fail=True)
        with c.reader("C") as reader:
            (report,) = reader.next(1, 30)
            assert report.body == b"report"
            assert report.failure is not None and bad in report.failure.reason
            report.done()
        assert work(c, "A") == [b"good"]
        with pytest.raises(MemberFailed):
            c.barrier("B", [bad])


@pytest.mark.parametrize("in_work", [False, True])
def test_a_member_that_is_cancelled_fails_it(running: Instance, *, in_work: bool) -> None:
    with running.connect() as c, running.connect("worker") as works, works.reader("A") as reader:
        member = c.put("A", b"member")
        own = c.barrier("B", [member], b"report")
        if in_work:
            assert len(reader.next(1, 30)) == 1
        c.cancel(member, in_work=in_work)
        assert [place.queue for place in c.state(own)] == ["C"]
        work(c, "C")


def test_a_member_that_expires_fails_it(running: Instance) -> None:
    """In one step: a member that has left before is not waited for, whatever it ended by."""
    with running.connect() as c:
        with c.unit() as unit:
            unit.put("A", b"member", expiry_s=0.05)
            unit.barrier("B", b"report")
        assert work(c, "C") == [b"report"]


def test_its_time_is_over(running: Instance) -> None:
    with running.connect() as c:
        c.barrier("B", [c.put("A", b"member")], b"report", within_s=0.05)
        with c.reader("C") as reader:
            (report,) = reader.next(1, 30)
            assert report.failure is not None and "in time" in report.failure.reason
            report.done()
        work(c, "A")


def test_a_unit_puts_members_and_barrier_in_one_step(running: Instance) -> None:
    with running.connect() as c, running.connect("worker") as works:
        with c.unit() as unit:
            for number in range(3):
                unit.put("A", b"%d" % number)
            unit.barrier("B", b"report")
        assert len(unit.ids) == 4
        assert work(works, "A", 2) == [b"0", b"1"]
        assert c.state(unit.ids[3])[0].waits_for == 1
        work(works, "A")
        assert work(works, "B") == [b"report"]
        with c.unit() as unit, pytest.raises(BadArgument):
            unit.barrier("B", b"of nothing")
        unit = c.unit()
        unit.put("A", b"x")
        unit.barrier("B", b"report")
        with pytest.raises(BadRequest):
            unit.prepare("two phases")
        unit.backout()
        with pytest.raises(UnitEnded):
            unit.barrier("B")
        assert ready(c, "A") == ready(c, "B") == []


def test_asyncio(running: Instance) -> None:
    async def run() -> None:
        async with await aio.connect(running.root) as c:
            ids = await asyncio.gather(*(c.put("A", b"%d" % i) for i in range(5)))
            await c.barrier("B", ids, b"report", within_s=600)
            async with c.unit() as unit:
                await unit.put("A", b"5")
                await unit.barrier("C", b"second")
            async with c.reader("A", batch=6) as reader:
                async for message in itertools_of(reader, 6):
                    await message.done()
            for queue, body in (("B", b"report"), ("C", b"second")):
                async with c.reader(queue) as reader:
                    async for message in itertools_of(reader, 1):
                        assert message.body == body
                        await message.done()

    async def itertools_of(reader: aio.AsyncReader, count: int):  # type: ignore[no-untyped-def]
        for _ in itertools.repeat(None, count):
            yield await anext(aiter(reader))

    asyncio.run(run())


def test_ids_that_programs_gave(running: Instance) -> None:
    with running.connect() as c:
        given = c.put("A", b"member", message_id="order-4711")
        own = c.barrier("B", [given], b"report", message_id="report-1")
        assert c.state("report-1")[0].waits_for == 1 and own == c.put(
            "A", b"x", message_id="report-1")
        work(c, "A", 2)
        assert work(c, "B") == [b"report"]
        c.barrier("B", ["order-4711"], b"again")  # it has ended
        assert work(c, "B") == [b"again"]


def test_bad_input(running: Instance) -> None:
    with running.connect() as c:
        member = c.put("A", b"member")
        wrong: list[Any] = [[], member, [""], [7]]
        for members in wrong:
            with pytest.raises(BadArgument):
                c.barrier("B", members)
        for within_s in (0.0, -1.0):
            with pytest.raises(BadArgument):
                c.barrier("B", [member], within_s=within_s)
        prefix = member[:-16]
        with pytest.raises(NotMember):
            c.barrier("B", [prefix + f"{1 << 60:016x}"])
        with pytest.raises(NotMember):
            c.barrier("B", [c.put("A", b"loose", persistent=False)])
        with pytest.raises(TooManyMembers):
            c.barrier("B", [prefix + f"{each:016x}"
                            for each in range(1, BARRIER_MEMBERS_MAX + 2)])
        batch, wire = [omq.Outgoing(b"batch")] * 2, c._wire
        rows = [wire.encode(batch[0], ("B",)), as_barrier(wire.encode(batch[1], ("B",)))]
        with pytest.raises(BadRequest, match="a barrier is put alone"):
            wire.put_batch(wire.queue_number("B"), rows, batch)
        assert ready(c, "B") == []
        work(c, "A", 2)


def test_commands(running: Instance, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_bytes(b"report")
    spool = ["--spool", str(running.root), "--conf", str(running.conf)]

    def say(*argv: str) -> str:
        assert launch.run(argv[0], list(argv[1:])) == 0, capfd.readouterr().err
        return capfd.readouterr().out.strip()

    with running.connect() as c:
        first, second = c.put("A", b"1"), c.put("A", b"2")
        own = say("omsend", *spool, "B", str(report), "--when-done", first, "--when-done", second,
                  "--within", "600", "--property", "kind=all")
        assert "waits for 2 messages" in say("omq", "cancel", *spool, "--state", own)
        assert "waits until other messages are done" in say("omqwhy", *spool, own)
        work(c, "A", 2)
        with c.reader("B") as reader:
            (found,) = reader.next(1, 30)
            assert found.properties["kind"] == "all"
            found.done()
    for wrong in (["--within", "5"], ["--when-done", first, "--defer", "5"]):
        assert launch.run("omsend", [*spool, "B", str(report), *wrong]) != 0
        capfd.readouterr()
