"""`omqtest standby`: options, and the verdict that they print."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from omq.base.errors import Exit
from omqtools.omqtest.failovers import Failovers, failover_loop

DESCRIPTION = """\
Loses a primary with its disk, over and over: real daemons and clients put, read and settle in one
directory, a standby follows in another one, and replies wait for it. Then everything of the primary
is killed with SIGKILL, its spool is removed, the standby is promoted, serves, and gets a standby of
its own in the first directory. What was acknowledged must be there, once, byte for byte. No root is
needed.
"""
EPILOG = """\
what it shows:
  that a reply really waits for the other disk, and that a promotion has all of it, with the file
  systems of both directories. Take two disks: on one, their syncs compete.
what it cannot show:
  a network in between, two clocks, a disk that says "synced" and is not (omqtest powercut --pull).

examples:
  omqtest standby --on /srv/one --and /srv/two                 some minutes, verdict, exit code
  omqtest standby --on /srv/one --and /srv/two --failovers 200 --json

exit codes: 0 kept, 1 not kept, 64 wrong options, 71 the run could not be carried out
"""


def add_options(commands: Any) -> None:
    """The sub-command's options."""
    p = commands.add_parser(
        "standby", help="a primary that is lost, on two directories of yours",
        description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--on", type=Path, required=True, metavar="DIR",
                   help="directory of the first primary; a folder is made in it")
    p.add_argument("--and", type=Path, required=True, metavar="DIR", dest="other",
                   help="directory of its standby, best on another disk; a folder is made in it")
    p.add_argument("--failovers", type=int, default=20, metavar="N", help="(default 20)")
    p.add_argument("--seed", type=int, metavar="N", help="the same choices again")
    p.add_argument("--json", action="store_true", help="the verdict as one JSON line")


def standby(options: argparse.Namespace) -> int:
    """Run; the exit code."""
    for each in (options.on, options.other):
        if not each.is_dir():
            sys.stderr.write(f"omqtest: {each} is not a directory\n")
            return Exit.USAGE
    if options.failovers < 1:
        sys.stderr.write("omqtest: --failovers: 1 at least\n")
        return Exit.USAGE
    seed = options.seed if options.seed is not None else secrets.randbelow(1 << 31)
    began = time.monotonic()
    folders = [Path(tempfile.mkdtemp(prefix="omqtest-", dir=each))
               for each in (options.on, options.other)]
    scratch = Path(tempfile.mkdtemp(prefix="omqtest-"))
    bad = True
    try:
        found = failover_loop((folders[0], folders[1]), scratch, options.failovers, seed, _say)
        bad = bool(found.verdict.faults)
        report(found, seed, time.monotonic() - began, as_json=options.json)
        return Exit.NO if bad else Exit.OK
    finally:
        if bad:
            _say(f"the evidence lies in {folders[0]}, {folders[1]} and {scratch}")
        else:
            for each in (*folders, scratch):
                shutil.rmtree(each)


def report(found: Failovers, seed: int, took_s: float, *, as_json: bool) -> None:
    """Print what was done and found."""
    faults = {kind: len(getattr(found.verdict, kind))
              for kind in ("lost", "resurrected", "invented", "duplicated", "disordered")}
    facts = {"kept": not found.verdict.faults, "failovers": found.done,
             "promotions_killed": found.promotions_killed, "harm": found.harm,
             "acknowledged": found.verdict.acknowledged, "redelivered": found.verdict.redelivered,
             **faults, "seed": seed, "seconds": round(took_s, 1)}
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    for kind, keys in found.verdict.faults.items():
        sys.stdout.write(f"  BROKEN: {kind}: {', '.join(keys[:10])}\n")
    harm = ", ".join(f"{name} {count}" for name, count in sorted(found.harm.items()))
    sys.stdout.write(
        f"failovers {found.done}, promotions killed and done again {found.promotions_killed}; "
        f"before them: {harm}\n"
        f"acknowledged {found.verdict.acknowledged}, redelivered with flag "
        f"{found.verdict.redelivered}, lost {faults['lost']}, resurrected {faults['resurrected']}, "
        f"invented {faults['invented']}, duplicates {faults['duplicated']}, out of order "
        f"{faults['disordered']}\n"
        f"{'KEPT' if facts['kept'] else 'NOT KEPT'}: the promise of a standby that is waited for "
        f"(seed {seed}, {took_s:.0f} s)\n")


def _say(text: str) -> None:
    sys.stderr.write(f"omqtest: {text}\n")
    sys.stderr.flush()
