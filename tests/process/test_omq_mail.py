"""omq mail on a running queue manager: which mails are meant, and what becomes of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import Exit
from omq.core.index.view import IndexView
from omq.ipc.wire.outgoing import Outgoing
from tests.process.operator_world import Instance, Said

QUEUES = ("[*]\ndeath_delay_s = 0\n\n[ROUTER]\n\n[UNIX]\nattempts_max = 1\n\n[LOCAL]\n\n[DEFER]\n\n"
          "[A]\n")
TEXT = b"Subject: \x1b]0;x\x07\xff\r\n\r\nhello\r\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("mail") / "spool")
    (made.conf / "queues.conf").write_text(QUEUES)
    made.start()
    yield made
    made.end()


@pytest.fixture
def live(shared: Instance) -> Iterator[Instance]:
    """The instance with empty queues."""
    yield shared
    shared.run("omqdump", "-e", "Z A --where queue!=IDEL --yes")
    for queue in ("ROUTER", "UNIX", "LOCAL", "DEFER", "A", "POISON"):
        shared.run("omqdump", "-e", f"Z {queue} --where queue={queue} --yes")
        assert shared.on(queue) == []


def put(live: Instance, queue: str | tuple[str, ...], sender: str, *to: str, mail_id: str = "",
        also: dict[str, str] | None = None) -> int:
    """A mail; its QPoolId."""
    queues = (queue,) if isinstance(queue, str) else queue
    properties = {"mail.from": sender, "mail.to": "\n".join(to)} | (also or {})
    if mail_id:
        properties["mail.id"] = mail_id
    with live.connect("put") as connection:
        made = connection.put(queues, TEXT, properties=properties, persistent=True)
    return int(made[32:], 16)


def states(live: Instance) -> dict[int, tuple[str, str]]:
    """QPoolId: (queue, state)."""
    with IndexView.attach(live.paths) as view:
        return {row.message.qpool: (queue.name, row.state.name.lower()) for queue in view.queues()
                if queue.name != "IDEL" for row in view.entries(queue.name)}


def order(live: Instance, *words: str, stdin: str | None = None, code: int = 0) -> Said:
    said = live.run("omq mail", *words, stdin=stdin)
    assert said.code == code, said
    return said


def test_by_sender_recipient_queue_and_age(live: Instance) -> None:
    one = put(live, "UNIX", "Al@Example.com", "x@far.test")
    two = put(live, "UNIX", "bob@example.com", "x@[192.0.2.1]", "Y@far.test")
    null = put(live, "LOCAL", "", "x@far.test")
    other, = live.put("UNIX", b"no mail")
    for words, meant in (
            (("--sender", "al@example.COM"), {one}), (("--sender", "*@example.com"), {one, two}),
            (("--sender", "<>"), {null}), (("--recipient", "y@far.test"), {two}),
            (("--recipient", "x@[192.0.2.1]"), {two}),
            (("--recipient", "x@far.test"), {one, null}),
            (("--recipient", "x@far.test", "--sender", "a*"), {one}),
            (("--sender", "a*", "--sender", "<>"), {one, null}),
            (("ALL", "--queue", "unix"), {one, two}), (("ALL",), {one, two, null}),
            (("--age", "<1h"), {one, two, null}), (("ALL", "--state", "ready"), {one, two, null})):
        said = order(live, "hold", *words, "--dry-run", "--json")
        assert {json.loads(line)["qpool_id"] for line in said.out.splitlines()} == meant, words
    for words in (("--age", "1h"), ("--sender", "nobody"), ("ALL", "--state", "held")):
        order(live, "hold", *words, code=Exit.NO)
    assert states(live)[other] == ("UNIX", "ready")
    order(live, "delete", "ALL")
    assert states(live) == {other: ("UNIX", "ready")}, "what is no mail is nobody's"


def test_recipients_are_those_of_the_queue(live: Instance) -> None:
    qpool = put(live, ("LOCAL", "UNIX"), "s@x", "a@here.test", "b@far.test", also={
        "mail.to.LOCAL": "a", "mail.orig.LOCAL": "a@here.test", "mail.to.UNIX": "b@far.test",
        "mail.orig.UNIX": "b@far.test"})
    other = put(live, "UNIX", "s@x", "a@here.test", "c@far.test",
                also={"mail.to.UNIX": "c@far.test"})
    said = order(live, "delete", "--recipient", "a@here.test", "--dry-run", "--json")
    found, = map(json.loads, said.out.splitlines())
    assert (found["qpool_id"], found["queue"]) == (qpool, "LOCAL")
    order(live, "delete", "--recipient", "b@far.test")
    assert live.on("UNIX") == [other]
    assert live.on("LOCAL") == [qpool]


def test_ids_of_a_mail_of_messages_and_of_the_standard_input(live: Instance) -> None:
    name = "ab" * 24
    one, two = (put(live, queue, "s@x", "a@far.test", mail_id=name) for queue in ("UNIX", "LOCAL"))
    three, four = (put(live, "UNIX", "s@x", "a@far.test") for _ in range(2))
    order(live, "hold", name)
    held = {each for each, (_, state) in states(live).items() if state == "held"}
    assert held == {one, two}
    said = order(live, "hold", "-", "--yes", stdin=f"{three}\n\n{name}\n 999999 \n")
    assert said.out == "1 of 1 message: hold\n"
    assert "there is no message 999999" in said.err
    order(live, "hold", "nonsense", code=Exit.NO)
    assert states(live)[four][1] == "ready"
    order(live, "release", name, str(three))
    assert {state for _, state in states(live).values()} == {"ready"}


def test_nothing_is_chosen_by_chance(live: Instance) -> None:
    put(live, "UNIX", "s@x", "a@far.test")
    for words in ((), ("--queue", "UNIX"), ("--state", "ready"), ("ALL", "5"),
                  ("ALL", "--limit", "0"), ("--age", "soon"), ("ALL", "--state", "lost"), ("-",)):
        assert live.run("omq mail", "delete", *words, stdin="").code not in (0, Exit.NO), words
    assert len(states(live)) == 1


def test_what_lies_in_quarantine_and_in_poison_goes_on(live: Instance) -> None:
    held = put(live, "DEFER", "s@x", "a@far.test", also={"mail.held": "it looks bad"})
    failed, other = put(live, "UNIX", "s@x", "b@far.test"), put(live, "UNIX", "s@x", "c@far.test")
    with live.connect("fail") as connection, connection.reader("UNIX") as reader:
        message, = reader.next(1)
        message.fail("broken")
    assert states(live)[failed][0] == "POISON"
    assert "it looks bad" in order(live, "cat", str(held)).out
    order(live, "requeue", "ALL")
    assert states(live)[failed][0] == "UNIX"
    assert states(live)[held][0] == "ROUTER"
    assert states(live)[other] == ("UNIX", "ready")


def test_an_order_is_journaled_with_its_reason(live: Instance) -> None:
    put(live, "UNIX", "evil\nname@x", "a@far.test")
    order(live, "delete", "--sender", "evil*", "--reason", "ticket 4711")
    events: list[dict[str, Any]] = [json.loads(line) for line in
                                    live.paths.event_log.read_text().splitlines()]
    last = [each for each in events if each["event"] == 1251][-1]
    assert last["command"] == "omq mail delete --sender evil*"
    assert last["reason"] == "ticket 4711"


def test_thousands(live: Instance) -> None:
    mails = [Outgoing(TEXT, properties={"mail.from": f"s{number % 2}@x", "mail.to": "a@far.test"})
             for number in range(500)]
    with live.connect("put") as connection:
        for _ in range(5):
            connection.put_many("UNIX", mails)
    said = order(live, "delete", "--sender", "s1@x", code=Exit.USAGE)
    assert "1250 messages" in said.err, "so many are asked about"
    assert len(live.on("UNIX")) == 2500
    some = order(live, "delete", "--sender", "s1@x", "--limit", "5")
    assert some.out == "5 of 5 messages: delete\n"
    rest = order(live, "delete", "--sender", "s1@x", "--yes")
    assert rest.out == "1245 of 1245 messages: delete\n"
    assert len(live.on("UNIX")) == 1250


def test_what_changed_meanwhile_and_what_is_in_work_is_left(live: Instance) -> None:
    put(live, "UNIX", "s@x", "a@far.test")
    with live.connect("work") as connection, connection.reader("UNIX") as reader:
        message, = reader.next(1)
        assert live.run("omq mail", "delete", "ALL").code not in (0, Exit.NO)
        assert len(states(live)) == 1
        message.done()


def test_a_mail_is_printed_as_it_is(live: Instance, tmp_path: Path) -> None:
    qpool = put(live, ("UNIX", "LOCAL"), "evil\x1b@x", "a@far.test")
    said = order(live, "cat", str(qpool))
    head, text = said.out.split(" bytes\n", 1)
    assert "sender: evil\\x1b@x\nrecipient: a@far.test\n" in head
    assert text == TEXT.decode("utf-8", "replace")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_others_may_not(live: Instance) -> None:
    put(live, "UNIX", "s@x", "a@far.test")
    assert live.run_as(12345, "omq mail", "delete", "ALL").code not in (0, Exit.NO)
    assert len(states(live)) == 1
