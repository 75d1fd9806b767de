"""The keys of section [ship] of omq.conf: the journal in an object store; see omq.base.settings,
whose base this is."""

from __future__ import annotations

from omq.base.settings_key import number, part, text
from omq.base.settings_transport import TransportSettings


@part
class ShipSettings(TransportSettings):
    """One field per key of [ship]."""

    # fmt: off
    ship_to: str = text("ship", "", r"((s3|gs|az)://\S+|file:///\S*)?",
        "s3://bucket/prefix, gs://, az:// or file:///directory, or nothing",
        "where omq ship puts the journal and copies of the pool; each instance has a place of its "
        "own; empty: nowhere, unless the command names one")
    ship_interval_ms: int = number("ship", 1000, 10, 3_600_000,
        "what has become durable is shipped this often: what a lost disk costs, and the way")
    ship_late_s: int = number("ship", 60, 1, 86_400,
        "omq ship status and omq health tell it when something has waited for longer")
    ship_base_hours: int = number("ship", 24, 0, 8760,
        "a new copy of the pool this often: a restore reads the journal from the last one on; 0: "
        "only where there is none")
    ship_bases_kept: int = number("ship", 7, 1, 10_000,
        "copies that stay, with the journal from the oldest of them on: as far back a restore goes")
    # fmt: on
