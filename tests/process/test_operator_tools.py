"""The tools beside omqdump on a running, hung, killed and stopped instance."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omq
from omq import Outgoing
from omq.base.paths import SpoolPaths
from omq.core.index.view import IndexView
from omq.core.redo.checkpoint import settle_changes
from omq.format.index import EntryState
from omq.format.pool import Message, encode_message
from omq.format.poolctrl import SLOT_BYTES
from omq.storage import durable, poolctrl, spool
from omq.storage.disk import Disk
from omq.storage.pool import PoolFiles
from omq.storage.segment import attach, read_ids
from tests.process.operator_world import QUEUES, WAIT_S, Instance
from tests.process.test_bad_input import reachable

LOOKING = {
    "omqdump": ["-e", "s", "-e", "T", "-e", "L", "-e", "l A", "-e", "v A", "-e", "t q -"],
    "omqwhy": [], "omqlog": ["--operator"], "omqshape": [], "omqadvise": [], "omqcheck": [],
    "omscan": [], "omshowlog": [], "omstat": ["-s"]}


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def poison(live: Instance, body: bytes) -> int:
    """A message on POISON: three attempts failed."""
    (qpool,) = live.put("A", body)
    with live.connect("bad") as connection, connection.reader("A") as reader:
        for _ in range(3):
            (message,) = reader.next(timeout_s=WAIT_S)
            message.fail("it is green")
    assert live.on("POISON") == [qpool]
    return qpool


def test_hold_release_and_why(live: Instance) -> None:
    first, second = live.put("A", b"1", b"22")
    assert live.run("omhold", str(first), "--reason", "look").out == "1 of 1 message: hold\n"
    assert live.run("omqwhy", str(first), str(second), "--json").code == 0
    found = rows(live.run("omqwhy", str(first), str(second), "--json").out)
    assert [row["why"] for row in found] == ["held", "no_reader"]
    with live.connect() as connection, connection.reader("A") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        assert message.qpool_id == second
        (why,) = rows(live.run("omqwhy", str(second), "--json").out)
        assert why["why"] == "active" and f"pid {os.getpid()}" in why["text"]
        message.defer(3600)
        assert reader.next(timeout_s=0) == []
    assert rows(live.run("omqwhy", str(second), "--json").out)[0]["why"] == "deferred"
    assert live.run("omrelease", "--where", "queue=A").out == "2 of 2 messages: release\n"
    assert live.bodies("A") == [b"1", b"22"]
    said = live.run("omqwhy", str(first))
    assert said.code == 1 and "omqlog --message" in said.err
    assert live.run("omrelease", "--where", "queue=A").code == 1
    assert live.run("omhold").code == 64


def test_every_other_reason_has_its_word(tmp_path: Path) -> None:
    made = Instance(tmp_path / "spool")
    (made.conf / "queues.conf").write_text(QUEUES + "\n[STILL]\nget = inhibited\n")
    made.start()

    def why(qpool: int) -> str:
        (found,) = rows(made.run("omqwhy", str(qpool), "--json").out)
        return str(found["why"])

    first, second, gone = made.put("A", b"1", b"2", b"3")
    (still,) = made.put("STILL", b"4")
    made.dump("-e", f"D A --where id={gone}")
    with made.connect("slow") as connection, connection.reader("A") as reader:
        assert why(second) == "ready"
        assert len(reader.next(timeout_s=WAIT_S)) == 1
        assert [why(each) for each in (second, still, gone)] == [
            "readers_busy", "get_inhibited", "deleted"]
        made.kill()
        made.start()
        assert why(first) == "limbo"  # until its reader comes back
    made.end()


def test_poison_goes_back_marked_and_within_a_limit(live: Instance) -> None:
    first, second = poison(live, b"one"), None
    (why,) = rows(live.run("omqwhy", str(first), "--json").out)
    assert why["why"] == "poison" and why["evidence"]["queue"] == "A"
    assert why["evidence"]["reason"] == "it is green"
    assert live.run("omrequeue", "--where", "replayed=no", "--count").out == "1\n"
    assert live.run("omrequeue", str(first), "--reason", "fixed").code == 0
    assert live.on("A") == [first]
    (row,) = rows(live.dump("-e", "l A --where replayed=yes", "--json").out)
    assert row["replayed"] is True
    with live.connect("bad") as connection, connection.reader("A") as reader:
        for _ in range(3):
            (message,) = reader.next(timeout_s=WAIT_S)
            message.fail("still green")
    assert "replayed from POISON before" in live.run("omqwhy", str(first)).out
    assert second is None
    live.run("omrequeue", str(first), "--to", "b")
    assert live.on("B") == [first]


def test_the_biography_of_a_message(live: Instance) -> None:
    qpool = poison(live, b"story")
    live.run("omrequeue", str(qpool), "--to", "B", "--reason", "ticket 9")
    with live.connect("good") as connection, connection.reader("B") as reader:
        (message,) = reader.next(timeout_s=WAIT_S)
        message.move(["LOCAL", "ERROR"])
    live.bodies("LOCAL")
    live.bodies("ERROR")
    found = rows(live.run("omqlog", "--message", str(qpool), "--json").out)
    assert [row["event"] for row in found] == [
        "put", "give", "defer", "give", "defer", "give", "poison", "move", "give", "move", "give",
        "done", "give", "done"]
    operator = found[7]["operator"]
    assert (operator["reason"], operator["uid"]) == ("ticket 9", os.getuid())
    assert found[7]["targets"] == ["B"] and found[9]["targets"] == ["LOCAL", "ERROR"]
    assert found[1]["client"] == "bad" and found[8]["client"] == "good"
    assert found[-1]["gone"] is True
    said = live.run("omqlog", "--operator").out
    assert "operator command, 1 message [" in said and "reason: ticket 9" in said
    assert live.run("omqlog", "--message", "999999").code == 1
    assert live.run("omqlog").code == 64


def test_all_of_a_mail(live: Instance) -> None:
    """What moves made of a message, and of that, is told with it; others are not."""
    with live.connect("smtp") as connection:
        given = connection.put("A", b"mail", message_id=bytes.fromhex("ab" * 24))
        connection.put("A", b"another")
    for source, target in (("A", "B"), ("B", "LOCAL")):
        with live.connect("router") as connection, connection.reader(source) as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            message.move((), [Outgoing(message.body, queues=(target,))])
    (live.paths.logs / "mail.log").write_text(
        f"Nov 22 10:00:00 h omq/smtpd[1]: {given}: client=c\n"
        f"Nov 22 10:00:00 h omq/smtpd[1]: {'cd' * 24}: client=c\n"
        f"Nov 22 10:00:00 h omq/smtpd[1]: {given}: client=sender non-delivery notification: "
        f"{'cd' * 24}\n"
        f"Nov 22 10:00:00 h omq/bounce[1]: {given}: sender non-delivery notification: "
        f"{'12' * 24}, to=<c>, failed=1\n"
        f"Nov 22 10:00:00 h omq/qmgr[1]: {'12' * 24}: from=<>, size=1, nrcpt=1 (queue active)\n")
    found = rows(live.run("omqlog", "--mail", given, "--json").out)
    assert [row.get("event") for row in found] == [
        "put", "give", "done", "put", "give", "done", "put", None, None, None, None]
    assert found[3]["parent"] == found[0]["qpool_id"]
    assert found[6]["parent"] == found[3]["qpool_id"]
    assert found[7]["mail_log"].endswith(f"{given}: client=c")
    assert f"{'12' * 24}: from=<>" in found[-1]["mail_log"], "the report that it tells of"
    assert f"(QPoolId {found[6]['qpool_id']})" in live.run("omqlog", "--mail", given).out
    assert live.run("omqlog", "--mail", "ef" * 24).code == 1
    assert live.run("omqlog", "--mail", "x" * 60).code == 64


def test_a_reader_is_freed(live: Instance) -> None:
    live.put("A", b"stuck")
    with live.connect("hangs") as connection, connection.reader("A") as reader:
        assert len(reader.next(timeout_s=WAIT_S)) == 1
        assert live.run("omfreeq", "A", "-p", "1").code == 1
        said = live.run("omfreeq", "-q", "a", "-p", str(os.getpid()), "--reason", "hangs")
        assert said.out == f"reader {os.getpid()} is released from A\n"
    (row,) = rows(live.run("omqdump", "-e", "l A", "--json").out)
    assert (row["state"], row["failed_attempts"]) == ("ready", 0)
    told = live.run("omqlog", "--message", str(row["qpool_id"])).out
    assert "given back untouched on A: ordered by an operator" in told and "died" not in told
    assert "process" in live.run("omqlog", "--operator").out.splitlines()[-3]
    events = [json.loads(line)["event"] for line in live.paths.event_log.read_text().splitlines()]
    assert 1320 in events and 1223 not in events
    assert live.bodies("A") == [b"stuck"]
    assert live.run("omfreeq", "NOWHERE", "-p", "1").code == 66


def test_shape_counts_ages(live: Instance) -> None:
    live.put("A", b"1", b"2")
    live.put("B", b"3")
    (row,) = rows(live.run("omqshape", "a", "--json", "-b", "3").out)
    assert (row["messages"], row["counts"], row["minutes"]) == (2, [2, 0, 0], [5, 10])
    out = live.run("omqshape").out.splitlines()
    assert out[0].split() == [
        "T", "5", "10", "20", "40", "80", "160", "320", "640", "1280", "1280+"]
    assert out[1].split() == ["TOTAL", "3", "3", *["0"] * 9]
    assert max(map(len, out)) <= 80
    assert live.run("omqshape", "NOWHERE").code == 66
    assert live.run("omqshape", "-b", "1").code == 64


def test_advice_from_measured_times(live: Instance) -> None:
    live.put("A", *(b"%d" % n for n in range(30)))
    live.bodies("A")
    found = {row["queue"]: row for row in rows(live.run("omqadvise", "--json").out)}
    assert found["A"]["service_s"] > 0 and found["A"]["needed"] >= 1
    assert found["A"]["arrivals_per_s"] > 0
    assert "QUEUE" in live.run("omqadvise").out
    assert live.run("omqadvise", "--busy", "0").code == 64


def test_index_pool_and_journal_agree(live: Instance) -> None:
    live.put("A", b"1", b"2", b"3")
    live.put(["A", "B"], b"both", b"L" * 300_000)
    poison_free = live.on("A")
    live.dump("-e", f"M A LOCAL --where id={poison_free[0]}", "-e", "D A 1 1")
    live.run("omhold", str(poison_free[2]))
    with live.connect() as connection, connection.reader("A") as reader:
        assert reader.next(timeout_s=WAIT_S)
        said = live.run("omqcheck", "--all", "--bodies")
        assert (said.code, said.out[:37]) == (0, "index, pool and journal agree, up to "), said
    with live.stopped():
        assert live.run("omqcheck").code == 0
    live.kill()
    assert live.run("omqcheck", "--bodies").code == 0
    live.start()
    live.stop()
    said = live.run("omqcheck", "--bodies")
    assert said.code == 0 and "pool and journal alone" in said.err
    spoil_older_slot(live.paths)
    said = live.run("omqcheck")
    assert said.code == 0 and "the next checkpoint writes this one again" in said.err, said


def spoil_older_slot(paths: SpoolPaths) -> None:
    """Of poolctrl: what a checkpoint that was cut leaves."""
    control, _ = poolctrl.load(paths)
    assert control is not None
    with (paths.msgpool / poolctrl.NAME).open("r+b") as file:
        file.seek((control.generation + 1) % 2 * SLOT_BYTES + 100)
        file.write(b"spoiled")


def test_a_wrong_index_is_told_from_a_wrong_pool(live: Instance) -> None:
    (qpool,) = live.put("A", b"1")
    live.put("B", b"2")
    live.kill()
    ids = read_ids(live.paths)
    assert ids is not None
    memory = attach(ids.segment, write=True)
    buffer = memoryview(memory)
    with IndexView.attach(live.paths) as view:
        header = view.header
        assert header is not None
        (entry,) = [row.number for row in view.entries("A")]
    states = header.layout().column(buffer, "e_state")
    states[entry] = int(EntryState.HELD)
    states.release()
    buffer.release()
    memory.detach()
    said = live.run("omqcheck", "--all", "--json")
    first = rows(said.out)[0]
    assert said.code == 1
    assert (first["qpool_id"], first["wrong"]) == (qpool, "index")
    assert first["index"]["queues"]["A"]["state"] == "held"
    assert first["journal"]["queues"]["A"]["state"] == "ready"
    assert f"index is wrong about message {qpool}" in live.run("omqcheck").out
    assert any(row["kind"] == "index" and row["rule"] == "queue" for row in rows(said.out))


def test_the_biography_of_a_message_that_is_gone_by_its_own_id(live: Instance) -> None:
    with live.connect() as connection:
        text = connection.put("A", b"1", message_id=b"order 4711")
    assert live.bodies("A") == [b"1"]
    said = live.run("omqlog", "--message", text)
    assert said.code == 0 and "put on A" in said.out and "; it is gone" in said.out
    said = live.run("omqlog", "--message", "ab" * 24)
    assert said.code == 1 and "journal and archive say nothing of it" in said.err
    said = live.run("omrequeue", "1")
    assert said.code == 1 and "'move from POISON' matches no message" in said.err


def test_orphan_containers_are_found_and_removed(live: Instance) -> None:
    live.put("A", b"L" * 300_000)
    kept = next(live.paths.data.glob("*/*"))
    orphan = live.paths.data / "0000001" / "000000a"
    orphan.parent.mkdir()
    orphan.write_bytes(b"lost")
    (live.paths.data / "0000001" / "README").write_bytes(b"not ours")
    assert live.run("omscan").out.startswith("0 orphan containers"), "it is young"
    said = live.run("omscan", "--older", "0")
    assert said.code == 1 and "~/data/0000001/000000a" in said.out and orphan.exists()
    unsaid = live.run("omscan", "--older", "0", "--remove")
    assert unsaid.code == 64 and "orphans would be changed" in unsaid.err
    assert "y/n" not in unsaid.err
    assert live.run("omscan", "--older", "0", "--remove", "--yes", "--reason", "clean").code == 0
    assert kept.exists() and not orphan.exists()
    assert "reason: clean" in live.run("omqlog", "--operator").out
    assert live.run("omscan", "--older", "0").code == 0


def test_an_orphan_that_cannot_be_removed_holds_up_no_other(live: Instance) -> None:
    """An immutable file, say: it is named, the exit code says that something is left."""
    live.put("A", b"L" * 300_000)
    first, second = (live.paths.data / "0000001" / name for name in ("000000a", "000000b"))
    first.parent.mkdir()
    for each in (first, second):
        each.write_bytes(b"lost")

    class OneStays(Disk):
        def unlink(self, path: str) -> None:
            if path == str(first):
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            super().unlink(path)

    before = durable.use(OneStays())
    try:
        said = live.run("omscan", "--older", "0", "--remove", "--yes")
    finally:
        durable.use(before)
    assert said.code == 1 and str(first) in said.err
    assert first.exists() and not second.exists()


def test_containers_made_ahead_are_told_apart(live: Instance) -> None:
    """A client that was killed leaves empty ones: no orphans, but they can be removed."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            connection = omq.connect(live.root)
            for _ in range(5):
                connection.put("A", b"L" * 300_000)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    spare = [path for path in live.paths.data.glob("*/*") if not path.stat().st_size]
    assert spare
    said = live.run("omscan", "--older", "0")
    assert said.code == 0 and f"; {len(spare)} spare\n" in said.out, said
    assert "spare" not in live.run("omscan").out, "they are young"
    assert live.run("omscan", "--older", "0", "--remove", "--yes").code == 0
    assert {path.stat().st_size for path in live.paths.data.glob("*/*")} == {300_000}


def test_orphan_pool_records_are_found_and_removed(tmp_path: Path) -> None:
    """An older record of a message and half of a long one; a copy stays in quarantine."""
    made = Instance(tmp_path / "spool")
    made.start()
    (qpool,) = made.put("A", b"kept")
    assert "changes are not in the pool yet" in made.run("omscan").err
    made.stop()
    made.start()  # recovery writes the pool
    made.stop()
    pool = PoolFiles(made.paths, spool.open_spool(made.root).uuid)
    (file,) = pool.files()
    (whole,) = [found for n in range(8) if isinstance(found := pool.read_record(file, n), Message)]
    older = replace(whole, record=20, lsn=whole.lsn - 1)
    long = replace(whole, qpool=qpool + 7, record=30, more=[31], parts=whole.parts * 20)
    images = dict(encode_message(older)) | dict(encode_message(long))
    del images[30]
    control, _ = poolctrl.load(made.paths)
    pool.recover_double_write(control)
    settle_changes(made.paths, pool, {(file, record): image for record, image in images.items()})
    pool.close()
    assert sorted(images) == [20, 31]
    said = made.run("omscan")
    assert said.code == 1
    assert f"{file}QP:20 older record of QPoolId {qpool}" in said.out
    assert f"{file}QP:31 continuation record that no message leads to" in said.out
    assert "0 orphan containers, 0 bytes; 2 orphan records; 0 unread\n" in said.out
    made.start()
    said = made.run("omscan", "--remove", "--yes")
    assert said.code == 1 and "from a stopped instance only" in said.err
    made.stop()
    said = made.run("omscan", "--remove", "--yes", "--reason", "clean", "--json")
    left = [json.loads(line) for line in said.out.splitlines()]
    assert [each["removed"] for each in left] == [True] * len(left), said
    assert made.run("omscan").code == 0
    assert len(list(made.paths.quarantine.glob("*.bin"))) == 2
    (order,) = [json.loads(line) for line in made.paths.event_log.read_text().splitlines()
                if '"omscan"' in line][-1:]
    assert (order["event"], order["uid"], order["reason"]) == (1251, os.getuid(), "clean")
    made.start()
    assert made.on("A") == [qpool]
    made.end()


def test_the_event_log(live: Instance) -> None:
    live.put("A", b"1")
    live.run("omhold", "--where", "queue=A", "--reason", "why not")
    assert live.manager is not None
    said = live.run("omshowlog", "-l", "9", "-P", "-i", str(live.manager.pid), "-e", "1251",
                    "-p", "10").out
    assert said.startswith("REPORT      Queue Manager(queue.manager ) ")
    assert "[OM 1251] Operator command carried out\n" in said
    assert "      reason = why not\n" in said
    assert f"Pid of logging process: {live.manager.pid}\n\n" in said
    assert live.run("omshowlog", "-l", "fatal").code == 1
    assert live.run("omshowlog", "-l", "loud").code == 64
    assert live.run("omshowlog", "--since", "2999-01-01T00:00").code == 1
    with live.paths.event_log.open("ab") as log:
        log.write(b'{"half": ')
    found = live.run("omshowlog", "--json")
    assert rows(found.out)[-1]["event"] == 1251 and "1 lines are not events" in found.err


@pytest.mark.parametrize("name", LOOKING)
def test_looking_works_live_hung_killed_and_stopped(live: Instance, name: str) -> None:
    """Every cell of the table in TOOLS.md for the tools that only look."""
    (qpool,) = live.put("A", b"1")
    live.run("omhold", str(qpool))
    words = LOOKING[name] or ([str(qpool)] if name == "omqwhy" else [])
    expected = live.run(name, *words)
    assert expected.code == 0, expected
    with live.stopped():
        assert live.run(name, *words).code == 0
    live.kill()
    assert live.run(name, *words).code == 0
    live.start()
    live.stop()
    assert live.run(name, *words).code == 0
    for file in live.paths.journal.glob("0*.jnl"):
        raw = bytearray(file.read_bytes())
        raw[9000:9100] = b"\xa5" * 100
        file.write_bytes(raw)
    damaged = live.run(name, *words)
    assert damaged.code in (0, 1, 65), damaged
    assert "Traceback" not in damaged.err


NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")
def test_without_authority_nothing_is_changed(open_folder: Path) -> None:
    live = Instance(open_folder / "spool")
    (live.conf / "authority.conf").write_text(f"[B]\nuser:{NOBODY} = admin put\n")
    settings = (live.conf / "omq.conf").read_text()
    group = live.root.stat().st_gid
    (live.conf / "omq.conf").write_text(settings.replace(
        "[ipc]\n", f"[ipc]\noperators_group = {group}\n"))
    live.start()
    (qpool,) = live.put("A", b"1")
    live.put("B", b"2")
    said = live.run_as(NOBODY, "omqshape")
    assert said.code == 77 and "nobody may not use" in said.err
    reachable(live.root)
    assert live.run_as(NOBODY, "omqshape").code == 0
    assert f"{qpool} " in live.run_as(NOBODY, "omqdump", "-e", "l A").out
    for name, words in (("omhold", [str(qpool)]), ("omqdump", ["-e", "D A 1 1"]),
                        ("omqdump", ["-e", "M B A 1 1"]), ("omqdump", ["-e", "C B A 1 1"]),
                        ("omfreeq", ["A", "-p", "1"])):
        said = live.run_as(NOBODY, name, *words)
        assert said.code == 77, said
        assert f"uid {NOBODY} has no authority to " in said.err
    assert (live.on("A"), len(live.on("B"))) == ([qpool], 1)
    assert live.run_as(NOBODY, "omqdump", "--reason", "mine", "-e", "D B 1 1").code == 0
    assert live.on("B") == []
    to_send = live.conf / "omq.conf"
    assert live.run_as(NOBODY, "omqdump", "-e", f"O {to_send}", "-e", "p 2000 B").code == 0
    assert len(live.on("B")) == 1
    last, put = rows(live.run("omqlog", "--operator", "--json").out)
    assert "omqdump p B" in put["operator"]["command"]
    assert last["operator"]["uid"] == NOBODY and last["operator"]["reason"] == "mine"
    live.end()


def test_a_client_is_not_called_by_the_name_of_another_epochs(live: Instance) -> None:
    """Numbers of clients begin anew with each queue manager: of one that was killed the names of
    its readers say nothing of the next one's clients."""
    with live.connect("idel") as connection, connection.reader("B") as reader:
        assert reader.next(timeout_s=0) == []
        live.kill()
        reader.interrupt()
    live.start()
    (qpool,) = live.put("A", b"after a power cut")
    found = rows(live.run("omqlog", "--message", str(qpool), "--json").out)
    assert [(row["event"], row["client"]) for row in found] == [("put", "")]
