"""The questions of QUESTIONS.md: each is answered alike by DuckDB, pandas and Spark, with rows."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from omq.base.errors import BadRequest, Exit
from omqtools.omqspark import main
from omqtools.omqspark.ask import PAGE, asked, preambles, questions
from omqtools.omqspark.lake import Lake

duckdb = pytest.importorskip("duckdb", reason="make setup-dev installs it")
NAMES = ("waits", "retries", "peak", "message", "readers", "peers", "expired", "deleted", "worse",
         "disk", "programs")


@pytest.fixture(scope="module")
def engines(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the page's first lines leave: `database`, `table`, `spark`."""
    sends = tmp_path_factory.mktemp("sends") / "unix.sends.jsonl"
    sends.write_text("".join(json.dumps(one) + "\n" for one in [
        {"rules": {"maxchans": 20}, "at_ns": 1, "begins": True},
        *({"came_ns": n, "channel": "smtp", "peer": f"mx{n % 3}.example.org:25", "priority": 4,
           "wait_s": 0.25 * n, "spent_s": 0.5 + n % 3, "reached": n % 5 > 0} for n in range(30))]))
    python, spark = (re.sub(r'OUT, SENDS = .*', f"OUT, SENDS = {lake.out!r}, {str(sends)!r}", text)
                     for text in preambles())
    names: dict[str, Any] = {}
    names |= ran(sends.with_name("first.py"), python)
    names["database"].register("sends", names["table"]("sends"))
    names |= ran(sends.with_name("spark.py"), spark)
    names["spark"].read.json(str(sends)).createOrReplaceTempView("sends")
    yield names
    names["database"].close()


def ran(program: Path, text: str, **names: Any) -> dict[str, Any]:
    """What a program of the page leaves."""
    program.write_text(text, encoding="utf-8")
    return runpy.run_path(str(program), names)


def plain(frame: pd.DataFrame) -> list[list[Any]]:
    """Rows in their order; instants as text, UTC; nothing as None."""
    out = []
    for row in frame.itertuples(index=False):
        cells: list[Any] = []
        for cell in row:
            if cell is None or cell is pd.NaT or cell is pd.NA or cell != cell:
                cells.append(None)
            elif isinstance(cell, pd.Timestamp):
                at = cell.tz_convert("UTC").tz_localize(None) if cell.tz else cell
                cells.append(f"{at:%Y-%m-%d %H:%M:%S.%f}"[: 10 if at == at.normalize() else None])
            elif isinstance(cell, str):
                cells.append(cell)
            elif hasattr(cell, "isoformat"):
                cells.append(cell.isoformat())
            else:
                cells.append(pytest.approx(float(cell), rel=1e-9))
        out.append(cells)
    return out


@pytest.mark.parametrize("name", NAMES)
def test_three_engines_answer_alike(engines: dict[str, Any], name: str, tmp_path: Path) -> None:
    question = questions()[name]
    by_duckdb = engines["database"].sql(question.sql).df()
    by_spark = engines["spark"].sql(question.sql).toPandas()
    by_pandas = ran(tmp_path / f"{name}.py", question.pandas, table=engines["table"], np=np,
                    pd=pd)["answer"]
    assert len(by_duckdb) > 0, "a question to which the tables of the tests know no answer"
    assert list(by_duckdb.columns) == list(by_spark.columns) == list(by_pandas.columns)
    assert plain(by_spark) == plain(by_duckdb)
    assert plain(by_pandas) == plain(by_duckdb)


def test_the_page_has_each_question_once_and_the_command_prints_it(
        capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(questions()) == NAMES
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == ["First", *NAMES]
    assert main.main(["ask"]) == Exit.OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(NAMES)
    assert main.main(["ask", "retries"]) == Exit.OK
    said = capsys.readouterr().out
    assert questions()["retries"].sql in said and questions()["retries"].pandas in said
    with pytest.raises(BadRequest, match="there are waits, retries"):
        asked("nothing")


def test_the_sends_of_the_test_are_those_of_the_scheduler(tmp_path: Path) -> None:
    """Their columns are those that the scheduler notes."""
    from omq.services.delivery import sends

    noted = set(re.findall(r'"(\w+)":', (sends.__doc__ or "").partition('{"came_ns"')[2]))
    used = set(re.findall(r"\b(\w+_s|peer|channel|reached)\b", questions()["peers"].sql))
    assert used - {"longest_s"} <= noted | {"came_ns"}
