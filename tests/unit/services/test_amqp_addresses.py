"""Addresses of links: the queue in them, however a client writes it."""

from __future__ import annotations

import pytest

from omq.base.errors import BadName
from omq.services.amqp.addresses import resolved
from tests.unit.services.amqp_fakes import Names


@pytest.mark.parametrize("address", [
    "A", "amqps://host/A", "AMQP://host:5671/A", "/queues/A", "/queue/A", "/amq/queue/A"])
def test_addresses(address: str) -> None:
    found = resolved(Names(), address)  # type: ignore[arg-type]
    assert (found.name, found.queues, found.rights) == ("A", ("A",), ("A",))


@pytest.mark.parametrize("address", [
    "", "/A", "/queues/", "/queues/A/B", "/exchanges/A", "queues/A", "/queues//queues/A",
    "amqps://host", "/amq/queues/a", "/queues/A?x=1"])
def test_what_is_no_queue_is_refused(address: str) -> None:
    with pytest.raises(BadName):
        resolved(Names(), address)  # type: ignore[arg-type]
