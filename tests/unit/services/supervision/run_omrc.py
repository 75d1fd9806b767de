"""omrc as it is, but every daemon is a fake one: `run_omrc.py [arguments of omrc]`."""

from __future__ import annotations

import sys
from pathlib import Path

from omq.base.services_conf import ServiceConf
from omq.cli.operate import omrc
from omq.services.supervise.daemon_plan import Command

FAKE = Path(__file__).with_name("fake_daemon.py")


def command(options: list[str]) -> Command:
    spool = Path(options[options.index("--spool") + 1])

    def call(conf: ServiceConf) -> list[str]:
        return [sys.executable, "-ISB", str(FAKE), conf.name, str(spool / "journal.txt"), "normal"]

    return call


if __name__ == "__main__":
    omrc.command = command  # type: ignore[attr-defined]
    sys.exit(omrc.main(sys.argv[1:]))
