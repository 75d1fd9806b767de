"""Runs the parts of the tests (tests.parts) side by side, and tells of all of them as of one run.

What a part printed is in build/tests/part-K.log (OMQ_TESTS_LOGS: another folder); the screen has
how far they are, what failed with its trace, and at the end one count of all: of what ran, of what
did not run and why, of what `make test` leaves to `make test-all`.

In the environment, for whoever runs this by another program's hand (CI runs `make test` as it is
written): OMQ_TESTS_RECORD names a folder for `outcomes`, `outcomes.failed` (tests.not_run) and
`durations` (tests.durations); OMQ_TESTS_LIMIT_S ends parts that take longer, and they say where.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests import share
from tests.long import FOLDERS, SHARE, why_long
from tests.units import ROOT, all_units, recorded

LOGS: Final = "OMQ_TESTS_LOGS"
RECORD_FOLDER: Final = "OMQ_TESTS_RECORD"
LIMIT: Final = "OMQ_TESTS_LIMIT_S"
NO_TESTS: Final = int(pytest.ExitCode.NO_TESTS_COLLECTED)
MOST_PARTS: Final = 8
"""Beyond this many the start of each takes more than it brings."""
TELL_S: Final = 30.0
LOOK_S: Final = 0.5
_AT = re.compile(rb"\[ *(\d+)%\]")
_TAIL_BYTES: Final = 4096


def usual_parts() -> int:
    """Two a processor: much of a test's time is waiting."""
    return max(2, min(2 * len(os.sched_getaffinity(0)), MOST_PARTS))


@dataclass(slots=True)
class _Running:
    """One part."""

    part: str
    log: Path
    outcomes: Path
    process: subprocess.Popen[bytes]

    def at(self) -> str:
        """How far it is, by what it printed last."""
        if (code := self.process.poll()) is not None:
            return "done" if code in (0, NO_TESTS) else f"ended with {code}"
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            found = _AT.findall(file.read())
        return f"{int(found[-1])} %" if found else "begins"


def run(parts: int, arguments: list[str]) -> int:
    """All parts; the worst status."""
    logs = Path(os.environ.get(LOGS, ROOT / "build/tests"))
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.glob("part-*"):
        old.unlink()
    quick = _is_quick(arguments)
    environment = {**os.environ, share.VARIABLE: os.environ.get(share.VARIABLE, SHARE)} if (
        quick) else dict(os.environ)
    began = time.monotonic()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    scratch = _scratch()
    running = [_start(logs / f"part-{number}", f"{number}/{parts}", arguments,
                      environment, scratch / str(number)) for number in range(1, parts + 1)]
    try:
        _wait(running, began)
    except KeyboardInterrupt:  # they have it, too
        for each in running:
            each.process.wait()
    finally:
        for each in running:
            each.process.terminate()
        signal.signal(signal.SIGTERM, before)
    codes = [each.process.wait() for each in running]
    if worst(codes) in (0, NO_TESTS):
        shutil.rmtree(scratch, ignore_errors=True)
    for each in running:
        _show(each)
    _sum_up(running, codes, time.monotonic() - began)
    if scratch.exists():
        print(f"--- the folders of the tests are left in {scratch}")
    if quick:
        _tell_what_is_left(environment[share.VARIABLE])
    return worst(codes)


def _is_quick(arguments: Sequence[str]) -> bool:
    words = " ".join(arguments)
    return "--only quick" in words or "--only=quick" in words


def _scratch() -> Path:
    """Where the parts make their folders, each its own, left where something failed. pytest's usual
    one is for all processes of a user, and each that starts takes other users' way through it."""
    made = Path(tempfile.mkdtemp(prefix="omq-tests-"))
    made.chmod(0o711)
    return made


def _start(place: Path, part: str, arguments: list[str], environment: dict[str, str],
           scratch: Path) -> _Running:
    log, outcomes = place.with_suffix(".log"), place.with_suffix(".outcomes")
    command = [sys.executable, "-m", "pytest", "-p", "tests.parts", f"--part={part}",
               f"--outcomes={outcomes}", f"--basetemp={scratch}", *arguments]
    if folder := environment.get(RECORD_FOLDER):
        Path(folder).mkdir(parents=True, exist_ok=True)
        command.append(f"--record-durations={Path(folder, 'durations')}")
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT,
                                   env=environment)
    return _Running(part, log, outcomes, process)


def _wait(running: list[_Running], began: float) -> None:
    """Until all have ended; says now and then how far they are."""
    limit_s = float(os.environ.get(LIMIT, "inf"))
    told, asked = began, False
    while any(each.process.poll() is None for each in running):
        select.select([], [], [], LOOK_S)
        now = time.monotonic()
        if now - told >= TELL_S:
            told = now
            print(f"{_clock(now - began)}  parts: {', '.join(each.at() for each in running)}",
                  flush=True)
        if now - began > limit_s:
            for each in running:
                if each.process.poll() is None:
                    each.process.send_signal(signal.SIGKILL if asked else signal.SIGABRT)
            limit_s, asked = limit_s + 60, True


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:3} min {int(seconds) % 60:02} s"


def _show(part: _Running) -> None:
    """What a part printed, if something went wrong there; else its last line."""
    text = part.log.read_text(encoding="utf-8", errors="replace")
    code = part.process.returncode
    last = text.rstrip().rpartition("\n")[2]
    print(f"=== part {part.part}: status {code}, {os.path.relpath(part.log)}: {last}")
    if code not in (0, NO_TESTS):
        found = [at for word in ("FAILURES", "ERRORS") if (at := text.find(f"= {word} =")) >= 0]
        print(text[text.rfind("\n", 0, min(found)) + 1:] if found else text)
    sys.stdout.flush()


def _sum_up(running: list[_Running], codes: list[int], spent_s: float) -> None:
    """One count of all, and one record for who wants it."""
    ran: set[str] = set()
    reasons: Counter[str] = Counter()
    lines, failed = [], dict[str, None]()
    for each in running:
        if not each.outcomes.exists():
            continue
        for line in each.outcomes.read_text(encoding="utf-8").splitlines(keepends=True):
            lines.append(line)
            test, _, why = line.rstrip("\n").rpartition("\t")
            if why:
                reasons[why] += 1
            else:
                ran.add(test)
        bad = Path(f"{each.outcomes}.failed")
        if bad.exists():
            failed |= dict.fromkeys(bad.read_text(encoding="utf-8").splitlines())
    if folder := os.environ.get(RECORD_FOLDER):
        Path(folder, "outcomes").write_text("".join(lines), encoding="utf-8")
        if worst(codes) == pytest.ExitCode.TESTS_FAILED:
            Path(folder, "outcomes.failed").write_text("".join(f"{each}\n" for each in failed),
                                                       encoding="utf-8")
    if reasons:
        print(f"--- {reasons.total()} did not run")
        for why, number in reasons.most_common():
            print(f"{number:>5}  {why}")
    print(f"=== {len(ran)} tests ran in {_clock(spent_s).strip()}, {len(failed)} failed")
    for test in failed:
        print(f"    {test}")


def _tell_what_is_left(taken: str) -> None:
    seconds = recorded()
    reasons = {unit: why_long(unit, seconds) for unit in all_units()}
    files = sorted((float(why.removesuffix(" s")), unit) for unit, why in reasons.items()
                   if why and why not in FOLDERS.values())
    print("--- left to `make test-all` (one of them: make test ARGS=PATH):")
    for folder, why in FOLDERS.items():
        print(f"    {folder}: {why}")
    if files:
        print(f"    {len(files)} files of {files[0][0]:.0f} to {files[-1][0]:.0f} s: "
              + " ".join(unit.removeprefix("tests/") for _, unit in files))
    if taken != "1/1":
        print(f"    of cases of one kind all but a share ({share.VARIABLE}={taken})")


def worst(codes: list[int]) -> int:
    """One status for all parts: a part may be without tests, not all of them."""
    failed = [code for code in codes if code not in (0, NO_TESTS)]
    if failed:
        return max(abs(code) for code in failed)
    return 0 if 0 in codes else NO_TESTS
