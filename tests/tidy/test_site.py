"""The site (tools/docs/build_site.py): links are turned to its folders; what leads nowhere, or is
fetched from elsewhere, is found. The whole is built by `make docs`, which CI runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.tidy.tree import ROOT


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("omq_site", ROOT / "tools/docs/build_site.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


SITE = _load()


@pytest.mark.parametrize(("target", "root", "link"), [
    ("lib/omq/docs/START.md", True, "START.md"),
    ("../../../README.md", False, "index.md"),
    ("../../../RELEASE_NOTES.md#upgrading", False, "RELEASE_NOTES.md#upgrading"),
    ("SECURITY.md", True, "REPORTING.md"),
    ("SECURITY.md", False, "SECURITY.md"),
    ("adr/0001-x.md", False, "adr/0001-x.md"),
    ("#here", False, "#here"),
    ("https://example.org/a.md", True, "https://example.org/a.md"),
    ("LICENSE", True, ""),
    ("../../../conf/", False, ""),
])
def test_links_are_turned(target: str, root: bool, link: str) -> None:  # noqa: FBT001
    assert SITE.site_link(target, root=root) == link


def test_a_document_is_turned_and_its_code_is_not() -> None:
    text = "See [A](../SECURITY.md) and [conf](../../../../conf/).\n```\n[A](../SECURITY.md)\n```\n"
    assert SITE.turned(text, root=False, folder="adr") == (
        "See [A](../SECURITY.md) and conf.\n```\n[A](../SECURITY.md)\n```\n")


def test_the_order_is_that_of_the_index() -> None:
    found = SITE.sections((ROOT / "lib/omq/docs/INDEX.md").read_text("utf-8"))
    assert list(found) == ["Start", "Program", "Operate", "Mail", "Network", "Analyse", "Internals",
                           "Decisions"]
    assert found["Start"][:2] == ["index", "START"] and found["Decisions"] == ["DECISIONS"]


def _page(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"<html><body>{body}</body></html>")


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    _page(tmp_path, "index.html", '<a href="a/b.html#here">b</a><a href="a/b.html#gone">b</a>'
          '<a href="missing.html">c</a><a href="#top">t</a><a href="https://example.org/">e</a>')
    _page(tmp_path, "a/b.html", '<h1 id="here">B</h1><a href="../index.html">back</a>'
          '<img src="p.png"><script src="https://example.org/x.js"></script>')
    assert sorted(SITE.broken(tmp_path)) == [
        "a/b.html: fetched from elsewhere: https://example.org/x.js",
        "a/b.html: p.png: no such file",
        "index.html: #top: no such place",
        "index.html: a/b.html#gone: no such place",
        "index.html: missing.html: no such file",
    ]


def test_a_site_without_pages_is_not_right(tmp_path: Path) -> None:
    assert list(SITE.broken(tmp_path)) == [f"{tmp_path} has no pages"]
