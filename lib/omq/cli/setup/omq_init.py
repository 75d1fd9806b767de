"""omq init DIR: a project to begin with: a queue, a function for its messages, a test, a unit.

    omq init shop
    omq init shop --queue INVOICES

Nothing that is there is overwritten: FileNotWritten, and then what was made before stays. What it
makes runs as it is; the lines that it prints start it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from omq.base.errors import Exit, FileNotWritten
from omq.base.names import check_queue_name, escape
from omq.cli.common import tool_parser

NAME: Final = "omq init"

FILES: Final = {
    "conf/queues.conf": """\
# The queues of this instance. 'omq conf' checks them; the shipped file explains every key.

[*]

[{queue}]
attempts_max = 3
retry_delay_ms = 60000
description = Read by tasks.py
""",
    "tasks.py": """\
\"\"\"What is done with the messages of {queue}: omq worker tasks:work --queue {queue}\"\"\"

import omq
from omq import codec


def send(value):
    \"\"\"Put a value on the queue; the message is on the disk when this returns its id.\"\"\"
    with omq.connect(name="tasks") as connection:
        return codec.put(connection, "{queue}", value)


def work(value):
    \"\"\"Called for each message. After an exception it is redelivered in a minute.\"\"\"
    print("worked on", value["id"], flush=True)
""",
    "tests/test_tasks.py": """\
\"\"\"pip install omq-suite pytest; then: pytest\"\"\"

import tasks


def test_a_message_is_worked_on(omq_instance, capsys):
    tasks.send({{"id": 7}})
    (message,) = omq_instance.drain("{queue}", tasks.work)
    assert message.error == ""
    assert capsys.readouterr().out == "worked on 7\\n"


def test_what_fails_comes_again_in_a_minute(omq_instance):
    tasks.send({{"no": "id"}})
    assert [each.error for each in omq_instance.drain("{queue}", tasks.work)] == ["KeyError: 'id'"]
    assert omq_instance.drain("{queue}", tasks.work) == []
    omq_instance.pass_time(60)
    assert [each.attempts for each in omq_instance.drain("{queue}", tasks.work)] == [1]
""",
    "pyproject.toml": """\
[tool.pytest.ini_options]
omq_conf = "conf"
pythonpath = ["."]
testpaths = ["tests"]
""",
    ".gitignore": """\
spool/
""",
    "tasks-worker.service": """\
# The worker as a unit of a user: systemctl --user enable --now {folder}/tasks-worker.service
[Unit]
Description=The worker of {queue}

[Service]
Type=notify
NotifyAccess=main
WatchdogSec=30
Environment="OMQ_SPOOL={place}/spool"
WorkingDirectory={place}
ExecStart="{python}" -m omq worker tasks:work --queue {queue} --concurrency 2
Restart=on-failure
RestartPreventExitStatus=64 66 77 78

[Install]
WantedBy=default.target
""",
}
NEXT: Final = """\
made {files} in {folder}; now, there:

  omrc --embedded -n --spool spool --conf conf &
  OMQ_SPOOL=spool omq worker tasks:work --queue {queue} &
  echo '{{"id": 7}}' | omsend --spool spool {queue}
  pytest
"""


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    parser = tool_parser(NAME, "Create a starter project: a queue, a function for its "
                         "messages, a test and a unit.", """
        omq init shop
        omq init shop --queue INVOICES
        """, location=False)
    parser.add_argument("folder", metavar="DIR", type=Path, help="created if it does not exist")
    parser.add_argument("--queue", metavar="QUEUE", default="ORDERS", type=str,
                        help="name of its queue (default: ORDERS)")
    options = parser.parse_args(argv)
    queue, folder = check_queue_name(options.queue), options.folder.absolute()
    made = list(_make(folder, queue))
    sys.stdout.write(NEXT.format(files=", ".join(made), folder=escape(str(options.folder)),
                                 queue=queue))
    return Exit.OK


def _make(folder: Path, queue: str) -> Iterator[str]:
    """The names of the files, each when it is there."""
    for name in FILES:
        if (folder / name).exists():
            raise FileNotWritten(path=folder / name, reason="it exists already")
    for name, text in FILES.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text.format(
                    queue=queue, folder=folder, place=_in_unit(folder),
                    python=_in_unit(Path(sys.executable))))
        except OSError as error:
            raise FileNotWritten(path=path, reason=error.strerror or str(error)) from error
        yield name
    try:
        (folder / "spool").mkdir(mode=0o700, exist_ok=True)  # clients wait for its manager
    except OSError as error:
        raise FileNotWritten(path=folder / "spool", reason=error.strerror or str(error)) from error


def _in_unit(path: Path) -> str:
    """As a unit file has it, within quotes or alone (systemd.syntax(7))."""
    return str(path).replace("\\", "\\\\").replace("%", "%%").replace('"', '\\"')
