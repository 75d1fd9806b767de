"""A message that kills the manager each time it is handed out ends on POISON; those handed out with
it do not."""

from __future__ import annotations

import signal
from pathlib import Path

from omq.format.frame_rules import Reason
from tests.process.instance import Instance
from tests.process.processes import Child, start

DEATHS = 3
QUEUES = f"[*]\ndeath_delay_s = 0\nattempts_max = {DEATHS}\n\n[A]\n\n[B]\n"
FAULT = "engine.before_hand_out:kill:1"


def reader(instance: Instance, queue: str, seen: Path) -> Child:
    """Takes batches of five until it has seen "last"; notes each body with its attempts."""
    def read() -> int:
        with instance.connect(queue) as c, c.reader(queue, batch=5) as reading:
            for message in reading:
                with seen.open("a") as file:
                    file.write(f"{message.body.decode()} {message.attempts}\n")
                message.done()
                if message.body == b"last":
                    return 0
        return 1

    return start(queue, read, output=instance.output)


def test_what_kills_the_manager_goes_to_poison(omq_instance: Instance, tmp_path: Path) -> None:
    omq_instance.queues(QUEUES)
    omq_instance.settings(reconnect_grace_s=60)  # the reader comes back to each manager
    omq_instance.start()
    with omq_instance.connect() as c:
        c.put_many("A", [b"cursed", b"near", b"last"])
    omq_instance.stop()
    seen = tmp_path / "seen"
    child = None
    for _ in range(DEATHS):
        omq_instance.fault_log.unlink(missing_ok=True)
        victim = omq_instance.start(fault=FAULT)
        if child is None:  # later it may be back, and the manager dead, before we could look
            omq_instance.ready()
            child = reader(omq_instance, "A", seen)
        assert victim.wait() == -signal.SIGKILL
        assert len(omq_instance.fired()) == 1
    omq_instance.start()
    assert child is not None and child.wait() == 0
    assert seen.read_text().splitlines() == ["near 1", "last 1"]
    (event,) = omq_instance.events(1232)
    assert (event["queue"], event["reason"], event["pid_of_reader"]) == (
        "A", Reason.UNSEEN, child.pid)
    (poisoned,) = omq_instance.drain("POISON")
    assert (poisoned.body, poisoned.attempts) == (b"cursed", DEATHS)
