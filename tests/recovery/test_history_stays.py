"""Nobody removes history while omqrecover looks at a spool or changes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from omq.base.errors import SpoolLocked
from omq.base.paths import SpoolPaths
from omq.storage import history, spool
from omqtools.omqrecover import main


@pytest.mark.parametrize("alone", [main._shared, main._exclusive])
def test_history_stays(tmp_path: Path,
                       alone: Callable[[SpoolPaths], AbstractContextManager[None]]) -> None:
    paths = spool.create_spool(tmp_path / "spool").paths
    with history.changing(paths, "omq-archive"):
        pass
    with alone(paths), pytest.raises(SpoolLocked), history.changing(paths, "omq-archive"):
        pass
    with history.changing(paths, "omq-archive"):
        pass


def test_a_repair_does_not_begin_in_the_middle_of_a_removal(tmp_path: Path) -> None:
    paths = spool.create_spool(tmp_path / "spool").paths
    with history.changing(paths, "omq-archive"):
        with pytest.raises(SpoolLocked), main._exclusive(paths):
            pass
        with pytest.raises(SpoolLocked), main._shared(paths):
            pass
