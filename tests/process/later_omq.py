"""Runs a command of an omq whose stream to and from standbys is of a later version: argv is the
command and its words."""

from __future__ import annotations

import sys

from omq.cli import launch
from omq.format import standby


def main() -> int:
    standby.VERSION += 1
    return launch.run(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
