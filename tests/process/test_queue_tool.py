"""omq queue: the same by command; and without a manager, what the next one will find."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from omq.base.errors import Exit
from tests.process import operator_state as state
from tests.process.operator_world import Instance


def shown(live: Instance, queue: str) -> dict[str, object]:
    said = live.run("omq queue", "show", queue, "--json")
    assert said.code == 0, said
    told: dict[str, object] = json.loads(said.out)
    return told


def kinds(live: Instance) -> dict[str, tuple[str, str, int]]:
    said = live.run("omq queue", "list", "--json")
    assert said.code == 0, said
    rows = [json.loads(line) for line in said.out.splitlines()]
    return {row["queue"]: (row["kind"], row["by"], row["messages"]) for row in rows}


def test_a_queue_by_command(live: Instance) -> None:
    assert live.run("omq queue", "define", "RUN", "max_depth=5", "--reason", "trial").code == 0
    assert live.run("omq queue", "define", "ALSO", "--kind", "alias", "target=RUN").code == 0
    live.put("ALSO", b"1", b"22")
    told = shown(live, "RUN")
    facts = told["facts"]
    assert isinstance(facts, dict) and facts["ready"] == 2 and facts["blocks_used"] == 2
    assert facts["last_message"] == f"{facts['last_message'][:32]}{2:016x}"
    assert live.run("omq queue", "alter", "RUN", "max_depth=", "get=inhibited").code == 0
    keys = shown(live, "RUN")["keys"]
    assert isinstance(keys, dict) and (keys["max_depth"], keys["get"]) == ("0", "inhibited")
    assert live.run("omrelease", "-q", "RUN").code == 0
    assert live.bodies("RUN") == [b"1", b"22"]
    live.put("RUN", b"3")
    for do in ("clear", "rename"):
        more = ["--to", "WAS"] if do == "rename" else []
        code = live.run("omq queue", do, "RUN", *more).code
        assert code == (Exit.TEMPORARY if do == "rename" else 0), "ALSO names it"
    live.run("omq queue", "delete", "ALSO")
    assert live.run("omq queue", "rename", "RUN", "--to", "WAS").code == 0
    assert live.run("omq queue", "truncate", "WAS").code == 0
    assert live.run("omq queue", "roll-over", "A", "--to", "A.OLD").code == 0
    assert live.run("omq queue", "delete", "WAS").code == 0
    told_by = live.run("omqlog", "--operator").out
    assert "define RUN" in told_by and "trial" in told_by and "roll_over A" in told_by


def test_a_queue_of_the_file_is_altered_in_the_file(live: Instance) -> None:
    said = live.run("omq queue", "alter", "A", "max_depth=1")
    assert said.code == 0, said
    keys = shown(live, "A")["keys"]
    assert isinstance(keys, dict) and keys["max_depth"] == "1"
    assert live.run("omq queue", "alter", "A", "max_depth=x").code == Exit.USAGE
    live.put("A", b"1")
    live.stop()
    live.start()
    with pytest.raises(Exception, match="holds its maximum"):
        live.put("A", b"2")


def test_without_a_manager_the_files_say_it(live: Instance) -> None:
    live.run("omq queue", "define", "RUN")
    live.run("omq queue", "define", "ALSO", "--kind", "alias", "target=RUN A")
    live.put("RUN", b"1")
    for end in (live.kill, live.stop):
        end()
        found = kinds(live)
        assert found["RUN"] == ("local", "run time", 1) and found["ALSO"][0] == "alias"
        assert shown(live, "RUN")["by"] == "run time"
        assert live.run("omq queue", "delete", "ALSO").code == Exit.UNAVAILABLE
        live.start()
    assert kinds(live)["RUN"] == ("local", "run time", 1)


@pytest.mark.parametrize("words", [
    ("define",), ("list", "A"), ("rename", "A"), ("alter", "A"), ("alter", "A", "depth"),
    ("define", "RUN", "depth=1"), ("define", "RUN", "--kind", "cluster"), ("frobnicate", "A")])
def test_wrong_words(live: Instance, words: tuple[str, ...]) -> None:
    assert live.run("omq queue", *words).code == Exit.USAGE


@pytest.mark.parametrize("key", ["kind", "reason", "name", "self", "keys"])
def test_a_key_that_has_the_name_of_an_argument(live: Instance, key: str) -> None:
    assert live.run("omq queue", "define", "RUN").code == 0
    for words in (("define", "OTHER"), ("alter", "RUN")):
        said = live.run("omq queue", *words, f"{key}=alias")
        assert said.code == Exit.USAGE and f"{key}: unknown key" in said.err
    assert "OTHER" not in kinds(live)


def test_channels_where_none_can_come_in(live: Instance) -> None:
    """SYSTEM.CHANNELS is for those alone: whoever only sends sees and resets his own."""
    assert "SYSTEM.CHANNELS" not in kinds(live)
    assert live.run("omq channel", "list").code == 0
    assert live.run("omq channel", "define", "EAST", "host=127.0.0.1", "tls=no").code == 0
    said = live.run("omq channel", "list", "--json")
    assert said.code == 0 and json.loads(said.out)["channel"] == "EAST"
    assert live.run("omq channel", "show", "EAST").code == 0
    assert live.run("omq channel", "reset", "EAST", "batch=0").code == 0
    said = live.run("omq channel", "show", "WEST")
    assert said.code == Exit.NO_INPUT and "WEST" in said.err and "SYSTEM" not in said.err


def test_definitions_of_a_model_are_the_same_once_they_are_taken(live: Instance, tmp_path: Path
                                                                 ) -> None:
    assert live.run("omq queue", "define", "MODEL", "--kind", "model", "lifetime=permanent",
                    "max_depth=7").code == 0
    file = tmp_path / "file.json"
    file.write_text(live.run("omq definitions", "export").out)
    said = live.run("omq definitions", "import", str(file))
    assert said.code == 0 and "0 of" in said.out and "altered" not in said.out
    live.run("omq queue", "alter", "MODEL", "max_depth=8")
    assert "queue MODEL: altered" in live.run("omq definitions", "import", str(file)).out
    keys = shown(live, "MODEL")["keys"]
    assert isinstance(keys, dict) and keys["max_depth"] == "7"


def test_what_an_operator_has_set_outlives_every_end(live: Instance, tmp_path: Path) -> None:
    """A kill, a stop, the loss of the checkpoint, a copy of the spool: it is as it was set."""
    state.complete()
    with live.connect() as connection:
        state.set_all(connection)
        set_ = state.found(connection)
    state.whole(set_)

    def lost() -> None:
        live.kill()
        (live.paths.msgpool / "poolctrl").unlink()

    def copied() -> None:
        live.stop()
        shutil.copytree(live.root, tmp_path / "backup", symlinks=True)
        shutil.rmtree(live.root)
        shutil.move(tmp_path / "backup", live.root)

    for end in (live.kill, live.stop, lost, copied):
        end()
        offline = {row["queue"]: row["paused"] for row in map(json.loads, live.run(
            "omq queue", "list", "--json").out.splitlines())}
        assert {name: keys for name, keys in offline.items() if keys} == state.PAUSES, end
        live.start()
        with live.connect() as connection:
            assert state.found(connection) == set_, end


def test_definitions_carry_what_an_operator_has_set(live: Instance, tmp_path: Path) -> None:
    """To an instance that never heard of it, and back to one where it was changed."""
    with live.connect() as connection:
        state.set_all(connection)
        set_ = state.found(connection, messages=False)
    file = tmp_path / "file.json"
    file.write_text(live.run("omq definitions", "export").out)
    whole = json.loads(file.read_text())
    assert "0 of" in live.run("omq definitions", "import", str(file)).out
    other = Instance(tmp_path / "other")
    other.start()
    try:
        said = other.run("omq definitions", "import", str(file))
        assert said.code == 0 and "pause KEYED key 'tenant 7': paused" in said.out, said
        with other.connect() as connection:
            assert state.found(connection, messages=False) == set_
            connection.queues.resume("KEYED", "a, b")
            connection.queues.pause("KEYED", "more")
        for command, told in (("check", "2 of"), ("import", "2 of"), ("import", "0 of")):
            said = other.run("omq definitions", command, str(file))
            assert said.code == 0 and told in said.out, said
        with other.connect() as connection:
            assert state.found(connection, messages=False) == set_
        for odd in ("x", [1], ["a\n"], ["x" * 201]):
            file.write_text(json.dumps({"version": 1, "queues": [
                {"name": "KEYED", "keys": {"limit_by": "group"}, "paused": odd}]}))
            assert other.run("omq definitions", "import", str(file)).code == Exit.DATA
        for each in whole["queues"]:
            each.pop("paused", None)
        file.write_text(json.dumps(whole))
        assert "0 of" in other.run("omq definitions", "import", str(file)).out, "an older file"
        with other.connect() as connection:
            assert state.found(connection, messages=False) == set_
    finally:
        other.end()


def test_a_pause_of_a_key_stays_over_a_roll_over(live: Instance) -> None:
    """For what is on the old queue and for what comes on the new one, before and after a restart;
    a resume of one leaves the other."""
    with live.connect() as connection:
        connection.queues.define("WORK", limit_by="group")
        connection.queues.pause("WORK", "a")
        for group in "ab":
            connection.put("WORK", b"old " + group.encode(), group_id=group)
        connection.queues.roll_over("WORK", "WORK.OLD")
        for group in "ab":
            connection.put("WORK", b"new " + group.encode(), group_id=group)

        def given(queue: str) -> list[bytes]:
            with connection.reader(queue, batch=10) as reader:
                batch = reader.next(timeout_s=0)
                for message in batch:
                    message.release()
                return [message.body for message in batch]

        for restart in (live.kill, live.stop, None):
            assert (given("WORK"), given("WORK.OLD")) == ([b"new b"], [b"old b"])
            assert connection.queues.show("WORK.OLD").paused == ("a",)
            if restart is not None:
                restart()
                live.start()
        connection.queues.resume("WORK.OLD", "a")
        assert (given("WORK"), given("WORK.OLD")) == ([b"new b"], [b"old a", b"old b"])
