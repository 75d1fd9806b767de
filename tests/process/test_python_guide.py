"""What PYTHON.md names; that its examples run is in test_fresh_environments."""

from __future__ import annotations

import re
from pathlib import Path

import omq
import omq.aio

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "lib/omq/docs/PYTHON.md").read_text(encoding="utf-8")


def test_the_guide_names_every_class_and_the_errors_that_it_tells_of() -> None:
    classes = {name for name in omq.__all__ if name in (
        "Browsed", "Connection", "Message", "Outgoing", "Reader", "Unit")}
    assert all(f"`omq.{name}`" in GUIDE for name in classes)
    told = set(re.findall(r"\b(?:Connection(?:Busy|Closed|Forked)|[A-Z][a-z]+(?:[A-Z][a-z]+)+)\b",
                          GUIDE))
    known = {*omq.__all__, *omq.aio.__all__, "ValueError", "KeyboardInterrupt", "SystemExit",
             "MessagePack",
             "OpenTelemetry", "TracerProvider"}
    assert told <= known, told - known
