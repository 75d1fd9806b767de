"""omqdump on a running queue manager: walking, moving, copying, deleting, plans, files."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base.errors import Exit
from omq.core.history.frames import History
from omq.format.journal import FrameType
from omq.ipc.wire.outgoing import Outgoing
from omq.storage.containers import read_item
from tests.process.operator_world import WAIT_S, Instance

BINARY = bytes(range(256)) * 3


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("operator") / "spool")
    made.start()
    yield made
    made.end()


@pytest.fixture
def live(shared: Instance) -> Iterator[Instance]:
    """The instance with empty queues."""
    yield shared
    for queue in ("A", "B", "LOCAL", "ERROR"):
        shared.run("omqdump", "-e", f"Z {queue} --where queue={queue} --yes")
        assert shared.on(queue) == []


def operator_lines(live: Instance) -> list[dict[str, object]]:
    """The operator commands of the event log."""
    lines = live.paths.event_log.read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == 1251]


def test_walk_is_circular_and_v_does_not_reset_it(live: Instance) -> None:
    first, second = live.put("A", b"one", b"two")
    said = live.dump(stdin="g\nA\nv\nA\nc\n\ng\nA\nr\n\nc\n2000\ng\nA\ng\nA\nr\n\nq\n")
    assert said.out.count("Msg Handle = 2000\nDone\n") == 3
    assert said.out.count("TIME_OUT\nDone\n") == 1
    assert "Walked=1\n" in said.out
    shown = [line for line in said.out.splitlines() if line.startswith("QPoolId = ")]
    assert shown == [f"QPoolId = {second}", f"QPoolId = {first}"]


def test_handles_count_from_2000(live: Instance) -> None:
    live.put("A", b"a", b"b", b"c")
    said = live.dump(stdin="g\nA\ng\nA\ng\nA\nc\n2001\nG\nA\n2\na\nq\n")
    assert said.out.count("Msg Handle = 2001\n") == 2
    rows = [line.split()[0] for line in said.out.splitlines() if line[:2] == "20"]
    assert rows == ["2000", "2002", "2001"]


def test_find_takes_what_is_handed_out_next(live: Instance) -> None:
    live.put("A", b"low", priority=1)
    (urgent,) = live.put("A", b"urgent", priority=7)
    said = live.dump(stdin="f\nA\nf\nA\nf\nA\na\n")
    assert said.out.count("Msg Handle = ") == 2 and said.out.count("TIME_OUT") == 1
    assert f"2000    {urgent} " in said.out


def test_move_copy_put_delete_of_an_opened_message(live: Instance) -> None:
    (qpool,) = live.put("A", BINARY)
    said = live.dump("--reason", "ticket 7", stdin="g\nA\nm\n\nB\np\n\nLOCAL\nr\n\n")
    assert (live.on("A"), live.on("B"), live.on("LOCAL")) == ([], [qpool], [qpool])
    assert '"B" 4 ready 0 ' in said.out
    assert "Access Count = 1" in said.out, "one record, however many queues (the seed's test)"
    live.dump(stdin="f\nB\nd\n\n")
    assert (live.on("B"), live.on("LOCAL")) == ([], [qpool])
    assert live.bodies("LOCAL") == [BINARY]
    last = [(line["action"], line["reason"], line["uid"]) for line in operator_lines(live)][-3:]
    uid = os.getuid()
    assert last == [("move", "ticket 7", uid), ("restore", "ticket 7", uid), ("delete", "", uid)]
    told = live.run("omqlog", "--operator").out
    assert "omqdump put on LOCAL" in told and "restore" not in told and "nowhere" not in told


def test_positions_begin_where_the_walk_is(live: Instance) -> None:
    ids = live.put("A", *(b"%d" % n for n in range(6)))
    live.dump(stdin="g\nA\ng\nA\nM\nA\nB\n\n2\nq\n")
    assert live.on("B") == ids[2:4]
    live.dump("-e", "M A B 1 all", "--yes")
    assert live.on("A") == []


def test_where_counts_plans_and_applies(live: Instance, tmp_path: Path) -> None:
    ids = live.put("A", *(b"x" * n for n in range(1, 15)))
    plan = tmp_path / "plan"
    where = "--where 'size>=4 state=ready age<1h'"
    assert live.dump("-e", f"M A ERROR {where} --count").out == "11\nDone\n"
    live.dump("-e", f"M A ERROR {where} --dry-run {plan}")
    head, *lines = map(json.loads, plan.read_text().splitlines())
    assert (head["action"], head["targets"], len(lines)) == ("move", ["ERROR"], 11)
    assert [line["qpool_id"] for line in lines] == ids[3:]
    assert live.on("ERROR") == []
    live.dump("-e", f"f A {ids[5]}", "-e", "m 2000 B")
    said = live.run("omqdump", "--apply", str(plan), "--yes")
    assert (said.code == 75 and "has changed since" in said.err) or "no such message" in said.err
    assert live.on("ERROR") == [*ids[3:5], *ids[6:]]
    assert live.on("B") == [ids[5]]


def test_more_than_a_few_must_be_confirmed(live: Instance) -> None:
    live.put("A", *(b"y" for _ in range(12)))
    said = live.run("omqdump", "-e", "D A 1 all")
    assert said.code == 64 and "was not confirmed" in said.err
    said = live.run("omqdump", stdin="D\nA\n1\nall\nn\n")
    assert said.code == 64 and len(live.on("A")) == 12
    live.dump(stdin="D\nA\n1\nall\ny\n")
    assert live.on("A") == []


def test_undo_brings_a_delete_back(live: Instance) -> None:
    ids = live.put("A", b"one", b"two", b"three")
    live.dump("-e", "D A 1 2")
    assert live.on("A") == ids[2:] and set(ids[:2]) <= set(live.on("IDEL"))
    live.dump("--undo", str(ids[1]))
    assert live.on("A") == [ids[2], ids[1]]
    live.dump("-e", f"u --where id={ids[0]},{ids[1]}")
    assert sorted(live.on("A")) == ids
    assert sorted(live.bodies("A")) == [b"one", b"three", b"two"]


def test_ids_from_a_file_and_from_standard_input(live: Instance, tmp_path: Path) -> None:
    ids = live.put("A", b"1", b"2", b"3")
    listed = tmp_path / "ids"
    listed.write_text(f"{ids[0]} with more words\n999999\n")
    said = live.dump("-e", f"M A B --where id=@{listed}")
    assert live.on("B") == [ids[0]]
    assert "there is no message 999999" in said.err
    live.dump("-e", "M A B --where id=-", stdin=f"{ids[2]}\n")
    assert sorted(live.on("B")) == [ids[0], ids[2]]


def test_copy_makes_new_messages_with_the_same_content(live: Instance, tmp_path: Path) -> None:
    with live.connect() as connection:
        connection.put("A", outgoing=Outgoing(
            body=BINARY, queues=("A",), priority=8, properties={"customer": "42", "u": "ß"},
            correlation_id=b"corr", reply_to="B", group_id="g"))
    live.dump("-e", "C A B 1 1", "--json")
    assert len(live.on("A")) == 1
    with live.connect() as connection, connection.reader("B") as reader:
        (copied,) = reader.next(timeout_s=WAIT_S)
        assert (copied.body, copied.priority) == (BINARY, 8)
        assert dict(copied.properties) == {"customer": "42", "u": "ß"}
        assert copied.correlation_id == b"corr" and copied.group_id == "g"
        copied.done()
    (row,) = [json.loads(line) for line in live.dump(
        "-e", "l A --where property:customer=42", "--json").out.splitlines()]
    plan = tmp_path / "plan"
    live.dump("-e", f"C A B --where queue=A --dry-run {plan}")
    plan.write_text(plan.read_text().replace('["B"]', '["B", "LOCAL"]'))
    said = live.run("omqdump", "--apply", str(plan))
    assert said.code == 64 and "a copy goes on one queue" in said.err
    assert row["queue"] == "A"


def test_a_mail_is_shown_in_the_originals_layout(live: Instance) -> None:
    mail = b"From: a@b\r\nSubject: TestMsg (1)\r\n\tThu\r\n\r\nhello\r\n"
    with live.connect() as connection:
        connection.put("A", mail, properties={"mail.from": "a@b", "mail.to.A": "c@d\ne@f"})
    (qpool,) = live.on("A")
    said = live.dump(stdin="g\nA\nr\n\n").out.splitlines()
    shown = [re.sub(r"\d+/\d+/\d+ \d+:\d+\.\d+[+-]\d+", "DATE", line) for line in said[2:-1]]
    assert shown[1].startswith("Msg File = ~/journal/")
    assert shown[2:8] == ["Access Count = 1", "TF File =", "TF Info Flags = 0", "Filter Route =",
                          f"QPoolId = {qpool}", shown[7]]
    fields = [line.split(" (DN) ") for line in shown[9:]]
    assert [(name.rstrip(), len(name)) for name, _ in fields] == [(name, 16) for name in (
        "HEADER", "CREATOR", "SUBJECT", "CREATE_DATE", "MSG_INT_ID", "ITEM_CREATE_DATE",
        "CONTENT_FILE", "PROPERTY", "PROPERTY", "RECIPIENT", "RECIPIENT", "ROUTE_TRACE")]
    values = [value for _, value in fields]
    assert values[0] == "4 1 1 0 0x0 0x0 1 0x0"
    assert values[1] == f'0 {os.getpid()} 0 0 0 0 "a@b" "" ""'
    assert values[2] == '"TestMsg (1) Thu" "" "IA5" "" ""'
    assert values[3] == values[5] == "DATE"
    assert values[9:11] == ['0x0 0 1 "A" "" "c@d"', '0x0 0 1 "A" "" "e@f"']
    assert re.fullmatch(r'DATE 1 "A" 4 ready 0 \d+', values[11])


def test_many_copies_go_in_batches_and_stop_at_a_full_queue(live: Instance) -> None:
    with live.connect() as connection:
        connection.put_many("A", [b"%d" % n for n in range(700)])
    queues = (live.conf / "queues.conf").read_text()
    (live.conf / "queues.conf").write_text(queues.replace("[B]\n", "[B]\nmax_depth = 650\n"))
    assert live.manager is not None
    live.manager.send_signal(signal.SIGHUP)
    try:
        deadline = time.monotonic() + WAIT_S
        while "depth=650" not in live.dump("-e", "v B").out:
            assert time.monotonic() < deadline, "the manager did not read its configuration again"
            select.select([], [], [], 0.02)
        said = live.run("omqdump", "-e", "C A B 1 all", "--yes")
        assert said.code == Exit.TEMPORARY, said
        assert "650 of 700 messages: copy to B" in said.out
        assert len(live.on("A")) == 700
        assert live.bodies("B") == [b"%d" % n for n in range(650)]  # the first, in their order
        times = Counter(each.time_ns for each in History(live.paths).read(
            lambda frames: frames["type"] == FrameType.PUT) if each.queue == "B")
        assert times.most_common(1)[0][1] == 500  # a batch is in one block
    finally:
        (live.conf / "queues.conf").write_text(queues)
        live.manager.send_signal(signal.SIGHUP)
        live.bodies("A")


def test_export_and_import_are_byte_exact(live: Instance, tmp_path: Path) -> None:
    name = tmp_path / "message"
    with live.connect() as connection:
        connection.put("A", BINARY, priority=7, properties={"mail.from": "a@b", "x": "\x1b[2J"},
                       correlation_id=b"\x01" * 24, reply_to="ERROR", group_id="letter-7",
                       group_sequence=3, last_in_group=True)
    said = live.dump("-e", "g A", "-e", "r 2000", "-e", f"o 2000 {name}", "-e", "d 2000", "--json")
    found = [json.loads(line) for line in said.out.splitlines()]
    (shown,) = [each for each in found if "group_id" in each]
    assert (bytes.fromhex(shown["group_id"]).rstrip(b"\0"), shown["group_sequence"],
            shown["last_in_group"]) == (b"letter-7", 3, True)
    assert name.read_bytes() == BINARY
    assert "GROUP" in live.dump("-e", f"i {name}", "-e", "r 2000", "-e", "p 2000 B").out
    with live.connect() as connection, connection.reader("B") as reader:
        (again,) = reader.next(timeout_s=WAIT_S)
        assert (again.body, again.priority, again.correlation_id) == (BINARY, 7, b"\x01" * 24)
        assert dict(again.properties) == {"mail.from": "a@b", "x": "\x1b[2J"}
        assert (again.group_id, again.group_sequence, again.last_in_group) == (
            "letter-7", 3, True)
        again.done()
    name.write_bytes(BINARY[:-1])
    assert live.run("omqdump", "-e", f"i {name}").code == 65
    folder = live.run("omqdump", "-e", f"i {tmp_path}")
    assert (folder.code, "not a regular file" in folder.err, "daemon" in folder.err) == (
        66, True, False), folder
    said = live.dump("-e", f"O {name.with_suffix('.json')}", "-e", "r 2000")
    assert "CONTENT_FILE" in said.out


def test_a_container_is_opened_and_injected_again(live: Instance, tmp_path: Path) -> None:
    large = b"L" * 300_000
    live.put("A", large)
    said = live.dump("-e", "g A", "-e", "r 2000", "--json").out.splitlines()
    ref = json.loads(said[1])["container"]
    assert read_item(live.paths, ref, len(large)) == large
    live.dump(stdin=f"O\n{ref}\np\n\nLOCAL\nq\n")
    assert live.bodies("LOCAL") == [large]
    live.dump("-e", "g A", "-e", f"o 2000 {tmp_path}/large")
    assert (tmp_path / "large").read_bytes() == large


def test_a_listing_shows_senders_and_subjects(live: Instance) -> None:
    mail = b"From: x\r\nSubject: a rather long subject, longer than its column\r\n\r\nbody"
    with live.connect() as connection:
        connection.put("A", mail, properties={"mail.from": "al@example.com", "mail.to": "b@c.org"})
        connection.put("A", b"no mail")
    title, first, second, _ = live.dump("-e", "l A --mail").out.splitlines()
    assert title.split() == ["QPoolId", "State", "Submitted", "Sender", "Subject"]
    assert "al@example.com" in first and first.endswith("a rather long subjec~")
    assert max(map(len, (first, second))) <= 80
    rows = [json.loads(line) for line in live.dump("-e", "l A --mail", "--json").out.splitlines()]
    assert rows[0]["recipients"] == ["b@c.org"] and rows[1]["subject"] == ""
    said = live.dump("-e", "l A 9 --mail --where 'sender=al@example.com or subject~zz*'").out
    assert len(said.splitlines()) == 3
    live.bodies("A")


def test_every_reference_of_a_listing_opens(live: Instance) -> None:
    """Brief and whole, of a small message and a large one, on a queue and when it is gone."""
    large = b"R" * 300_000
    with live.connect() as connection:
        for body in (b"small", large):
            connection.put("A", body, priority=7, properties={"customer": "42"})
    listed = [line.split()[-1] for line in live.dump("-e", "l A").out.splitlines()[1:3]]
    whole = [json.loads(line)["item_ref"]
             for line in live.dump("-e", "l A", "--json").out.splitlines()]
    assert listed[0].startswith("~/journal/") and listed[1] == whole[1]
    for ref, body in zip([*listed, *whole], (b"small", large) * 2, strict=True):
        said = live.dump("-e", f"O {ref}", "-e", "r 2000", "-e", "p 2000 B")
        assert '"customer" "42"' in said.out
        with live.connect() as connection, connection.reader("B") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert (message.body, message.priority) == (body, 7)
            assert message.properties == {"customer": "42"}
            message.done()
    assert live.bodies("A") == [b"small", large]
    said = live.dump("-e", f"O {listed[0]}", "-e", "r 2000 body")
    assert "small" in said.out and '"customer" "42"' in said.out
    assert "no message on a queue lies there" in said.err
    for wrong in ("~/journal/9999:64", f"{listed[0]}1", "~/store/1:0", "~/data/0000000/0000000"):
        assert live.run("omqdump", "-e", f"O {wrong}").code in (65, 66), wrong


def test_a_change_says_how_many_before_and_after(live: Instance) -> None:
    live.put("A", b"1", b"2")
    said = live.dump("-e", "D A 1 1")
    assert said.out == "1 of 1 message: delete\nDone\n"
    assert said.err == "omqdump: delete: 1 message\n"
    said = live.dump("-e", "M A B 1 1")
    assert said.out == "1 of 1 message: move to B\nDone\n"
    said = live.run("omhold", "--where", "queue=B")
    assert (said.out, said.err) == ("1 of 1 message: hold\n", "omhold: hold: 1 message\n")


def test_a_stale_plan_tells_a_few_refusals_and_how_many_more(live: Instance, tmp_path: Path
                                                             ) -> None:
    live.put("A", *(b"s" for _ in range(20)))
    plan = tmp_path / "plan"
    live.dump("-e", f"M A ERROR --where queue=A --dry-run {plan}")
    live.dump("--yes", "-e", "M A B 1 all")
    said = live.run("omqdump", "--apply", str(plan), "--yes")
    assert said.code == 75 and len(said.err.splitlines()) < 10
    assert "and 15 more were refused (--json names each)" in said.err
    said = live.run("omqdump", "--apply", str(plan), "--yes", "--json")
    assert len(json.loads(said.out)["refused"]) == 20


def test_what_cannot_be_opened_is_zapped(live: Instance) -> None:
    (good,) = live.put("A", b"good")
    large = b"M" * 300_000
    (bad,) = live.put("A", large)
    ref = json.loads(live.dump("-e", f"f A {bad}", "-e", "r", "--json").out.splitlines()[1])[
        "container"]
    (live.root / ref.removeprefix("~/")).write_bytes(b"too short")
    said = live.run("omqdump", "-e", f"f A {bad}", "-e", "r 2000 body")
    assert said.code == 65 and "not 300000 bytes" in said.err
    live.dump("-e", f"Z A --where id={bad}")
    assert live.on("A") == [good]


def test_a_message_in_a_readers_hands_is_left_unless_forced(live: Instance) -> None:
    live.put("A", b"mine")
    with live.connect() as connection, connection.reader("A") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        said = live.run("omqdump", "-e", "M A B 1 1")
        assert said.code == 75 and "is being processed by a reader" in said.err
        live.dump("-e", "M A B 1 1 --force")
        message.done()
        assert reader.next(timeout_s=0) == []
        assert reader.lost == 1
    assert live.bodies("B") == [b"mine"]


def test_refusals_say_why(live: Instance) -> None:
    live.put("A", b"x")
    for text, code in (("M A SHUT 1 1", 75), ("M A NOWHERE 1 1", 66), ("M A IDEL 1 1", 75),
                       ("m 2000 B", 1), ("D A 5 1", 1), ("M * B 1 1", 64), ("A /nowhere", 66),
                       ("D A --where colour=red", 64), ("D A --where age>", 64),
                       ("M A B 1 1 --priority x", 64)):
        assert live.run("omqdump", "-e", text).code == code, text
    assert len(live.on("A")) == 1


def test_changes_need_a_manager_that_answers(live: Instance) -> None:
    live.put("A", b"x")
    with live.stopped():
        said = live.run("omqdump", "-e", "s", "-e", "l A", "-e", "g A", "-e", "v A", "-e", "t q -")
        assert said.code == 0 and "is stopped by a signal" in said.err
        said = live.run("omqdump", "-e", "D A 1 1")
        assert said.code == 69
