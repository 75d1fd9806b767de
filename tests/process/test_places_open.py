"""Who waits at a queue with limits of work has the place that opens, at once: in the turn in which
a settlement or the first phase of a unit gives it back. Nothing else wakes him."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

import omq
from omq.ipc.client import parking
from tests.process.instance import Instance
from tests.process.test_parking import finished, parked

LIMITS: dict[str, dict[str, Any]] = {
    "queue": {"in_work_max": 3},
    "property": {"limit_by": "property:tenant", "key_in_work_max": 3, "fair_turns": "yes"},
    "property, by age": {"limit_by": "property:tenant", "key_in_work_max": 3},
    "group": {"limit_by": "group", "in_work_max": 1},
}


@pytest.mark.parametrize("ends", ["one", "batch", "prepare", "commit", "defer"])
@pytest.mark.parametrize("limits", LIMITS)
def test_a_place_that_opens_is_taken_by_who_waits(omq_instance: Instance, limits: str, ends: str
                                                  ) -> None:
    omq_instance.start()
    omq_instance.ready()
    with ExitStack() as opened:
        c = opened.enter_context(omq_instance.connect())
        c.queues.define("WORK", **LIMITS[limits])
        most = LIMITS[limits].get("in_work_max", 3)
        for number in range(most + 1):
            new = omq.Outgoing(str(number).encode(), properties={"tenant": "one"})
            if limits == "group":
                new = replace(new, group_id=f"g{number}")
            c.put("WORK", outgoing=new)
        waits = parked(omq_instance, opened, "WORK")
        if ends in ("prepare", "commit"):
            unit = opened.enter_context(c.unit())
            held = unit.next("WORK", most, timeout_s=0)
        else:
            reader = opened.enter_context(c.reader("WORK", batch=100, ack="batch"))
            held = reader.next(timeout_s=0)
        assert len(held) == most
        descriptor = parking.begin(waits, 1)
        assert parking.finish(waits) is None, "all places are taken"
        if ends == "prepare":
            unit.prepare()
        elif ends == "commit":
            unit.commit()
        elif ends == "defer":
            held[0].defer(3600)
            reader.flush()
        else:
            for message in held if ends == "batch" else held[:1]:
                message.done()
            reader.flush()
        (found,) = finished(waits, descriptor)
        assert found.body == str(most).encode()
        found.done()
        if ends == "prepare":
            unit.commit()
