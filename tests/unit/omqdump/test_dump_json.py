"""The text dumps as JSON: every fact of the golden texts, with its type."""

from __future__ import annotations

import json
from pathlib import Path

from omqtools.omqdump.dump_json import json_lines

DUMPS = Path(__file__).parents[2] / "golden/dumps"


def read(name: str, section: str = "") -> list[dict[str, object]]:
    return [json.loads(line) for line in json_lines(
        (DUMPS / name).read_text().splitlines(), section)]


def test_the_pool() -> None:
    head, first, *rest = read("pool.txt", "pool")
    assert head == {"section": "pool", "version": 1, "total_files": 1}
    assert first["filename"] == "~/data/000000a/0000b94" and first["nextrecord"] is None
    assert first["create_time"] == 927030603 and first["offset"] == 0x200
    assert [each["queue"] for each in first["queues"]] == [  # type: ignore[attr-defined]
        "DESK", "LOCAL", "UNIX"]
    assert first["queues"][2] == {  # type: ignore[index]
        "queue": "UNIX", "priority": 7, "queue_flags": 2, "defer_time": 927031075,
        "submit_time": 927030941}
    text = (DUMPS / "pool.txt").read_text()
    assert len(rest) == text.count("Pool File=") - 1


def test_the_memory() -> None:
    found = read("memory.txt")
    text = (DUMPS / "memory.txt").read_text()
    by = {name: [each for each in found if each["section"] == name]
          for name in ("active", "messages", "queues", "readers")}
    queues = [each for each in by["queues"] if "queue_name" in each]
    assert len(queues) == text.split("==Queue Readers==")[0].split("== Queues ==")[1].count(
        "Queue Name=")
    assert all(len(each["load_averages"]) == 3 for each in queues)  # type: ignore[arg-type]
    waiting = [each for each in by["queues"] if "item_ref" in each]
    assert len(waiting) == text.count("\n+++++\n")
    names = {each["queue_name"] for each in queues}
    assert waiting and all(each["queue"] in names for each in waiting)
    readers = [each for each in by["readers"] if "pid" in each]
    assert readers and all(isinstance(each["pid"], int) for each in readers)
    assert sum(text.count(f"\n{word}") for word in ("Record=",)) == sum(
        "record" in each for each in found)
