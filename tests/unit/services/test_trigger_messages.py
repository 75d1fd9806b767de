"""What trigger.monitor takes for a trigger message: a command is made of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from omq.services.trigger.monitor import read_trigger

GOOD: dict[str, object] = {"queue": "ORDERS", "trigger": "first", "program": "ORDERS",
                           "messages": 3}


def test_one_of_the_queue_manager() -> None:
    found = read_trigger(message(GOOD))
    assert found is not None
    assert (found.queue, found.kind, found.program, found.messages) == ("ORDERS", "first",
                                                                        "ORDERS", 3)


@pytest.mark.parametrize("wrong", [
    {"queue": "--config=/tmp/mine"}, {"queue": "../../other"}, {"queue": ""}, {"queue": "a b"},
    {"trigger": "none"}, {"trigger": "-x"}, {"program": "x" * 100_000}, {"program": 5},
    {"messages": "3"}, {"messages": -1}, {"messages": True}, {"messages": 1.5},
    {"messages": None}, {"queue": 5},
])
def test_what_no_queue_manager_says(wrong: dict[str, object]) -> None:
    """Who may put there by mistake writes no words of a command."""
    assert read_trigger(message(GOOD | wrong)) is None


def message(said: dict[str, object]) -> SimpleNamespace:
    body = json.dumps(said).encode()
    return SimpleNamespace(body=body, size=len(body))
