"""What the other side of a channel says of itself at the attach, polite or not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from omq.services.channel.greeting import (
    BATCH_BYTES,
    BATCH_MAX,
    LAST,
    SPOOL,
    answered,
)

GOOD = {LAST: 7, SPOOL: "0" * 32, BATCH_MAX: 50, BATCH_BYTES: 1 << 20}


def link(said: dict[Any, Any] | None, bytes_max: int = 0) -> SimpleNamespace:
    return SimpleNamespace(remote_properties=said, remote_max_message_size=bytes_max)


def test_what_is_said_is_believed() -> None:
    found = answered(link(GOOD, 1000))
    assert (found.last, found.batch_max, found.batch_bytes, found.bytes_max) == (7, 50, 1 << 20,
                                                                               1000)


def test_an_older_one_says_less() -> None:
    found = answered(link({LAST: 7, SPOOL: "0" * 32}))
    assert (found.batch_max, found.batch_bytes, found.bundles, found.reset) == (0, 0, False, "")


@pytest.mark.parametrize("wrong", [
    {BATCH_MAX: -1}, {BATCH_BYTES: -1}, {LAST: -1}, {LAST: 1 << 62}, {LAST: "x"}, {LAST: None},
    {BATCH_MAX: float("inf")}, {BATCH_BYTES: []}, {SPOOL: "0"}, {SPOOL: None}])
def test_what_makes_no_sense_is_no_channel(wrong: dict[Any, Any]) -> None:
    """Less than nothing of a batch would have its sender look for messages without a pause."""
    with pytest.raises(ValueError, match="no sense"):
        answered(link(GOOD | wrong))


@pytest.mark.parametrize("said", [None, {}, {SPOOL: "0" * 32}])
def test_who_says_nothing_is_another_kind_of_broker(said: dict[Any, Any] | None) -> None:
    with pytest.raises(ValueError, match="peer=foreign"):
        answered(link(said))
