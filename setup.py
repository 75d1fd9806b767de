"""Where the packages lie: the folders are named for what they are to a reader of the repository.

The scripts are the programs of lib/omq/cli/programs.py. Everything else that setuptools needs to
know is in pyproject.toml.

OMQ_WHEEL=compiled, which tools/wheels sets, makes a wheel with the fast path compiled, for the
Python and the kind of machine that it is made on. Otherwise one for all, where it is interpreted.
"""

import os
import runpy
from pathlib import Path

from setuptools import Distribution, find_packages, setup


class ForOnePython(Distribution):
    """A distribution with compiled parts, which setuptools did not compile."""

    def has_ext_modules(self) -> bool:
        return True


COMPILED = os.environ.get("OMQ_WHEEL") == "compiled"
if COMPILED and (said := runpy.run_path("setup_compiled.py")["main"](["--required"])):
    raise SystemExit(said)

FOLDERS = {
    "omq": "lib/omq",
    "omqtools": "lib/omqtools",
    "omqtools.omqdump": "tools/omqdump",
    "omqtools.omqtest": "tools/omqtest",
    "omqtools.omqrecover": "recovery/omqrecover",
    "omqtools.omqspark": "spark/omqspark",
}
DATA = {  # inside the package once installed: the shipped configuration, templates of the units
    "omq.conf": "conf",
    "omq.units": "units",
}

present = {name: folder for name, folder in FOLDERS.items() if Path(folder).is_dir()}
packages = [
    package
    for name, folder in present.items()
    for package in (name, *(f"{name}.{part}" for part in find_packages(folder)))
]

PROGRAMS = runpy.run_path("lib/omq/cli/programs.py")["PROGRAMS"]

PLUGINS = {  # how Celery and kombu find what is theirs, once they are installed
    "kombu.serializers": ["omq = omq.tasks.kombu_plugin:serializer"],
    "celery.result_backends": ["omq = omq.tasks.celery_results:OmqBackend"],
    "pytest11": ["omq = omq.testing.plugin"],
}

SHARE = Path("share")  # manual pages and completions, made by python -m omq.cli.manual
shared = [(str(folder), [str(path) for path in sorted(folder.iterdir()) if path.is_file()])
          for folder in sorted(SHARE.rglob("*")) if folder.is_dir()]

setup(
    entry_points={"console_scripts": [f"{name} = omq.cli.launch:script" for name in PROGRAMS],
                  **PLUGINS},
    data_files=[(folder, files) for folder, files in shared if files],
    packages=[*packages, *DATA],
    package_dir={**present, **DATA},
    package_data={
        "omq.conf": ["*.conf"],
        "omqtools.omqspark": ["conf/*"],
        "omq.units": ["*.target", "*.service", "*.socket", "*.timer", "include/*", "*.d/*.conf",
                      "logrotate.d/*"],
        "omq": ["cli/web/templates/*.html", "cli/web/static/*", "docs/*.md", "docs/adr/*.md",
                "py.typed", "fast/*.pxd", *(["compiled/*/*.so"] if COMPILED else [])],
    },
    distclass=ForOnePython if COMPILED else Distribution,
)
