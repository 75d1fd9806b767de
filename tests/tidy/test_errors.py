"""Errors: unique status, templates that are filled, and every use gives what its template needs."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator

import pytest

from omq.base import errors
from omq.base.errors import BY_STATUS, Exit, OmqError
from tests.tidy.tree import Source, calls, product, suite

CLASSES = sorted(BY_STATUS.values(), key=lambda error: error.status)
BY_NAME = {error.__name__: error for error in CLASSES if error is not OmqError}


def _fields(error: type[OmqError]) -> dict[str, object]:
    """A value for each field of the template: a number where its format asks for one."""
    parts = string.Formatter().parse(error.__doc__ or "")
    return {
        name: (7 if spec and spec[-1] in "dxo" else f"<{name}>")
        for _, name, spec, _ in parts
        if name
    }


def test_statuses_are_unique_and_fit_two_bytes() -> None:
    defined = [
        value for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, OmqError)
    ]
    assert len({error.status for error in defined}) == len(defined) == len(BY_STATUS)
    assert all(0 < error.status < 1 << 16 for error in defined)
    assert all(isinstance(error.exit_code, Exit) for error in defined)


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_template_is_one_line_and_filled(error: type[OmqError]) -> None:
    template = error.__doc__ or ""
    assert template
    assert "\n" not in template.strip()
    fields = _fields(error)
    text = str(error(**fields))
    assert "{" not in text
    for name, value in fields.items():
        assert isinstance(value, int) or f"<{name}>" in text
    if error is not OmqError:
        again = errors.from_status(error.status, fields)
        assert type(again) is error
        assert str(again) == text


def test_unknown_status_keeps_its_number() -> None:
    assert "999" in str(errors.from_status(999, {"a": 1}))


def _raised(source: Source) -> Iterator[tuple[str, type[OmqError], ast.Call]]:
    for line, name, node in calls(source):
        error = BY_NAME.get(name.rsplit(".", 1)[-1])
        if error is not None:
            yield f"{source.path}:{line}", error, node


def test_every_use_fills_its_template() -> None:
    wrong = []
    for source in (*product(), *suite()):
        for where, error, node in _raised(source):
            given = {word.arg for word in node.keywords}
            if None in given:  # **fields: checked where they are made
                continue
            needed = set(_fields(error))
            if node.args or given != needed:
                wrong.append(f"{where}: {error.__name__} needs {sorted(needed)}, got {given}")
    assert not wrong, "\n".join(wrong)
