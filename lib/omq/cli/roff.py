"""Manual pages as roff (man(7) macros): what is needed of it, and no more.

Invariant: text cannot become a request: a line that begins with a dot or an apostrophe is guarded,
backslashes are doubled, dashes of options stay dashes.
"""

from __future__ import annotations

from collections.abc import Iterable


def text(words: str) -> str:
    """Plain text of a paragraph."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return "\\&" + escaped if escaped[:1] in (".", "'") else escaped


class Page:
    """One manual page, built from the top."""

    def __init__(self, name: str, section: int, title: str, version: str) -> None:
        self.name, self.section = name, section
        self._lines = [
            f'.TH "{text(name.upper())}" "{section}" "" "omq {text(version)}" "omq"',
            ".nh", ".ad l", ".SH NAME", f"{text(name)} \\- {text(title)}"]

    def heading(self, title: str) -> None:
        self._lines.append(f'.SH "{text(title)}"')

    def paragraph(self, words: str) -> None:
        self._lines += [".PP", text(" ".join(words.split()))]

    def bold(self, words: str) -> None:
        """A command line, alone."""
        self._lines += [".PP", f"\\fB{text(words)}\\fP"]

    def item(self, tag: str, words: str) -> None:
        """A tag and what it means."""
        self._lines += [".TP", f"\\fB{text(tag)}\\fP", text(" ".join(words.split())) or "\\&"]

    def literal(self, lines: Iterable[str]) -> None:
        """Lines as they are."""
        self._lines += [".PP", ".nf", *(text(line) or "\\&" for line in lines), ".fi"]

    def render(self) -> str:
        return "\n".join((*self._lines, ""))
