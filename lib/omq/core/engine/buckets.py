"""Token buckets in one number: when the bucket will be full again (monotonic ns).

A bucket holds `burst` tokens and gains one each `interval`. With `full` as the moment at which it
is full, it has `burst - ceil((full - now) / interval)` tokens now; a token that is taken makes it
full one interval later. So an untouched bucket costs nothing, and needs no memory once it is full.

By the monotonic clock: a wall clock that steps gives and takes no tokens. Buckets are not
journaled. A manager that starts finds them empty (`empty`): over any number of restarts no more is
handed out than `burst` and one each interval; the price is one interval of waiting after a start
(ADR 0160).

Source: the generic cell rate algorithm, ITU-T I.371, which is a token bucket with virtual time.
"""

from __future__ import annotations

from omq.base.rates import Rate


def tokens(rate: Rate, full: int, now: int) -> int:
    """How many there are; below 0 after more was taken than there was."""
    return rate.burst - max(0, -(-(full - now) // rate.interval_ns))


def taken(rate: Rate, full: int, now: int, count: int = 1) -> int:
    """When the bucket is full again, once so many are taken."""
    return max(full, now) + count * rate.interval_ns


def next_at(rate: Rate, full: int) -> int:
    """When there is a token, if there is none now."""
    return full - (rate.burst - 1) * rate.interval_ns


def empty(rate: Rate, now: int) -> int:
    """When a bucket that has nothing now is full."""
    return now + rate.burst * rate.interval_ns


def fitted(rate: Rate, full: int, now: int) -> int:
    """The same bucket under another rate: what it had taken before costs no more than an empty
    one."""
    return min(full, empty(rate, now))
