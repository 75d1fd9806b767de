"""Results by key, which Celery's and dramatiq's backends are made of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from omq.ipc.client.reader import Reader
from omq.tasks import results as module
from omq.tasks.natives import Natives
from omq.tasks.results import Results, id_of
from tests.process.instance import Instance

QUEUE = "RESULTS"


@pytest.fixture
def results(omq_instance: Instance) -> Iterator[Results]:
    omq_instance.start()
    omq_instance.ready()
    natives = Natives(f"omq://{omq_instance.root}", "test", 60.0)
    made = Results(natives, QUEUE)
    yield made
    made.close()
    natives.close()
    omq_instance.drain(QUEUE)


def test_the_newest_of_a_key_counts(results: Results) -> None:
    assert results.get("a") is None
    results.set("a", b"begun", 60.0)
    results.set("b", b"other", None)
    results.set("a", b"done", 60.0)
    assert [results.get(key) for key in ("a", "b", "a", "c")] == [b"done", b"other", b"done", None]
    results.delete("a")
    results.delete("a")
    assert results.get("a") is None
    assert results.get("b") == b"other"


def test_a_look_that_is_interrupted_gives_it_back(results: Results, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    """By a time limit, which may come anywhere: here when it has the message."""
    results.set("a", b"done", 60.0)
    look = module._newest
    taken: list[Any] = []

    def interrupted(*said: Any) -> Any:
        taken.append(look(*said))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_newest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            results.get("a")
    assert taken[0].body == b"done"
    assert results.get("a", wait_s=120.0) == b"done"


def test_what_another_looks_at_is_not_missing(omq_instance: Instance, results: Results,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is told as missing to nobody because somebody else has it in hand just now."""
    results.set("a", b"done", 60.0)
    with omq_instance.connect() as connection, connection.reader(QUEUE) as reader:
        (message,) = reader.next(message_id=id_of("a"))
        assert results.get("a", once=True) is None
        missed, look = threading.Event(), module._newest

        def watched(*said: Any) -> Any:
            if (newest := look(*said)) is None:
                missed.set()
            return newest

        monkeypatch.setattr(module, "_newest", watched)
        found: list[bytes | None] = []
        looks = threading.Thread(target=lambda: found.append(results.get("a")))
        looks.start()
        missed.wait()
        message.release()
        reader.flush()
        looks.join()
    assert found == [b"done"]


def test_who_waits_long_stays_in_the_line(omq_instance: Instance, results: Results,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: each look waits longer than the one before."""
    results.set("a", b"done", 60.0)
    with omq_instance.connect() as connection, connection.reader(QUEUE) as holder:
        (message,) = holder.next(message_id=id_of("a"))
        waits, look = list[float](), module._newest

        def watched(reader: Reader, key: str, wait_s: float = 0.0) -> Any:
            if len(waits) == 4:
                message.release()
                holder.flush()
            waits.append(wait_s)
            return look(reader, key, wait_s)

        monkeypatch.setattr(module, "_newest", watched)
        monkeypatch.setattr(module, "HELD_S", 600.0)
        assert results.get("a") == b"done"
    shortest = module.LOOK_S
    assert waits == [0.0, shortest, 2 * shortest, 4 * shortest, 8 * shortest]


def test_many_look_at_one(results: Results) -> None:
    """More of them than native connections are kept."""
    results.set("a", b"done", 60.0)
    found: list[bytes | None] = []

    def look() -> None:
        found.extend(results.get("a") for _ in range(20))

    threads = [threading.Thread(target=look) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [b"done"] * 120


def remove(instance: Instance) -> None:
    with instance.connect() as connection:
        connection.queues.clear(QUEUE)
        connection.queues.delete(QUEUE, force=True)


def test_a_queue_that_is_removed_is_made_again(omq_instance: Instance, results: Results) -> None:
    """What was on it is gone; what comes then is not, whoever had it open."""
    results.set("a", b"done", 60.0)
    remove(omq_instance)
    results.set("a", b"anew", 60.0)
    assert results.get("a") == b"anew"
    remove(omq_instance)
    assert results.get("a") is None
    results.set("a", b"third", 60.0)
    assert results.get("a") == b"third"
