"""Runs a real Supervisor over fake daemons: `run_supervisor.py SPEC.json`.

SPEC: {"spool": DIR, "limits": {...}, "services": {NAME: [KIND, BEHAVIOUR]}}; it is read again at a
reload; "wrong": true makes that read fail.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from omq.base.errors import ConfigError
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.services_conf import ServiceConf, ServiceKind
from omq.services.daemon.signals import Signals
from omq.services.supervise.daemon_plan import Limits, start_order
from omq.services.supervise.supervisor import Setup, Supervisor

FAKE = Path(__file__).with_name("fake_daemon.py")


def main() -> int:
    path = Path(sys.argv[1])
    spec = json.loads(path.read_text())
    paths = SpoolPaths(Path(spec["spool"]))
    behaviours: dict[str, str] = {}

    def services() -> list[ServiceConf]:
        now = json.loads(path.read_text())
        if now.get("wrong"):
            raise ConfigError(file=path, line=1, key="wrong", reason="is set", allowed="nothing")
        behaviours.update({name: each[1] for name, each in now["services"].items()})
        confs = [
            ServiceConf(name, name.title(), number, ServiceKind(kind), f"fake.{name}")
            for number, (name, (kind, _behaviour)) in enumerate(now["services"].items())
        ]
        return start_order(confs, nonstop_only=False)

    def command(conf: ServiceConf) -> list[str]:
        journal = str(paths.root / "journal.txt")
        return [sys.executable, "-ISB", str(FAKE), conf.name, journal, behaviours[conf.name]]

    setup = Setup(
        paths=paths, limits=Limits(**spec["limits"]), services=tuple(services()),
        reread=services, command=command, environ=dict(os.environ),
    )  # fmt: skip
    log = EventLog("omrc", paths.root / "events.log", stderr=False)
    return Supervisor(setup, Signals(), log, lambda text: print(text, flush=True)).run()


if __name__ == "__main__":
    sys.exit(main())
