"""What omq-spark says: lines of JSON on stdout for programs, words on stderr for people."""

from __future__ import annotations

import json
import sys
from typing import Any

from omqtools.omqspark.options import NAME


def say(text: str) -> None:
    """To people, at once."""
    sys.stderr.write(f"{NAME}: {text}\n")
    sys.stderr.flush()


def line(record: dict[str, Any]) -> None:
    """To programs."""
    sys.stdout.write(json.dumps(record) + "\n")
