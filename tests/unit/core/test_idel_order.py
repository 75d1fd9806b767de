"""Messages on IDEL after a start: their chain ascends, whatever their last frames were."""

from __future__ import annotations

import numpy as np
import pytest

from omq.core.load.rebuild import _ascending
from omq.format.wire import Settlement
from tests.crash.sim.test_lives import Lives


@pytest.mark.parametrize(("lsns", "wanted"), [
    ([], []), ([5], [5]), ([10, 40, 41], [10, 40, 41]), ([33, 33, 10, 40, 33, 34, 33],
                                                       [30, 31, 10, 40, 32, 34, 33])])
def test_each_is_lower_than_the_next_higher_one(lsns: list[int], wanted: list[int]) -> None:
    assert _ascending(np.array(lsns, dtype=np.int64)).tolist() == wanted


def test_bodies_that_were_moved_by_one_frame() -> None:
    """Found by random lives: two containers on IDEL whose places were told by one RELOCATE."""
    lives = Lives()
    try:
        for queue in (3, 4):
            lives.put_container(queue=queue)
        for queue in (4, 3):
            lives.rotate()
            lives.rotate()
            lives.give(queue=queue, want=1)
            lives.settle(count=1, delay_s=0, kind=Settlement.DONE)
        lives.checkpoint(bodies=True)
        lives.stop()
        lives.give(queue=1, want=1)
        lives.give(queue=1, want=2)
        lives.reader_dies(orderly=True)
    finally:
        lives.teardown()
