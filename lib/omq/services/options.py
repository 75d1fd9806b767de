"""The options that every daemon and tool has: which instance, where its spool and conf are.

    --instance NAME   several instances on one host: their own spool, conf and units
    --spool DIR       else OMQ_SPOOL, else /var/lib/omq[-INSTANCE]
    --conf DIR        else OMQ_CONF, else SPOOL/conf, else /etc/omq[-INSTANCE], else the shipped one
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from omq.base.errors import BadName
from omq.base.names import check_instance_name
from omq.base.paths import SpoolPaths, conf_dir, default_spool


@dataclass(frozen=True, slots=True)
class Location:
    """One instance; all paths are absolute."""

    instance: str | None
    paths: SpoolPaths
    conf_dir: Path

    def arguments(self) -> list[str]:
        """The options that name the same instance again, for a process started from here."""
        found = ["--spool", str(self.paths.root), "--conf", str(self.conf_dir)]
        return found if self.instance is None else [*found, "--instance", self.instance]


def add_location(parser: argparse.ArgumentParser) -> None:
    """Add the three options."""
    group = parser.add_argument_group("instance")
    group.add_argument("--instance", metavar="NAME", type=_instance, help="name of the instance")
    group.add_argument("--spool", metavar="DIR", type=Path, help="spool directory")
    group.add_argument("--conf", metavar="DIR", type=Path, help="configuration directory")


def locate(options: argparse.Namespace) -> Location:
    """Where the chosen instance is; nothing is checked to exist."""
    instance: str | None = options.instance
    spool = options.spool.absolute() if options.spool else default_spool(instance)
    conf = options.conf.absolute() if options.conf else conf_dir(spool, instance)
    return Location(instance, SpoolPaths(spool), conf)


def _instance(text: str) -> str:
    try:
        return check_instance_name(text)
    except BadName as error:
        raise argparse.ArgumentTypeError(str(error)) from error
