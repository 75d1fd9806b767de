"""queues.conf: where late and failed messages go, and their pauses."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base.config import load_queues
from omq.base.errors import ConfigError
from omq.base.settings import Settings
from omq.core.engine.queue_rules import keepers, rules_of
from omq.core.engine.state import FIRST_QUEUE, POISON


def conf(folder: Path, text: str) -> Path:
    (folder / "queues.conf").write_text(text)
    return folder


def test_rules_are_those_of_the_file(tmp_path: Path) -> None:
    queues = load_queues(conf(tmp_path, """
[*]
dead_letter = DEAD
[A]
expiry_max_s = 60
expired_to = LATE
retry_delay_ms = 50
retry_backoff = linear
retry_max_s = 7
retry_jitter = 20
[LATE]
[DEAD]
"""))
    number = {name: FIRST_QUEUE + at for at, name in enumerate(sorted(queues))}
    rules = {name: rules_of(name, number[name], conf, number, keepers(queues), Settings())
             for name, conf in queues.items()}
    a = rules["A"]
    assert (a.expiry_ns, a.expired_to, a.dead_letter) == (
        60 * 10**9, number["LATE"], number["DEAD"])
    assert (a.retry_delay_ns, a.backoff, a.retry_max_ns, a.jitter) == (
        50_000_000, "linear", 7 * 10**9, 20)
    assert rules["DEAD"].dead_letter == POISON, "it is not its own"
    assert (rules["LATE"].retry_delay_ns, rules["LATE"].expiry_ns) == (-1, 0)
    assert [name for name, each in rules.items() if each.expires] == ["A"]


@pytest.mark.parametrize(("text", "key", "word"), [
    ("[A]\nexpired_to = B\n", "expired_to", "not a queue of this file"),
    ("[A]\ndead_letter = POISON\n", "dead_letter", "not a queue of this file"),
    ("[A]\nexpired_to = IDEL\n", "expired_to", "not a queue of this file"),
    ("[A]\nretry_backoff = wild\n", "retry_backoff", "not known"),
    ("[A]\nretry_jitter = 101\n", "retry_jitter", "out of range"),
    ("[A]\nretry_delay_ms = -5\n", "retry_delay_ms", "out of range"),
    ("[A]\nretry_max_s = 0\n", "retry_max_s", "out of range"),
    ("[A]\nexpiry_max_s = 1.5\n", "expiry_max_s", "not a whole number"),
    ("[A]\ndead_letter = B\n[B]\ndead_letter = A\n", "dead_letter", "ring"),
    ("[A]\ndead_letter = B\n[B]\ndead_letter = C\n[C]\ndead_letter = B\n", "dead_letter", "ring"),
])
def test_what_cannot_be_is_named(tmp_path: Path, text: str, key: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_queues(conf(tmp_path, text))
    assert key in str(caught.value) and word in str(caught.value)
