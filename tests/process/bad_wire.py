"""Stands between a primary and its standby, and does harm to what the primary sends: argv is how,
and the command. Run as a program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

HEAD = 64


def main() -> int:
    how, at = sys.argv[1].split(":", 1)
    counts = Path(at) if how == "count" else None  # the bytes that pass, by kind of piece
    if counts is not None:
        at = "-1"
    child = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE)
    assert child.stdout is not None
    kept = b""
    number, passed = 0, Counter[int]()
    while head := child.stdout.read(HEAD):
        length = int.from_bytes(head[28:32], "little")
        piece = head + child.stdout.read(length)
        out = [piece]
        if number == int(at):
            out = {
                "flip": [piece[:-1] + bytes([piece[-1] ^ 1])], "double": [piece, piece],
                "drop": [], "cut": [piece[: len(piece) // 2]], "swap": [],
                "newer": [piece[:8] + b"\x09" + piece[9:]], "term": [
                    piece[:12] + b"\x09" + piece[13:]], "huge": [
                    piece[:28] + b"\xff\xff\xff\xff" + piece[32:]],
                "end": [piece[: len(piece) // 2]]}[how]
        if how == "swap" and number == int(at):
            kept = piece
        elif kept:
            out, kept = [piece, kept], b""
        for each in out:
            sys.stdout.buffer.write(each)
            sys.stdout.buffer.flush()
            passed[head[10]] += len(each)
        if counts is not None:
            counts.write_text(json.dumps(passed))
        if how == "end" and number == int(at):
            break
        number += 1
    child.terminate()
    child.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
