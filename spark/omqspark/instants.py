"""Times as people write them: an instant of `--at`, the day of `--day`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from omq.base.errors import BadRequest


def at_instant(text: str) -> tuple[int | None, int | None]:
    """(lsn, time in ns) of "--at": a number is an LSN, else an ISO time; UTC without a zone."""
    if re.fullmatch(r"[0-9]+", text):
        return int(text), None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadRequest(reason=f"--at takes an LSN or a time like 2026-01-31T12:00, not {text!r}"
                         ) from error
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return None, int(found.timestamp() * 1_000_000) * 1000


def span(day: str | None) -> dict[str, int]:
    """Of a day (UTC); everything without one."""
    if not day:
        return {}
    start = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())
    return {"from_ns": start * 10**9, "to_ns": (start + 86400) * 10**9}
