"""A standby under power cuts of either disk, a stream that is late, cut and begun anew."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from omq.storage import durable
from omq.storage.disk import Disk
from tests.crash.sim.life import Life, fixed
from tests.crash.sim.pair import ALL, Pair, Standby, boundaries, judged, make_base, promoted
from tests.crash.sim.platter import image_of
from tests.crash.sim.workloads import WORKLOADS


@pytest.fixture(autouse=True)
def _real_disk_again() -> Iterator[None]:
    yield
    durable.use(Disk())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_promoted_standby_is_the_primary(name: str, seed: int) -> None:
    with fixed(seed):
        begin, base, model = make_base()
        life = Life(begin.mount(record=True), model=dict(model))
        pair = Pair(life, Standby(base.mount(record=True)), Random(seed))
        WORKLOADS[name](life, Random(seed))
        pair.settle()
        known = boundaries(life.disk, model)
        wrong = judged(promoted(image_of(pair.standby.disk)), known, pair.standby.acked, ALL)
        assert not wrong, wrong
