"""From a program's name to its code: `python -m omq.services.launch service.router [options]`.

The launchers in bin/ and the supervisor both come here, so the names are listed once. A program of
its own needs a line here and a section in services.conf.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

from omq.base.errors import Exit

MODULES: Final = {
    "queue.manager": "omq.services.queue_manager",
    "pool.writer": "omq.services.pool_writer",
    "idel.server": "omq.services.idel_server",
    "service.router": "omq.services.router",
    "local.delivery": "omq.services.local_delivery",
    "unix.out": "omq.services.unix_out",
    "error.manager": "omq.services.error_manager",
    "smtp.server": "omq.services.smtp_server",
}


def main(argv: list[str] | None = None) -> int:
    """Run the program named by the first argument with the others; its exit code."""
    program, *options = sys.argv[1:] if argv is None else argv or [""]
    module = MODULES.get(program)
    if module is None:
        # A wrong program in services.conf is a mistake of configuration: not tried again.
        known = ", ".join(MODULES)
        sys.stderr.write(f"omq has no program {program!r}; known: {known}\n")
        return Exit.CONFIG
    return int(importlib.import_module(module).main(options))


if __name__ == "__main__":
    sys.exit(main())
