"""For tests that become another user: that user may not be able to read the interpreter or omq."""

from __future__ import annotations

import codecs
import importlib
import pkgutil
import shutil
from pathlib import Path

from omq.base.paths import shipped_conf


def load_all() -> None:
    """Import before the fork all that tools and clients import late."""
    for package in ("omq.base", "omq.cli", "omq.core", "omq.fast", "omq.format", "omq.ipc",
                    "omq.services.readers", "omq.storage", "omqtools.omqdump",
                    "omqtools.omqrecover"):
        found = importlib.import_module(package)
        for each in pkgutil.walk_packages(found.__path__, package + "."):
            importlib.import_module(each.name)
    importlib.import_module("numpy.ma")  # which numpy imports when it is called first
    for codec in ("ascii", "utf-8", "latin-1", "idna"):
        codecs.lookup(codec)


def others_can_read() -> bool:
    """Whether a process that another user starts can load omq."""
    folders = Path(__file__).resolve().parents
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in folders)


def complete_conf(conf: Path) -> None:
    """Copy the shipped files that this directory lacks, so that nobody has to look there."""
    for shipped in shipped_conf().iterdir():
        if not (conf / shipped.name).exists():
            shutil.copy(shipped, conf)
