"""The Python of the documents runs where only that is installed which they say, on the README's
instance; the blocks of PYTHON.md in any order."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import fresh
from tests.process.instance import Instance
from tests.process.processes import WAIT_S
from tests.tidy.tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
START = (ROOT / "lib/omq/docs/START.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "lib/omq/docs/PYTHON.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def queues_of_the_readme() -> str:
    """Its queues.conf."""
    (text,) = re.findall(r"^printf '([^']+)' > \"\$OMQ_SPOOL/conf/queues.conf\"$", README, re.M)
    return str(text.replace("\\n", "\n"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`pip install omq-base`."""
    return fresh.environment(tmp_path_factory.mktemp("base") / "venv", "omq-base")


@pytest.fixture
def shop(omq_instance: Instance) -> Iterator[Instance]:
    """The README's instance."""
    omq_instance.queues(queues_of_the_readme())
    omq_instance.start()
    omq_instance.ready()
    yield omq_instance
    for queue in ("ORDERS", "AUDIT", "SHIPPED", "REPLIES"):
        omq_instance.drain(queue)


def test_it_has_five_small_packages(base: Path, tmp_path: Path) -> None:
    """As START.md counts them."""
    assert "five small packages, no numpy" in START
    said = fresh.run(base, "from importlib.metadata import distributions\n"
                     "for each in distributions(): print(each.metadata['Name'])", tmp_path, WAIT_S)
    assert len(set(said.split()) - {"omq-base"}) == 5, said
    fresh.run(base, "try:\n    import numpy\nexcept ModuleNotFoundError:\n    pass\n"
              "else:\n    raise AssertionError", tmp_path, WAIT_S)


def test_all_names_are_there_and_help_lists_them(base: Path, tmp_path: Path) -> None:
    said = fresh.run(base, "import omq, omq.aio\nhelp(omq)\nhelp(omq.aio)\n"
                     "for name in omq.__all__: getattr(omq, name)", tmp_path, WAIT_S)
    assert "class Browsed" in said and "class QueueFull" in said and "No module" not in said


def test_the_readme(base: Path, shop: Instance) -> None:
    (block,) = blocks(README)
    said = fresh.run(base, block, shop.root, WAIT_S)
    assert "7 b'order 2'\n" in said and "True b'shipped: order 2'\n" in said


def test_start(base: Path, shop: Instance) -> None:
    """One behind the other, as they stand there."""
    said = [fresh.run(base, block, shop.root, WAIT_S) for block in blocks(START)]
    assert "order 4" in said[1] and " READY " in said[3]


@pytest.mark.parametrize("order", ["as they stand", "backwards", "at random"])
def test_the_guide(base: Path, shop: Instance, order: str) -> None:
    """Each block by itself needs nothing that another one has done."""
    found = list(enumerate(blocks(GUIDE)))
    assert len(found) > 20
    if order == "backwards":
        found.reverse()
    elif order == "at random":
        random.Random(17).shuffle(found)
    for number, block in found:
        try:
            fresh.run(base, block, shop.root, WAIT_S)
        except AssertionError as error:
            raise AssertionError(f"block {number}, {order}: {error}") from error


@pytest.mark.parametrize(("name", "more"), [
    ("README.md", ()), ("lib/omq/docs/START.md", ()), ("lib/omq/docs/PYTHON.md", ()),
    ("lib/omq/docs/WITH-POSTGRESQL.md", ("psycopg",))])
def test_what_a_block_imports_is_what_its_document_installs(
        base: Path, tmp_path: Path, name: str, more: tuple[str, ...]) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    wanted = {module.partition(".")[0] for block in blocks(text)
              for module in re.findall(r"^(?:import|from) ([\w.]+)", block, re.MULTILINE)}
    for module in more:
        assert re.search(rf"pip install .*{module}", text), module
        wanted.remove(module)
    fresh.run(base, "".join(f"import {module}\n" for module in sorted(wanted)), tmp_path, WAIT_S)


def test_a_browse_says_the_same_with_numpy_and_without(base: Path, shop: Instance) -> None:
    with shop.connect() as c:
        for number in range(300):
            c.put("ORDERS", b"%d" % number, priority=number % 10,
                  properties={"n": str(number % 7)})
        c.put("ORDERS", b"large" * 100_000, priority=5)
        c.put("ORDERS", b"later", delay_s=3600)
        wanted = [repr((row.message_id, row.state.name, row.priority, row.size, row.attempts,
                        row.put_time_ns, row.due_ns, row.properties, row.body))
                  for row in c.browse("ORDERS", where="n IS NULL OR n < 3")]
    said = fresh.run(base, "import omq\nwith omq.connect() as c:\n"
                     "    for row in c.browse('ORDERS', where='n IS NULL OR n < 3'):\n"
                     "        print((row.message_id, row.state.name, row.priority, row.size,"
                     " row.attempts, row.put_time_ns, row.due_ns, row.properties, row.body))",
                     shop.root, WAIT_S)
    assert len(wanted) > 100
    assert said.splitlines() == wanted
