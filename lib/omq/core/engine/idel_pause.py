"""How long a message that cannot be deleted waits on IDEL before the next attempt.

It stays there, where it can be seen, and comes ever more seldom: what cannot be deleted now can
hardly be in an instant, and must not keep idel.server from the others. A new manager begins anew.
"""

from __future__ import annotations

from typing import Final

from omq.base.clock import NS_PER_S

PAUSE_MAX_NS: Final = 3600 * NS_PER_S
_DOUBLINGS_MAX: Final = 16


def pause_ns(first_ns: int, attempts: int) -> int:
    """After so many attempts: `first_ns`, then 1 s and twice as long each time."""
    if attempts <= 1:
        return first_ns
    return min(max(first_ns, NS_PER_S << min(attempts - 2, _DOUBLINGS_MAX)), PAUSE_MAX_NS)
