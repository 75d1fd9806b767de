"""What the worker of compose.yaml does with each message of ORDERS."""

from __future__ import annotations

from typing import Any


def ship(order: dict[str, Any]) -> None:
    """Its body is JSON."""
    print("shipped", order["id"], flush=True)
