"""A host that takes mail for a domain, and what DANE says of it (omq.services.mail.mx_lookup).
"""

from __future__ import annotations

from dataclasses import dataclass

from omq.services.mail.dane import Tlsa


@dataclass(frozen=True, slots=True)
class Exchanger:
    """One host; smaller preferences come first. `dane`: "" (nothing to go by), usable, unusable, or
    why it is not known."""

    preference: int
    host: str
    addresses: tuple[str, ...]
    dane: str = ""
    tlsa: tuple[Tlsa, ...] = ()
