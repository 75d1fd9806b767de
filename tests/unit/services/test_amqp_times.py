"""Times that AMQP messages name: a moment stays one, and follows the clock when that is set."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.process.amqp_world import needs_proton

needs_proton()

from proton import Message, symbol  # noqa: E402

from omq.ipc.client.remote.translated import encoded  # noqa: E402
from omq.ipc.wire.outgoing import Outgoing  # noqa: E402
from omq.services.amqp.translation import Terms, decoded  # noqa: E402

MOMENT = datetime(2030, 1, 2, 3, 4, 5, 678000, UTC)
TERMS = Terms("alice", settled=False, threshold=1 << 18)


def put(**annotations: int) -> Outgoing:
    message = Message(body=b"x")
    message.annotations = {symbol(name.replace("_", "-")): value
                           for name, value in annotations.items()}
    return decoded(message.encode(), TERMS)


def test_a_delivery_time_is_a_moment() -> None:
    found = put(x_opt_delivery_time=int(MOMENT.timestamp() * 1000))
    assert (found.at, found.delay_s) == (MOMENT, 0.0)
    assert put(x_opt_delivery_time=-5).at == datetime.fromtimestamp(0, UTC)
    late = put(x_opt_delivery_time=1 << 60).at
    assert late is not None and late.year == 2106, "the latest that the records know"


def test_a_delivery_delay_is_a_duration() -> None:
    found = put(x_opt_delivery_delay=1500)
    assert (found.at, found.delay_s) == (None, 1.5)


def test_a_client_elsewhere_says_a_moment_too() -> None:
    _, data = encoded(Outgoing(body=b"x", at=MOMENT))
    found = decoded(data, TERMS)
    assert (found.at, found.delay_s) == (MOMENT, 0.0)
    _, data = encoded(Outgoing(body=b"x", delay_s=1.5))
    assert decoded(data, TERMS).delay_s == 1.5
