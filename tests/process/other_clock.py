"""Runs a command of omq on a host whose clock is off by so many seconds: argv is the seconds, the
command, its words. Nothing is set but what `time.time` and `time.time_ns` say in this process."""

from __future__ import annotations

import sys
import time

from omq.cli import launch

OFF_S = int(sys.argv[1])
_real = time.time_ns


def main() -> int:
    time.time_ns = lambda: _real() + OFF_S * 1_000_000_000
    time.time = lambda: time.time_ns() / 1e9
    return launch.run(sys.argv[2], sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
