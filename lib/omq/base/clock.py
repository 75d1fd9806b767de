"""Time: wall time for people and records, boot time for waiting; and who a process is.

Invariant: a delay, lease or time-out is counted in `monotonic_ns`, which no administrator can set
and which goes on while the machine sleeps; `wall_ns` is stored, shown, and compared with what was
said or stored as a moment of it. Boot time has no meaning after a reboot, so a file that holds it
also holds `boot_id`. CLOCKS.md has every place that stores or compares wall time, and its rule.

Two date forms are the original's (month.day.year): `05.18.99 13:30:03` in the message pool's dump
and `05.18.99/13:35:00` in that of the queues. Both are local time, as there.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

from omq.base.errors import BadRequest

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000

STOPPED: Final = ("T", "t")
"""States of a process that a signal or a debugger stopped (`process_state`)."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE = Path("/proc/self/ns/time")


def wall_ns() -> int:
    """Nanoseconds since 1970, UTC. May jump."""
    return time.time_ns()


def local_moment(time_ns: int) -> datetime | None:
    """Nanoseconds of the wall clock as the time of this place; None: 0, which is never."""
    return datetime.fromtimestamp(time_ns / NS_PER_S, UTC).astimezone() if time_ns else None


def monotonic_ns() -> int:
    """Nanoseconds since boot, suspended time included. Never jumps, the same in all processes."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def time_namespace() -> int:
    """Names the time namespace of this process, in which `monotonic_ns` counts; 0: the kernel has
    none. Processes of one boot and one such number have one clock."""
    try:
        return _TIME_NAMESPACE.stat().st_ino
    except OSError:
        return 0


def boot_id() -> bytes:
    """The 16 bytes by which the kernel names this boot."""
    return bytes.fromhex(_BOOT_ID.read_text(encoding="ascii").strip().replace("-", ""))


def process_start_ticks(pid: int) -> int | None:
    """When process `pid` started, in clock ticks since boot (proc(5), stat field 22); None when
    there is none. With the pid it names one process for the whole uptime: pids are reused."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses and may hold spaces and parentheses.
    after_name = stat[stat.rindex(b")") + 1 :].split()
    return int(after_name[19])


def process_state(pid: int) -> str:
    """The state letter of process `pid` (proc(5): R, S, D, T, ...); empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return chr(stat[stat.rindex(b")") + 2])


def seed_time(wall: int) -> str:
    """`05.18.99 13:30:03`; 0 is the original's `01.01.70 00:00:00`, in every time zone."""
    return _seed(wall, " ")


def seed_time_slash(wall: int) -> str:
    """`05.18.99/13:30:03`."""
    return _seed(wall, "/")


def seed_clock(wall: int) -> str:
    """`13:37:25`, the time of day alone."""
    return _seed(wall, " ")[9:]


def _seed(wall: int, between: str) -> str:
    if wall == 0:
        return f"01.01.70{between}00:00:00"
    moment = time.localtime(wall // NS_PER_S)
    return time.strftime(f"%m.%d.%y{between}%H:%M:%S", moment)


def iso_time(wall: int) -> str:
    """`2026-11-21T13:30:03.123456+01:00`: local time with its offset, microseconds."""
    seconds, rest = divmod(wall, NS_PER_S)
    whole, offset = _local_second(seconds, time.tzname)
    return f"{whole}.{rest // 1000:06}{offset}"


@lru_cache(maxsize=2)
def _local_second(seconds: int, _zone: tuple[str, str]) -> tuple[str, str]:
    """A whole second and its offset: every line of a log has a time, and a second many lines."""
    text = datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(timespec="seconds")
    return text[:19], text[19:]


def parse_iso(text: str) -> int:
    """Wall ns of a time such as `2026-11-21T08:00`, in local time when no zone is there."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadRequest(reason=f"{text[:64]!r} is not a time such as 2026-11-21T08:00") from error
    whole = moment.replace(microsecond=0)
    return int(whole.timestamp()) * NS_PER_S + moment.microsecond * 1000
