"""Celery's integration tests and kombu's tests of a transport, with omq as the broker.

What is left out is named with its reason; lib/omq/docs/TASKS.md has the same list beside RabbitMQ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("celery", reason="the extra `celery` is not installed")

from tests.process.foreign_suites import ROOT, SHA256, NotHere, run
from tests.process.instance import MANAGER, WRITER, Instance

KOMBU_DIFFERS: Final = {
    "test_publish_consume of test_priority": "three deliveries of one drain_events",
    "test_publish_requeue_consume": "three deliveries of one drain_events",
}
"""Both expect that one drain_events, and the end of the consumer, hand out all three messages: the
client of RabbitMQ hands out what is under way while it waits for the answer to the cancellation.
With omq one drain_events is one delivery, and what a consumer has not had goes back."""
KOMBU_TESTS: Final = ("t/integration/test_broker.py", "--deselect",
                      "t/integration/test_broker.py::test_priority::test_publish_consume",
                      "--deselect",
                      "t/integration/test_broker.py::test_priority::test_publish_requeue_consume")
TASKS: Final = ("test_basic_task", "test_expired", "test_retry", "test_wrong_arguments",
                "test_revoke_by_stamped_headers_no_match")
CELERY_TESTS: Final = {
    "inspect": ("t/integration/test_inspect.py", "--deselect",
                "t/integration/test_inspect.py::test_Inspect::test_scheduled"),
    "tasks": tuple(f"t/integration/test_tasks.py::test_tasks::{name}" for name in TASKS),
}
"""What a worker must hear and do while its pool is busy, and what a broker decides: expiry and
retries. test_scheduled looks for a task with an ETA in the worker, and it waits on its
queue (native_eta)."""
NEEDS_REDIS: Final = "test_report_with_multiserver_result_backend"


@pytest.fixture
def running(omq_instance: Instance) -> Instance:
    omq_instance.queues("[*]\ndeath_delay_s = 0\nattempts_max = 200\n")
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    return omq_instance


def outcomes(instance: Instance, package: str, tests: tuple[str, ...], scratch: Path
             ) -> dict[str, str]:
    url = f"omq://{instance.root}"
    try:
        found, said = run(package, url, url, tests, scratch)
    except NotHere as error:
        pytest.skip(str(error))
    wrong = {name: each for name, each in found.items() if each not in ("passed", "skipped")}
    assert found and not wrong, f"{wrong}\n{said[-5000:]}"
    with instance.connect() as native:
        for queue in native.queues.list():
            if queue.name.startswith("CELERY") or "kombu" in queue.keys.get("note", ""):
                native.queues.clear(queue.name, reason="end of the test")
    return found


def test_kombu(running: Instance, tmp_path: Path) -> None:
    found = outcomes(running, "kombu", KOMBU_TESTS, tmp_path)
    assert "skipped" not in found.values() and len(found) >= 28
    assert "test_broker.test_event_loop.test_ack_from_another_thread" in found


@pytest.mark.parametrize("which", CELERY_TESTS)
def test_celery(running: Instance, tmp_path: Path, which: str) -> None:
    """The worker of these tests has a pool of one process, and many of them keep it busy."""
    found = outcomes(running, "celery", CELERY_TESTS[which], tmp_path)
    skipped = [name for name, each in found.items() if each == "skipped"]
    assert all(NEEDS_REDIS in name for name in skipped), skipped
    assert len(found) >= (len(TASKS) if which == "tasks" else 12)


@pytest.mark.parametrize("package", ["celery", "kombu"])
def test_the_sources_of_the_pinned_version_are_known(package: str) -> None:
    """Whoever raises a version in constraints.txt writes the checksum down."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    (pinned,) = [each for each in lines if each.startswith(f"{package}==")]
    assert (package, pinned.partition("==")[2]) in SHA256
