"""Fixtures of the process tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import chromium, operator_world
from tests.process.instance import Instance, instance


@pytest.fixture
def omq_instance(tmp_path: Path) -> Iterator[Instance]:
    """An instance that must end consistent; nothing of it is started yet."""
    with instance(tmp_path) as made:
        yield made


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder to which other users can be let in. Not one of pytest's: each session that starts
    beside this one closes those to other users again."""
    with tempfile.TemporaryDirectory(prefix="omq-") as place:
        yield Path(place)


@pytest.fixture
def open_instance(open_folder: Path) -> Iterator[Instance]:
    """omq_instance in such a folder."""
    with instance(open_folder) as made:
        yield made


@pytest.fixture
def live(tmp_path: Path) -> Iterator[operator_world.Instance]:
    """A running instance for the operator's tools."""
    made = operator_world.Instance(tmp_path / "spool")
    made.start()
    yield made
    made.end()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """A browser for all tests of a module."""
    with chromium.browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture
def page(program: chromium.Browser) -> Iterator[chromium.Page]:
    """A page of it at a desk; nothing may have gone wrong in it."""
    with program.page() as made:
        made.size(1280, 900)
        yield made
        assert made.errors == []
