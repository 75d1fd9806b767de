"""What crosses channels: facts of messages, ways over several instances, dead letters, commands."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.base.errors import OmqError
from omq.services.channel import records
from omq.services.channel.names import RECORDS
from tests.process.amqp_world import SERVER, needs_proton
from tests.process.channel_world import SENDER, Side, omq_channel, sides
from tests.process.processes import WAIT_S
from tests.tidy.tree import ROOT

needs_proton()

from proton.utils import BlockingConnection, LinkDetached  # noqa: E402

from tests.process.amqp_broker import Broker  # noqa: E402


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    with sides(tmp_path_factory.mktemp("ways"), "WEST", "MID", "EAST",
               channel_hops_max=4) as found:
        yield found


@pytest.fixture
def ways(three: list[Side]) -> Iterator[list[Side]]:
    yield three
    for side in three:
        side.fixed.pop("default_transmission", None)
        if (server := side.children.get(SERVER)) is not None:
            server.signal(signal.SIGCONT)  # a test that failed may have left it stopped
        side.stop(SENDER, SERVER)
        side.forget_channels()
        side.fault_log.unlink(missing_ok=True)  # what is in it does not fire again
        for queue in ("A", "B", "REPLIES", "SYSTEM.DEAD"):
            side.drain(queue)


def there_and_back(a: Side, b: Side, **said: str) -> None:
    """A channel each way."""
    for side, other in ((a, b), (b, a)):
        port = other.await_port() if other.children.get(SERVER) and other.children[
            SERVER].running else other.serve()
        side.channel(other.name, port, **said)


def dead(side: Side) -> list[omq.Message]:
    side.await_depth("SYSTEM.DEAD", 1)
    return side.drain("SYSTEM.DEAD")


def test_request_and_reply_over_two_hops(ways: list[Side]) -> None:
    """The first test: WEST and EAST know each other by their default ways alone."""
    west, mid, east = ways
    there_and_back(west, mid)
    there_and_back(mid, east)
    west.remote("FARTHER", "EAST", "A", "MID")
    for side in (west, east):
        side.stop(SENDER, SERVER)
        side.fixed["default_transmission"] = "MID"
        side.serve()
    for side in ways:
        side.start(SENDER)
    with west.connect() as native:
        native.put("FARTHER", b"how many?", reply_to="REPLIES", message_id="question")
    east.await_depth("A", 1)
    with east.connect() as native, native.reader("A") as reader:
        (request,) = reader.next(timeout_s=30)
        assert request.properties["omq.hops"] == "2" and request.reply_to == "MID"
        assert request.reply(b"seven")
    west.await_depth("REPLIES", 1)
    (reply,) = west.drain("REPLIES")
    assert (reply.body, reply.correlation) == (b"seven", "question")


def test_a_message_is_the_same_there(ways: list[Side]) -> None:
    west, _, east = ways
    there_and_back(west, east)
    west.remote("FAR", "EAST", "A")
    long = bytes(range(256)) * 1200  # in a container
    with west.connect() as native:
        plain = native.put("FAR", b"plain", priority=9)
        native.put("FAR", long, priority=2, properties={"customer": "42", "amqp.subject": "x"},
                   correlation_id="order-1", message_id="id-1", expiry_s=3600, group_id="g",
                   group_sequence=3, last_in_group=True)
        native.put("FAR", b"gone", priority=1, expiry_s=3600, correlation_id=b"\xff\x01")
    west.start(SENDER)
    east.await_depth("A", 3)
    first, second, third = east.drain("A")
    assert (first.body, first.priority, first.persistent) == (b"plain", 9, True)
    assert first.message_id == plain
    assert (second.body, second.priority) == (long, 2)
    assert (second.message_id, second.correlation) == ("id-1", "order-1")
    assert (second.group_id, second.group_sequence, second.last_in_group) == ("g", 3, True)
    assert second.properties == {"customer": "42", "amqp.subject": "x", "omq.hops": "1",
                                 "omq.from.manager": "WEST", "omq.from.queue": "A"}
    assert second.expiry_ns > 0
    assert third.correlation_id == b"\xff\x01"


def test_fast_messages_are_in_no_batch(ways: list[Side]) -> None:
    west, _, east = ways
    there_and_back(west, east)
    west.remote("FAR", "EAST", "A")
    west.start(SENDER)
    west.until(lambda: west.of_channel(1602, "EAST"))
    west.put("FAR", 0, 20, persistent=False)
    east.await_depth("A", 20)
    found = east.drain("A")
    assert [int(each.body) for each in found] == list(range(20))
    assert not any(each.persistent for each in found)
    assert not west.in_doubt("EAST")


def test_what_cannot_be_put_is_a_dead_letter_with_its_reason(ways: list[Side]) -> None:
    west, _, east = ways
    there_and_back(west, east)
    west.remote("NOWHERE", "EAST", "NOT.THERE")
    west.remote("STRANGE", "NORTH", "A", "EAST")
    west.remote("FULL", "EAST", "FULL")
    west.remote("SECRET", "EAST", "SYSTEM.CHANNELS")
    with east.connect() as native:
        native.queues.define("FULL", put="inhibited")
    with west.connect() as native:
        for queue in ("NOWHERE", "STRANGE", "FULL", "SECRET"):
            native.put(queue, queue.encode(), properties={"kept": "yes"})
    west.start(SENDER)
    east.await_depth("SYSTEM.DEAD", 4)
    found = {each.body: each.properties for each in dead(east)}
    for body, word in ((b"NOWHERE", "NOT.THERE"), (b"STRANGE", "NORTH"), (b"FULL", "FULL"),
                       (b"SECRET", "no queue")):
        assert word in found[body]["omq.dead.reason"], found[body]
        assert found[body]["kept"] == "yes" and found[body]["omq.from.manager"] == "WEST"
    with east.connect() as native:
        native.queues.delete("FULL")


def test_what_does_not_say_where_it_goes_is_one_here(ways: list[Side]) -> None:
    west, _, east = ways
    there_and_back(west, east)
    west.put("EAST", 5, 1)
    west.start(SENDER)
    (letter,) = dead(west)
    assert letter.body == b"5" and "omq.remote.queue" in letter.properties["omq.dead.reason"]


def test_a_circle_ends(ways: list[Side]) -> None:
    west, _, east = ways
    there_and_back(west, east)
    west.remote("ROUND", "NORTH", "A", "EAST")
    for side, other in ((west, "EAST"), (east, "WEST")):
        side.stop(SERVER)
        side.fixed["default_transmission"] = other
        side.serve()
        side.start(SENDER)
    west.put("ROUND", 1, 1)
    west.until(lambda: west.depth("SYSTEM.DEAD") + east.depth("SYSTEM.DEAD"))
    (letter,) = west.drain("SYSTEM.DEAD") + east.drain("SYSTEM.DEAD")
    assert "circle" in letter.properties["omq.dead.reason"]


def test_the_commands(ways: list[Side]) -> None:
    west, mid, _ = ways
    port = mid.serve()
    omq_channel(west, "define", "MIDWAY", "host=127.0.0.1", f"port={port}", "tls=no")
    omq_channel(west, "define", "MIDWAY", "host=x", code=64)
    omq_channel(west, "alter", "MIDWAY", "batchsize=0", code=64)
    omq_channel(west, "alter", "MIDWAY", "short_retry=0", "long_retry=1")
    omq_channel(west, "start", "NONE", code=66)
    assert "MID, which has batch 0" in omq_channel(west, "ping", "MIDWAY")
    omq_channel(west, "stop", "MIDWAY")
    west.start(SENDER)
    west.remote("VIA", "MID", "A", "MIDWAY")
    west.put("VIA", 0, 3)

    def said(side: Side) -> list[dict[str, Any]]:
        return [json.loads(line) for line in omq_channel(side, "list", "--json").splitlines()]

    (row,) = [each for each in said(west) if each["channel"] == "MIDWAY"]
    assert (row["state"], row["waiting"]) == ("stopped", 3)
    omq_channel(west, "start", "MIDWAY")
    mid.await_depth("A", 3)
    west.until(lambda: "state = running" in omq_channel(west, "show", "MIDWAY"))
    omq_channel(west, "resolve", "MIDWAY", "--commit", code=75)
    assert [each["batch"] for each in said(mid) if each["channel"] == "MIDWAY"] == [1]
    omq_channel(west, "stop", "MIDWAY")
    west.until(lambda: west.of_channel(1603, "MIDWAY"))
    omq_channel(west, "delete", "MIDWAY")
    omq_channel(west, "show", "MIDWAY", code=66)


def test_a_record_that_was_lost_needs_people(ways: list[Side]) -> None:
    """The receiving side is set back: what is in doubt is ended by hand."""
    west, mid, _ = ways
    port = mid.serve()
    west.channel("STEP", port)
    west.remote("STEPS", "MID", "A", "STEP")
    west.start(SENDER)
    for number in range(3):
        west.put("STEPS", number, 1)
        mid.await_depth("A", number + 1)
    west.until(lambda: not west.in_doubt("STEP"))
    west.kill(SENDER)
    west.put("STEPS", 3, 1)
    west.start(SENDER, fault="channel.after_prepare:kill:1")
    assert west.children[SENDER].wait() == -9
    assert "batch 3, now 1" in omq_channel(mid, "reset", "STEP", "batch=1")
    west.start(SENDER)
    west.until(lambda: west.of_channel(1605, "STEP"))
    omq_channel(west, "delete", "STEP", code=75)
    assert "batch 4 backed out" in omq_channel(west, "resolve", "STEP", "--backout")
    mid.await_depth("A", 4)
    assert mid.numbers("A") == [0, 1, 2, 3]


def _record(side: Side, channel: str, **changed: Any) -> None:
    """As somebody else would have left it."""
    with side.connect() as native:
        (found,) = [each for _, each in records.all_records(native) if each.channel == channel]
        with native.unit() as unit:
            records.take(unit, found.key)
            records.put(unit, replace(found, **changed))


def _has_sent_one(west: Side, mid: Side, channel: str, queue: str) -> None:
    """A channel to A that runs, and whose first batch is over on both sides."""
    west.channel(channel, mid.serve())
    west.remote(queue, "MID", "A", channel)
    west.put(queue, 0, 1)
    west.start(SENDER)
    mid.await_depth("A", 1)
    west.until(lambda: not west.in_doubt(channel))


def test_a_copy_of_the_spool_that_sends_too_takes_nothing_from_us(ways: list[Side]) -> None:
    """It has sent a batch of the number that ours in doubt has: ours is not there."""
    west, mid, _ = ways
    _has_sent_one(west, mid, "COPIED", "COPIES")
    west.kill(SENDER)
    west.put("COPIES", 1, 1)
    west.start(SENDER, fault="channel.after_prepare:kill:1")
    assert west.children[SENDER].wait() == -9
    _record(mid, "COPIED", batch=2, mark="f" * 16)
    west.start(SENDER)
    west.until(lambda: west.of_channel(1605, "COPIED"))
    assert "copy of this spool" in west.of_channel(1605, "COPIED")[0]["reason"]
    assert len(west.in_doubt("COPIED")) == 1
    omq_channel(west, "resolve", "COPIED", "--backout")
    mid.await_depth("A", 2)
    assert mid.numbers("A") == [0, 1]


def test_a_copy_that_has_sent_is_seen_by_a_channel_that_runs(ways: list[Side]) -> None:
    west, mid, _ = ways
    _has_sent_one(west, mid, "TWIN", "TWINS")
    mid.stop(SERVER)
    _record(mid, "TWIN", batch=2, mark="f" * 16)
    mid.serve()
    west.until(lambda: west.of_channel(1605, "TWIN"))
    west.put("TWINS", 1, 1)
    assert "now 2" in omq_channel(mid, "reset", "TWIN", "batch=2")
    mid.await_depth("A", 2)
    assert mid.numbers("A") == [0, 1]


def test_a_channel_that_was_cut_is_adopted(ways: list[Side]) -> None:
    """Its old line is open there still, and says nothing: the new one takes its place."""
    west, mid, _ = ways
    port = mid.serve()
    with socket.create_server(("127.0.0.1", 0)) as between:
        west.channel("CUT", between.getsockname()[1])
        west.remote("OVER", "MID", "A", "CUT")
        west.put("OVER", 0, 1)
        west.start(SENDER)
        first, _ = between.accept()
        to = socket.create_connection(("127.0.0.1", port))
        _carry(first, to, lambda: mid.depth("A") == 1)
        first.close()  # the sender sees it; the receiver does not
        west.put("OVER", 1, 1)
        second, _ = between.accept()
        again = socket.create_connection(("127.0.0.1", port))
        _carry(second, again, lambda: mid.depth("A") == 2)
        assert mid.of_channel(1610, "CUT")
        for each in (second, again, to):
            each.close()
    assert mid.numbers("A") == [0, 1]


def _carry(one: socket.socket, other: socket.socket, over: Any) -> None:
    """Bytes between two lines until something is true."""
    import select

    pairs = {one: other, other: one}
    while not over():
        ready, _, _ = select.select([one, other], [], [], 0.05)
        for line in ready:
            data = line.recv(1 << 16)
            if not data:
                return
            pairs[line].sendall(data)


def test_an_idle_channel_ends_and_is_started_again(ways: list[Side]) -> None:
    west, mid, _ = ways
    port = mid.serve()
    west.channel("IDLING", port, disconnect="1")
    west.remote("SELDOM", "MID", "A", "IDLING")
    west.put("SELDOM", 0, 1)
    west.start(SENDER)
    west.until(lambda: '"idle"' in omq_channel(west, "show", "IDLING", "--json"))
    west.put("SELDOM", 1, 1)
    omq_channel(west, "start", "IDLING")
    mid.await_depth("A", 2)
    assert mid.numbers("A") == [0, 1]


def test_a_trigger_starts_an_idle_channel(ways: list[Side]) -> None:
    west, mid, _ = ways
    west.channel("ROUSED", mid.serve(), disconnect="1")
    west.remote("ROUSING", "MID", "A", "ROUSED")
    (west.conf / "triggers.conf").write_text(
        f"[ROUSED]\ncommand = {ROOT}/bin/omq channel --spool {west.root} --conf {west.conf} "
        "start {queue}\n")
    with west.connect() as native:
        native.queues.alter("ROUSED", trigger="first")
    west.start(SENDER)
    west.until(lambda: '"idle"' in omq_channel(west, "show", "ROUSED", "--json"))
    west.start("trigger.monitor")
    west.put("ROUSING", 0, 1)
    mid.await_depth("A", 1)
    west.stop("trigger.monitor")


def test_a_silent_line_is_a_broken_one(ways: list[Side]) -> None:
    """The other side hangs: its heart does not beat; when it goes on, nothing is there twice."""
    west, mid, _ = ways
    west.channel("SILENT", mid.serve(), heartbeat="1")
    west.remote("QUIET", "MID", "A", "SILENT")
    west.put("QUIET", 0, 1)
    west.start(SENDER)
    mid.await_depth("A", 1)
    mid.children[SERVER].signal(signal.SIGSTOP)
    west.put("QUIET", 1, 3)
    west.until(lambda: west.of_channel(1604, "SILENT"))
    mid.children[SERVER].signal(signal.SIGCONT)
    mid.await_depth("A", 4)
    west.until(lambda: not west.in_doubt("SILENT"))
    assert mid.numbers("A") == list(range(4))


def test_who_may_not_be_a_channel_is_refused(ways: list[Side]) -> None:
    west, mid, _ = ways
    authority = mid.conf / "authority.conf"
    kept = authority.read_text()
    authority.write_text("[A]\nuser:nobody = put\n")
    port = mid.serve()
    west.channel("REFUSED", port)
    assert "unauthorized" in omq_channel(west, "ping", "REFUSED", code=69)
    authority.write_text(kept)


def test_a_record_is_put_by_a_channel_alone(ways: list[Side]) -> None:
    """The right to be a channel is a right to put there, and no right to put what one likes."""
    _, mid, _ = ways
    with mid.connect() as native:
        native.queues.define("FORGERY", "alias", target=RECORDS)
    mid.serve()
    connection = BlockingConnection(mid.url, timeout=WAIT_S)
    for name in (RECORDS, "FORGERY"):
        with pytest.raises(LinkDetached) as refused:
            connection.create_sender(name)
        assert refused.value.condition == "amqp:unauthorized-access"
    connection.close()


def test_a_peer_that_is_no_omq_is_told_from_one(ways: list[Side]) -> None:
    west, _, _ = ways
    with socket.create_server(("127.0.0.1", 0)) as server:
        west.channel("NOBODY", server.getsockname()[1])
        with west.connect() as native:
            assert native.queues.show("NOBODY").kind == "transmission"
    assert "refused" in omq_channel(west, "ping", "NOBODY", code=75).lower()


@pytest.mark.parametrize("words", [["host=a", "tls=maybe"], ["port=1"], ["host=a", "what=1"],
                                   ["host=a", "batchsize=1001"], ["host=a b"]])
def test_a_definition_that_makes_no_sense_is_refused(ways: list[Side], words: list[str]) -> None:
    omq_channel(ways[0], "define", "WRONG", *words, code=64)
    with ways[0].connect() as native, pytest.raises(OmqError):
        native.queues.show("WRONG")


def test_two_records_of_one_channel_are_one(ways: list[Side]) -> None:
    """What a process leaves that was killed while it made one."""
    west, mid, _ = ways
    west.channel("DOUBLE", mid.serve())
    west.remote("TWICE", "MID", "A", "DOUBLE")
    west.put("TWICE", 0, 1)
    west.start(SENDER)
    mid.await_depth("A", 1)
    west.until(lambda: not west.in_doubt("DOUBLE"))
    with mid.connect() as native:
        (record,) = [each for _, each in records.all_records(native) if each.channel == "DOUBLE"]
        native.put(RECORDS, replace(record, batch=0).body(), correlation_id=record.key)
    west.put("TWICE", 1, 1)
    mid.await_depth("A", 2)
    with mid.connect() as native:
        assert [each.batch for _, each in records.all_records(native)
                if each.channel == "DOUBLE"] == [2]
    assert mid.numbers("A") == [0, 1]


def test_a_peer_that_is_no_omq_gets_it_at_least_once_and_flagged(ways: list[Side]) -> None:
    """A queue of an AMQP server, without anything of channels: what any broker is."""
    west, mid, _ = ways
    west.channel("FOREIGN", mid.serve(), peer="foreign", batchsize="4")
    west.remote("ABROAD", "ELSEWHERE", "A", "FOREIGN")
    west.put("ABROAD", 0, 12)
    west.start(SENDER, fault="channel.before_commit:kill:2")
    assert west.children[SENDER].wait() == -9
    west.put("ABROAD", 12, 3)
    west.start(SENDER)
    west.until(lambda: not west.in_doubt("FOREIGN") and not west.depth("FOREIGN"))
    found = mid.numbers("A")
    assert set(found) == set(range(15))
    assert len(found) > 15  # nothing there could say what it had


def test_a_queue_that_a_foreign_peer_refuses_stops_no_other(ways: list[Side]) -> None:
    """Not there; not ours; there later."""
    west, mid, _ = ways
    authority = mid.conf / "authority.conf"
    kept = authority.read_text()
    authority.write_text("[A]\nuser:nobody = put\n[COMES.LATER]\nuser:nobody = put\n")
    west.channel("PARTLY", mid.serve(), peer="foreign", batchsize="6")
    for name, queue in (("GOOD", "A"), ("NONE", "COMES.LATER"), ("CLOSED", "REPLIES")):
        west.remote(name, "ELSEWHERE", queue, "PARTLY")
    for number in range(6):
        for name in ("GOOD", "NONE", "CLOSED"):
            west.put(name, number, 1)
    west.put("NONE", 6, 1, persistent=False)
    west.put("GOOD", 6, 1)
    west.start(SENDER)
    mid.await_depth("A", 7)
    west.until(lambda: not west.in_doubt("PARTLY") and not west.depth("PARTLY"))
    assert mid.numbers("A") == list(range(7))
    letters: dict[str, list[int]] = {}
    for each in west.drain("SYSTEM.DEAD"):
        said = each.properties
        assert {"COMES.LATER": "not-found", "REPLIES": "unauthorized"}[
            said["omq.dead.queue"]] in said["omq.dead.reason"]
        letters.setdefault(said["omq.dead.queue"], []).append(int(each.body))
    assert letters == {"COMES.LATER": list(range(7)), "REPLIES": list(range(6))}
    assert not west.of_channel(1604, "PARTLY"), "the line was as good as before"
    with mid.connect() as native:
        native.queues.define("COMES.LATER")
    west.put("NONE", 7, 1)
    mid.await_depth("COMES.LATER", 1)
    assert mid.numbers("COMES.LATER") == [7]
    authority.write_text(kept)


def test_a_broker_that_ends_the_session_for_a_queue_loses_none_for_it(
        ways: list[Side], tmp_path: Path) -> None:
    """As RabbitMQ does. Also a queue there that takes short messages alone."""
    west, _, _ = ways
    with Broker(tmp_path, unknown="NONE", bytes_max=2000) as broker:
        west.until(lambda: broker.listening)
        west.channel("STRICT", broker.port, peer="foreign", batchsize="4")
        for name, queue in (("TO.GOOD", "GOOD"), ("TO.NONE", "NONE")):
            west.remote(name, "ELSEWHERE", queue, "STRICT")
        for number in range(4):
            for name in ("TO.GOOD", "TO.NONE"):
                west.put(name, number, 1)
        with west.connect() as native:
            native.put("TO.GOOD", b"9" * 5000)
        west.put("TO.GOOD", 4, 1)
        west.start(SENDER)
        west.until(lambda: not west.in_doubt("STRICT") and not west.depth("STRICT"))
        west.stop(SENDER)
        assert list(dict.fromkeys(broker.got["GOOD"])) == ["0", "1", "2", "3", "4"]
    letters = west.drain("SYSTEM.DEAD")
    assert sorted({each.body for each in letters if len(each.body) == 1}) == [
        b"0", b"1", b"2", b"3"]
    assert ["2000" in each.properties["omq.dead.reason"] for each in letters
            if len(each.body) == 5000] == [True]
