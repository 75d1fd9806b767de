"""Values of properties as kind and text: the same as the library's values give (ipc.client.remote),
and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from omq.amqp import property_kinds
from omq.fast.amqp_encoding import encoded
from omq.ipc.client.remote import foreign_values
from tests.unit.amqp.values import VALUES, theirs


@given(VALUES)
def test_kind_and_text_are_those_of_the_library(value: Any) -> None:
    kind, text = property_kinds.said(value)
    theirs_kind, theirs_text = foreign_values.said(theirs(value))
    assert kind == theirs_kind
    if kind != "encoded":
        assert text == theirs_text
    assert encoded(property_kinds.value_of(kind, text)) == encoded(value)


def test_properties_come_back_and_what_is_none_of_its_kind_is_a_text() -> None:
    given_ = {"a": "x", "b": 5, "c d": True}
    texts = property_kinds.texts_in(given_)
    assert property_kinds.values_out(texts) == given_
    assert property_kinds.values_out({"a": "x", "amqp.types": '{"a":"ubyte"}'}) == {"a": "x"}
    assert property_kinds.values_out({"a": "ü", "amqp.types": '{"a":"symbol"}'}) == {"a": "ü"}
    with pytest.raises(ValueError, match="makes no sense"):
        property_kinds.values_out({"amqp.types": "[["})
