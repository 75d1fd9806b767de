"""python -m omq: says what omq is and where to begin; with words it is the command `omq`."""

from __future__ import annotations

import platform
import sys

import omq

TEXT = """\
omq {version}: durable message queues for one Linux host, in Python {python} on {system}.

  omq init DIR       a project: a queue, a function for its messages, a test, a unit
  omq --help         commands for an instance as a whole; omsend, omread, omtop and others besides
  help(omq)          the Python interface: omq.connect, put, reader, unit, browse
"""
ELSEWHERE = """\
omq {version} on {system}: queues need Linux. Here work omq.codec (bodies), omq.base.errors and \
the times of schedules; a client of AMQP 1.0 in any language reaches an instance on another host.
"""


def main(argv: list[str]) -> int:
    """Say it; or run `omq`."""
    linux = sys.platform == "linux"
    if argv and linux:
        from omq.cli import launch

        return launch.run("omq", argv)
    sys.stdout.write((TEXT if linux else ELSEWHERE).format(
        version=omq.__version__, python=platform.python_version(), system=platform.system()
        if linux else sys.platform))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
