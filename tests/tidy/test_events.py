"""Every event of the catalogue is logged somewhere."""

from __future__ import annotations

import ast

from omq.base import events
from tests.tidy.tree import nodes, product

KEPT = {"ERRMGR_NOT_CONFIGURED"}  # the original's number, see the catalogue


def test_every_event_is_used() -> None:
    used = {node.attr for source in product() if not source.path.endswith("events.py")
            for node in nodes(source) if isinstance(node, ast.Attribute)}
    names = {name for name, value in vars(events).items() if isinstance(value, events.Event)}
    assert len(names) > 50
    assert names - used == KEPT
