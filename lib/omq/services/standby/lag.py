"""How far a standby is behind its primary, as the primary's side of the line sees it, told in
run/standby-MEMBER.json for `omq standby status`, alarms, metrics and the console.

Frames are counted from the last number that the standby has acknowledged; where the distance is
that of a new term (LEAP), nobody counted, and it is None. Seconds are the age of the oldest frame
that is on the primary's disk and not on the standby's, since this line began; 0: it has all. Bytes
are those of the journal that the manager has written since the standby was last known to have a
place in it, at most those of STEP_NS too many; None: it has not caught up since this line, or this
manager, began.

A line that ends is noted, too, and the file stays: a standby that is away is known. Nobody notes
then how far the primary has gone on, so whoever looks asks its index; frames are None where there
is none, and bytes are None unless it lacks nothing. Ages are measured by time since boot, so a
clock that is set makes nobody silent; a file of before a reboot says a time that is not over yet,
or long over, and counts as old.

Errors: none: the notes are for people (omq.base.side_files).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from omq.base import clock, modes, side_files
from omq.base.config import load_settings
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.format.index import COUNTERS_AT, TABLES_AT, Counter
from omq.storage import durable, standby_holds
from omq.storage.instance_file import LEAP, is_member_name
from omq.storage.segment import AttachedIndex

STEP_NS: Final = clock.NS_PER_S // 4  # between two samples
SAMPLES_MAX: Final = 1024
TOLD_NS: Final = clock.NS_PER_S  # between two words about a standby
SILENT_NS: Final = 10 * clock.NS_PER_S  # without a word: the process that served it is gone
_BYTES_MAX: Final = 4096
_ERROR_MAX: Final = 500
_PREFIX: Final = "standby-"
_SUFFIX: Final = ".json"


class Lag:
    """Since when there is something that the standby does not have."""

    def __init__(self, monotonic_ns: Callable[[], int] = clock.monotonic_ns) -> None:
        self._now = monotonic_ns
        # When; up to which LSN the disk was then; bytes of the journal then.
        self._samples: list[tuple[int, int, int]] = []
        self._had: int | None = None  # bytes of the journal up to where the standby was known
        self._written = 0

    def note(self, durable_lsn: int, acked: int, written: int = 0) -> None:
        """So far is the disk here, so far the standby; `written`: bytes of the journal since the
        manager began."""
        samples, now = self._samples, self._now()
        if written < self._written:  # another manager counts anew
            self._had = None
        self._written = written
        while samples and samples[0][1] <= acked:
            if self._had is not None:
                self._had = samples[0][2]
            del samples[0]
        if durable_lsn <= acked:
            self._had = written
        if durable_lsn <= acked or (samples and (
                durable_lsn <= samples[-1][1] or now - samples[-1][0] < STEP_NS)):
            return
        samples.append((now, durable_lsn, written))
        if len(samples) > SAMPLES_MAX:  # the first says the age: it stays
            del samples[1::2]

    @property
    def seconds(self) -> float:
        """The age of the oldest that it does not have."""
        return (self._now() - self._samples[0][0]) / clock.NS_PER_S if self._samples else 0.0

    @property
    def bytes(self) -> int | None:
        """Of the journal, that it does not have; None: nobody knows."""
        return None if self._had is None else max(0, self._written - self._had)


@dataclass(frozen=True, slots=True)
class StandbyState:
    """One standby. `away_s`: how long it does not follow, 0: it does; None: nobody knows. `error`:
    why its line ended, as it or its sender said."""

    member: str
    following: bool
    acked_lsn: int
    primary_lsn: int
    lag_frames: int | None
    lag_s: float | None
    away_s: float | None
    lag_bytes: int | None = None
    error: str = ""
    conf: str = ""  # what differs in its configuration, as it was when it connected

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


class Telling:
    """What is published about one line."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._paths, self._lag = paths, Lag()
        self._due = 0

    def note(self, member: str, durable_lsn: int, acked: int, written: int = 0, *,
             following: bool, force: bool = False, error: str = "", conf: str = "") -> None:
        """At most so often as TOLD_NS says, but with `force`."""
        if not member or not acked:
            return  # it has not said yet where it is
        self._lag.note(durable_lsn, acked, written)
        now = clock.monotonic_ns()
        if now < self._due and not force:
            return
        self._due = now + TOLD_NS
        behind = max(0, durable_lsn - acked)
        side_files.replace(_file(self._paths, member), (json.dumps({
            "member": member, "following": following, "acked_lsn": acked,
            "primary_lsn": durable_lsn, "lag_frames": behind if behind < LEAP else None,
            "lag_s": round(self._lag.seconds, 3), "lag_bytes": self._lag.bytes,
            "error": error[:_ERROR_MAX], "conf": conf[:_ERROR_MAX], "monotonic_ns": now,
            "time_ns": clock.wall_ns()}, sort_keys=True) + "\n").encode(), modes.PUBLIC)


def _file(paths: SpoolPaths, member: str) -> Path:
    return paths.run / f"{_PREFIX}{member}{_SUFFIX}"


def standbys(paths: SpoolPaths) -> tuple[StandbyState, ...]:
    """All that this primary knows, by name; none for who may not list its files."""
    try:
        held = set(standby_holds.load(paths) or ())
        names = {name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
                 for name in durable.list_directory(paths.run)
                 if name.startswith(_PREFIX) and name.endswith(_SUFFIX)}
    except (OSError, OmqError):
        return ()
    return tuple(_state(paths, each) for each in sorted(names | held) if is_member_name(each))


def _state(paths: SpoolPaths, member: str) -> StandbyState:
    try:
        found = json.loads(side_files.read(_file(paths, member), _BYTES_MAX) or b"")
        told, time_ns = int(found["monotonic_ns"]), int(found["time_ns"])
        acked, primary = int(found["acked_lsn"]), int(found["primary_lsn"])
        lag_s, said = float(found["lag_s"]), found["following"] is True
        frames = None if found["lag_frames"] is None else int(found["lag_frames"])
        lacks = None if found.get("lag_bytes") is None else int(found["lag_bytes"])
        error, conf = str(found.get("error", "")), str(found.get("conf", ""))  # or says none
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return StandbyState(member, following=False, acked_lsn=0, primary_lsn=0, lag_frames=None,
                            lag_s=None, away_s=None)
    age = clock.monotonic_ns() - told
    if said and 0 <= age < SILENT_NS:
        return StandbyState(member, following=True, acked_lsn=acked, primary_lsn=primary,
                            lag_frames=frames, lag_s=lag_s, away_s=0.0, lag_bytes=lacks, conf=conf)
    away = max(0, age if age >= 0 else clock.wall_ns() - time_ns) / clock.NS_PER_S
    here = _durable_lsn(paths)
    behind = max(0, (0 if here is None else max(here, primary)) - acked)
    return StandbyState(
        member, following=False, acked_lsn=acked, primary_lsn=max(primary, here or 0),
        lag_frames=behind if here is not None and behind < LEAP else None,
        lag_s=0.0 if here is not None and not behind else lag_s + away, away_s=away,
        lag_bytes=0 if here is not None and not behind else None, error=error, conf=conf)


def _durable_lsn(paths: SpoolPaths) -> int | None:
    """Of the primary, as the manager that runs, or was killed, says; None: nobody does."""
    try:
        attached = AttachedIndex(paths)
    except (OmqError, OSError):
        return None
    try:
        with attached.buffer[COUNTERS_AT:TABLES_AT] as raw, raw.cast("Q") as counters:
            return int(counters[Counter.DURABLE_LSN])
    finally:
        attached.close()


@dataclass(frozen=True, slots=True)
class Protected:
    """What an acknowledgement of the primary means: synced, waiting, alone (it says so itself), or
    NOT_IN_FORCE."""

    state: str
    wanted: int
    standbys: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


NOT_IN_FORCE: Final = "not in force"
"""A state: omq.conf wants more than the queue manager that runs, or ran last, has read there."""


def protection(paths: SpoolPaths, conf_dir: Path) -> Protected | None:
    """As the queue manager that runs, or ran last, has told; None: nothing waits for standbys."""
    told = _told(paths)
    try:
        wanted = load_settings(conf_dir).standby_sync
    except OmqError:
        return told  # whoever starts with it says so
    if wanted > (0 if told is None else told.wanted):
        return Protected(NOT_IN_FORCE, wanted, ())
    return told


def _told(paths: SpoolPaths) -> Protected | None:
    try:
        found = json.loads(side_files.read(paths.protection, _BYTES_MAX) or b"")
        return Protected(str(found["state"]), int(found["wanted"]), tuple(map(str, found[
            "standbys"])))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def forget(paths: SpoolPaths, member: str) -> bool:
    """It is not a standby any more: no journal file is kept for it, and nothing says that it is
    away. False: it is not known. DiskError, SpoolFull."""
    known = any(each.member == member for each in standbys(paths))
    if member in (standby_holds.load(paths) or ()):
        standby_holds.note(paths, member, None)
    side_files.remove(_file(paths, member))
    return known
