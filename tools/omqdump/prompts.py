"""Where options and the answers to their questions come from.

Invariants: 1. an answer comes from the words after the letter, else from the next line; an empty
line takes the default; 2. prompts are shown on a terminal only.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterable
from typing import TextIO

from omq.base.errors import BadRequest
from omq.base.names import escape


class Prompts:
    """Where answers come from; `lines` None: only from the words of the option."""

    def __init__(self, lines: TextIO | None, out: TextIO, *, interactive: bool) -> None:
        self.interactive = interactive
        self.flags = argparse.Namespace()  # of options for many messages
        self._lines = lines
        self._out = out
        self._words: deque[str] = deque()

    def give(self, words: Iterable[str], flags: argparse.Namespace) -> None:
        """The words after the letter of the next option."""
        self._words = deque(words)
        self.flags = flags

    def word(self) -> str:
        """An answer that is never asked for; empty when it was not given."""
        return self._words.popleft() if self._words else ""

    def ask(self, prompt: str, default: str = "") -> str:
        """An answer; BadRequest when there is none and no default."""
        answer = self.word()
        if not answer:
            answer = (self.line(prompt) or "").strip() or default
        if not answer:
            raise BadRequest(reason=f"no answer to '{prompt.strip()}'")
        return answer

    def number(self, prompt: str, default: int | None = None) -> int:
        """A number of at least 0."""
        text = self.ask(prompt, "" if default is None else str(default))
        if not text.isascii() or not text.isdigit():
            question = prompt.strip().rstrip(":")
            raise BadRequest(reason=f"{escape(text[:64])!r} is not a number, asked for "
                                    f"'{question}'")
        return int(text)

    def yes(self, prompt: str) -> bool:
        """Whether the next line agrees; never taken from the words of the option."""
        return (self.line(prompt) or "").strip().lower() in ("y", "yes")

    def line(self, prompt: str) -> str | None:
        """The next line; None at the end."""
        if self._lines is None:
            return None
        if self.interactive:
            self._out.write(prompt)
            self._out.flush()
        return self._lines.readline() or None
