"""How a process ended, in words for logs and people."""

from __future__ import annotations

import signal


def exit_text(code: int) -> str:
    """`exit code 70`, or `signal 9 (Killed)` for the negative codes of Python."""
    if code < 0:
        return f"signal {-code} ({signal.strsignal(-code) or 'unknown'})"
    return f"exit code {code}"
