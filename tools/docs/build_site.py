"""Makes the site of omq: the documents in the order of INDEX.md, the decisions, the Python API from
its docstrings, and the manual pages, with a search that works without a network.

    python tools/docs/build_site.py OUTPUT            (make docs)

1. SOURCE (next to OUTPUT) gets the documents with their links turned to the site's folders, a page
   for each manual page (groff), and pages that list them.
2. Sphinx builds OUTPUT; a link that leads nowhere is an error.
3. `broken` looks at what was built: every link inside it leads to a file and a place in it, and
   nothing is fetched from elsewhere.

Ends with 1 and a line for each fault.
"""

from __future__ import annotations

import html
import html.parser
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "lib/omq/docs"
REPORTING: Final = "REPORTING.md"
"""What SECURITY.md of the root is on the site, where the trust model has that name."""
FIRST: Final = "Start"
SECTIONS_OF_MANUAL: Final = {"1": "Commands", "5": "Configuration files", "7": "Miscellaneous",
                             "8": "Daemons"}
_ALONE: Final = "---\norphan: true\n---\n\n"
"""Of pages that one page lists: each page would carry a hundred of them in its margin."""
API: Final = ("omq", "omq.aio", "omq.codec", "omq.tasks", "omq.tasks.schedules", "omq.testing")


def site_link(target: str, *, root: bool) -> str:
    """A link of a document as it is on the site, where documents and those of the root lie in one
    folder. `root`: it is in a document of the root. What is only in the repository becomes ""."""
    name, mark, anchor = target.partition("#")
    if "://" in name or not name:
        return target
    place = os.path.normpath(os.path.join("." if root else "lib/omq/docs", name))
    if place == "SECURITY.md":
        found = REPORTING
    elif place == "README.md":
        found = "index.md"
    elif place.startswith("lib/omq/docs/"):
        found = place.removeprefix("lib/omq/docs/")
    elif place.endswith(".md") and "/" not in place:
        found = place
    else:
        return ""
    return found + mark + anchor


def turned(text: str, *, root: bool, folder: str = "") -> str:
    """A document with its links turned; `folder`: "adr" for one in there."""
    def one(found: re.Match[str]) -> str:
        target = found[2]
        if folder and "://" not in target and not target.startswith("#"):
            target = os.path.normpath(os.path.join(folder, target)) if not root else target
        link = site_link(target, root=root)
        if not link:
            return f"{found[1]}"  # the words alone
        if folder and "://" not in link and not link.startswith("#"):
            link = os.path.relpath(link, folder)
        return f"[{found[1]}]({link})"
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else
                   re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", one, part) for part in parts)


def sections(index: str) -> dict[str, list[str]]:
    """Title -> pages, as INDEX.md lists them."""
    found: dict[str, list[str]] = {}
    for block in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, rest = block.partition("\n")
        links = re.findall(r"^(?:\| )?\[[^\]]+\]\(([^)]+)\)", rest, re.MULTILINE)
        found[title] = [site_link(link, root=False).removesuffix(".md") for link in links]
    return found


def _toctree(pages: list[str], caption: str = "", *, hidden: bool = True) -> str:
    options = (f":caption: {caption}\n" if caption else "") + (":hidden:\n" if hidden else "")
    return f"\n```{{toctree}}\n:maxdepth: 1\n{options}\n" + "\n".join(pages) + "\n```\n"


def prepare(source: Path) -> None:
    """Everything that Sphinx reads."""
    for path in sorted(ROOT.glob("*.md")):
        name = {"README.md": "index.md", "SECURITY.md": REPORTING}.get(path.name, path.name)
        text = path.read_text("utf-8").replace("lib/omq/docs/pictures/", "pictures/")
        _write(source / name, turned(text, root=True))
    for path in sorted(DOCS.glob("*.md")):
        _write(source / path.name, turned(path.read_text("utf-8"), root=False))
    for path in sorted(DOCS.glob("adr/*.md")):
        _write(source / "adr" / path.name,
               _ALONE + turned(path.read_text("utf-8"), root=False, folder="adr"))
    shutil.copytree(DOCS / "pictures", source / "extra/pictures")
    _manual(source)
    _api(source)
    found = sections((DOCS / "INDEX.md").read_text("utf-8"))
    found["Program"].insert(1, "api/index")
    found["Operate"].append("man/index")
    found["Decisions"] = ["DECISIONS"]
    with (source / "index.md").open("a", encoding="utf-8") as file:
        for title, pages in found.items():
            file.write(_toctree([page for page in pages if page != "index"], title))
        file.write(_toctree(["INDEX", REPORTING.removesuffix(".md")]))
    shutil.copy(Path(__file__).with_name("conf.py"), source)
    (source / "static").mkdir()
    shutil.copy(Path(__file__).with_name("site.css"), source / "static")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _manual(source: Path) -> None:
    """A page for each manual page, as groff sets it."""
    lines = ["# Manual pages\n"]
    for number, title in SECTIONS_OF_MANUAL.items():
        lines.append(f"\n## {title}\n\n")
        for path in sorted(ROOT.glob(f"share/man/man{number}/*.{number}")):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-P-cbou", "-rLL=90n", str(path)],
                                  check=True, capture_output=True, text=True)
            name = f"{path.stem}({number})"
            _write(source / "man" / f"{path.name}.md",
                   f"{_ALONE}# {name}\n\n```text\n{done.stdout.strip()}\n```\n")
            about = re.search(r"^NAME\n\s+\S+ \S+ (.+?)\n\n", done.stdout, re.M | re.S)
            lines.append(f"* [{name}]({path.name}.md)"
                         + (f": {' '.join(about[1].split())}\n" if about else "\n"))
    _write(source / "man/index.md", "".join(lines))


def _api(source: Path) -> None:
    """A page for each public module; Sphinx fills it from the docstrings."""
    import importlib
    import inspect

    for name in API:
        module = importlib.import_module(name)
        public = [each for each in getattr(module, "__all__", None) or (
            each for each, what in vars(module).items() if not each.startswith("_")
            and getattr(what, "__module__", "") == name) if not each.startswith("_")]
        objects = {each: getattr(module, each) for each in sorted(public)}
        groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
        for each, what in objects.items():
            if inspect.isclass(what) and issubclass(what, Exception):
                groups["Errors"].append(
                    f".. autoexception:: {name}.{each}\n   :no-members:\n")
            elif inspect.isclass(what):
                groups["Classes"].append(f".. autoclass:: {name}.{each}\n")
            elif callable(what):
                groups["Functions"].append(f".. autofunction:: {name}.{each}\n")
        text = (f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :no-members:\n```\n")
        for title, entries in groups.items():
            if entries:
                text += f"\n## {title}\n\n```{{eval-rst}}\n" + "\n".join(entries) + "```\n"
        _write(source / "api" / f"{name}.md", text)
    _write(source / "api/index.md", "# API reference\n\nFrom the docstrings; [PYTHON](../PYTHON.md)"
           " is the guide, with examples.\n" + _toctree(list(API), hidden=False))


class _Page(html.parser.HTMLParser):
    """Links, what is fetched, and places of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = dict(attributes)
        if place := known.get("id"):
            self.places.add(place)
        if tag == "a" and (link := known.get("href")):
            self.links.append(link)
        relation = known.get("rel") or ""
        if tag == "link" and relation in ("stylesheet", "icon", "preload", "shortcut icon"):
            self.fetched.append(known.get("href") or "")
        if tag in ("script", "img", "iframe") and (link := known.get("src")):
            self.fetched.append(link)
        if tag == "source" and (link := known.get("srcset")):
            self.fetched.append(link)


def broken(folder: Path) -> Iterator[str]:
    """A line for each link that leads nowhere, and for what is fetched from elsewhere."""
    pages = {path: _Page(path.read_text("utf-8")) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"{folder} has no pages"
    for path, page in pages.items():
        for link in (*page.links, *page.fetched):
            where = urllib.parse.urlsplit(link)
            if where.scheme or where.netloc:
                if link in page.fetched and where.scheme != "data":
                    yield f"{path.relative_to(folder)}: fetched from elsewhere: {link}"
                continue
            to = (path.parent / urllib.parse.unquote(where.path)).resolve() if where.path else path
            if not to.is_file():
                yield f"{path.relative_to(folder)}: {link}: no such file"
            elif where.fragment and to in pages and (
                    urllib.parse.unquote(where.fragment) not in pages[to].places):
                yield f"{path.relative_to(folder)}: {link}: no such place"


def main(arguments: list[str]) -> int:
    """See the module."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    output = Path(arguments[0]).resolve()
    if shutil.which("groff") is None:
        print("make docs: groff sets the manual pages: apt-get install groff-base", file=sys.stderr)
        return 69
    source = output.with_name(f"{output.name}-source")
    for folder in (source, output):
        shutil.rmtree(folder, ignore_errors=True)
    prepare(source)
    done = subprocess.run([sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning",
                           "--keep-going", "--quiet", "--jobs", "2", str(source), str(output)],
                          check=False)
    if done.returncode:
        return 1
    faults = list(broken(output))
    print(*faults, sep="\n", file=sys.stderr) if faults else None
    if not (output / "searchindex.js").is_file():
        faults.append("no search index")
    if not faults:
        print(f"{output}/index.html: {len(list(output.rglob('*.html')))} pages, every link leads"
              " somewhere")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
