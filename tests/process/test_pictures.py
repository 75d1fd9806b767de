"""The README's pictures show what the programs show today: they are rendered again and compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.process import pictures
from tests.process.chromium import Page, needs_chromium
from tests.tidy.tree import ROOT

pytestmark = needs_chromium
KEPT = ROOT / "lib/omq/docs/pictures"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("textual", reason="the package textual, of the extra top")
    return {path.name: path for path in pictures.make(tmp_path_factory.mktemp("pictures"), KEPT)}


def test_the_readme_shows_all_of_them_and_no_other(made: dict[str, Path]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r'(?:src|srcset)="lib/omq/docs/pictures/([^"]+)"', readme)
    assert sorted(shown) == sorted(made) == sorted(path.name for path in KEPT.iterdir())


@pytest.mark.parametrize("scheme", pictures.SCHEMES)
def test_the_console_looks_as_it_did(made: dict[str, Path], page: Page, scheme: str) -> None:
    name = f"console-{scheme}.png"
    apart = pictures.difference(page, KEPT / name, made[name])
    assert apart < pictures.APART_MAX, f"{apart}: make pictures, and look at them"
    (other,) = set(pictures.SCHEMES) - {scheme}
    other_way = pictures.difference(page, KEPT / f"console-{other}.png", made[name])
    assert other_way > 50 * pictures.APART_MAX


@pytest.mark.parametrize("scheme", pictures.SCHEMES)
def test_omtop_says_what_it_did(made: dict[str, Path], scheme: str) -> None:
    name = f"omtop-{scheme}.svg"
    kept, drawn = ((folder / name).read_text("utf-8") for folder in (KEPT, made[name].parent))
    said = pictures.text_of(drawn)
    assert {"ORDERS", "POISON", "QUEUE", "Msgs"} <= set(said)
    assert pictures.text_of(kept) == said, "make pictures, and look at them"
    assert set(re.findall(r"fill: (#\w+)", kept)) == set(re.findall(r"fill: (#\w+)", drawn))
    assert "http" not in re.sub(r'xmlns="[^"]+"', "", kept), "nothing is fetched from elsewhere"
