"""The checker (omqtest/history.py) must find each planted fault, and nothing in a history
without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from omqtools.omqtest.history import HistoryFile, Line, Verdict, judge, read_histories


def put(key: str, ns: int, *, queue: str = "A", crc: int = 7, answer: str = "ok") -> list[Line]:
    tried = {"op": "try", "key": key, "queue": queue, "priority": 4, "crc": crc, "ns": ns}
    return [tried, {"op": answer, "key": key, "ns": ns + 1}] if answer else [tried]


def got(key: str, ns: int, lease: int, *, queue: str = "A", crc: int = 7, again: bool = False,
        priority: int = 4) -> Line:
    return {"op": "got", "key": key, "queue": queue, "priority": priority, "crc": crc,
            "lease": lease, "flag": again, "ns": ns}


def done(key: str, ns: int, *, queue: str = "A", answered: bool = True) -> list[Line]:
    place = {"key": key, "queue": queue, "lease": 0}
    ending = {"op": "ending", **place, "ns": ns}
    return [ending, {"op": "done", **place, "ns": ns + 1}] if answered else [ending]


def handled(key: str, ns: int, lease: int, queue: str = "A") -> list[Line]:
    return [got(key, ns, lease, queue=queue), *done(key, ns + 1, queue=queue)]


GOOD: list[Line] = [*put("p:0", 1), *put("p:1", 3), *handled("p:0", 10, 100),
                    *handled("p:1", 20, 101)]


def faults(*lines: Line) -> dict[str, list[str]]:
    return judge(lines).faults


def test_a_clean_history_is_clean() -> None:
    verdict = judge(GOOD)
    assert verdict == Verdict(acknowledged=2, delivered=2)
    assert verdict.faults == {}


@pytest.mark.parametrize("line", range(2))
def test_an_acknowledged_put_that_nobody_ended_is_lost(line: int) -> None:
    assert faults(*put("p:0", 1), *[got("p:0", 5, 9)][:line]) == {"lost": ["p:0@A"]}


def test_a_put_in_doubt_may_be_there_or_not() -> None:
    assert faults(*put("p:0", 1, answer="")) == {}
    assert faults(*put("p:0", 1, answer=""), *handled("p:0", 5, 9)) == {}


def test_a_done_in_doubt_may_count_or_not() -> None:
    once = [*put("p:0", 1), got("p:0", 5, 9), *done("p:0", 6, answered=False)]
    assert faults(*once) == {}
    assert faults(*once, got("p:0", 50, 10, again=True), *done("p:0", 51)) == {}


def test_a_hand_out_after_its_done_is_resurrected() -> None:
    assert faults(*GOOD, got("p:0", 30, 102, again=True)) == {"resurrected": ["p:0@A"]}


def test_what_nobody_put_is_invented() -> None:
    assert faults(*handled("x:0", 5, 9)) == {"invented": ["x:0@A"]}
    assert faults(*put("p:0", 1), got("p:0", 5, 9, crc=8), *done("p:0", 6)) == {
        "invented": ["p:0@A"]}
    assert faults(*put("p:0", 1), got("p:0", 5, 9, priority=5), *done("p:0", 6)) == {
        "invented": ["p:0@A"]}
    assert faults(*put("p:0", 1, queue="B", answer=""), got("p:0", 5, 9)) == {
        "invented": ["p:0@A"]}
    assert faults(*put("p:0", 1), got("p:0", 5, 9) | {"bad": True}, *done("p:0", 6)) == {
        "invented": ["p:0@A"]}


def test_a_history_of_one_queue_need_not_name_it() -> None:
    lines = [{name: value for name, value in line.items() if name not in ("queue", "priority")}
             for line in GOOD]
    assert faults(*lines) == {}
    assert faults(*lines[:-2]) == {"lost": ["p:1"]}


def test_what_was_refused_must_not_come() -> None:
    assert faults(*put("p:0", 1, answer="no"), *handled("p:0", 5, 9)) == {"invented": ["p:0@A"]}


def test_a_second_time_needs_the_flag() -> None:
    first = [*put("p:0", 1), got("p:0", 5, 9)]
    second = [got("p:0", 8, 10), *done("p:0", 9)]
    assert faults(*first, *second) == {"duplicated": ["p:0@A"]}
    assert faults(*first, {"op": "back", "key": "p:0", "queue": "A", "ns": 6}, *second) == {}
    assert faults(*first, got("p:0", 8, 10, again=True), *done("p:0", 9)) == {}


def test_order_is_that_of_the_leases() -> None:
    puts = [*put("p:0", 1), *put("p:1", 3)]
    swapped = [*handled("p:1", 10, 100), *handled("p:0", 20, 101)]
    assert faults(*puts, *swapped) == {"disordered": ["p:0"]}
    assert faults(*puts, {"op": "death", "ns": 15}, *swapped) == {}
    assert faults(*puts, {"op": "death", "ns": 25}, *swapped) == {"disordered": ["p:0"]}
    assert faults(*puts, {"op": "death", "ns": 25, "since": 15}, *swapped) == {}
    assert faults(*puts, {"op": "death", "ns": 25, "since": 22}, *swapped) == {
        "disordered": ["p:0"]}
    assert faults(*puts, {"op": "death", "ns": 0, "since": 0}, *swapped) == {
        "disordered": ["p:0"]}
    late = [*handled("p:0", 20, 100), *handled("p:1", 10, 101)]  # seen late, given first
    assert faults(*puts, *late) == {}


def test_order_is_for_each_queue_and_producer() -> None:
    other = [*put("q:0", 5), *put("p:0", 7, queue="B")]
    mixed = [*handled("p:1", 10, 100), *handled("q:0", 20, 101), *handled("p:0", 25, 102, "B")]
    assert faults(*put("p:1", 3), *other, *mixed) == {}


def test_a_message_on_two_queues_is_two_promises() -> None:
    both = [*put("p:0", 1, answer=""), *put("p:0", 1, queue="B")]
    assert faults(*both, *handled("p:0", 10, 100)) == {"lost": ["p:0@B"]}


def test_histories_survive_a_cut_line(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "one")
    history.say({"op": "death"})
    history.close()
    with (tmp_path / "one").open("a") as file:
        file.write('{"op": "dea')
    (line,) = read_histories(tmp_path)
    assert line["op"] == "death" and line["ns"] > 0
