"""omq definitions: what an instance has defined, as one file.

    omq definitions export > shop.json      queues, exchanges, bindings, schedules, rights
    omq definitions import shop.json        have all that it names; nothing is removed
    omq definitions check shop.json         say what an import would change, and what is wrong

The file is that of `omq.cli.operate.definition_set`. An import is refused as a whole when one
definition is wrong; then nothing has changed. It may be repeated: what is there already is the
same. Only the owner of the spool and root import, for the file may grant rights.

Errors: DefinitionsRefused (65), DefinitionsStopped (75), NotOperator, BadRequest (no JSON, too
long), ManagerUnavailable.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Final

from omq.base.access import user_name
from omq.base.errors import BadRequest, DefinitionsRefused, Exit, NotOperator
from omq.base.limits import MIB
from omq.base.names import escape
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.operate.change import connect
from omq.cli.operate.command_notes import add_reason
from omq.cli.operate.definition_plan import carry_out, plan, reload
from omq.cli.operate.definition_set import exported
from omq.services.daemon.options import Location

NAME: Final = "omq definitions"
FILE_BYTES_MAX: Final = 64 * MIB


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    if (options.do == "export") == bool(options.file):
        parser.error("a FILE, for import and check alone; - is the standard input")
    location = existing(options)
    if options.do == "import":
        _only_owner(location)
    found = None if options.do == "export" else _read(options.file)
    with connect(location, "omq") as connection:
        if options.do == "export":
            json.dump(exported(location, connection), sys.stdout, indent=1, ensure_ascii=True)
            sys.stdout.write("\n")
            return Exit.OK
        try:
            made = plan(location, connection, found, options.reason)
        except DefinitionsRefused as error:
            for each in error.mistakes[1:]:
                say(NAME, each)
            raise
        if options.do == "import":
            carry_out(connection, made, f"{NAME} import {escape(options.file, 200)}",
                      options.reason)
            reload(location, made)
    for step in made.steps:
        if options.json:
            print_json(step.record)
        elif step.work is not None:
            sys.stdout.write(f"{step.kind} {escape(step.name)}: {step.outcome}\n")
    for lacking in made.lacking:
        say(NAME, lacking)
    if not options.json:
        words = "changed" if options.do == "import" else "would change"
        sys.stdout.write(f"{len(made.changes)} of {len(made.steps)} definitions {words}\n")
    return Exit.OK


def _only_owner(location: Location) -> None:
    owner = location.paths.root.stat().st_uid
    if os.geteuid() not in (0, owner):
        raise NotOperator(user=user_name(os.geteuid()), path=location.paths.root,
                          advice=f"import as {user_name(owner)} or root")


def _read(name: str) -> object:
    """The file. BadRequest."""
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise BadRequest(reason=f"{escape(name)} has more than {FILE_BYTES_MAX} bytes")
        return json.loads(data)
    except OSError as error:
        raise BadRequest(reason=f"{escape(name)} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadRequest(reason=f"{escape(name)} is not JSON: {error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Export and import what an instance has defined, as one file.", f"""
        {NAME} export > shop.json
        {NAME} check shop.json
        {NAME} import shop.json --reason 'new host'
        """)
    parser.add_argument("do", choices=("export", "import", "check"), metavar="DO",
                        help="export, import, or check (say what an import would do)")
    parser.add_argument("file", nargs="?", default="", metavar="FILE",
                        help="a file that export wrote; - is the standard input")
    add_reason(parser)
    add_json(parser)
    return parser
