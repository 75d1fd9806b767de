"""What-if of the mail scheduler: records of sends, the replay, the command. No Spark."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omq.base.errors import BadRequest
from omq.services.delivery.rules import KEYS, Rules
from omqtools.omqspark import main
from omqtools.omqspark.sends import Record, Send, Since, read
from omqtools.omqspark.sends_replay import keys, replayed, rows

AT_ONCE = Rules(maxchans=1, reserve_urgent=0, reserve_normal=0, chan_time1_s=0.0,
                chan_time2_s=0.0, chan_time3_s=0.0, peer_concurrency=1, peer_reserve_urgent=0,
                run_messages=1)
BEGUN = 1_800_000_000
ROUNDED_S = 1e-9


def send(came_s: float, peer: str = "a:25", *, spent_s: float = 1.0, wait_s: float = 0.0,
         priority: int = 4, channel: str = "smtp", reached: bool = True) -> Send:
    return Send(came_s, channel, peer, priority, wait_s, spent_s, reached)


def record(*sends: Send, rules: Rules = AT_ONCE) -> Record:
    return Record(list(sends), [Since(0.0, rules, begins=True)])


def test_one_process_does_one_after_another_and_more_do_them_at_once() -> None:
    queue = record(send(0.0), send(0.0), send(0.0), send(10.0))
    assert replayed(queue, {}) == [0.0, 1.0, 2.0, 0.0]
    assert replayed(queue, {"qmgr_maxchans": 3}) == [0.0, 1.0, 2.0, 0.0], "one peer, one process"
    assert replayed(queue, {"qmgr_maxchans": 3, "qmgr_peer_concurrency": 3}) == [0.0] * 4


def test_a_slow_peer_and_the_processes_it_may_have() -> None:
    slow = [send(0.0, "slow:25", spent_s=10.0) for _ in range(4)]
    queue = record(*slow, send(1.0, "fast:25"), rules=replace(AT_ONCE, maxchans=2,
                                                             peer_concurrency=2))
    assert replayed(queue, {})[-1] == 9.0, "both processes are at the slow peer"
    assert replayed(queue, {"qmgr_peer_concurrency": 1})[-1] == 0.0


def test_urgent_ones_first_and_their_reserve() -> None:
    queue = record(send(0.0), send(0.0), send(0.5, priority=7))
    assert replayed(queue, {}) == [0.0, 2.0, 0.5]
    both = {"qmgr_maxchans": 2, "qmgr_peer_concurrency": 2}
    assert replayed(queue, both) == [0.0, 0.0, 0.5]
    assert replayed(queue, both | {"qmgr_reserve_urgent": 1}) == [0.0, 1.5, 0.0]


def test_a_peer_that_was_not_reached_is_tried_by_one_until_it_is() -> None:
    rules = replace(AT_ONCE, maxchans=4, peer_concurrency=4)
    queue = record(send(0.0, reached=False), *(send(2.0) for _ in range(3)), rules=rules)
    assert replayed(queue, {}) == [0.0, 0.0, 1.0, 1.0]


def test_rules_count_from_when_they_were_told() -> None:
    queue = record(*(send(at) for at in (0.0, 0.0, 10.0, 10.0)))
    queue.since.append(Since(5.0, replace(AT_ONCE, maxchans=2, peer_concurrency=2), begins=False))
    assert replayed(queue, {}) == [0.0, 1.0, 0.0, 0.0]
    assert replayed(queue, {"qmgr_peer_concurrency": 1}) == [0.0, 1.0, 0.0, 1.0]


def test_a_scheduler_that_begins_has_no_process_and_what_waits_is_sent() -> None:
    queue = record(send(0.0, spent_s=100.0), send(0.0))
    queue.since.append(Since(5.0, AT_ONCE, begins=True))
    assert replayed(queue, {}) == [0.0, 5.0]


EVERY_KIND = st.lists(st.builds(
    Send, st.floats(0, 100), st.sampled_from(("smtp", "lmtp", "names")),
    st.sampled_from(("a:25", "b:25", "c:25")), st.integers(0, 9), st.just(0.0),
    st.floats(0, 20), st.booleans()), min_size=1, max_size=40)
RULES = st.builds(
    Rules, maxchans=st.integers(1, 6), reserve_urgent=st.integers(0, 7),
    reserve_normal=st.integers(0, 7), chan_time1_s=st.floats(0, 5), chan_time2_s=st.floats(0, 5),
    chan_time3_s=st.floats(0, 5), chan_idle_s=st.floats(0, 5), peer_concurrency=st.integers(1, 4),
    peer_reserve_urgent=st.integers(0, 4), affinity_s=st.floats(0, 5), run_s=st.floats(0, 30),
    run_messages=st.integers(1, 5))


# Of two sends of which one begins where the other ends, sums of floats may say that it is before.
@example([send(0.8, spent_s=6.0), send(1.9549576800103279)], AT_ONCE, [])
@given(EVERY_KIND, RULES, st.lists(st.tuples(st.floats(0, 120), RULES, st.booleans()), max_size=2))
def test_every_send_is_begun_and_no_peer_has_more_than_its_processes(
        sends: list[Send], rules: Rules, later: list[tuple[float, Rules, bool]]) -> None:
    sends.sort(key=lambda each: each.came_s)
    queue = Record(sends, [Since(0.0, rules, begins=True),
                           *(Since(*each) for each in sorted(later, key=lambda one: one[0]))])
    waits = replayed(queue, {})
    assert all(each >= 0.0 for each in waits)
    if later:
        return  # what was in work at a new begin is at its end
    spans = [(each.came_s + wait, each.came_s + wait + each.spent_s, each)
             for each, wait in zip(sends, waits, strict=True)]
    for begun, _, one in spans:
        beside = [each for start, end, each in spans if start <= begun < end - ROUNDED_S]
        assert len(beside) <= rules.maxchans
        same = [each for each in beside if (each.channel, each.peer) == (one.channel, one.peer)]
        assert len(same) <= rules.peer_concurrency


def lines(*sends: Send) -> str:
    return "".join(json.dumps(
        {"came_ns": int((BEGUN + each.came_s) * 1e9), "message": "x"} | {
            key: value for key, value in asdict(each).items() if key != "came_s"}) + "\n"
        for each in sends)


def head(**said: Any) -> str:
    return json.dumps({"rules": asdict(AT_ONCE) | said, "at_ns": BEGUN * 10**9 - 1,
                       "begins": True}) + "\n"


def test_what_is_no_line_of_a_record_is_counted(tmp_path: Path) -> None:
    good = lines(send(0.0))
    said = json.loads(good)
    bad = ["{", "[]", '"rules"', "7", "[" * 100_000, "\xff\xfe", '{"rules": 7}',
           '{"rules": {"maxchans": -1}, "at_ns": 1, "begins": true}', '{"missing": "many"}',
           good[:40]]
    wrong: list[dict[str, Any]] = [
        {"priority": 10}, {"priority": -1}, {"wait_s": None}, {"wait_s": -1}, {"peer": 7},
        {"spent_s": float("nan")}, {"spent_s": float("inf")}, {"came_ns": True}, {"channel": []}]
    bad += [json.dumps(said | one) for one in wrong]
    bad += [json.dumps({key: value for key, value in said.items() if key != gone})
            for gone in ("came_ns", "channel", "peer", "priority", "wait_s", "spent_s", "reached")]
    path = tmp_path / "sends"
    path.write_bytes("\n".join([head(unheard=1), *bad, '{"missing": 3}', "", good]).encode())
    found = read([path])
    assert (found.unreadable, found.missing) == (len(bad), 3)
    assert found.sends == [send(float(BEGUN))]
    assert [each.rules for each in found.since] == [AT_ONCE], "a rule of a later version is none"


def test_a_rule_that_an_older_version_did_not_have_is_the_usual_one(tmp_path: Path) -> None:
    path = tmp_path / "sends"
    path.write_text('{"rules": {"maxchans": 3}, "at_ns": 1, "begins": true}\n' + lines(send(0.0)))
    assert read([path]).since[0].rules == replace(Rules(), maxchans=3)


def test_what_the_replay_cannot_tell_is_refused() -> None:
    queue = record(send(0.0, wait_s=0.0), send(0.0, wait_s=9.0))
    found = {each["kind"]: each for each in rows(queue, {"qmgr_maxchans": 2})
             if each["of"] == "all"}
    assert found["replayed"]["mean_s"] == 0.5
    assert found["asked"]["refused"] and found["asked"]["p50_s"] is None
    assert found["asked"]["error_share"] == 8.0 / 2 / 4.5


@pytest.mark.parametrize(("word", "says"), [
    ("qmgr_window=10", "keys: "), ("maxchans=1", "keys: "), ("qmgr_maxchans", "from 1 to 500"),
    ("qmgr_maxchans=0", "from 1 to 500"), ("qmgr_maxchans=1e2", "from 1 to 500"),
    ("qmgr_maxchans=٣", "from 1 to 500")])
def test_rules_are_keys_of_omq_conf(word: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        keys([word])


def test_each_rule_has_its_key() -> None:
    assert {*KEYS.values()} == {*asdict(Rules())}
    assert Rules().changed(keys(["qmgr_run_ms=1500"])).run_s == 1.5


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    code = main.main(["whatif", *words])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                     monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)  # it cannot be imported
    path = tmp_path / "unix.sends.jsonl"
    path.write_text(head() + lines(send(0.0), send(0.0, wait_s=1.0), send(0.0, "b:25", wait_s=2.0)))
    code, found = answers(capsys, "--sends", str(path), "--rules", "qmgr_maxchans=3",
                          "qmgr_peer_concurrency=2")
    assert code == 0
    by = {(each["of"], each["name"], each["kind"]): each for each in found}
    assert by["all", "", "real"]["mean_s"] == by["all", "", "replayed"]["mean_s"] == 1.0
    assert by["all", "", "asked"]["mean_s"] == 0.0
    assert by["peer", "smtp b:25", "real"]["p99_s"] == 2.0
    assert by["priority", "normal", "asked"]["sends"] == 3
    code, found = answers(capsys, "--sends", str(path))
    assert (code, {each["kind"] for each in found}) == (0, {"real", "replayed"})


@pytest.mark.parametrize(("words", "says"), [
    (("--sends", "/nowhere/at/all"), "/nowhere/at/all: No such file"),
    (("--sends", "/"), "director"), ((), "whatif takes --out"),
    (("--sends", "FILE", "--out", "here"), "whatif takes"), (("--rules", "x"), "whatif takes"),
    (("--sends", "FILE", "--readers", "A=1"), "whatif takes"),
    (("--out", "here", "--rules", "qmgr_maxchans=1"), "whatif takes"),
    (("--sends", "FILE", "--day", "2020-01-01"), "no send of that")])
def test_what_is_not_there_is_said(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    path = tmp_path / "unix.sends.jsonl"
    path.write_text(head() + lines(send(0.0)))
    with pytest.raises(BadRequest, match=says):
        main.main(["whatif", *(str(path) if each == "FILE" else each for each in words)])
