"""Units of work over the client: all or nothing, over the death of the manager and of the program,
and what is no unit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

import omq
from omq.base import errors
from omq.cli import launch
from omq.format import message as message_format
from omq.ipc.client import ids_asked as wish_module
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S

POINTS = {
    "journal.before_write": 40, "journal.after_write": 40, "journal.before_sync": 40,
    "journal.after_sync": 40, "journal.before_rotate": 1, "engine.before_append": 60,
    "engine.after_append": 60, "engine.before_reply": 60, "engine.after_reply": 60,
    "engine.before_hand_out": 20,
}
"""Where the manager dies with a unit open, or under commit, and at which visit."""


def bodies(instance: Instance, queue: str) -> list[bytes]:
    return sorted(message.body for message in instance.drain(queue))


def depth(c: omq.Connection, queue: str) -> int:
    return len(list(c.browse(queue)))


def test_the_history_of_a_unit(omq_instance: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    """What a unit made is told with what it took; units that only put make nobody's children."""
    omq_instance.start()
    with omq_instance.connect() as c:
        ids = c.put_many("A", [b"1", b"2"])
        with c.unit() as unit:
            assert len(unit.next("A", 2)) == 2
            unit.put("B", b"3", message_id="made")
        with c.unit() as alone:
            alone.put("C", b"x", message_id="first")
            alone.put("C", b"y", message_id="second")
        with pytest.raises(KeyError), c.unit() as backed_out:
            assert backed_out.get("B", 0) is not None
            raise KeyError
        numbers = {row.message_id: row.qpool_id for row in (*c.browse("B"), *c.browse("C"))}
    made, second = numbers["made"], numbers["second"]
    for option, told, known, other in (
            ("--message", "made", "made of 1", f"QPoolId {second}"),
            ("--message", "made", "backed out on B: unit of work backed out", "none"),
            ("--mail", ids[0], f"(QPoolId {made})", f"QPoolId {second}"),
            ("--mail", ids[1], f"(QPoolId {made})", f"QPoolId {second}"),
            ("--mail", "first", "put on C", f"QPoolId {second}")):
        capfd.readouterr()
        assert launch.run("omqlog", [option, told, "--spool", str(omq_instance.root)]) == 0
        said = capfd.readouterr().out
        assert known in said and other not in said, said


def test_several_queues_one_commit(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("looks") as other:
        c.put("A", b"a")
        c.put("B", b"b")
        with c.unit() as unit:
            first, second = unit.get("A"), unit.get("B")
            assert first is not None and second is not None
            assert (first.body, first.queue, second.body, second.queue) == (b"a", "A", b"b", "B")
            unit.put("C", first.body + second.body, message_id="sum")
            unit.put(["A", "C"], b"both", priority=9)
            assert depth(other, "C") == 0  # not committed: nobody sees it
            assert unit.get("A", timeout_s=0) is None
        assert not unit.open and unit.ids[0] == "sum"
        assert [row.message_id for row in c.browse("C")] == [unit.ids[1], "sum"]
    assert bodies(omq_instance, "C") == [b"ab", b"both"]
    assert bodies(omq_instance, "A") == [b"both"]
    assert bodies(omq_instance, "B") == []


def test_one_sync_for_a_unit(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"%d" % i for i in range(50)])
        with c.unit() as unit:
            assert len(unit.next("A", 50)) == 50
            for i in range(50):
                unit.put("B", b"%d" % i)
            before = c.control({"op": "status"})["counters"]
        after = c.control({"op": "status"})["counters"]
        assert after["syncs"] - before["syncs"] == 1
        assert after["units_committed"] - before["units_committed"] == 1


def test_leaving_by_an_exception_backs_out(omq_instance: Instance) -> None:
    """At once, at the old place, the attempt counted."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"1", b"2", b"3"])
        with pytest.raises(ZeroDivisionError), c.unit() as unit:
            assert [message.body for message in unit.next("A", 2)] == [b"1", b"2"]
            unit.put("B", b"never")
            raise ZeroDivisionError
        rows = list(c.browse("A"))
        assert [(row.body, row.attempts, row.state.name) for row in rows] == [
            (b"1", 1, "READY"), (b"2", 1, "READY"), (b"3", 0, "READY")]
        assert depth(c, "B") == 0
        with c.unit() as unit:
            again = unit.get("A", 0)
            assert again is not None and again.redelivered and again.body == b"1"
            unit.backout()
            with pytest.raises(errors.UnitEnded):
                unit.commit()


def test_a_backout_at_the_limit_poisons(omq_instance: Instance) -> None:
    omq_instance.queues("[*]\nattempts_max = 2\n\n[A]\n")
    omq_instance.start()
    with omq_instance.connect() as c:
        sick = c.put("A", b"sick")
        for _ in range(2):
            with c.unit() as unit:
                assert unit.get("A", timeout_s=WAIT_S) is not None
                unit.backout()
        assert [row.message_id for row in c.browse("POISON")] == [sick]


def test_a_large_unit(omq_instance: Instance) -> None:
    """More than a block of a group, and than a request: 1,200 messages in, 1,200 out."""
    omq_instance.settings(journal_file_bytes=4 << 20, block_bytes_max=384 << 10)
    omq_instance.start(MANAGER, WRITER)
    with omq_instance.connect() as c:
        c.put_many("A", [b"%04d" % i for i in range(1200)])
        with c.unit() as unit:
            got = [*unit.next("A", 1000), *unit.next("A", 200)]
            assert len(got) == 1200
            for message in got:
                unit.put("B", message.body + b"-" * 800)
        assert len(set(unit.ids)) == 1200
        assert depth(c, "A") == 0
    omq_instance.kill()
    omq_instance.start()
    assert [body[:4] for body in bodies(omq_instance, "B")] == [b"%04d" % i for i in range(1200)]


def test_what_does_not_fit_is_refused_by_its_name(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        with pytest.raises(errors.UnitTooLarge, match="unit_bytes_max"), c.unit() as unit:
            for _ in range(100):
                unit.put("A", b"x" * 20_000)
        assert not unit.open and depth(c, "A") == 0
        with c.unit() as unit:
            unit.put("A", b"good")


def test_a_refused_commit_leaves_the_unit_open(omq_instance: Instance) -> None:
    omq_instance.queues("[*]\n\n[A]\n\n[B]\nmax_depth = 2\n")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"1")
        unit = c.unit()
        assert unit.get("A", 0) is not None
        for _ in range(3):
            unit.put("B", b"x")
        with pytest.raises(omq.QueueFull):
            unit.commit()
        assert unit.open and depth(c, "B") == 0
        with pytest.raises(omq.QueueFull):
            unit.commit()
        unit.backout()
        assert [row.attempts for row in c.browse("A")] == [1]


def test_wrong_uses(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"1")
        with c.unit() as unit:
            message = unit.get("A", 0)
            assert message is not None
            for end in (message.done, message.fail, message.release, lambda: message.defer(1),
                        lambda: message.move("B")):
                with pytest.raises(errors.MessageInUnit):
                    end()
            with pytest.raises(errors.UnitOpen):
                c.unit()
            with pytest.raises(errors.UnitOpen):
                c.reader("A")
            with pytest.raises(omq.BadArgument):
                unit.next("A", 0)
            with pytest.raises(omq.UnknownQueue):
                unit.get("NOWHERE", 0)
            with pytest.raises(omq.BadArgument):
                unit.put("A", "text")  # type: ignore[arg-type]
        for use in (unit.commit, unit.backout, lambda: unit.get("A", 0), lambda: unit.put("A")):
            with pytest.raises(errors.UnitEnded, match="committed"):
                use()
        with c.reader("B"), pytest.raises(errors.UnitOpen):
            c.unit()
        with c.unit() as empty:
            pass
        assert empty.ids == []


def test_a_request_leaves_nothing_open(omq_instance: Instance) -> None:
    """What a request reads its reply with is no reader of the program's."""
    omq_instance.queues("[*]\n\n[A]\n\n[REPLIES]\n")
    omq_instance.start()
    with omq_instance.connect() as c:
        with pytest.raises(omq.NoReply):
            c.request("A", b"?", timeout_s=0)
        with c.unit() as unit:
            unit.put("A", b"x")
        with pytest.raises(omq.NoReply):
            c.request("A", b"?", timeout_s=0)


def test_a_lease_in_a_unit_can_be_renewed(omq_instance: Instance) -> None:
    omq_instance.queues("[*]\nlease_s = 3600\n\n[A]\n")
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"1")
        with c.unit() as unit:
            message = unit.get("A", 0)
            assert message is not None
            message.touch()
        with pytest.raises(errors.UnitEnded):
            message.touch()
        with c.unit() as unit:
            assert unit.get("A", 0) is None


def test_closing_the_connection_backs_out(omq_instance: Instance) -> None:
    omq_instance.start()
    c = omq_instance.connect()
    c.put("A", b"1")
    unit = c.unit()
    assert unit.get("A", 0) is not None
    c.close()
    assert not unit.open
    with omq_instance.connect() as other:
        assert [(row.attempts, row.state.name) for row in other.browse("A")] == [(1, "READY")]


def test_the_death_of_the_program_backs_out(omq_instance: Instance) -> None:
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"1", b"2"])
        program = subprocess.run([sys.executable, "-c", f"""
import os, signal, omq
unit = omq.connect({str(omq_instance.root)!r}).unit()
assert len(unit.next("A", 2)) == 2
unit.put("B", b"never")
os.kill(os.getpid(), signal.SIGKILL)
"""], check=False, timeout=WAIT_S)
        assert program.returncode == -signal.SIGKILL
        with c.unit() as unit:
            got = [unit.get("A", WAIT_S), unit.get("A", WAIT_S)]
            assert [message and message.attempts for message in got] == [1, 1]
            assert unit.get("B", 0) is None


def test_a_restart_says_what_was_under_way(omq_instance: Instance) -> None:
    """The unit is told that it is over, and what it took is there again at once."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"1", b"2", b"3"])
        unit = c.unit()
        assert len(unit.next("A", 2)) == 2
        unit.put("B", b"never")
        omq_instance.kill()
        omq_instance.start()
        with pytest.raises(errors.UnitBackedOut):
            unit.commit()
        assert not unit.open
        assert omq_instance.events(1304)[-1]["handed_out"] == 2
        assert [(row.attempts, row.state.name) for row in c.browse("A")] == [
            (1, "READY"), (1, "READY"), (0, "READY")]
        assert depth(c, "B") == 0


def test_a_signal_ends_a_wait(omq_instance: Instance) -> None:
    """What the manager hands out then, nobody knows of: it is given back with the unit."""
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("puts") as other:
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt), c.unit() as unit:
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                unit.get("A")
        finally:
            signal.signal(signal.SIGALRM, before)
        other.put("A", b"1")
        with c.unit() as unit:
            message = unit.get("A", timeout_s=WAIT_S)
            assert message is not None and message.body == b"1"


def test_a_large_body_is_part_of_a_unit(omq_instance: Instance) -> None:
    """Its container is there after the commit, and gone after a backout."""
    omq_instance.start()
    large = os.urandom(300_000)
    with omq_instance.connect() as c:
        with c.unit() as unit:
            unit.put("A", large)
        with c.unit() as unit:
            unit.put("A", large)
            unit.backout()
        files = [path for path in (omq_instance.root / "data").rglob("*") if path.is_file()]
        assert len(files) == 1
        (row,) = c.browse("A")
        assert row.body == large


TRANSFERS = """
import sys, omq
from omq.base.errors import UnitBackedOut
done = 0
with omq.connect(sys.argv[1], name="transfers") as c:
    while done < int(sys.argv[2]):
        try:
            with c.unit() as unit:
                message = unit.get("A", timeout_s=120)
                if message is None:
                    continue
                unit.put("B", message.body + b"." * 3000)
                unit.put(["B", "C"], message.body)
            done += 1
            print(*unit.ids, sep="\\n", flush=True)
        except UnitBackedOut:
            continue
"""
"""Units that take from A and put on B and C until all is there; each backed out one again."""
PUTS = """
import sys, omq
with omq.connect(sys.argv[1], name="puts") as c:
    for _ in range(int(sys.argv[2])):
        with c.unit() as unit:
            for i in range(200):
                unit.put("A", b"%03d" % i + b"x" * 2000)
        print(*unit.ids, sep="\\n", flush=True)
"""
"""Units of several requests that only put."""


def worker(instance: Instance, program: str, times: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, str(instance.root), str(times)],
                            stdout=subprocess.PIPE, text=True)


def told(program: subprocess.Popen[str]) -> list[str]:
    """The ids that it was told."""
    out, _ = program.communicate(timeout=WAIT_S)
    assert program.returncode == 0
    return out.split()


@pytest.mark.cases
@pytest.mark.parametrize("point", POINTS)
def test_the_manager_dies(omq_instance: Instance, point: str) -> None:
    """Each message of A becomes one of B and one of B and C, exactly once."""
    omq_instance.settings(journal_file_bytes=1 << 18, block_bytes_max=160 << 10,
                          channel_bytes=1 << 19, container_threshold_bytes=68 << 10)
    wanted = [b"%03d" % i for i in range(60)]
    omq_instance.start(WRITER)
    victim = omq_instance.start(fault=f"{point}:kill:{POINTS[point]}")
    with omq_instance.connect() as c:
        c.put_many("A", wanted)
    program = worker(omq_instance, TRANSFERS, len(wanted))
    assert victim.wait() == -signal.SIGKILL
    omq_instance.start()
    ids = told(program)
    assert len(omq_instance.fired()) == 1
    with omq_instance.connect() as c:
        assert depth(c, "A") == 0
        assert sorted(ids) == sorted(row.message_id for row in c.browse("B"))
    assert bodies(omq_instance, "C") == wanted
    assert bodies(omq_instance, "B") == sorted([*wanted, *(body + b"." * 3000 for body in wanted)])


@pytest.mark.parametrize("visit", [3, 5, 7])
def test_a_unit_that_only_puts_does_not_notice_a_restart(omq_instance: Instance, visit: int
                                                         ) -> None:
    """Also one in several requests: what was staged is staged again."""
    omq_instance.settings(channel_bytes=1 << 18, journal_file_bytes=4 << 20,
                          container_threshold_bytes=40 << 10)
    victim = omq_instance.start(fault=f"engine.before_append:kill:{visit}")
    program = worker(omq_instance, PUTS, 4)
    assert victim.wait() == -signal.SIGKILL
    omq_instance.start()
    ids = told(program)
    with omq_instance.connect() as c:
        assert [row.message_id for row in c.browse("A")] == ids
    assert len(set(ids)) == 800


def test_a_planned_stop_waits_for_a_unit_that_holds_something(omq_instance: Instance
                                                              ) -> None:
    """While the manager drains, a unit that has taken something may be committed."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"1")
        with c.unit() as unit:
            assert unit.get("A", 0) is not None
            omq_instance.children[MANAGER].signal(signal.SIGTERM)
            unit.put("B", b"2")
    assert omq_instance.children[MANAGER].wait() == 0
    omq_instance.start()
    assert (bodies(omq_instance, "A"), bodies(omq_instance, "B")) == ([], [b"2"])


def test_a_unit_takes_messages_by_their_ids(omq_instance: Instance) -> None:
    """Also one that comes while it waits; others stay where they are."""
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("other") as other:
        ids = c.put_many("A", [b"1", b"2", b"3"])
        c.put("A", b"4", correlation_id="four", message_id="mine")
        with c.unit() as unit:
            second = unit.get("A", 0, message_id=ids[1])
            fourth = unit.get("A", 0, message_id="mine")
            assert second is not None and fourth is not None
            assert (second.body, fourth.body) == (b"2", b"4")
            assert unit.get("A", 0, correlation="four") is None  # it has it
            assert unit.next("A", 5, 0, correlation="nobody") == []
            with pytest.raises(errors.BadRequest):
                unit.get("A", 0, correlation="x", message_id="y")
            other.put("B", b"no")
            late = threading.Thread(
                target=lambda: other.put("B", b"yes", correlation_id="due"))
            late.start()
            waited = unit.get("B", WAIT_S, correlation="due")
            late.join()
            assert waited is not None and waited.body == b"yes"
    assert bodies(omq_instance, "A") == [b"1", b"3"] and bodies(omq_instance, "B") == [b"no"]


def test_a_reply_is_part_of_a_unit(omq_instance: Instance) -> None:
    """Not sent before the commit, never after a backout; one that is too late is only finished."""
    omq_instance.start()
    with omq_instance.connect() as c, omq_instance.connect("serves") as server:
        asked = c.put("A", b"question", reply_to="B")
        with pytest.raises(KeyError), server.unit() as unit:
            request = unit.get("A", 0)
            assert request is not None and request.reply(b"never")
            raise KeyError
        with server.unit() as unit:
            request = unit.get("A", 0)
            assert request is not None and request.reply(b"answer")
            with pytest.raises(errors.MessageInUnit):
                request.done()
            with pytest.raises(errors.MessageInUnit):
                request.move("C")
            assert depth(c, "B") == 0
        (reply,) = c.browse("B")
        assert (reply.body, reply.correlation_id) == (b"answer", bytes.fromhex(asked))
        assert depth(c, "A") == 0


def test_another_id_with_the_same_key_is_no_part_of_a_unit(
        omq_instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left to others, whatever becomes of the unit."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put("A", b"other", correlation_id="other")
        key = message_format.id_hash(b"other")
        monkeypatch.setattr(wish_module, "id_hash", lambda _: key)
        with c.unit() as unit:
            assert unit.get("A", 0, correlation="mine") is None
            assert len(unit) == 0
            unit.put("B", b"done")
        (row,) = c.browse("A")
        assert (row.state.name, row.attempts, row.body) == ("DEFERRED", 0, b"other")


def test_more_is_taken_than_one_request_names(omq_instance: Instance) -> None:
    """What is put beside it goes once."""
    omq_instance.settings(journal_file_bytes=8 << 20, block_bytes_max=384 << 10)
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"x"] * 4200)
        with c.unit() as unit:
            while len(unit) < 4200:
                unit.next("A", 1000)
            for i in range(3):
                unit.put("B", b"%d" % i)
        assert depth(c, "A") == 0 and [row.body for row in c.browse("B")] == [b"0", b"1", b"2"]


def test_a_unit_parts_with_what_it_took(omq_instance: Instance) -> None:
    """Given back as it was, or gone for good; the rest is the unit's, and over a restart too."""
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"%d" % n for n in range(6)])
        with c.unit() as unit:
            taken = unit.next("A", 6, timeout_s=WAIT_S)
            unit.part_with(taken[:2], done=False)
            unit.part_with(taken[2:4], done=True)
            assert len(unit) == 2
            for wrong in ([taken[4], taken[4]], taken[:1]):
                with pytest.raises(errors.BadArgument):
                    unit.part_with(wrong, done=True)
            unit.backout()
        assert [(row.body, row.attempts) for row in c.browse("A")] == [
            (b"0", 0), (b"1", 0), (b"4", 1), (b"5", 1)]
    omq_instance.kill(MANAGER)
    omq_instance.start()
    assert bodies(omq_instance, "A") == [b"0", b"1", b"4", b"5"]
