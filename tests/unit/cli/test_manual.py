"""Manual pages and completions: shipped as they are made, whole, and clean roff."""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from omq.base import events
from omq.base.settings import KEYS
from omq.cli import manual
from omq.cli.command_table import parser_in, parser_of, section_of, title_of
from omq.cli.daemon_texts import DAEMONS
from omq.cli.launch import COMMANDS
from omq.cli.manual import Page, text
from omq.cli.setup.omq_main import COMMANDS as PARTS
from omq.cli.setup.omq_main import main_of
from omqtools.omqdump.options import OPTIONS
from tests import needs
from tests.tidy.tree import ROOT

SHARE = ROOT / "share"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return manual.files()


def test_what_is_shipped_is_what_the_programs_say(made: dict[str, str]) -> None:
    shipped = {str(path.relative_to(SHARE)): path.read_text(encoding="utf-8")
               for path in SHARE.rglob("*")
               if path.is_file() and path.relative_to(SHARE).parts[0] not in ("omq", "ocf")}
    assert set(shipped) == set(made), "run: python -m omq.cli.manual ."
    # Where argparse breaks the lines of a synopsis depends on the version of Python.
    wrong = [name for name, words in made.items() if shipped[name].split() != words.split()]
    assert not wrong, "run: python -m omq.cli.manual ."


def test_a_parser_is_made_without_a_trace_in_the_process() -> None:
    """A daemon's umask is its own: what this process makes later is as it was."""
    before = os.umask(0o022)
    try:
        for name in COMMANDS:
            parser_of(name)
            assert os.umask(0o022) == 0o022, name
    finally:
        os.umask(before)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_stands_in_the_page(made: dict[str, str], name: str) -> None:
    section = section_of(name)
    page = made[f"man/man{section}/{name}.{section}"]
    parser = parser_of(name)
    assert parser.prog == name
    commands = [action for action in parser._actions
                if isinstance(action, argparse._SubParsersAction)]
    actions = [action for action in parser._actions if action not in commands]
    actions += [action for each in commands for own in each.choices.values()
                for action in own._actions]
    for action in actions:
        named = action.help or not action.option_strings or commands
        assert named, f"{name} {action.option_strings or action.dest} has no help"
        for option in action.option_strings:
            assert text(option) in page
    assert ".SH \"EXAMPLES\"" in page or section == 8 or commands
    assert title_of(name) and len(title_of(name)) < 70


@pytest.mark.parametrize("part", PARTS)
def test_every_command_of_omq_has_a_page(made: dict[str, str], part: str) -> None:
    page = made[f"man/man1/omq-{part}.1"]
    parser = parser_in(f"omq {part}", main_of(part))
    assert text(f"omq {part}") in page
    assert all(text(option) in page for action in parser._actions
               for option in action.option_strings)


def test_letters_settings_and_events_are_all_there(made: dict[str, str]) -> None:
    page = made["man/man1/omqdump.1"]
    assert all(f"\n.TP\n\\fB{letter}\\fP\n" in page for letter in OPTIONS)
    assert all(text(f"{key} = ") in made["man/man5/omq.conf.5"] for key in KEYS)
    assert all(f"[OM {number:04d}]" in made["man/man7/omq-events.7"] for number in events.CATALOGUE)
    assert set(re.findall(r"\\fB(\S+)\(\d\)\\fP", made["man/man7/omq.7"])) >= {
        text(name) for name in COMMANDS}


def test_what_is_said_of_a_group_of_options_is_there(made: dict[str, str]) -> None:
    (page,) = [text for name, text in made.items() if name.endswith("omread.1")]
    assert "Exit code 0: done; 75: later; else: failed." in page
    assert "OMQ_REPLY_TO" in page


def test_text_cannot_become_a_request() -> None:
    page = Page("x", 1, "y", "0")
    page.literal([".so /etc/passwd", "'br", "a\\fBb", ""])
    assert "\n.so" not in page.render() and "\n'br" not in page.render()
    assert "a\\efBb" in page.render()


@pytest.mark.skipif(shutil.which("groff") is None, reason="install groff-base")
def test_roff_is_clean(made: dict[str, str]) -> None:
    pages = {name: words for name, words in made.items() if name.startswith("man/")}
    assert len(pages) > len(COMMANDS)
    for name, words in pages.items():
        found = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z"], input=words,
                               capture_output=True, text=True, check=False)
        assert (found.returncode, found.stderr) == (0, ""), name


def complete(folder: Path, words: str) -> list[str]:
    """What bash would offer at the end of these words."""
    script = folder / "try"
    listed = words.split(" ")
    script.write_text(
        f"source {SHARE}/bash-completion/completions/_omq\nomqdump() {{ printf "
        "'QPoolId  Pri\\n956  4\\n957  4\\nLOCAL\\nROUTER\\nDone\\n'; }\nomstat() { printf "
        "'{\"service\": \"local\", \"title\": 1}\\n'; }\n"
        f"COMP_WORDS=({' '.join(repr(word) for word in listed)})\n"
        f"COMP_CWORD={len(listed) - 1}\n_omq_complete\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n")
    found = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=True)
    return found.stdout.split()


def test_bash_completes_options_queues_ids_and_choices(tmp_path: Path) -> None:
    assert complete(tmp_path, "omqdump --so") == ["--source"]
    assert complete(tmp_path, "omqdump --source s") == ["segment"]
    assert complete(tmp_path, "omfreeq LO") == ["LOCAL"]
    assert complete(tmp_path, "omhold 95") == ["956", "957"]
    assert "--reason" in complete(tmp_path, "omhold --re")
    assert complete(tmp_path, "omqshape --state h") == ["held"]
    assert complete(tmp_path, "omhold -q RO") == ["ROUTER"]
    assert "ROUTER" in complete(tmp_path, "omqwhy RO")
    assert "s" in complete(tmp_path, "omqdump -e s")
    offered = complete(tmp_path, "omqdump -e l")
    assert offered[:1] == ["l"] and "LOCAL" in offered and "ROUTER" in offered
    assert complete(tmp_path, "notours x") == []


ZSH_SETUP = """PS1=; unsetopt zle_bracketed_paste
fpath=({share}/zsh/site-functions $fpath); autoload -U compinit; compinit -u -d {home}/dump
omqdump() {{ printf 'QPoolId  Pri\\n956  4\\nLOCAL\\nDone\\n'; }}
omstat() {{ printf '{{"service": "local", "title": 1}}\\n'; }}
show() {{ print -r -- "GOT:$BUFFER:END"; BUFFER=; zle .redisplay }}
zle -N show; bindkey '^T' show; print REA''DY
"""


def in_zsh(home: Path, words: list[str]) -> list[str]:
    """What stands on the command line of a real zsh after each of these and a TAB."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], {
            "TERM": "dumb", "HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})

    def until(mark: bytes) -> bytes:
        said = b""
        while mark not in said:
            ready, _, _ = select.select([terminal], [], [], 30)
            assert ready, said
            said += os.read(terminal, 65536)
        return said

    try:
        os.write(terminal, ZSH_SETUP.format(share=SHARE, home=home).encode())
        until(b"READY")
        out = []
        for word in words:
            os.write(terminal, word.encode() + b"\t\x14")
            out.append(until(b":END").rpartition(b"GOT:")[2].partition(b":END")[0].decode())
    finally:
        os.kill(pid, signal.SIGHUP)
        os.close(terminal)
        os.waitpid(pid, 0)
    return out


@needs.terminal
@pytest.mark.skipif(shutil.which("zsh") is None, reason="install zsh")
def test_a_real_zsh_completes_from_the_first_tab_on(tmp_path: Path) -> None:
    asked = {"omhold 9": "omhold 956 ", "omqdump --so": "omqdump --source ",
             "omqdump --source s": "omqdump --source segment ", "omfreeq LO": "omfreeq LOCAL ",
             "omon lo": "omon local ", "omqshape --state h": "omqshape --state held "}
    assert in_zsh(tmp_path, list(asked)) == list(asked.values())


def test_zsh_gets_the_same_functions(made: dict[str, str]) -> None:
    zsh = made["zsh/site-functions/_omq"]
    assert zsh.startswith("#compdef queue.manager ")
    assert "bashcompinit" in zsh and "_omq_complete()" in zsh


def test_the_page_of_a_daemon_says_what_it_does(made: dict[str, str]) -> None:
    daemons = [name for name in COMMANDS if section_of(name) == 8]
    assert set(DAEMONS) == set(daemons)
    pages = {f"{name}(5)" for name in ("omq.conf", *manual.CONF_FILES)}
    for name, daemon in DAEMONS.items():
        page = made[f"man/man8/{name}.8"]
        assert "started by a supervisor" not in page
        assert daemon.does
        for paragraph in daemon.does:
            assert f".PP\n{text(paragraph)}\n" in page
            assert paragraph.endswith(".")
        for each in daemon.conf:
            assert f"{each}(5)" in pages
            assert text(f"{each}(5)") in page
        assert ".SH \"SIGNALS\"" in page
        for other, section in re.findall(r"([a-z][a-z.\-]*)\((\d)\)", " ".join(daemon.does)):
            assert f"man/man{section}/{other}.{section}" in made


def test_each_configuration_file_has_its_page() -> None:
    assert {path.name for path in (ROOT / "conf").glob("*.conf")} == {
        "omq.conf", *manual.CONF_FILES}
