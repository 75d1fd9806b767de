"""An old primary that becomes a standby in place, cut at each of its steps and done again: what
both had is there, what it alone had is set aside whole."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from omq.base.errors import NeedsCopy
from omq.base.paths import SpoolPaths
from omq.core.standby.aside import aside
from omq.core.standby.rejoin import join, keep, place, survey
from omq.storage import durable, instance_file, spool
from omq.storage.instance_file import Role
from tests.crash.sim.choices import selections
from tests.crash.sim.disk import SimDisk
from tests.crash.sim.explore import History
from tests.crash.sim.life import PATHS, Life, fixed
from tests.crash.sim.pair import boundaries, judged, make_base, promoted
from tests.crash.sim.platter import Image, Platter, image_of
from tests.crash.sim.workloads import WORKLOADS


def old_primary(common: str, alone: str) -> tuple[Image, int, list[History]]:
    """Its disk behind a kill, the last LSN that another member has, and what its clients knew."""
    begin, _, model = make_base()
    life = Life(begin.mount(record=True), model=dict(model))
    WORKLOADS[common](life, Random(1))
    since = life.writer.durable_lsn
    WORKLOADS[alone](life, Random(2))
    known = boundaries(life.disk, model)
    life.disk.kill()
    disk = image_of(life.disk).mount(record=False)
    durable.use(disk)
    info = spool.open_spool(PATHS.root, any_role=True)
    instance_file.write(PATHS, replace(info.instance, role=Role.FORMER))
    disk.kill()
    return image_of(disk), since, known


def rejoined(disk: SimDisk, since: int) -> int:
    """How many messages are set aside."""
    durable.use(disk)
    instance = spool.open_spool(PATHS.root, writer=True, any_role=True).instance
    if instance.role is not Role.STANDBY:
        plan = survey(PATHS, instance, since)
        keep(PATHS, instance, plan)
        join(PATHS, instance, plan, "a", "b")
    found = aside(SpoolPaths(place(PATHS, instance, since)), since)
    assert found.complete, found.why
    disk.kill()
    return len(found.lines)


@pytest.mark.parametrize(("common", "alone"), [("plain", "groups"), ("rotation", "plain"),
                                               ("checkpoints", "groups"), ("units", "large")])
def test_a_rejoin_that_is_cut_is_done_again(common: str, alone: str) -> None:
    with fixed(1):
        image, since, known = old_primary(common, alone)
        disk = image.mount(record=True)
        count, seen = rejoined(disk, since), set[int]()
        assert count and disk.log is not None
        assert not (wrong := judged(promoted(image_of(disk)), known, since, since)), wrong
        platter = Platter(image)
        for cut, event in enumerate(disk.log):
            platter.feed(event)
            for label, chosen in selections(platter.pending, Random(cut), 1):
                made = platter.image(chosen)
                if made.key in seen:
                    continue
                seen.add(made.key)
                again = made.mount(record=False)
                assert rejoined(again, since) == count, f"cut at {cut}, {label}"
                wrong = judged(promoted(image_of(again)), known, since, since)
                assert not wrong, f"cut at {cut}, {label}: {wrong[0]}"
        assert len(seen) > 20


def test_a_pool_that_has_what_is_set_aside_needs_a_copy() -> None:
    with fixed(1):
        image, since, _ = old_primary("plain", "checkpoints")
        disk = image.mount(record=False)
        with pytest.raises(NeedsCopy, match="its checkpoint is at LSN"):
            rejoined(disk, since)
        durable.use(disk)
        assert spool.open_spool(PATHS.root, any_role=True).instance.role is Role.FORMER
