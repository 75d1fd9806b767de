"""Binding keys of a topic exchange: words between points; `*` is one word, `#` any number of them.

Source: AMQP 0-9-1, 3.1.3.3. Errors: none.
"""

from __future__ import annotations


def matches(pattern: str, key: str) -> bool:
    """Whether a routing key is meant. The time is that of words times words, whatever a stranger
    has made of the pattern."""
    wanted, words = pattern.split("."), key.split(".") if key else []
    if not pattern:
        wanted = []
    reached = [True] + [False] * len(words)  # the pattern so far, for the first 0, 1, ... words
    for each in wanted:
        if each == "#":
            for at in range(1, len(reached)):
                reached[at] = reached[at] or reached[at - 1]
            continue
        for at in range(len(words), 0, -1):
            reached[at] = reached[at - 1] and each in ("*", words[at - 1])
        reached[0] = False
    return reached[-1]
