"""Pulling the plug: what no program can fake.

`pull` puts messages for as long as the machine has power and prints, for each, its line when omq
has acknowledged it. The lines must leave the machine at once, so it is run over ssh from another
one. `verify` recovers the spool when power is back and looks for every line.

    line := "acknowledged RUN KEY"; KEY names the body, see clients.py
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path

from omq.base.errors import Exit, OmqError
from omqtools.omqtest.clients import QUEUE, body_of
from omqtools.omqtest.instance import RunError, instance
from omqtools.omqtest.offline import contents

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
