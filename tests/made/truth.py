"""Does an audit say exactly what the generator planted?

    python -m tests.made.truth TRUTH AUDIT

Exit code 0: every planted fault was found and nothing else; 1: it lists the differences.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Key = tuple[str, int]


def keys(findings: list[dict[str, Any]]) -> set[Key]:
    """What a finding is about: a message, a file, or an LSN."""
    return {(each["kind"], int(each["lsn"] if each["kind"] == "gap" else
                               each.get("qpool", each.get("file", 0)))) for each in findings}


def differences(truth: dict[str, Any], verdict: dict[str, Any]) -> tuple[set[Key], set[Key]]:
    """(planted but not found, found but not planted)"""
    planted, found = keys(truth["faults"]), keys(verdict["findings"])
    return planted - found, found - planted


def main(argv: list[str]) -> int:
    """Compare two files."""
    truth, verdict = (json.loads(Path(name).read_text(encoding="utf-8")) for name in argv)
    missed, invented = differences(truth, verdict)
    for kind, number in sorted(missed):
        sys.stdout.write(f"planted but not found: {kind} {number}\n")
    for kind, number in sorted(invented):
        sys.stdout.write(f"found but not planted: {kind} {number}\n")
    if not missed and not invented:
        sys.stdout.write(f"all {len(truth['faults'])} planted faults were found, nothing else\n")
    return 1 if missed or invented else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
