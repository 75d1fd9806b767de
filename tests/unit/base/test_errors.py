"""Errors travel: a pool of processes, Celery's among them, hands them over as pickle or as text."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from omq.base import errors
from omq.base.errors import OmqError


def every(kind: type[OmqError] = OmqError) -> Iterator[type[OmqError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from every(each)


OWN = sorted({each for each in every() if each.__module__ == errors.__name__},
             key=lambda each: each.__name__)


@pytest.mark.parametrize("kind", OWN)
def test_an_error_is_the_same_elsewhere(kind: type[OmqError]) -> None:
    """`copy` makes it as pickle does, of what __reduce_ex__ says."""
    error = kind(queue="ORDERS", reason="it is so")
    found = copy.copy(error)
    assert (type(found), str(found), found.fields) == (kind, str(error), error.fields)


@pytest.mark.parametrize("kind", OWN)
def test_what_it_says_makes_it_again(kind: type[OmqError]) -> None:
    """As a result of Celery's has it, in JSON: class and arguments; the fields are not there."""
    error = kind(queue="ORDERS", reason="it is so")
    found = kind(*error.args)
    assert str(found) == str(error) and found.fields == {}
