"""Compile the fast path of the queue manager (omq.fast) for the Python that runs this.

    python setup_compiled.py [--library lib/omq] [--required] [--sanitize]

Needed: Cython 3.1, a C compiler and Python's headers (Debian: gcc, python3-dev). Without them omq
runs the same modules interpreted; that is said, and is no error unless `--required`. The build goes
to `compiled/DIGEST.ABI` in the library (omq.base.form) by one rename; older ones for this Python
are removed. Another library with the same sources gets a copy of this tree's build. `--sanitize`:
with gcc's address and undefined-behaviour sanitizers, for the fuzzer.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
SHIM = "from omq.base import shim as cython\n"
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,  # a wrong index is an IndexError, never a foreign byte
    "wraparound": False,
    "cdivision": True,  # nothing negative is divided
    "initializedcheck": False,  # views are made by the constructors and stay
    "freethreading_compatible": False,
    "show_performance_hints": False,  # those that remain are of Python objects
}
SHARED = "omq.fast.shared_views"
"""What all compiled modules need of Cython's memory views, compiled once."""
NEEDED = "apt-get install gcc python3-dev, and Cython 3.1"


class Missing(Exception):
    """What a build needs is not there."""


def form_of(library: Path) -> ModuleType:
    """omq.base.form of this very library, without importing omq."""
    sys.path.insert(0, str(library.parent))
    spec = importlib.util.spec_from_file_location("omq_form", library / "base" / "form.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def translate(source: str) -> str:
    """A module of the room as Cython is to see it."""
    lines = source.replace(SHIM, "import cython\n").splitlines(keepends=True)
    return "".join(line.replace("from omq.fast.", "from cython.cimports.omq.fast.", 1)
                   if line.startswith("from omq.fast.") else line for line in lines)


def build(library: Path, work: Path, *, sanitize: bool) -> Path:
    """Compile in `work`; the folder with the modules."""
    try:
        from Cython import __version__
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError as SourceError
        from setuptools import Distribution, Extension
        from setuptools.errors import BaseError, CompileError, LinkError
    except ImportError as error:
        raise Missing(str(error)) from error
    if tuple(map(int, __version__.split(".")[:2])) < (3, 1):
        raise Missing(f"Cython is {__version__}")
    room = work / "omq" / "fast"
    room.mkdir(parents=True)
    (work / "omq" / "__init__.py").touch()
    (room / "__init__.py").touch()
    for path in (library / "fast").iterdir():
        if path.suffix == ".py" and path.stem != "__init__":
            (room / path.name).write_text(translate(path.read_text(encoding="utf-8")),
                                          encoding="utf-8")
        elif path.suffix == ".pxd":
            shutil.copy(path, room)
    flags = ["-O2", "-g0", "-fno-strict-aliasing"]
    extra = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if sanitize else []
    extensions = [Extension(SHARED, [SHARED.replace(".", "/") + ".c"], extra_compile_args=flags)]
    extensions += [Extension(f"omq.fast.{path.stem}", [str(path.relative_to(work))],
                            extra_compile_args=[*flags, *extra], extra_link_args=extra)
                  for path in sorted(room.glob("*.py")) if path.stem != "__init__"]
    before = Path.cwd()
    os.chdir(work)
    try:
        subprocess.run([sys.executable, "-m", "cython",
                        f"--generate-shared={SHARED.replace('.', '/')}.c"], check=True)
        made = cythonize(extensions, compiler_directives=DIRECTIVES, quiet=True,
                         include_path=["."], shared_utility_qualified_name=SHARED)
        distribution = Distribution({"name": "omq-fast", "ext_modules": made})
        command = distribution.get_command_obj("build_ext")
        command.build_lib = str(work / "out")
        command.build_temp = str(work / "temporary")
        command.parallel = True  # as many as there are processors
        command.ensure_finalized()
        command.run()
    except (BaseError, CompileError, LinkError, OSError, SourceError,
            subprocess.CalledProcessError) as error:
        raise Missing(str(error)) from error
    finally:
        os.chdir(before)
    return work / "out" / "omq" / "fast"


def main(argv: list[str] | None = None) -> int:
    """Build; 0 also when something is missing, unless it is required."""
    parser = argparse.ArgumentParser(description="compile the fast path of the queue manager")
    parser.add_argument("--library", type=Path, default=HERE / "lib" / "omq")
    parser.add_argument("--required", action="store_true", help="no build is an error")
    parser.add_argument("--sanitize", action="store_true", help="with gcc's sanitizers")
    options = parser.parse_args(argv)
    library = options.library.resolve()
    form = form_of(library)
    target: Path = form.folder(library)
    if not options.sanitize and form.build(library) is not None:
        print(f"omq's fast path: compiled ({target.name})")
        return 0
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as folder:
        try:
            own = None if options.sanitize else form.build(HERE / "lib" / "omq")
            if own is not None and own.name == target.name:
                made = Path(shutil.copytree(own, Path(folder, "copy")))
            else:
                made = build(library, Path(folder), sanitize=options.sanitize)
        except Missing as missing:
            print(f"omq's fast path: interpreted, for it cannot be compiled here: {missing}\n"
                  f"  ({NEEDED})", file=sys.stderr)
            return 1 if options.required else 0
        for old in target.parent.glob(f"*.{form.ABI}"):
            shutil.rmtree(old)
        made.rename(target)
    print(f"omq's fast path: compiled ({target.name})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
