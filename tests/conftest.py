"""What all tests share. Warnings are errors by the configuration in setup.cfg."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate-golden", action="store_true",
        help="write the golden files of tests/golden anew instead of comparing with them")
