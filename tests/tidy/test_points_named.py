"""Every crash point has a test that dies at it: the tables of the tests that kill name them all.

It is here, for those tests are long ones: a new point without a row would show late.
"""

from __future__ import annotations

from omq.base.fault import POINTS
from tests.process import test_fault_points as points
from tests.process import test_service_points as services
from tests.process import test_standby_points as standbys


def test_every_point_is_somebodys() -> None:
    assert set(points.SERVING) | set(points.STARTING) | set(points.WRITING) | (
        points.ELSEWHERE) | points.REPAIRING | points.STANDBYS == POINTS


def test_every_point_of_a_service_is_here() -> None:
    assert set(services.ONCE).union(*services.AT_LEAST_ONCE) | services.OF_CLIENTS | (
        services.OF_CHANNELS) | services.OF_MAILDROP | services.OF_STANDBYS == points.ELSEWHERE


def test_every_point_of_a_standby_is_here() -> None:
    assert {*standbys.SENDING, *standbys.RECEIVING, *standbys.KEEPING, *standbys.PROMOTING} >= (
        points.STANDBYS)
