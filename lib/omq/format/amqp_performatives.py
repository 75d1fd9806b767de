"""Names and numbers of AMQP 1.0's frames, states, sources and sections (ISO 19464 parts 2 to 5).

A descriptor is a number, or the name in NAMES that means the same.
"""

from __future__ import annotations

from typing import Final

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ERROR: Final = 0x1D
RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x23, 0x28)
SOURCE, TARGET = 0x28, 0x29
COORDINATOR, DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = range(0x30, 0x35)
SASL_MECHANISMS, SASL_INIT, SASL_CHALLENGE, SASL_RESPONSE, SASL_OUTCOME = range(0x40, 0x45)
(HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE,
 FOOTER) = range(0x70, 0x79)

NAMES: Final[dict[object, int]] = {
    "amqp:open:list": OPEN, "amqp:begin:list": BEGIN, "amqp:attach:list": ATTACH,
    "amqp:flow:list": FLOW, "amqp:transfer:list": TRANSFER,
    "amqp:disposition:list": DISPOSITION, "amqp:detach:list": DETACH, "amqp:end:list": END,
    "amqp:close:list": CLOSE, "amqp:error:list": ERROR, "amqp:received:list": RECEIVED,
    "amqp:accepted:list": ACCEPTED, "amqp:rejected:list": REJECTED,
    "amqp:released:list": RELEASED, "amqp:modified:list": MODIFIED, "amqp:source:list": SOURCE,
    "amqp:target:list": TARGET, "amqp:coordinator:list": COORDINATOR,
    "amqp:declare:list": DECLARE, "amqp:discharge:list": DISCHARGE,
    "amqp:declared:list": DECLARED, "amqp:transactional-state:list": TRANSACTIONAL,
    "amqp:sasl-mechanisms:list": SASL_MECHANISMS, "amqp:sasl-init:list": SASL_INIT,
    "amqp:sasl-challenge:list": SASL_CHALLENGE, "amqp:sasl-response:list": SASL_RESPONSE,
    "amqp:sasl-outcome:list": SASL_OUTCOME, "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS, "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION, "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE, "amqp:amqp-value:*": VALUE, "amqp:footer:map": FOOTER}


def number(descriptor: object) -> int:
    """Of a descriptor; -1: none of these, and no number."""
    if isinstance(descriptor, int) and not isinstance(descriptor, bool):
        return int(descriptor)
    return NAMES.get(descriptor, -1) if isinstance(descriptor, str) else -1
