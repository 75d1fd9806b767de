"""Orders for whole queues: held, released, flushed; and why nothing moves on one."""

from __future__ import annotations

import json
import threading

import pytest

from omq.base.errors import Exit, NothingMeant
from omq.base.names import KEPT_RECORDS
from omq.cli.watch.facts import gather
from omq.cli.watch.measures import OF_QUEUE, values
from omq.core.index.view import IndexView
from omq.services.daemon.options import Location
from tests.process.operator_world import WAIT_S, Instance

NOTHING = NothingMeant.exit_code


def why(live: Instance, queue: str) -> list[str]:
    said = live.run("omqwhy", queue, "--json")
    assert said.code == 0, said
    return [each["code"] for each in json.loads(said.out)["reasons"]]


def test_a_held_queue_gives_nothing_until_it_is_released(live: Instance) -> None:
    live.put("A", b"1", b"2")
    said = live.run("omhold", "-q", "a", "--reason", "disk full")
    assert said.out == "A is held, nobody gets messages from it; 2 messages on it, 0 active\n"
    with live.connect() as connection, connection.reader("A") as reader:
        assert reader.next(timeout_s=0) == []
        live.put("A", b"3")
        assert reader.next(timeout_s=0) == []
    assert why(live, "A")[0] == "get_inhibited"
    live.stop()
    live.start()
    assert why(live, "A")[0] == "get_inhibited", "it outlives a restart"
    live.kill()
    live.start()
    assert why(live, "A")[0] == "get_inhibited", "and a crash"
    said = live.run("omrelease", "-q", "A")
    assert said.code == 0 and said.out.startswith("A is released; 3 messages on it")
    assert live.bodies("A") == [b"1", b"2", b"3"]
    told = live.run("omqlog", "--operator").out
    assert "omhold -q A" in told and "reason: disk full" in told and "omrelease -q A" in told
    assert "operator command, 2 messages" in told


def test_with_put_nothing_new_is_taken(live: Instance) -> None:
    live.run("omhold", "-q", "B", "--put")
    with live.connect() as connection, pytest.raises(Exception, match="inhibited"):
        connection.put("B", b"no")
    assert why(live, "B")[:2] == ["get_inhibited", "put_inhibited"]
    live.run("omrelease", "-q", "B")
    assert live.put("B", b"yes")
    assert live.bodies("B") == [b"yes"]


def test_why_of_a_queue_that_was_rolled_over(live: Instance) -> None:
    live.put("B", b"old")
    assert live.run("omq queue", "roll-over", "B", "--to", "B.OLD").code == 0
    live.put("B", b"new")
    told = live.run("omqwhy", "B.OLD").out
    assert "it was rolled over" in told and "omrelease" not in told
    assert "drains" in why(live, "B.OLD") and "drains" not in why(live, "B")


def test_a_queue_is_held_while_no_manager_runs(live: Instance) -> None:
    live.stop()
    said = live.run("omhold", "-q", "A")
    assert said.code == 0 and "for its next start" in said.err
    assert why(live, "A")[0] == "no_manager"
    live.start()
    assert why(live, "A")[0] == "get_inhibited"
    live.run("omrelease", "-q", "A")


@pytest.mark.parametrize("queue", KEPT_RECORDS)
def test_nobody_is_sent_to_read_records(live: Instance, queue: str) -> None:
    """Whoever takes one has deleted an exchange, or what says up to where a channel has come."""
    with live.connect() as connection:
        connection.queues.define(queue)
        connection.put(queue, b"a record")
    said = live.run("omqwhy", queue)
    assert "its 1 message is a record that stays" in said.out and "omread" not in said.out
    assert why(live, queue) == ["still"]
    assert f"{queue}: nobody reads it" not in live.run("omqadvise").out
    assert queue not in live.run("omq health").out
    facts = gather(Location(None, live.paths, live.conf))
    assert any(each.row.name == queue for each in facts.queues)
    for measure in OF_QUEUE:
        assert queue not in values(measure, "*", facts)
    said = live.run("omread", queue, "--timeout", "0")
    assert said.code == Exit.USAGE and "records of the instance" in said.err
    assert live.bodies(queue) == [b"a record"]


def test_what_is_refused(live: Instance) -> None:
    before = (live.conf / "queues.conf").read_text()
    for words, code in ((("-q", "NOWHERE"), Exit.NO_INPUT), (("-q", "IDEL"), Exit.USAGE),
                        (("-q", "A", "7"), Exit.USAGE), (("--put", "7"), Exit.USAGE)):
        assert live.run("omhold", *words).code == code, words
    assert (live.conf / "queues.conf").read_text() == before
    (live.conf / "queues.conf").write_text(before + "[wrong]\ncolour = red\n")
    assert live.run("omhold", "-q", "A").code == Exit.CONFIG, "a mistake is left to its author"
    (live.conf / "queues.conf").write_text(before)


def test_poison_can_be_held_too(live: Instance) -> None:
    assert live.run("omhold", "-q", "poison").code == 0
    with IndexView.attach(live.paths) as view:
        assert next(row.flags for row in view.queues() if row.name == "POISON") & 2
    live.run("omrelease", "-q", "POISON")


def test_flush_of_a_queue_makes_the_deferred_ready(live: Instance) -> None:
    live.put("A", b"1", b"2", b"3")
    with live.connect() as connection, connection.reader("A", batch=3) as reader:
        for message in reader.next(timeout_s=WAIT_S):
            message.defer(3600.0, reason="not now")
    held = live.on("A")[2]
    live.run("omhold", str(held))
    assert why(live, "A") == ["deferred", "held"]
    said = live.run("omq flush", "A", "--reason", "now")
    assert said.out == "2 of 2 messages: release\n" and "release: 2 messages" in said.err
    assert live.bodies("A") == [b"1", b"2"]
    assert live.on("A") == [held]
    assert "omq flush A" in live.run("omqlog", "--operator").out
    assert live.run("omq flush", "A").code == NOTHING
    live.run("omrelease", str(held))
    live.bodies("A")


def test_flush_of_a_peer_takes_only_its_mail(live: Instance) -> None:
    """By the domain, by the peer of routes.conf, by the smarthost; the others stay."""
    (live.conf / "routes.conf").write_text(
        "[local]\ndomains = here.test\n[peers]\na.test = mx.a.test:2500\n"
        ".b.test = mx.b.test\n")
    queues = (live.conf / "queues.conf").read_text()
    settings = (live.conf / "omq.conf").read_text()
    (live.conf / "queues.conf").write_text(queues + "\n[UNIX]\n")
    (live.conf / "omq.conf").write_text(settings + "[mail]\nunix_smarthost = smart.test:25\n")
    live.stop()
    live.start()
    with live.connect() as connection:
        for address in ("x@a.test", "x@sub.b.test", "x@else.test"):
            connection.put("UNIX", b"mail", properties={"mail.from": "me@here.test",
                                                        "mail.to.UNIX": address})
    on = live.on("UNIX")
    for words, released in ((["a.test"], 0), (["mx.b.test"], 1), (["smart.test"], 2)):
        with live.connect() as connection, connection.reader("UNIX", batch=3) as reader:
            for message in reader.next(timeout_s=WAIT_S):
                message.defer(3600.0, reason="down")
        said = live.run("omq flush", *words)
        assert said.out == "1 of 1 message: release\n", said
        with IndexView.attach(live.paths) as view:
            assert [row.message.qpool for row in view.entries("UNIX")
                    if row.state.name == "READY"] == [on[released]]
    assert live.run("omq flush", "nobody.test").code == NOTHING
    assert live.run("omq flush", "nowhere").code == Exit.NO_INPUT
    live.run("omqdump", "-e", "D UNIX 1 all", "--yes")


def test_why_nothing_moves(live: Instance) -> None:
    assert why(live, "A") == ["empty", "no_reader"]
    (first, _) = live.put("A", b"1", b"2")
    said = live.run("omqwhy", "A")
    assert said.out.startswith("A: 2 messages (2 ready, 0 active") and "nobody reads it" in said.out
    with live.connect("slow") as connection, connection.reader("A") as reader:
        assert why(live, "A") == ["still"], "nothing was finished, so it is not said to move"
        (message,) = reader.next(timeout_s=WAIT_S)
        assert why(live, "A") == ["readers_busy"]
        message.done()
    with live.stopped():
        assert why(live, "A")[0] == "manager_stopped"
    assert live.run("omqwhy", "NOWHERE").code == Exit.NO_INPUT
    assert live.run("omqwhy", str(first + 1), "LOCAL").code == 0
    live.bodies("A")


def test_a_start_without_the_pool_in_the_seeds_spelling_is_known_to_omqcheck(live: Instance
                                                                             ) -> None:
    live.put("A", b"left in the pool")
    live.stop()
    settings = (live.conf / "omq.conf").read_text()
    (live.conf / "omq.conf").write_text(
        settings + "[daemons]\nQM_DONT_READ_MESSAGE_AT_START = TRUE\n")
    live.start()
    assert live.on("A") == []
    said = live.run("omqcheck")
    assert said.code == 0 and "has not read the messages of the pool" in said.err, said
    assert "Queue=A" in live.dump("-e", "t m -").out, "the seed's way to look at them"
    live.stop()
    (live.conf / "omq.conf").write_text(settings)
    live.start()
    assert live.bodies("A") == [b"left in the pool"]


def test_a_reader_that_waits_has_the_seeds_flag(live: Instance) -> None:
    """3 while it awaits a reply, 1 when it has one."""
    def flags() -> str:
        text = live.dump("-e", "t q -").out.split("====Queue Readers====")[1]
        return next(line for line in text.splitlines() if line.startswith("Flags="))

    with live.connect() as connection, connection.reader("A") as reader:
        waiting = threading.Thread(target=lambda: reader.next(timeout_s=WAIT_S))
        waiting.start()
        while flags() != "Flags=0x00000003":
            assert waiting.is_alive()
        live.put("A", b"x")
        waiting.join(WAIT_S)
        assert flags() == "Flags=0x00000001"
    live.bodies("A")
