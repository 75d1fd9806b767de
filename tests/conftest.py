"""What all tests share. Warnings are errors by the configuration in setup.cfg."""

from __future__ import annotations

import hypothesis
import pytest

from tests.descriptors import Descriptors
from tests.disks import Disks
from tests.not_run import NotRun
from tests.share import MARK, Share
from tests.threads import Threads
from tests.umask import Umask

# A machine may be as slow as it likes; no example is timed, nor how long it takes to make it.
hypothesis.settings.register_profile(
    "omq", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("omq")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate-golden", action="store_true",
        help="write the golden files of tests/golden anew instead of comparing with them")
    parser.addoption(
        "--outcomes", metavar="FILE",
        help="write a line for each test: its id, a tab, and why it did not run (empty: it did)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)
    config.pluginmanager.register(Share())
    config.pluginmanager.register(Descriptors())
    config.pluginmanager.register(Disks())
    config.pluginmanager.register(Threads())
    config.pluginmanager.register(Umask())
    config.pluginmanager.register(NotRun(config.getoption("--outcomes")))
