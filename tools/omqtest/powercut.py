"""`omqtest powercut`: options, the three modes, the verdict that they print.

No program can fake pulling the plug. `pull` puts messages for as long as the machine has power and
prints, for each, its line when omq has acknowledged it. The lines must leave the machine at once,
so it is run over ssh from another one. `verify` recovers the spool when power is back and looks for
every line.

    line := "acknowledged RUN KEY"; KEY names the body, see clients.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omq.base.errors import Exit, OmqError
from omqtools.omqtest.clients import QUEUE, body_of
from omqtools.omqtest.cuts import Cuts, Cutter, record_run
from omqtools.omqtest.instance import RunError, instance
from omqtools.omqtest.kills import Kills, kill_loop
from omqtools.omqtest.offline import contents

DESCRIPTION = """\
Runs omq on a directory and cuts its power, over and over, without touching your power: real
daemons put and read messages, every write and every sync of theirs is recorded, and for many places
of that record a spool is made in DIR that a cut there may leave: all that was synced, and of the
rest nothing, everything, or a part by chance (512 bytes at a time, in any order, torn, some of it
garbage). The real recovery opens it, and what was acknowledged must be there, once, byte for byte.
Then daemons are killed with SIGKILL under load on the real thing. No root is needed.
"""
EPILOG = """\
what it shows:
  that omq asks for a sync before it says "safe", and that its recovery copes with whatever a disk
  may legally leave, on the file system of DIR: its calls, its limits, its errors.
what it cannot show:
  whether your disk, controller or hypervisor really writes when it says so. A lying cache is only
  found by pulling the plug. For that:
    1. on another machine:   ssh HOST omqtest powercut --on DIR --pull > acknowledged
    2. pull the plug of HOST (not a shutdown, not a reset button that the firmware handles)
    3. when it is back:      ssh HOST omqtest powercut --on DIR --verify < acknowledged
  Repeat it some ten times: a cache that lies does not lie every time.

examples:
  omqtest powercut --on /srv/omq-test             some minutes, verdict and exit code
  omqtest powercut --on /mnt/usb --cuts 2000      longer
  omqtest powercut --on . --seed 7 --at 1234      one cut of an earlier run again
  omqtest powercut --on . --json                  the verdict for programs

exit codes: 0 kept, 1 not kept, 64 wrong options, 71 the run could not be carried out
"""


def add_options(commands: Any) -> None:
    """The sub-command's options."""
    p = commands.add_parser(
        "powercut", help="power cuts and kills on a directory of yours", description=DESCRIPTION,
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--on", type=Path, required=True, metavar="DIR",
                   help="directory on the file system under test; a folder is made in it")
    p.add_argument("--cuts", type=int, default=400, metavar="N", help="power cuts (default 400)")
    p.add_argument("--kills", type=int, default=10, metavar="N",
                   help="SIGKILLs of a daemon under load (default 10)")
    p.add_argument("--messages", type=int, default=400, metavar="N",
                   help="messages of the recorded run (default 400)")
    p.add_argument("--seed", type=int, metavar="N",
                   help="choose the same places again in the record that --keep kept")
    p.add_argument("--at", type=int, metavar="STEP", help="only the cut at this step; see --seed")
    p.add_argument("--keep", action="store_true", help="keep the record and the spools")
    p.add_argument("--json", action="store_true", help="the verdict as one JSON line")
    p.add_argument("--pull", action="store_true",
                   help="put messages and print each id when it is safe, until you pull the plug")
    p.add_argument("--verify", action="store_true",
                   help="after --pull: the printed ids on standard input, are they all there?")


def powercut(options: argparse.Namespace) -> int:
    """Run; the exit code."""
    target: Path = options.on
    if not target.is_dir():
        sys.stderr.write(f"omqtest: {target} is not a directory\n")
        return Exit.USAGE
    if options.pull and options.verify:
        sys.stderr.write("omqtest: --pull or --verify, not both\n")
        return Exit.USAGE
    if options.pull:
        return pull(target)
    if options.verify:
        return verify(target, sys.stdin, as_json=options.json)
    return _run(options, target)


def _run(options: argparse.Namespace, target: Path) -> int:
    seed = options.seed if options.seed is not None else secrets.randbelow(1 << 31)
    began = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="omqtest-", dir=target))
    # What must not lie on the file system under test: the record and the histories.
    scratch = Path(tempfile.mkdtemp(prefix="omqtest-"))
    kept = options.keep
    try:
        _say(f"recording a run of {options.messages} messages in {place}")
        log, base = record_run(place, scratch, options.messages)
        cutter = Cutter(log, base, place, scratch, seed)
        _say(f"{cutter.result.steps} steps, {cutter.result.syncs} syncs; cutting with seed {seed}")
        cuts = cutter.run(options.cuts, _say, options.at)
        _say(f"killing daemons {options.kills} times")
        kills = kill_loop(place, scratch, options.kills, seed)
        bad = bool(cuts.failed or kills.verdict.faults)
        kept = kept or bad
        _verdict(options, cuts, kills, seed, time.monotonic() - began)
        if bad:
            _say(f"the evidence lies in {place} and {scratch}")
        return Exit.NO if bad else Exit.OK
    finally:
        if not kept:
            shutil.rmtree(place)
            shutil.rmtree(scratch)


def _verdict(options: argparse.Namespace, cuts: Cuts, kills: Kills, seed: int, took_s: float
             ) -> None:
    faults = {kind: len(cuts.verdict.faults.get(kind, [])) + len(kills.verdict.faults.get(kind, []))
              for kind in ("lost", "resurrected", "invented", "duplicated", "disordered")}
    facts = {
        "on": str(options.on), "kept": not cuts.failed and not kills.verdict.faults,
        "cuts": cuts.done, "started_for_real": cuts.live, "steps": cuts.steps,
        "syncs": cuts.syncs, "acknowledged": cuts.acknowledged, "recovered": cuts.kept,
        "unsynced_bytes_max": cuts.unsynced_max, "kills": kills.done,
        "acknowledged_under_kills": kills.verdict.acknowledged,
        "redelivered": kills.verdict.redelivered, **faults, "failed_cuts": len(cuts.failed),
        "seed": seed, "seconds": round(took_s, 1)}
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    for line in cuts.failed:
        sys.stdout.write(f"  BROKEN at {line}\n")
    for kind, keys in kills.verdict.faults.items():
        sys.stdout.write(f"  BROKEN by kills: {kind}: {', '.join(keys[:10])}\n")
    sys.stdout.write(
        f"cuts {cuts.done} (of them {cuts.live} started as real daemons), acknowledged "
        f"{cuts.acknowledged}, lost {faults['lost']}, resurrected {faults['resurrected']}, "
        f"invented {faults['invented']}, duplicates {faults['duplicated']}, out of order "
        f"{faults['disordered']}\n"
        f"kills {kills.done}, acknowledged {kills.verdict.acknowledged}, redelivered with flag "
        f"{kills.verdict.redelivered}\n"
        f"{'KEPT' if facts['kept'] else 'NOT KEPT'}: the promise on {options.on} "
        f"(seed {seed}, {took_s:.0f} s)\n")


def _say(text: str) -> None:
    sys.stderr.write(f"omqtest: {text}\n")
    sys.stderr.flush()


FOLDER = "omqtest-pull"
WORD = "acknowledged"
LIMIT = 15_000  # messages; the index of the run takes 20,000


def pull(target: Path, limit: int = LIMIT) -> int:
    """Until the power goes, ^C, or `limit` messages."""
    place = target / FOLDER
    if place.exists():
        raise RunError(f"{place} is there from an earlier run: --verify it, or remove it")
    spool = place / "spool"
    spool.mkdir(mode=0o750, parents=True)
    run_name = secrets.token_hex(4)
    with instance(spool, place) as run:
        _sync(target)
        run.start()
        run.ready()
        sys.stderr.write(f"omqtest: putting in {spool}; pull the plug when you like\n")
        with run.connect() as c, contextlib.suppress(KeyboardInterrupt):
            for number in range(limit):
                key = f"{run_name}:{number}"
                c.put(QUEUE, body_of(key))
                sys.stdout.write(f"{WORD} {run_name} {key}\n")
                sys.stdout.flush()
        sys.stderr.write("omqtest: ended with the power on: nothing was tested yet\n")
    return Exit.OK


def _sync(target: Path) -> None:
    """The folders and the configuration of the run are no part of the test."""
    os.sync()
    assert target.is_dir()


def verify(target: Path, lines: Iterable[str], *, as_json: bool = False) -> int:
    """0 when every line's message is there, once, byte for byte; else 1."""
    spool = target / FOLDER / "spool"
    if not spool.is_dir():
        raise RunError(f"{spool} is not there: was --pull run on this directory?")
    wanted = [words[2] for words in map(str.split, lines) if words[:1] == [WORD]
              and len(words) == 3]
    if not wanted:
        raise RunError(f"no line '{WORD} RUN KEY' on standard input: nothing to verify")
    try:
        present = contents(spool)
    except OmqError as error:
        sys.stdout.write(f"NOT KEPT: the spool cannot be recovered: {error}\n")
        return Exit.NO
    keys = [found.key for found in present if not found.bad]
    lost = [key for key in wanted if key not in set(keys)]
    damaged = [found.key for found in present if found.bad]
    doubles = len(keys) - len(set(keys))
    kept = not lost and not damaged and not doubles
    if as_json:
        sys.stdout.write(json.dumps({"kept": kept, "acknowledged": len(wanted), "lost": len(lost),
                                     "damaged": len(damaged), "duplicated": doubles,
                                     "present": len(present)}) + "\n")
    else:
        sys.stdout.write(
            f"acknowledged {len(wanted)}, there {len(keys)}, lost {len(lost)}, damaged "
            f"{len(damaged)}, duplicates {doubles}\n"
            f"{'KEPT' if kept else 'NOT KEPT'}: the promise on {target}\n")
        for key in lost[:10]:
            sys.stdout.write(f"  lost: {key}\n")
    return Exit.OK if kept else Exit.NO
