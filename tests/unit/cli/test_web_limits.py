"""Limits of the console: nobody is kept out by somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from omq.base.settings import Settings
from omq.cli.web.login_failures import FACTOR, KNOWN_MAX, LoginFailures

pytest.importorskip("aiohttp", reason="the package aiohttp, of the extra web")

from omq.cli.web.connections import Connections, tcp_bounds

ME, OTHER = "127.0.0.1 uid 1000", "127.0.0.1 uid 1001"


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def wrong(guesses: LoginFailures, source: str, name: str, times: int) -> int:
    """How many of these were checked."""
    checked = 0
    for _ in range(times):
        if not guesses.wait_s(source, name)[0]:
            guesses.count(source, name)
            checked += 1
    return checked


def test_invented_names_lock_nobody_out() -> None:
    guesses = LoginFailures(10, 300.0, Time())
    for at in range(12):
        guesses.count(OTHER, f"invented {at}")
    assert guesses.wait_s(ME, "alice") == guesses.wait_s(OTHER, "alice") == (0.0, "")


def test_a_source_a_name_and_both_have_their_limits() -> None:
    clock = Time()
    guesses = LoginFailures(3, 300.0, clock)
    assert wrong(guesses, OTHER, "alice", 9) == 3
    assert guesses.wait_s(OTHER, "alice") == (300.0, "for this name from there")
    assert guesses.wait_s(ME, "alice") == (0.0, "")
    assert sum(wrong(guesses, OTHER, f"n{at}", 3) for at in range(20)) == 3 * FACTOR - 3
    assert guesses.wait_s(OTHER, "new") == (300.0, "from there")
    assert sum(wrong(guesses, f"192.0.2.{at}", "alice", 3) for at in range(20)) == 3 * FACTOR - 3
    assert guesses.wait_s(ME, "alice") == (300.0, "for this name")
    clock.now = 300.1
    assert guesses.wait_s(ME, "alice") == guesses.wait_s(OTHER, "alice") == (0.0, "")


def test_who_was_here_before_is_not_kept_out_by_others() -> None:
    guesses = LoginFailures(3, 300.0, Time())
    guesses.count(ME, "alice")
    guesses.right(ME, "alice")
    for at in range(99):
        guesses.count(f"192.0.2.{at}", "alice")  # for this name
        guesses.count(ME, f"n{at}")  # from here
    assert guesses.wait_s("198.51.100.1", "alice")[0] and guesses.wait_s(ME, "bob")[0]
    assert not guesses.wait_s(ME, "alice")[0]
    assert wrong(guesses, ME, "alice", 9) == 3, "a session that was stolen guesses no better"


def test_what_is_remembered_is_bounded() -> None:
    guesses = LoginFailures(3, 300.0, Time())
    for at in range(KNOWN_MAX + 10):
        guesses.count(f"s{at}", f"n{at}")
        guesses.right(f"s{at}", f"n{at}")
    assert len(guesses._known) == len(guesses._been) == KNOWN_MAX


def test_wrong_tokens_are_told_to_wait() -> None:
    guesses = LoginFailures(3, 300.0, Time())
    assert [guesses.wrong_token(ME) for _ in range(5)] == [0.0, 0.0, 0.0, 300.0, 300.0]
    assert guesses.wait_s(ME, "alice")[0] == 0.0


class Line:
    """As much of a connection as its place needs."""

    def __init__(self, peer: str) -> None:
        self.peer, self.cut = peer, False

    def abort(self) -> None:
        self.cut = True


class Place:
    """Connections, and what was logged."""

    def __init__(self, **settings: Any) -> None:
        self.log: list[tuple[str, str]] = []
        made = Settings(**settings)
        self.all = Connections(made, tcp_bounds(made), lambda *told: self.log.append(told),
                               lambda: None)

    def comes(self, peer: str) -> tuple[Line, bool]:
        line: Any = Line(peer)
        return line, self.all.admit(line)


def test_one_more_of_a_source_ends_its_oldest_stranger() -> None:
    place = Place(web_client_connections_max=3)
    lines = [place.comes(OTHER)[0] for _ in range(3)]
    place.all.known(lines[0])  # type: ignore[arg-type]
    assert place.comes(OTHER)[1] and [each.cut for each in lines] == [False, True, False]
    assert len(place.all) == 3
    assert place.log == [(OTHER, "web_client_connections_max: its oldest connection made room")]


def test_strangers_leave_places_for_who_is_logged_in() -> None:
    """And of the strangers who has most gives way: who has one keeps it."""
    place = Place(web_connections_max=20, web_strangers_max=8, web_client_connections_max=20)
    mine = place.comes(ME)[0]
    many = [place.comes(OTHER)[0] for _ in range(100)]
    assert not mine.cut and sum(not each.cut for each in many) == 7
    for _ in range(12):
        line, came = place.comes(ME)
        assert came
        place.all.known(line)  # type: ignore[arg-type]
    assert len(place.all) == 19 and sum(not each.cut for each in many) == 6
    assert not mine.cut


def test_where_nobody_can_give_way_one_more_is_refused() -> None:
    place = Place(web_connections_max=4, web_client_connections_max=3)
    for peer in (ME, ME, ME, OTHER):
        place.all.known(place.comes(peer)[0])  # type: ignore[arg-type]
    assert not place.comes(ME)[1] and not place.comes("192.0.2.1")[1]
    assert [reason for _, reason in place.log] == ["web_client_connections_max",
                                                   "web_connections_max"]
    place.all.left(Line(ME))  # type: ignore[arg-type]
    assert len(place.all) == 4, "one that was refused has no place to leave"
