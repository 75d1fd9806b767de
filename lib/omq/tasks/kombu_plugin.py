"""How kombu comes to know `omq://`: it has no entry points for transports, but loads those of its
serializers when it is imported. This one adds the transport, and is a serializer as a side effect:
`omq` is kombu's own JSON under another name.
"""

from __future__ import annotations

from typing import Final

from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.json import dumps, loads

TRANSPORT_ALIASES["omq"] = "omq.tasks.kombu_transport:Transport"

serializer: Final = (dumps, loads, "application/x-omq-json", "utf-8")
"""What the entry point `kombu.serializers` is: encoder, decoder, content type, encoding."""
