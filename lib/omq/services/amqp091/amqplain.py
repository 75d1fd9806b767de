"""AMQPLAIN, the mechanism of RabbitMQ that php-amqplib takes by default: name and password as a
table. It is PLAIN in other bytes, so it is offered where PLAIN is, and checked as that.

Errors: Broken, for a table that is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pamqp import decode

from omq.services.amqp.policy import PLAIN
from omq.services.amqp.sasl_door import SaslResponse
from omq.services.amqp091.frames import SYNTAX_ERROR, Broken

AMQPLAIN: Final = "AMQPLAIN"


def with_amqplain(offered: Sequence[str]) -> list[str]:
    """The mechanisms that clients of AMQP 0-9-1 may choose from."""
    return [*offered, *([AMQPLAIN] if PLAIN in offered else [])]


def asked_by(start_ok: Any) -> SaslResponse:
    """What a client says of itself. Broken."""
    said = start_ok.response
    raw = said.encode() if isinstance(said, str) else bytes(said)
    if start_ok.mechanism != AMQPLAIN:
        return SaslResponse(start_ok.mechanism, raw)
    try:
        found: dict[str, Any] = decode.field_table(len(raw).to_bytes(4, "big") + raw)[1]
        return SaslResponse(PLAIN, "\0".join(("", found["LOGIN"], found["PASSWORD"])).encode())
    except Exception as error:  # whatever a hostile table makes of the codec
        raise Broken(SYNTAX_ERROR, f"a response of {AMQPLAIN} that is none: "
                     f"{type(error).__name__}") from error
