"""The fixtures of the omqdump tests: a spool with known contents, in the original's time zone."""

from __future__ import annotations

from tests.unit.omqdump.conftest import _london, info, running

__all__ = ["_london", "info", "running"]
