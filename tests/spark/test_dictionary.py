"""What columns mean: the document, the comments of the tables, and the command say one thing."""

from __future__ import annotations

import json

import pytest
from deltalake import DeltaTable

from omqtools.omqspark import derived, dictionary, main, meanings, tables, views
from omqtools.omqspark.lake import Lake
from tests.tidy.tree import ROOT

PAGE = ROOT / "lib/omq/docs/DATA-DICTIONARY.md"


def test_the_data_dictionary_is_that_of_the_schemas(lake: Lake) -> None:
    found = dictionary.source_schemas() | views.schemas(lake)
    assert found.keys() == meanings.MEANINGS.keys()
    assert PAGE.read_text(encoding="utf-8") == dictionary.page(found), "say make dictionary"


def test_nothing_is_described_that_is_not_there(lake: Lake) -> None:
    found = dictionary.source_schemas() | views.schemas(lake)
    assert not [f"{name}.{column}" for name, schema in found.items() for column in schema.names
                if not dictionary.meaning(name, column)]
    unknown = {f"{name}.{column}" for name, told in meanings.MEANINGS.items()
               for column in told.columns if column not in found[name].names}
    assert not unknown
    used = {column for name, schema in found.items() for column in schema.names
            if column not in meanings.MEANINGS[name].columns}
    assert used == meanings.EVERYWHERE.keys()


@pytest.mark.parametrize("name", tables.PUBLISHED)
def test_a_table_says_what_its_columns_mean(lake: Lake, name: str) -> None:
    """As Delta has it, so DESCRIBE TABLE shows it; still so when a later run has committed."""
    found = DeltaTable(lake.path(name))
    assert found.metadata().description == f"A row: {meanings.MEANINGS[name].row}."
    for field in found.schema().fields:
        assert field.metadata == {"comment": dictionary.meaning(name, field.name)}, field.name
        assert field.metadata["comment"], f"{field.name}: nobody says what it means"


def test_a_column_of_another_version_has_no_meaning_and_stops_nobody() -> None:
    assert dictionary.meaning("sizes", "colour") == dictionary.meaning("colours", "red") == ""


@pytest.mark.parametrize("name", ["sizes", "stays"])
def test_the_command_says_it_too(lake: Lake, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["tables", "--out", lake.out, "--columns", name]) == 0
    rows = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [row["column"] for row in rows if row["stored"]] == tables.schemas(lake)[name].names
    assert [row["column"] for row in rows if not row["stored"]] == derived.names(name)
    assert rows[1]["table"] == name
    assert rows[1]["type"] in {"int", "bigint"}
    assert all(row["meaning"] for row in rows)
