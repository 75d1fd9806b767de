"""In which form the fast path of the queue manager runs (omq.fast).

    compiled      its modules as C, made by setup_compiled.py where there is a compiler
    interpreted   the same modules as Python
    off           not at all: every request goes the engine's way

OMQ_FAST chooses; `auto`, the default, is compiled if there is a build of these very sources for
this Python, else interpreted. The three do the same, byte for byte (tests/forms).

Builds lie apart from the sources, in `compiled/DIGEST.ABI` next to the packages. DIGEST is that of
the sources, so a build of other sources is never loaded; a folder appears by rename, so none is
half a build.

Errors: ConfigError.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from pathlib import Path
from typing import Final

from omq.base.errors import ConfigError

VARIABLE: Final = "OMQ_FAST"
AUTO: Final = "auto"
COMPILED: Final = "compiled"
INTERPRETED: Final = "interpreted"
OFF: Final = "off"
CHOICES: Final = (AUTO, COMPILED, INTERPRETED, OFF)
SERVER: Final = ("omq.ipc.server.fast_server", "omq.fast.pool_rows")  # names: they are above us
"""What a manager imports when it starts, if the fast path is not off."""
LIBRARY: Final = Path(__file__).resolve().parents[1]
ABI: Final = str(sysconfig.get_config_var("SOABI"))
SUFFIX: Final = str(sysconfig.get_config_var("EXT_SUFFIX"))


def wanted() -> str:
    """What OMQ_FAST says. ConfigError."""
    said = os.environ.get(VARIABLE) or AUTO
    if said not in CHOICES:
        raise ConfigError(file="environment", line=0, key=VARIABLE, reason=repr(said),
                          allowed=", ".join(CHOICES))
    return said


def before_forks() -> tuple[str, ...]:
    """What a process imports that forks managers, so that not each of them does."""
    return () if os.environ.get(VARIABLE) == OFF else SERVER


def modules(library: Path = LIBRARY) -> list[str]:
    """Names of the modules that are compiled."""
    return sorted(path.stem for path in (library / "fast").glob("*.py")
                  if path.stem != "__init__")


def digest(library: Path = LIBRARY) -> str:
    """Of all that a build is made from."""
    made = hashlib.sha256()
    sources = [path for path in (library / "fast").iterdir() if path.suffix in (".py", ".pxd")]
    for path in (library / "base" / "shim.py", *sorted(sources)):
        data = path.read_bytes()
        made.update(f"{path.name} {len(data)}\n".encode() + data)
    return made.hexdigest()[:16]


def folder(library: Path = LIBRARY) -> Path:
    """Where the build of these sources for this Python lies if there is one."""
    return library / "compiled" / f"{digest(library)}.{ABI}"


def build(library: Path = LIBRARY) -> Path | None:
    """The same, None when it is not there or not whole. Every program asks: where nothing is
    compiled for this Python, no source is read for it."""
    if not any((library / "compiled").glob(f"*.{ABI}")):
        return None
    found = folder(library)
    return found if all((found / (name + SUFFIX)).is_file() for name in modules(library)) else None


def expected() -> str:
    """The form in which a manager that starts now will run. ConfigError."""
    said = wanted()
    if said != AUTO:
        return said
    return COMPILED if build() is not None else INTERPRETED


def told() -> str:
    """The same for people, whatever OMQ_FAST says."""
    try:
        return expected()
    except ConfigError as error:
        return f"unknown: {error}"
