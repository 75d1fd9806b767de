"""Stands between a standby and its primary like a network that is cut: while the file FLAG is
there, nothing passes in either direction, and nobody is told of an end. Run as a program; argv is
FLAG, and the command that reaches the primary."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

LOOK_MS = 20
READ_BYTES = 1 << 16
END_S = 5


def main() -> int:
    flag = Path(sys.argv[1])
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    ways = {0: child.stdin.fileno(), child.stdout.fileno(): 1}
    try:
        while True:
            poll = select.poll()
            for source in () if flag.exists() else ways:
                poll.register(source, select.POLLIN)
            for source, _ in poll.poll(LOOK_MS):
                if flag.exists():
                    break
                data = os.read(source, READ_BYTES)
                if not data:
                    return 0
                view = memoryview(data)
                while len(view):
                    view = view[os.write(ways[source], view) :]
    except BrokenPipeError:
        return 0
    finally:
        child.stdin.close()  # it reads what is there, and ends
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


if __name__ == "__main__":
    sys.exit(main())
