"""Runs the trials of a library.

    python -m tests.bench.tasks.tried.trials celery|dramatiq|huey|rq|procrastinate|bullmq|river

A line for each that holds; the first that does not ends it with its traceback.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Final

LIBRARIES: Final = ("celery", "dramatiq", "huey", "rq", "procrastinate", "bullmq", "river")
HELPERS: Final = frozenset({"app", "got", "plus", "now", "summed", "seven", "work"})


def main(library: str) -> int:
    """Functions of its module that have no arguments are trials."""
    module = importlib.import_module(f"tests.bench.tasks.tried.{library}_tried")
    for name, each in list(vars(module).items()):
        if inspect.isfunction(each) and each.__module__ == module.__name__ \
                and name not in HELPERS and not inspect.signature(each).parameters \
                and not inspect.isgeneratorfunction(inspect.unwrap(each)):
            each()
            print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
