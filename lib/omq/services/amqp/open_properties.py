"""What a server of AMQP says of itself in `open` (ISO 19464 part 2, 2.7.1): product, version,
platform; capabilities: a link without an address (targets), a delay by annotation (translation).
"""

from __future__ import annotations

import platform
from typing import Final

import omq
from omq.amqp.connection import Connection
from omq.format.amqp_types import Array, Symbol

CAPABILITIES: Final = ("ANONYMOUS-RELAY", "DELAYED_DELIVERY")
_SYMBOLS: Final = 0xB3


def introduce(connection: Connection, container: str) -> None:
    """Before it is opened."""
    connection.container = container
    connection.properties = {
        Symbol("product"): "omq", Symbol("version"): omq.__version__,
        Symbol("platform"): f"Python {platform.python_version()}"}
    connection.offered_capabilities = Array(_SYMBOLS, [*map(Symbol, CAPABILITIES)])
