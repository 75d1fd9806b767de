"""put_many over a manager that may be another one between two of its requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from omq.base.errors import MessageTooLong
from omq.fast.batch import Batch
from omq.ipc.client.connection_parts import Wire


def test_a_body_that_fits_no_request_is_an_error_and_no_turn_in_vain() -> None:
    """The next manager may have a smaller channel than the one that the bodies were chosen for."""
    wire = cast(Any, object.__new__(Wire))
    wire._batch, wire._names = Batch(), {3: "A"}
    wire.link = SimpleNamespace(room=1000)
    with pytest.raises(MessageTooLong, match="A"):
        wire.put_plain_batch(3, [b"x", b"y" * 5000], 1)
