"""How Sphinx builds the site (make docs). What it reads is prepared by tools/docs/build_site.py."""

from __future__ import annotations

import re
from typing import Any

import omq

project = "omq"
author = "The omq authors"
copyright = "The omq authors"
release = version = omq.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Blocks of shell, configuration and pictures of text have no language.
highlight_language = "none"
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures: only documents' links are checked

# Docstrings are plain text with names in single backticks.
default_role = "literal"
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "inherited-members": False, "show-inheritance": False}

suppress_warnings = ["myst.header"]  # FORMATS has small tables before its first chapter

html_theme = "furo"
html_title = f"omq {release}"
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # a browser fetches nothing for a page that is a file
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["extra"]  # pictures, which documents have as HTML
# Whoever reads without a network gets all of it: no fonts, scripts or pictures from elsewhere.
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}


def _plain(_app: Any, _what: str, _name: str, _object: object, _options: object,
           lines: list[str]) -> None:
    """Characters that mean something to reStructuredText and nothing in a docstring of ours."""
    made: list[str] = []
    before = ""
    for line in lines:
        if line.startswith("    "):
            if before and not before.startswith("    "):
                made += ["", "::", ""]  # an example
            made.append(line)
        else:
            made.append("".join(part if part.startswith("`") else
                                re.sub(r"([*|_\\])", r"\\\1", part)
                                for part in re.split(r"(`[^`]*`)", line)))
        before = line or before
    lines[:] = made


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _plain)
