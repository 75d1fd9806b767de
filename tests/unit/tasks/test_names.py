"""Names of queues of Celery and dramatiq as names of omq's."""

from __future__ import annotations

import pytest

from omq.base.names import check_queue_name
from omq.tasks.names import queue_name


@pytest.mark.parametrize(("name", "is_"), [
    ("celery", "CELERY"), ("CELERY", "CELERY"), ("orders.eu", "ORDERS.EU"), ("a_b.1", "A_B.1")])
def test_what_can_be_stays(name: str, is_: str) -> None:
    assert queue_name(name) == is_


def test_what_cannot_be_gets_a_name_of_its_own() -> None:
    odd = ["mail-out", "mail_Out", "idel", "poison", "...", "", "ü" * 20, "x" * 17, "x" * 18,
           "celery@host.celery.pidbox"]
    names = [queue_name(name) for name in odd]
    assert len(set(names)) == len(odd)
    assert all(check_queue_name(name) == name for name in names)
    assert queue_name("mail-out").startswith("MAIL_.") and len(queue_name("mail-out")) == 16
