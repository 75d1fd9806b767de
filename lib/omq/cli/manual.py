"""The manual pages, from what the programs themselves say.

    python -m omq.cli.manual DIRECTORY      writes share/man and the completions below DIRECTORY

    1 and 8   options, choices and examples from the parsers; exit codes from omq.base.errors
    5         omq.conf from the table of settings, the others from the shipped files' own comments
    7         omq, omq-events (the catalogue), omq-where (the terms of --where)

Nothing is written twice: a test compares what is shipped with what this makes.

Manual pages as roff (man(7) macros): what is needed of it, and no more.

Invariant: text cannot become a request: a line that begins with a dot or an apostrophe is guarded,
backslashes are doubled, dashes of options stay dashes.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from unittest import mock

import omq
from omq.base import events
from omq.base.errors import Exit
from omq.base.paths import shipped_conf
from omq.base.settings import DEFAULTS, KEYS
from omq.cli import completion
from omq.cli.command_table import parser_in, parser_of, section_of, title_of
from omq.cli.daemon_texts import DAEMONS, SIGNALS
from omq.cli.launch import COMMANDS
from omq.cli.programs import LAUNCHER
from omq.cli.setup.omq_main import COMMANDS as PARTS
from omq.cli.setup.omq_main import main_of
from omq.core.look import selection


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


CONF_FILES: Final = {
    "queues.conf": "the queues of an omq instance", "services.conf": "the services of an instance",
    "authority.conf": "who may do what", "routes.conf": "where mail goes",
    "triggers.conf": "programs that are started for queues",
    "schedules.conf": "messages that are put at planned times",
    "alarms.conf": "which problems raise an alarm"}
_MEANINGS: Final = {
    Exit.OK: "success", Exit.NO: "the answer is no: nothing found, a check failed",
    Exit.USAGE: "wrong options or arguments", Exit.DATA: "the input or the spool's bytes are wrong",
    Exit.NO_INPUT: "a queue, file or spool that does not exist",
    Exit.UNAVAILABLE: "the queue manager does not run or does not answer",
    Exit.SOFTWARE: "an internal error; a traceback is printed",
    Exit.OS: "the system refuses a resource: IPC limits, memory, processes",
    Exit.CANT_CREATE: "a file cannot be created", Exit.IO: "an input/output error of a disk",
    Exit.TEMPORARY: "try again later: full, inhibited, busy, changed in between",
    Exit.NO_PERMISSION: "no authority, or no right to a file",
    Exit.CONFIG: "the configuration is wrong"}


def _page(name: str, section: int, title: str) -> Page:
    return Page(name, section, title, omq.__version__)


def command_page(name: str) -> Page:
    """The page of a command or daemon."""
    return _parser_page(name, section_of(name), title_of(name), parser_of(name))


def part_page(part: str) -> Page:
    """The page of a command of omq, as of a program omq-PART."""
    title = PARTS[part][1]
    return _parser_page(f"omq-{part}", 1, title, parser_in(f"omq {part}", main_of(part)))


def _parser_page(name: str, section: int, title: str, parser: argparse.ArgumentParser) -> Page:
    page = _page(name, section, title)
    page.heading("SYNOPSIS")
    page.literal(parser.format_usage().removeprefix("usage: ").rstrip().splitlines())
    page.heading("DESCRIPTION")
    daemon = DAEMONS.get(name)
    for paragraph in daemon.does if daemon else (parser.description or title,):
        page.paragraph(paragraph)
    for extra in _EXTRA.get(name, ()):
        extra(page)
    page.heading("OPTIONS")
    commands: dict[str, argparse.ArgumentParser] = {}
    ignored = []
    described = _described(parser)
    for action in parser._actions:
        if id(action) in described:
            page.paragraph(described[id(action)])
        if isinstance(action, argparse._SubParsersAction):
            commands = dict(action.choices)
        elif action.help == argparse.SUPPRESS:
            ignored.append(_tag(action))
        else:
            page.item(_tag(action), _help(action))
    if ignored:
        page.item(", ".join(ignored), "Accepted for compatibility, and ignored.")
    for command, own in commands.items():
        page.heading(f"{name} {command}".upper())
        page.paragraph(own.description or "")
        described = _described(own)
        for action in own._actions:
            if id(action) in described:
                page.paragraph(described[id(action)])
            page.item(_tag(action), _help(action))
    if parser.epilog:
        page.heading("EXAMPLES")
        page.literal(line for line in parser.epilog.splitlines() if line.startswith("  "))
    if daemon:
        page.heading("SIGNALS")
        for tag, words in SIGNALS:
            page.item(tag, words)
        if daemon.files:
            page.heading("FILES")
            for tag, words in daemon.files:
                page.item(tag, f"In the spool: {words}.")
    page.heading("EXIT STATUS")
    for code in Exit:
        page.item(str(int(code)), _MEANINGS[code])
    page.heading("SEE ALSO")
    named = dict.fromkeys((*(daemon.conf if daemon else ()), "omq.conf"))
    page.paragraph(", ".join(("omq(7)", *(f"{each}(5)" for each in named), "omq-events(7)")))
    return page


def _tag(action: argparse.Action) -> str:
    value = action.metavar or action.dest.upper()
    if action.choices and not action.metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    shown = " ".join(value) if isinstance(value, tuple) else str(value)
    if not action.option_strings:
        return shown
    takes = action.nargs != 0
    return ", ".join(f"{each} {shown}" if takes else each for each in action.option_strings)


def _described(parser: argparse.ArgumentParser) -> dict[int, str]:
    """The description of a group of options, by the identity of its first one."""
    return {id(group._group_actions[0]): _sentence(group.description)
            for group in parser._action_groups if group.description and group._group_actions}


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "?")) else ".")


def _help(action: argparse.Action) -> str:
    """The help of an option, as a sentence; a first word that must stay as it is does."""
    words = argparse.HelpFormatter("")._expand_help(action) if action.help else ""
    first = re.match(r"[a-z]+(?=[ .,)]|$)", words)
    if first and first[0] not in (action.choices or ()):
        words = words[:1].upper() + words[1:]
    return words + ("" if not words or words.endswith((".", "?")) else ".")


def _letters(page: Page) -> None:
    """The table of omqdump's options, from its own table."""
    from omqtools.omqdump.options import OPTIONS, Needs

    page.heading("OPTIONS OF THE MENU")
    for option in OPTIONS.values():
        said = (option.action.__doc__ or "").partition(":")[2].strip() if option.action else ""
        words = ", ".join(f"--{word}" for word in option.takes.words)
        more = f" Takes {words}." if words else ""
        if option.needs is Needs.MANAGER:
            more += " Needs a running queue manager."
        page.item(option.letter, f"{option.title}: {said}{more}" if said else f"{option.title}.")


def _terms(page: Page) -> None:
    page.heading("CHOOSING MESSAGES")
    page.paragraph("The terms of --where are explained in omq-where(7).")


_EXTRA: Final = {"omqdump": (_letters, _terms), "omhold": (_terms,), "omrelease": (_terms,),
                 "omrequeue": (_terms,)}


def settings_page() -> Page:
    """omq.conf(5)."""
    page = _page("omq.conf", 5, "settings of an omq instance")
    page.heading("DESCRIPTION")
    page.paragraph("Sections with keys and values, KEY = VALUE. A key that is missing has its "
                   "default. Sizes are bytes, or a number with K, M, G or T (64M, 64 MiB). An "
                   "unknown key or a value out of range is refused.")
    sections: dict[str, list[str]] = {}
    for name, key in KEYS.items():
        sections.setdefault(key.section, []).append(name)
    for section, keys in sections.items():
        page.heading(f"[{section}]")
        for name in keys:
            page.item(f"{name} = {_value(getattr(DEFAULTS, name))}", f"{KEYS[name].reason}.")
    return page


def _value(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def file_page(name: str) -> Page:
    """A configuration file, by the comments at its start."""
    page = _page(name, 5, CONF_FILES[name])
    page.heading("DESCRIPTION")
    shown = []
    for line in (shipped_conf() / name).read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            break
        shown.append(line.removeprefix("#").removeprefix(" "))
    page.literal(shown)
    return page


def overview_page() -> Page:
    """omq(7)."""
    page = _page("omq", 7, "durable message queues for one host")
    page.heading("DESCRIPTION")
    page.paragraph("A queue manager holds the queues in shared memory; a journal with group commit "
                   "makes every acknowledged operation safe; readers work in parallel, in "
                   "processes of their own. Tools look at the queues without asking the manager.")
    for title, section in (("COMMANDS", 1), ("DAEMONS", 8)):
        page.heading(title)
        for name in sorted(COMMANDS):
            if section_of(name) == section:
                page.item(f"{name}({section})", title_of(name))
    page.heading("FILES")
    for name in ("omq.conf", *CONF_FILES):
        page.item(f"{name}(5)", CONF_FILES.get(name, "settings"))
    page.heading("ENVIRONMENT")
    page.item("OMQ_SPOOL", "The spool, when neither --spool nor --instance is given; else "
              "/var/lib/omq.")
    page.item("OMQ_CONF", "The configuration directory, when neither --conf nor --instance is "
              "given.")
    page.heading("EXIT STATUS")
    for code in Exit:
        page.item(f"{int(code)} {code.name}", _MEANINGS[code])
    return page


def events_page() -> Page:
    """omq-events(7)."""
    page = _page("omq-events", 7, "the events that omq logs")
    page.heading("DESCRIPTION")
    page.paragraph("Every line of the event log has one of these numbers. Numbers never change "
                   "their meaning. omshowlog(1) shows the log.")
    page.heading("EVENTS")
    for event in sorted(events.CATALOGUE.values(), key=lambda each: each.number):
        page.item(f"[OM {event.number:04d}]", event.text)
    return page


def where_page() -> Page:
    """omq-where(7), from the module that parses the terms."""
    page = _page("omq-where", 7, "how messages are chosen")
    page.heading("DESCRIPTION")
    page.literal((selection.__doc__ or "").split("Errors:")[0].rstrip().splitlines())
    return page


def pages() -> Iterator[Page]:
    """All of them."""
    yield from (command_page(name) for name in COMMANDS)
    yield from (part_page(name) for name in PARTS)
    yield settings_page()
    yield from (file_page(name) for name in CONF_FILES)
    yield from (overview_page(), events_page(), where_page())


def files() -> dict[str, str]:
    """Every file below share/, by its path."""
    found: dict[str, str] = {}
    # argparse folds its lines at the width of the terminal
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        for page in pages():
            found[f"man/man{page.section}/{page.name}.{page.section}"] = page.render()
        found["bash-completion/completions/_omq"] = completion.bash()
        for name in COMMANDS:  # bash-completion looks for a file by the name of the command
            found[f"bash-completion/completions/{name}"] = completion.BY_NAME
        found["zsh/site-functions/_omq"] = completion.zsh()
    return found


def main(argv: list[str]) -> int:
    """Write them below a directory, and the launchers of a checkout."""
    root = Path(argv[0])
    for name, text in files().items():
        _write(root / "share" / name, text)
    for name in COMMANDS:
        path = root / "bin" / name
        _write(path, LAUNCHER.replace("NAME", name))
        path.chmod(0o755)
    return Exit.OK


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
