"""A mutating fuzzer that follows coverage, for decoders and for whole recovery.

An input that reaches a line which none has reached before joins the corpus; the next inputs are
mutations of corpus members. Lines are counted by sys.settrace in the modules under test only.

    python -m tests.crash.daemons.fuzz --seconds 600 [--target NAME] [--seed N]

atheris_fuzz.py does the same with libFuzzer.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from tests.unit.format.test_hostile import CASES

Target = Callable[[bytes], Any]
CORPUS_MAX = 400
INTERESTING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\x01", b"\xff" * 4, b"\x00" * 4,
               b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xff" * 8, b"\x00" * 8)


def targets() -> dict[str, tuple[Target, bytes, int, int]]:
    """Every decoder with valid bytes, and which of them its CRC at byte 4 covers."""
    return dict(CASES)


@dataclass
class Report:
    """What a run did."""

    runs: int = 0
    lines: int = 0
    corpus: int = 0
    crashes: list[tuple[bytes, str]] = field(default_factory=list)


class Coverage:
    """Lines of omq.format, storage and core that were reached."""

    def __init__(self) -> None:
        self.seen: set[tuple[CodeType, int]] = set()
        self._new = False

    def call(self, target: Target, data: bytes) -> bool:
        """Run; whether something new was reached."""
        self._new = False
        sys.settrace(self._enter)
        try:
            target(data)
        finally:
            sys.settrace(None)
        return self._new

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if "/omq/" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        at = (frame.f_code, frame.f_lineno)
        if at not in self.seen:
            self.seen.add(at)
            self._new = True
        return self._line


def mutate(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """A few changes: bits, numbers, pieces moved, cut, or taken from another input."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                piece = chance.choice(INTERESTING)
                out[at : at + len(piece)] = piece
            case 2:
                del out[at : at + chance.choice((1, 8, 64, 512))]
            case 3:
                out[at:at] = chance.randbytes(chance.choice((1, 8, 64)))
            case 4 if other:
                start = chance.randrange(len(other))
                piece = other[start : start + chance.choice((4, 64, 512))]
                out[at : at + len(piece)] = piece
            case 5:
                del out[at:]
            case _ if at < len(out):
                out[at] = chance.randrange(256)
    return bytes(out)


def fuzz(target: Target, seeds: list[bytes], seconds: float, seed: int,
         allowed: tuple[type[Exception], ...] = (), repair: Callable[[bytes], bytes] | None = None
         ) -> Report:
    """Run for so long. `allowed`: what the target may raise; `repair` makes a CRC right again."""
    chance, coverage, report = random.Random(seed), Coverage(), Report()
    corpus = list(seeds)
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(report.crashes) < 10:
        data = mutate(chance, chance.choice(corpus), chance.choice(corpus))
        if repair is not None and chance.random() < 0.7:
            data = repair(data)
        report.runs += 1
        try:
            new = coverage.call(target, data)
        except allowed:
            new = False
        except Exception as error:
            report.crashes.append((data, repr(error)))
            continue
        if new and len(corpus) < CORPUS_MAX:
            corpus.append(data)
    report.lines, report.corpus = len(coverage.seen), len(corpus)
    return report


def repair_of(start: int, end: int) -> Callable[[bytes], bytes] | None:
    """Puts the right CRC-32C over [start, end) at byte start - 4: a CRC is no signature."""
    from omq.base.checksum import crc32c

    def repair(data: bytes) -> bytes:
        if len(data) < end:
            return data
        crc = crc32c(data[start:end]).to_bytes(4, "little")
        return data[: start - 4] + crc + data[start:]

    return repair if end else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--target", choices=sorted(targets()))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = {name: case for name, case in targets().items()
              if options.target in (None, name)}
    bad = 0
    for name, (target, sample, start, end) in chosen.items():
        seconds = options.seconds / len(chosen)
        found = fuzz(target, [sample], seconds, options.seed, repair=repair_of(start, end))
        print(f"{name}: {found.runs} runs, {found.lines} lines, {found.corpus} inputs kept, "
              f"{len(found.crashes)} crashes", flush=True)
        for data, error in found.crashes:
            print(f"  {error}: {data.hex()[:400]}")
        bad += len(found.crashes)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
