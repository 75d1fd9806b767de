"""The features of other task queues that TASKS's table says were tried."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import pytest

LIBRARIES = ("celery", "dramatiq", "huey")
HELPERS = frozenset({"got", "plus", "now", "summed", "seven", "work"})


def trials(library: str) -> list[str]:
    """The names of its trials: functions of the module without arguments."""
    pytest.importorskip(library, reason="the extra `peers` is not installed (make setup-peers)")
    module = importlib.import_module(f"tests.bench.tasks.tried.{library}_tried")
    return [name for name, each in vars(module).items()
            if inspect.isfunction(each) and each.__module__ == module.__name__
            and name not in HELPERS and not inspect.signature(each).parameters
            and not inspect.isgeneratorfunction(inspect.unwrap(each))]


@pytest.fixture(autouse=True)
def _of_the_library_itself(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    """What it warns of is its own."""
    yield
    recwarn.clear()


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_does(library: str) -> None:
    found = trials(library)
    assert len(found) > 5
    module = importlib.import_module(f"tests.bench.tasks.tried.{library}_tried")
    for name in found:
        getattr(module, name)()
