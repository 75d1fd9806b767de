"""Files that hold secrets: keys, names and passwords. Read whole, and only when nobody else can.

A file is taken when its owner is root or who runs this (root takes anybody's), its group may at
most read it, and others may do nothing. What would be read by a stranger is not a secret, and is
refused before it is used.

Errors: ConfigError with the key that names the file.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from omq.base.errors import ConfigError
from omq.base.limits import MIB
from omq.base.settings_file import FILE_NAME, conf_path

BYTES_MAX: Final = 16 * MIB
_OTHERS: Final = stat.S_IWGRP | stat.S_IRWXO
_ALLOWED: Final = "a file of root or of the user who runs this, mode 0640 or 0600"


def wrong(conf_dir: Path, key: str, reason: str, allowed: str) -> ConfigError:
    """The error of a key of omq.conf whose file is wrong."""
    return ConfigError(file=conf_path(conf_dir, FILE_NAME), line=0, key=key, reason=reason,
                       allowed=allowed)


def read_secret(conf_dir: Path, key: str, path: str) -> str:
    """The text of the file that `key` names."""
    try:
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode) or state.st_size > BYTES_MAX:
                raise wrong(conf_dir, key, f"{path} is not a file, or too large", _ALLOWED)
            foreign = os.geteuid() and state.st_uid not in (0, os.geteuid())
            if state.st_mode & _OTHERS or foreign:
                raise wrong(conf_dir, key, f"others can read or change {path}", _ALLOWED)
            return file.read().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(conf_dir, key, f"{path} cannot be read: {error}", _ALLOWED) from error
