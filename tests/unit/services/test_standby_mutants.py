"""Bugs that a primary or a standby could have, planted by replacing one function; the test that is
named must fail with each. Those that need power cuts are in tests/crash/sim/pair_mutants.py.

| the mutants that the design of standbys asks for | planted |
|---|---|
| acknowledge before the standby's sync | pair_mutants: acknowledges first, notes first |
| a stale term accepted | here: by a standby, by a primary; a lease of another term |
| a container after its block | pair_mutants: a container comes after its block, names not synced |
| a reply told one LSN early, by each way | here, one for each way |
| a gap accepted | here: a block that does not follow; pair_mutants: blocks behind a gap |
| RELOCATE left out | pair_mutants: bodies are not copied |
| redo beyond the primary's durable LSN | pair_mutants: two of them |
| go_on before etcd knows | here; before the journal knows, too |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from omq.fast.company import Company
from omq.ipc.server import requests as taking
from omq.ipc.server.answer_pace import AnswerPace
from omq.ipc.server.held_replies import HeldReplies, Protection
from omq.ipc.server.leased_replies import LeasedReplies
from omq.ipc.server.requests import Requests
from omq.ipc.server.sessions import say
from omq.services.standby.receiving import Receiving
from omq.services.standby.sending import Sending
from omq.storage import standby_holds
from omq.storage.journal_mirror import JournalMirror
from tests.unit.ipc import test_held_replies as held
from tests.unit.ipc import test_leased_replies as leased
from tests.unit.ipc import test_requests as paced
from tests.unit.ipc.test_held_replies import made as made_held  # noqa: F401  (a fixture)
from tests.unit.ipc.test_leased_replies import made as made_leased  # noqa: F401
from tests.unit.services import test_standby_sessions as sessions
from tests.unit.services.test_standby_sessions import (  # noqa: F401
    info,
    primary,
)
from tests.unit.storage import test_journal_mirror as mirror
from tests.unit.storage.test_journal_mirror import both  # noqa: F401

Case = tuple[object, str, object, Callable[..., None], dict[str, object]]
_limit, _synced, _lease = HeldReplies._limit, HeldReplies.synced, LeasedReplies.lease


class _ForNobody(Company):
    def wanted(self, count: int) -> int:
        return count


def _early(self: HeldReplies) -> int:
    return int(_limit.__get__(self)) + 1


def _is_held_early(self: HeldReplies, session: Any) -> bool:
    return bool(session.last[3] > self._limit + 1)


def _synced_early(self: HeldReplies, session: Any, lsn: int) -> None:
    _synced(self, session, lsn + 1)


def _before_the_journal(self: HeldReplies, session: Any, lsn: int) -> None:
    _synced(self, session, lsn)
    self._release()


def _alone_unnoted(self: HeldReplies, state: Protection, now: int) -> None:
    self._changed(state, [])
    self.protection = state


def _one_disk_twice(self: HeldReplies) -> int:
    found = [each.synced for each in self._standbys.values()] * 2
    return max(found, default=-1) if len(found) >= self._wanted else -1


def _believed_at_once(self: LeasedReplies, members: Any) -> None:
    if members != self._in_sync and self._keeper is not None:
        self._say(members)
        self._in_sync = members


def _any_term(self: LeasedReplies, session: Any, question: dict[str, Any]) -> None:
    _lease(self, session, question | {"term": self._term})


_first = Requests._first


def _first_request(self: Requests, out: list[bytes]) -> None:
    before = len(out)
    while len(out) == before:
        _first(self, out)


def _paced_without_rest(self: Requests, out: list[bytes], limit: int, pace: AnswerPace
                        ) -> list[bytes]:
    said = _paced(self, out, limit, pace)
    self._left = []
    return said


_paced = Requests._paced

MUTANTS: dict[str, Case] = {
    "a reply is released one LSN early": (
        HeldReplies, "_limit", property(_early),
        held.test_replies_wait_for_the_standbys_disk_in_order, {}),
    "a registration is told one LSN early": (
        HeldReplies, "is_held", _is_held_early,
        held.test_a_put_whose_client_waits_for_more_is_not_told_either, {}),
    "an answer over the control connection is not held": (
        HeldReplies, "answer", lambda self, door, answer: say(door, answer),
        held.test_answers_over_the_control_connection_wait_too, {}),
    "an answer over the request queue counts for one more": (
        HeldReplies, "synced", _synced_early,
        held.test_an_answer_over_the_request_queue_releases_before_the_next_sync, {}),
    "a change is acted on before the journal says it": (
        HeldReplies, "synced", _before_the_journal,
        held.test_an_answer_over_the_request_queue_releases_before_the_next_sync, {}),
    "it goes on alone where the journal has no room to say it": (
        HeldReplies, "_note", _alone_unnoted,
        held.test_it_goes_on_alone_after_a_time_and_not_before_it_is_noted, {}),
    "one disk counts twice": (
        HeldReplies, "_synced", property(_one_disk_twice),
        held.test_so_many_as_are_wanted_and_each_disk_once, {}),
    "go_on counts before etcd has it": (
        LeasedReplies, "_ask", _believed_at_once,
        leased.test_go_on_is_in_etcd_before_the_first_reply_alone, {}),
    "the clock is not looked at before a release": (
        LeasedReplies, "_may", lambda self: True,
        leased.test_a_look_at_the_clock_is_before_each_group, {}),
    "a lease of another term is believed": (
        LeasedReplies, "lease", _any_term,
        leased.test_the_manager_is_told_by_its_own_user_of_its_own_term, {}),
    "a standby follows a primary of an earlier term": (
        Receiving, "_check_term", lambda self, piece: None,
        sessions.test_a_later_term_ends_a_primary_and_an_earlier_one_a_standby, {}),
    "a primary goes on that knows of a later term": (
        Sending, "refuse_superseded", lambda self, term: None,
        sessions.test_a_later_term_ends_a_primary_and_an_earlier_one_a_standby, {}),
    "a block is taken that does not follow": (
        JournalMirror, "_wrong", lambda self, block, offset, before, length: "",
        mirror.test_a_block_that_does_not_follow_is_refused,
        {"fields": {"first_lsn": 9}, "reason": "LSN 9 follows LSN 1"}),
    "requests do not wait for an answer": (
        AnswerPace, "waits", lambda self: False,
        paced.test_requests_wait_for_an_answer_which_comes_first, {}),
    "an answer is taken with the requests": (
        taking, "answers", lambda batch: [],
        paced.test_requests_wait_for_an_answer_which_comes_first, {}),
    "what has waited for an answer is dropped": (
        Requests, "_paced", _paced_without_rest,
        paced.test_requests_wait_for_an_answer_which_comes_first, {}),
    "requests wait where nothing is unanswered": (
        AnswerPace, "waits", lambda self: True,
        paced.test_nobody_waits_where_nothing_is_unanswered, {}),
    "a wake-up does not end the wait for an answer": (
        Requests, "_first", _first_request,
        paced.test_whatever_else_is_said_ends_the_wait, {}),
    "an answer that comes late is waited for each time": (
        AnswerPace, "ended", lambda self: None,
        paced.test_answers_that_come_late_are_not_waited_for_again_soon, {}),
    "who was released is not waited for": (
        taking, "Company", _ForNobody,
        paced.test_who_was_released_is_one_group_with_those_that_waited, {}),
    "a note waits for who has it locked": (
        standby_holds, "note_if_free", standby_holds.note,
        sessions.test_a_note_that_somebody_else_holds_up_stops_no_standby, {}),
    "a note that was locked is not made later": (
        standby_holds, "note_if_free", lambda paths, member, number: None,
        sessions.test_a_note_that_somebody_else_holds_up_stops_no_standby, {}),
}
_FIXTURES = {held: "made_held", leased: "made_leased"}


@pytest.mark.parametrize("name", MUTANTS)
def test_it_is_found(name: str, request: pytest.FixtureRequest) -> None:
    kind, attribute, planted, test, given = MUTANTS[name]
    wanted = dict(given)
    for each in test.__code__.co_varnames[: test.__code__.co_argcount]:
        if each not in wanted:
            module = held if test.__module__ == held.__name__ else leased
            wanted[each] = request.getfixturevalue(
                _FIXTURES[module] if each == "made" else each)
    with mock.patch.object(kind, attribute, planted), pytest.raises(
            (AssertionError, pytest.fail.Exception)):
        test(**wanted)
