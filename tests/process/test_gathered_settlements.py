"""Settlements that a request for more follows at once: they travel with it, in one request."""

from __future__ import annotations

import pytest

from omq.base.limits import REASON_BYTES_MAX
from omq.fast.handed_messages import PROMPT_S
from omq.format.wire import NOTE_TEXT_BYTES
from tests.process.operator_world import Instance


@pytest.mark.parametrize("gathers", [True, False])
def test_what_is_gathered_travels_with_the_next_request(
        live: Instance, *, gathers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is late: who gathers asks for more at once, or looks to it by `prompt`."""
    with live.connect("takes") as native:
        native.put_many("A", [b"%d" % number for number in range(5)])
        with native.reader("A") as reader:
            some = reader.next(3, timeout_s=0)
            link, asked = reader._link, list[int]()
            request = link.request
            monkeypatch.setattr(link, "request", lambda operation, *rest, **more: (
                asked.append(operation), request(operation, *rest, **more))[1])
            reader.gathers = gathers
            for each in some:
                reader._asked = -2 * PROMPT_S  # long ago
                each.done()
            assert len(asked) == (0 if gathers else 3)
            reader.gathers = False
            reader._asked = -2 * PROMPT_S
            reader.prompt()
            reader.prompt()
            assert len(asked) == (1 if gathers else 3)
            assert [each.body for each in reader.next(5, timeout_s=0)] == [b"3", b"4"]


def test_a_note_that_is_full_is_sent_whoever_gathers(live: Instance) -> None:
    """A settlement that is neither noted nor sent would be unknown when its reader dies."""
    count = 2 + NOTE_TEXT_BYTES // REASON_BYTES_MAX
    with live.connect("takes") as native:
        native.put_many("A", [b"x"] * count)
        with native.reader("A") as reader:
            some = reader.next(count, timeout_s=0)
            assert len(some) == count
            reader.gathers = True
            for each in some:
                each.fail("x" * REASON_BYTES_MAX)
            assert 0 < len(reader._records) < count
