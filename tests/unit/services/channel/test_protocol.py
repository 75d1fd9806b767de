"""The protocol of channels, explored: every order of steps, with deaths and cuts between any two.

Sender, receiver and line fail at each step up to FAULTS times. In every state the target is what
was put, in order, each once; from every state the rest arrives when nothing fails any more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omq.services.channel.protocol import OutOfStep, Receiving, Resync, Sending
from tests.unit.services.channel.world import World

MESSAGES, FAULTS = 7, 3
SHAPES = ((2, 1), (3, 2))
"""Messages of a batch, and of those that travel together: a batch is two transfers."""
STATES_MIN = 500


def check(world: World) -> None:
    """Exactly once, in order, nothing lost: at any time."""
    assert world.target == list(range(len(world.target))), f"twice, or out of order: {world}"
    below = {m for n, some in world.doubt.items() if n > world.record for m in some}
    known = {*world.target, *world.queue, *world.taken, *below}
    assert known == set(range(MESSAGES)), f"lost: {world}"


def finish(world: World) -> None:
    """Nothing fails from here on."""
    world.faults = 0
    for _ in range(200):
        step = next((s for s in world.steps() if s != "put and die"), None)
        if step is None:
            break
        world.do(step)
        check(world)
    assert world.settled and len(world.target) == MESSAGES, f"it does not end: {world}"


def explore(batch: int, bundle: int) -> int:
    """How many states there are."""
    first = World(batch, bundle, FAULTS, list(range(MESSAGES)))
    seen, waiting = {first.key()}, [first]
    while waiting:
        world = waiting.pop()
        for step in world.steps():
            if step == "put and die" and not world.faults:
                continue
            then = world.copy()
            if step == "put and die":
                then.faults -= 1
            then.do(step)
            check(then)
            if (key := then.key()) not in seen:
                seen.add(key)
                waiting.append(then)
                finish(then.copy())
    return len(seen)


@pytest.mark.parametrize("shape", SHAPES)
def test_exactly_once_in_order_whatever_dies_at_whatever_step(shape: tuple[int, int]) -> None:
    assert explore(*shape) > STATES_MIN


def _commits_what_was_not_put(self: Sending, last: int, in_doubt: object) -> Resync:
    said = RESYNC(self, last, in_doubt)
    return Resync((*said.commit, *said.resend), (), said.back_out)


def _resends_what_was_put(self: Sending, last: int, in_doubt: object) -> Resync:
    said = RESYNC(self, last, in_doubt)
    held = tuple(n for n in said.commit if n in self.held)
    return Resync(tuple(n for n in said.commit if n not in held), (*held, *said.resend),
                  said.back_out)


def _backs_out_what_was_put(self: Sending, last: int, in_doubt: object) -> Resync:
    said = RESYNC(self, last, in_doubt)
    return Resync((), said.resend, (*said.commit, *said.back_out))


def _begins_at_one(self: Sending, last: int, in_doubt: object) -> Resync:
    said = RESYNC(self, last, in_doubt)
    self.next = 1
    return said


def _takes_before_it_has_backed_out(self: Sending, last: int, in_doubt: object) -> Resync:
    said = RESYNC(self, last, in_doubt)
    self.ending = set()
    return said


RESYNC: Callable[..., Resync] = Sending.resync


@pytest.mark.parametrize("mutant", [_commits_what_was_not_put, _resends_what_was_put,
                                    _backs_out_what_was_put, _begins_at_one,
                                    _takes_before_it_has_backed_out])
def test_a_mistake_in_it_is_found(mutant: Callable[..., Resync],
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sending, "resync", mutant)
    with pytest.raises((AssertionError, OutOfStep)):
        explore(*SHAPES[0])


def test_a_receiver_that_takes_any_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would put a batch that was cut in the middle."""
    def forgets(self: World) -> None:
        kept = self.parts
        cut(self)
        self.parts = kept

    cut = World._lose_line
    monkeypatch.setattr(World, "_lose_line", forgets)
    for shape in SHAPES:
        with pytest.raises((AssertionError, OutOfStep)):
            explore(*shape)


def test_a_sender_that_goes_on_between_two_bundles_is_found(monkeypatch: pytest.MonkeyPatch
                                                            ) -> None:
    """The line broke behind a bundle: all of the batch goes again, not what was left."""
    def leaves_out(self: World, number: int) -> None:
        again = number in SENT
        SENT.add(number)
        send(self, number)
        if again:
            self.outbox = self.outbox[1:]

    SENT = set[int]()
    send = World._send
    monkeypatch.setattr(World, "_send", leaves_out)
    with pytest.raises((AssertionError, OutOfStep)):
        explore(*SHAPES[1])


def test_a_receiver_that_counts_a_bundle_as_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts_one(self: World) -> None:
        assert self.receiving is not None
        batch, first, count, some = self.there.pop(0)
        self.parts += some
        if self.receiving.arrived(batch, first, count):
            self.whole.append((batch, tuple(self.parts)))

    monkeypatch.setattr(World, "receive", counts_one)
    with pytest.raises((AssertionError, OutOfStep)):
        explore(*SHAPES[1])


@pytest.mark.parametrize(("last", "in_doubt"), [(0, [7]), (5, [7]), (9, [7, 8]), (100, [7])])
def test_numbers_that_cannot_be_change_nothing(last: int, in_doubt: list[int]) -> None:
    sending = Sending()
    with pytest.raises(OutOfStep):
        sending.resync(last, in_doubt)
    assert not sending.connected and not sending.room


def test_without_doubt_the_other_side_says_the_number() -> None:
    sending = Sending()
    assert sending.resync(41, []) == Resync((), (), ())
    assert sending.next == 42


@pytest.mark.parametrize("message", [(4, 1, 2), (6, 1, 2), (5, 2, 2), (5, 1, 0), (5, 0, 2)])
def test_a_message_out_of_turn_is_refused(message: tuple[int, int, int]) -> None:
    receiving = Receiving(4)
    with pytest.raises(OutOfStep):
        receiving.arrived(*message)
    assert receiving == Receiving(4)


def test_what_was_not_sent_is_not_confirmed() -> None:
    sending = Sending()
    sending.resync(0, [])
    sending.prepared()
    with pytest.raises(OutOfStep):
        sending.confirmed(1)
