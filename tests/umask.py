"""Each test begins with the umask that pytest was started with: a daemon that runs in a test's own
process sets its own (omq.base.modes), and what the next test makes would be closed to servers that
run as others."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest


class Umask:
    """A plugin."""

    def __init__(self) -> None:
        self._of_all = os.umask(0)
        os.umask(self._of_all)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            os.umask(self._of_all)
