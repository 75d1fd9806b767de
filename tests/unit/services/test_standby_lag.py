"""How far a standby is behind, as its primary tells it: ages, steps of a clock, hostile files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omq.base import clock
from omq.base.paths import SpoolPaths
from omq.services.standby import lag
from omq.services.standby.lag import SAMPLES_MAX, STEP_NS, Lag, Telling, forget, standbys
from omq.storage import standby_holds
from omq.storage.spool import create_spool

SECOND = clock.NS_PER_S


class Clock:
    """Time since boot, and the wall's."""

    def __init__(self) -> None:
        self.mono, self.wall = 1000 * SECOND, 10**18

    def __call__(self) -> int:
        return self.mono

    def step(self, seconds: float) -> None:
        self.mono += int(seconds * SECOND)
        self.wall += int(seconds * SECOND)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(clock, "monotonic_ns", made)
    monkeypatch.setattr(clock, "wall_ns", lambda: made.wall)
    return made


@pytest.fixture
def paths(tmp_path: Path) -> SpoolPaths:
    return create_spool(tmp_path / "spool").paths


def test_the_age_is_that_of_the_oldest_that_it_lacks() -> None:
    now = Clock()
    behind = Lag(now)
    behind.note(10, 10)
    assert behind.seconds == 0
    behind.note(20, 10)
    now.step(3)
    behind.note(30, 10)
    assert behind.seconds == 3
    behind.note(30, 20)
    assert behind.seconds == 0, "21 came only now"
    now.step(2)
    behind.note(30, 25)
    assert behind.seconds == 2, "a part of what came then is still not there"
    behind.note(30, 30)
    assert behind.seconds == 0


def test_bytes_are_those_written_since_it_had_all() -> None:
    now = Clock()
    behind = Lag(now)
    found = []
    for looked in ((20, 10, 1000), (20, 20, 1000), (30, 20, 1500), (40, 20, 2500), (40, 30, 2500),
                   (50, 30, 100), (50, 50, 100)):
        behind.note(*looked)
        found.append(behind.bytes)
        now.step(3)
    assert found[:1] == [None], "its line began like that"
    assert found[1:5] == [0, 500, 1500, 1000], "at the end it has what was there at the first look"
    assert found[5:] == [None, 0], "another manager counts anew"


def test_why_a_standby_went_is_told(paths: SpoolPaths, now: Clock) -> None:
    Telling(paths).note("b", 30, 10, following=False, force=True, error="its disk is full " * 100)
    (found,) = standbys(paths)
    assert found.error.startswith("its disk is full") and len(found.error) == 500
    told(paths)
    assert standbys(paths)[0].error == ""


def test_samples_are_bounded_and_keep_the_oldest() -> None:
    now = Clock()
    behind = Lag(now)
    begun = now.mono
    for lsn in range(1, 20 * SAMPLES_MAX):
        behind.note(lsn, 0)
        now.mono += STEP_NS
    assert len(behind._samples) <= SAMPLES_MAX
    assert behind.seconds == (now.mono - begun) / SECOND
    behind.note(20 * SAMPLES_MAX, 20 * SAMPLES_MAX - 2)
    assert behind.seconds < 60


def told(paths: SpoolPaths, durable: int = 30, acked: int = 10, *, following: bool = True) -> None:
    Telling(paths).note("b", durable, acked, following=following, force=True)


def test_a_standby_that_follows_and_one_that_went(paths: SpoolPaths, now: Clock) -> None:
    assert standbys(paths) == ()
    told(paths)
    (found,) = standbys(paths)
    assert (found.member, found.following, found.lag_frames, found.away_s) == ("b", True, 20, 0)
    told(paths, following=False)
    now.step(90)
    (found,) = standbys(paths)
    assert (found.following, found.away_s, found.lag_s) == (False, 90, 90)


def test_who_served_it_died_without_a_word(paths: SpoolPaths, now: Clock) -> None:
    told(paths)
    now.step(9)
    assert standbys(paths)[0].following
    now.step(2)
    assert not standbys(paths)[0].following


@pytest.mark.parametrize("step_s", [-86400, 86400])
def test_a_clock_that_is_set_silences_nobody(paths: SpoolPaths, now: Clock, step_s: int) -> None:
    told(paths)
    now.wall += step_s * SECOND
    assert standbys(paths)[0].following
    told(paths, following=False)
    now.wall += step_s * SECOND
    now.step(5)
    assert standbys(paths)[0].away_s == 5


def test_after_a_reboot_nobody_follows_by_an_old_file(paths: SpoolPaths, now: Clock) -> None:
    told(paths)
    now.step(3600)
    now.mono = 5 * SECOND
    (found,) = standbys(paths)
    assert not found.following and found.away_s == 3600


def test_a_new_term_is_no_number_of_frames(paths: SpoolPaths, now: Clock) -> None:
    told(paths, durable=(1 << 40) + 50, acked=10)
    assert standbys(paths)[0].lag_frames is None


def test_one_that_nobody_heard_of_is_known_by_what_is_kept_for_it(paths: SpoolPaths) -> None:
    standby_holds.note(paths, "c", 7)
    (found,) = standbys(paths)
    assert (found.member, found.following, found.lag_s, found.away_s) == ("c", False, None, None)


@pytest.mark.parametrize("text", [
    b"", b"{", b"[]", b'{"member": 1}', b"\xff\xfe", b"[" * 4000,
    json.dumps({"monotonic_ns": "x", "time_ns": 1, "acked_lsn": 1, "primary_lsn": 1,
                "lag_frames": 1, "lag_s": 1, "following": True}).encode()])
def test_a_file_that_is_none_is_a_standby_of_which_nothing_is_known(paths: SpoolPaths, text: bytes
                                                                    ) -> None:
    (paths.run / "standby-b.json").write_bytes(text)
    (found,) = standbys(paths)
    assert (found.member, found.following, found.lag_s) == ("b", False, None)


def test_names_that_are_no_members_are_no_standbys(paths: SpoolPaths) -> None:
    for name in ("standby-.json", "standby-a b.json", "standby.json",
                 "standby-" + "x" * 60 + ".json"):
        (paths.run / name).write_text("{}")
    assert standbys(paths) == ()


def test_forgotten_is_forgotten(paths: SpoolPaths, now: Clock) -> None:
    told(paths)
    standby_holds.note(paths, "b", 7)
    assert forget(paths, "b") and standbys(paths) == ()
    assert standby_holds.load(paths) == {}
    assert standby_holds.needed(paths, 100, 160) == 101, "nothing is kept for it"
    assert not forget(paths, "b")


def test_before_it_said_where_it_is_nothing_is_told(paths: SpoolPaths) -> None:
    Telling(paths).note("", 30, 10, following=False, force=True)
    Telling(paths).note("b", 30, 0, following=False, force=True)
    assert standbys(paths) == ()
    assert lag.standbys(SpoolPaths(paths.root / "none")) == ()
