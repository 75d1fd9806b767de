"""omq-archive again and again, as a busy timer would run it: `archive_again SPOOL CONF`."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.bench.peers.processes import pause

_PAUSE_S = 1.0


def main() -> None:
    """Until it is ended."""
    spool, conf = sys.argv[1:3]
    parent = os.getppid()
    while os.getppid() == parent:
        subprocess.run([sys.executable, "-P", "-m", "omq.cli.launch", "omq-archive", "--quiet",
                        "--spool", spool, "--conf", conf], check=True)
        pause(_PAUSE_S)


if __name__ == "__main__":
    main()
