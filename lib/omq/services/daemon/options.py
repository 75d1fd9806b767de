"""The options that every daemon and tool has: which instance, where its spool and conf are.

    --instance NAME   several instances on one host: their own spool, conf and units
    --spool DIR       else /var/lib/omq-INSTANCE; without --instance OMQ_SPOOL, else /var/lib/omq
    --conf DIR        else (without --instance) OMQ_CONF, else SPOOL/conf, else
                      /etc/omq[-INSTANCE], else the shipped one

What is given explicitly wins over the environment; --spool and --instance that do not belong
together are refused.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from omq.base.errors import BadName
from omq.base.names import check_instance_name
from omq.base.paths import SpoolPaths, chosen_spool, conf_dir


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
    """Where the chosen instance is; nothing is checked to exist. BadRequest."""
    instance: str | None = options.instance
    spool = chosen_spool(options.spool, instance)
    conf = options.conf.absolute() if options.conf else conf_dir(spool, instance)
    return Location(instance, SpoolPaths(spool), conf)


def _instance(text: str) -> str:
    try:
        return check_instance_name(text)
    except BadName as error:
        raise argparse.ArgumentTypeError(str(error)) from error
