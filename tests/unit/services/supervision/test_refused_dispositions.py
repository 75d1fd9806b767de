"""What the manager refuses of one message's end is that message's matter: the reader goes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omq import Outgoing
from omq.base import errors
from omq.base.errors import OmqError
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.services_conf import load_services
from omq.base.settings import Settings
from omq.services.daemon.signals import Signals
from omq.services.readers.runner import ReaderRunner
from omq.services.readers.service import Disposition, Done, Message, Move, Service, ServiceContext
from omq.storage import durable


@dataclass
class Held:
    """A message whose move the manager refuses with `error`."""

    name: str
    error: OmqError | None = None
    told: list[str] = field(default_factory=list)
    queue: str = "ROUTER"
    message_id: str = "00" * 24
    attempts: int = 0

    def done(self) -> None:
        self.told.append("done")

    def move(self, queues: Sequence[str], new: Sequence[Any] = ()) -> None:
        del new
        if self.error is not None:
            raise self.error
        self.told.append(f"moved to {','.join(queues)}")

    def defer(self, seconds: float, reason: str = "") -> None:
        self.told.append(f"deferred {seconds:.0f} {reason}")

    def fail(self, reason: str = "") -> None:
        self.told.append(f"failed {reason}")

    def release(self) -> None:
        self.told.append("released")


class Mover(Service):
    """Moves everything; a message that is too long is done with instead."""

    def handle(self, message: Message) -> Disposition:
        return Move(("NEXT",))

    def refused(self, message: Message, error: OmqError) -> Disposition | None:
        return Done() if isinstance(error, errors.MessageTooLong) else None


class Manager:
    """Hands out one batch, then stops the reader."""

    def __init__(self, batch: list[Held], signals: Signals) -> None:
        self.batch, self._signals = batch, signals

    def reader(self, queue: str, *, batch: int, auxiliary: bool) -> Any:
        return nullcontext(self)

    def next(self, n: int, timeout_s: float) -> list[Held]:
        batch, self.batch = self.batch, []
        if not batch:
            self._signals.request_stop()
        return batch

    def flush(self) -> None:
        return None

    def move_many(self, moves: Sequence[tuple[Held, Sequence[Outgoing]]]) -> None:
        """All or nothing; a message that was taken back refuses it, too."""
        for held, _ in moves:
            if held.error is not None:
                raise held.error
        for held, _ in moves:
            held.told.append("moved with others")

    def holds(self, held: Held) -> bool:
        return not held.told


def run(tmp_path: Path, batch: list[Held], kind: type[Service] = Mover, *, is_main: bool = True,
        rests: list[float | None] | None = None) -> str:
    paths = SpoolPaths(tmp_path)
    paths.logs.mkdir(parents=True)
    log = EventLog("router", paths.event_log, stderr=False)
    context = ServiceContext(Settings(), paths, load_services(None)["router"], tmp_path, log,
                             is_main=is_main)
    signals = Signals()
    if rests is not None:
        signals.wait = lambda timeout_s, also=-1: rests.append(timeout_s)  # type: ignore[method-assign]
    try:
        ReaderRunner(kind(context), signals,
                     lambda _: nullcontext(Manager(batch, signals))).run(lambda: None)
    finally:
        log.close()
    return paths.event_log.read_text()


@pytest.mark.parametrize("error", [
    errors.QueueFull(queue="NEXT", limit=1), errors.PutInhibited(queue="NEXT"),
    errors.IndexFull(limit=1), errors.SpoolFull(path="x", detail="y"),
    errors.NoAuthority(uid=1, action="put", queue="NEXT"), errors.UnknownQueue(queue="NEXT"),
    errors.BadProperty(name="x", rule="y"), errors.BadRequest(reason="z"),
])
def test_a_refused_message_waits_and_the_others_go_on(tmp_path: Path, error: OmqError) -> None:
    batch = [Held("one"), Held("two", error), Held("three")]
    log = run(tmp_path, batch)
    assert [each.told for each in batch] == [
        ["moved to NEXT"], [f"deferred 10 {error}"], ["moved to NEXT"]]
    assert '"event": 1340' in log


class Batcher(Mover):
    """Works on a batch at once; what is called `done` makes nothing."""

    def handle_many(self, messages: Sequence[Message]) -> Sequence[Disposition]:
        return [Done() if getattr(each, "name", "") == "done" else Move(()) for each in messages]


def test_a_batch_moves_at_once(tmp_path: Path) -> None:
    batch = [Held("one"), Held("done"), Held("two")]
    run(tmp_path, batch, Batcher)
    assert [each.told for each in batch] == [["moved with others"], ["done"], ["moved with others"]]


@pytest.mark.parametrize("error", [errors.QueueFull(queue="NEXT", limit=1),
                                   errors.LeaseLost(qpool_id=1)])
def test_a_batch_that_is_refused_is_settled_one_by_one(tmp_path: Path, error: OmqError) -> None:
    batch = [Held("one"), Held("two", error), Held("three")]
    run(tmp_path, batch, Batcher)
    told = [f"deferred 10 {error}"] if isinstance(error, errors.QueueFull) else []
    assert [each.told for each in batch] == [["moved to "], told, ["moved to "]]


def test_after_a_latched_error_the_reader_ends_and_is_started_again(tmp_path: Path) -> None:
    """It could make nothing durable any more; what was decided is kept by the manager's note."""
    class Broken(Mover):
        def handle(self, message: Message) -> Disposition:
            durable.failure("fsync", tmp_path, OSError(5, "Input/output error"))
            return super().handle(message)

    before = durable.use(durable.current())
    try:
        with pytest.raises(errors.DiskError, match="Input/output"):
            run(tmp_path, batch := [Held("one")], Broken)
    finally:
        durable.use(before)
    assert batch[0].told == ["moved to NEXT"]


def test_an_auxiliary_rests_after_less_than_a_full_batch(tmp_path: Path) -> None:
    """Few messages are the main reader's: it finds more of them at once."""
    full = load_services(None)["router"].batch
    for number, (count, is_main, rested) in enumerate((
            (1, False, [0.05]), (full, False, []), (1, True, []))):
        rests: list[float | None] = []
        run(tmp_path / str(number), [Held(str(i)) for i in range(count)], is_main=is_main,
            rests=rests)
        assert rests == rested, (count, is_main)


def test_the_service_may_say_what_becomes_of_it(tmp_path: Path) -> None:
    batch = [Held("long", errors.MessageTooLong(size=2, queue="NEXT", limit=1)), Held("next")]
    run(tmp_path, batch)
    assert [each.told for each in batch] == [["done"], ["moved to NEXT"]]


def test_a_message_that_was_taken_back_is_left_alone(tmp_path: Path) -> None:
    batch = [Held("lost", errors.LeaseLost(qpool_id=1)), Held("next")]
    run(tmp_path, batch)
    assert [each.told for each in batch] == [[], ["moved to NEXT"]]


def test_an_unreachable_manager_still_ends_the_reader(tmp_path: Path) -> None:
    with pytest.raises(errors.ManagerUnavailable):
        run(tmp_path, [Held("x", errors.ManagerUnavailable(spool="x", reason="y"))])
