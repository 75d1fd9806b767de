"""The table of frames: whole, and of one mind with the states that entries may have."""

from __future__ import annotations

import pytest

from omq.core.engine.transitions import Event, after
from omq.format.frame_rules import (
    BY_NUMBER,
    RULES,
    WORDS,
    About,
    Comes,
    Hand,
    Payload,
    Reason,
    Rule,
    mask,
    numbers,
)
from omq.format.index import EntryState
from omq.format.journal import FrameType
from omq.format.pool import PartState

SAID_BY = {
    Event.PUT: FrameType.PUT, Event.GIVE: FrameType.GIVE, Event.DONE: FrameType.DONE,
    Event.DEFER: FrameType.DEFER, Event.FAIL: FrameType.DEFER,
    Event.RETURN: FrameType.RELEASE_GIVEN, Event.BACKOUT: FrameType.BACKOUT,
    Event.POISON: FrameType.POISON,
    Event.MOVE: FrameType.MOVE, Event.HOLD: FrameType.HOLD, Event.RELEASE: FrameType.RELEASE,
    Event.DELETE: FrameType.DELETE, Event.EXPIRE: FrameType.EXPIRE,
    Event.PREPARE: FrameType.PREPARE, Event.COMMIT: FrameType.COMMIT, Event.UNDO: FrameType.DELETE,
}  # fmt: skip
"""DUE has no frame: a time that is over changes nothing that is written."""
LIVING = [state for state in EntryState if state not in (EntryState.FREE, EntryState.IDEL)]


def test_every_type_has_a_row_and_every_reason_words() -> None:
    assert list(RULES) == list(FrameType)
    assert set(WORDS) == set(Reason) and all(WORDS[reason] for reason in Reason if reason)
    assert all(rule.words for rule in RULES.values())
    assert [BY_NUMBER[kind] for kind in FrameType] == list(RULES.values())
    assert BY_NUMBER[0].about is BY_NUMBER[255].about is About.RESERVED


@pytest.mark.parametrize("rule", RULES.values(), ids=[kind.name for kind in RULES])
def test_a_row_does_not_contradict_itself(rule: Rule) -> None:
    if rule.about is not About.MESSAGE:
        assert not (rule.makes or rule.leaves or rule.entry or rule.ends or rule.replaces)
        assert rule.comes is Comes.NOWHERE and rule.hand is Hand.NOTHING
    assert not (rule.leaves and rule.entry), "an entry that is left has no state"
    assert not (rule.makes and rule.leaves) and (rule.leaves or not rule.ends)
    assert (rule.comes is Comes.NOWHERE) or rule.makes or rule.leaves
    assert not rule.makes or rule.payload is Payload.MESSAGE
    assert not (rule.replaces and rule.reasoned), "`reason` is the old record"
    assert bool(rule.by) == (rule.about is not About.RESERVED)


@pytest.mark.parametrize("event", SAID_BY, ids=lambda event: event.name)
def test_it_is_of_one_mind_with_the_table_of_states(event: Event) -> None:
    rule = RULES[SAID_BY[event]]
    states = {after(event, state) for state in EntryState} - {None}
    if rule.makes:
        assert states == {EntryState.READY}
    elif rule.leaves:
        assert states == {EntryState.FREE}
    else:
        assert rule.entry is not None
        assert {state.name for state in states if state} == {rule.entry.state.name}
    from_reader = after(event, EntryState.ACTIVE) is not None
    assert from_reader == (rule.hand is Hand.FINISHED)
    assert (rule.hand is Hand.GIVEN) == (event is Event.GIVE)


def test_every_event_of_an_entry_is_said_by_a_frame() -> None:
    assert set(SAID_BY) == set(Event) - {Event.DUE}
    about = {kind for kind, rule in RULES.items() if rule.about is About.MESSAGE}
    assert set(SAID_BY.values()) == about
    assert {state.name for state in PartState} == {state.name for state in LIVING}


def test_lookups_by_type() -> None:
    births = mask(lambda rule: rule.makes)
    assert births.shape == (256,) and births.nonzero()[0].tolist() == [FrameType.PUT]
    assert numbers(lambda rule: rule.ends) == [
        FrameType.DONE, FrameType.DELETE, FrameType.EXPIRE]
