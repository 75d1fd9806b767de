"""Does the model notice a broken engine? Each mutant is one line of omq changed by hand.

    .venv/bin/python tests/model/mutants.py             all of them (some minutes)
    .venv/bin/python tests/model/mutants.py NAME ...    these

A copy of lib/omq is changed and the state machine run on it in a process of its own. Exit code 0:
each was caught. tests/model/test_mutants.py makes sure that the lines are still there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = 1000
"""A mutant that shows sooner ends the search."""
RARE: Final = 2000
"""For what only some rare meeting of events shows."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: in `file` (below lib/omq) `old`, which stands there once, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    examples: int = EXAMPLES
    seed: int | None = None
    """From which it shows soon; only the time that it takes depends on it."""


MUTANTS: Final = (
    Mutant("an attempt is not counted", "core/engine/gives.py",
           "attempts = min(t.e_attempts[entry] + 1, limits.ATTEMPTS_MAX)",
           "attempts = t.e_attempts[entry]"),
    Mutant("an attempt is not counted in a batch", "core/engine/gives.py",
           'np.minimum(v["e_attempts"][entries] + 1, limits.ATTEMPTS_MAX)',
           'v["e_attempts"][entries]'),
    Mutant("an attempt is not journaled", "format/frame_rules.py",
           "entry=Entry(PartState.ACTIVE, Until.LEASE)",
           "entry=Entry(PartState.ACTIVE, Until.LEASE, attempts=False)"),
    Mutant("an arrival wakes nobody who waits for it", "core/engine/state.py",
           "            self.watched[queue].append(entry)", "            pass"),
    Mutant("a batch wakes nobody who waits for one of it", "core/engine/bulk.py",
           "        core.watched[queue] += entries.tolist()", "        pass"),
    Mutant("what is there already is not seen", "core/engine/wanted.py",
           "        line.fresh.append(wish)", "        pass"),
    Mutant("correlations are looked up among ids", "core/engine/wanted.py",
           "    at = (t.b_corr if correlated else t.b_id)[key & t.mask]",
           "    at = t.b_id[key & t.mask]"),
    Mutant("a message with another key of the bucket is given", "core/engine/wanted.py",
           "        if keys[slot] == key:", "        if keys[slot] & t.mask == key & t.mask:"),
    Mutant("a certain message is given from any queue", "core/engine/wanted.py",
           "if (entry and t.e_queue[entry - 1] == queue and", "if (entry and"),
    Mutant("a certain message is given twice", "core/engine/wanted.py",
           " and t.e_state[entry - 1] == _READY\n", "\n"),
    Mutant("of several the last comes first", "core/engine/wanted.py",
           "key=lambda entry: (-t.e_priority[entry], t.e_sequence[entry])",
           "key=lambda entry: (-t.e_priority[entry], -t.e_sequence[entry])"),
    Mutant("a given message stays in its chain", "core/engine/gives.py",
           "        core.detach(entry)\n", ""),
    Mutant("who waited while a queue was inhibited waits for ever", "core/engine/wanted.py",
           "                line.again = True  # until it is defined anew", "                pass"),
    Mutant("correlations are lost over a restart", "core/load/rebuild.py",
           "        t.index_correlation(index, key)", "        pass"),
    Mutant("wrong priority chain", "core/engine/state.py",
           "t.link(entry, queue * PRIORITIES + priority)", "t.link(entry, queue * PRIORITIES + 4)"),
    Mutant("a returned message goes last", "core/engine/state.py",
           "heappush(lane, (-t.e_priority[entry], t.e_sequence[entry], entry))",
           "t.link(entry, queue * PRIORITIES + t.e_priority[entry])"),
    Mutant("done removes another part", "core/redo/changes.py",
           "left = [part for part in message.parts if part.queue != frame[At.QUEUE]]",
           "left = message.parts[1:]"),
    Mutant("a defer is lost over a restart", "format/frame_rules.py",
           "Entry(PartState.DEFERRED, Until.ARGUMENT, defers=True)",
           "Entry(PartState.READY, defers=True)"),
    Mutant("dedupe is forgotten on a restart", "core/redo/redo.py",
           "update_answers(self.clients, window.frames)", "update_answers({}, window.frames)"),
    Mutant("dedupe is forgotten in a checkpoint", "core/load/recovery.py",
           "redo.queues, redo.clients = dict(control.queues), dict(control.clients)",
           "redo.queues = dict(control.queues)"),
    Mutant("puts leave moves no room", "core/engine/puts.py",
           "core.index_reserve // 2", "0", examples=RARE),
    Mutant("moves leave a reserve", "core/engine/moves.py",
           "rows_kept(core, party, moves=True)", "rows_kept(core, party)", examples=RARE),
    Mutant("depth is not decremented", "core/engine/state.py", "t.q_depth[queue] -= 1", "pass"),
    Mutant("depth is not decremented in a batch", "core/engine/bulk.py",
           "t.q_depth[queue] -= count", "pass"),
    Mutant("poison forgets the origin", "core/engine/settle.py", "t.m_origin[slot] = queue",
           "pass"),
    Mutant("the pool forgets the origin", "core/redo/changes.py",
           "        message.origin = frame[At.QUEUE]", "        pass"),
    Mutant("ids go on from the checkpoint only", "core/load/recovery.py",
           "next_qpool = max([redo.next_qpool, *(h.next_qpool for h in headers if h)])",
           "next_qpool = control.next_qpool if control else 1"),
    Mutant("numbers are not skipped after a crash", "core/load/recovery.py",
           "void = settings.block_frames_max + UNSYNCED_FRAMES_MAX", "void = 0"),
    Mutant("a block is not synced", "core/engine/block.py",
           "sync = sync or self.persistent or self._unsynced >= self._unsynced_max", "pass"),
    Mutant("a held message is free after a restart", "format/frame_rules.py",
           "entry=Entry(PartState.HELD, attempts=False)", "entry=Entry(PartState.READY)"),
    Mutant("a returned message counts an attempt", "core/engine/settle.py",
           "    if t.e_attempts[entry]:\n        t.e_attempts[entry] -= 1\n"
           "    if t.e_queue[entry] != IDEL:\n        frame_for(core, FrameType.RELEASE_GIVEN",
           "    if t.e_queue[entry] != IDEL:\n        frame_for(core, FrameType.RELEASE_GIVEN"),
    Mutant("an old time ends a new defer", "core/engine/deadlines.py",
           "                and t.e_lease[entry] == lease):\n            core.back(entry)",
           "                ):\n            core.back(entry)", examples=RARE),
    Mutant("limbo lasts for ever", "core/engine/engine.py",
           "if self.limbo_until <= now:", "if False:"),
    Mutant("a reader that came back has no lease", "core/engine/limbo.py", "if lease_ns:",
           "if False:", examples=RARE),
    Mutant("a hand-out that killed the manager is not counted", "core/engine/suspects.py",
           "    settle.frame_for(core, FrameType.RELEASE_GIVEN",
           "    t.e_attempts[entry] -= 1\n    settle.frame_for(core, FrameType.RELEASE_GIVEN",
           seed=4),
    Mutant("a hand-out kills managers for ever", "core/engine/suspects.py",
           "t.e_attempts[entry] >= core.rules[queue].attempts_max", "False", examples=RARE),
    Mutant("suspects go together", "core/engine/gives.py",
           "bool(given) or (core.suspect_given and entry in core.suspects)", "False",
           examples=RARE),
    Mutant("what a dead machine handed out is no suspect", "core/engine/noted.py",
           "core.suspects.update(limbo)", "pass", examples=RARE),
    Mutant("auxiliary readers go first", "core/engine/waiting.py",
           "line = self.main or self.auxiliary", "line = self.auxiliary or self.main"),
    Mutant("slots of ended messages stay in the pool", "core/redo/redo.py",
           "self._clear(frame[At.FILE], range(first, first + max(1, frame[At.PARTS])))", "pass",
           examples=RARE),
    Mutant("a message on many queues keeps its first record only", "core/redo/window.py",
           "moves = REPLACES[kind] & (frames[\"reason\"] != frames[\"record\"])",
           "moves = np.zeros(len(frames), dtype=bool)"),
    Mutant("a moved body is not told to the journal", "core/redo/changes.py",
           "message.location, message.offset = frame[At.ARGUMENT], frame[At.OFFSET]", "pass"),
    Mutant("a batch shares the first lease", "core/engine/gives.py",
           'v["e_lease"][entries] = leases', 'v["e_lease"][entries] = leases[0]'),
    Mutant("a reader's death is not a failed attempt", "core/engine/noted.py",
           "reason if leases[entry] & LOW in charged else Reason.RETURNED", "Reason.RETURNED"),
    Mutant("a death charges what was not in work", "core/engine/noted.py",
           "        charged = noted.charged(charged)", "        pass"),
    Mutant("what was noted is lost", "core/engine/noted.py",
           "        settle_noted(core, party, noted, poisoned)", "        pass"),
    Mutant("a note of another lease holds", "core/engine/noted.py",
           "found = held & self.in_work", "found = held"),
    Mutant("a note does not outlive the manager", "core/engine/noted.py",
           "spared |= _judge(core, limbo, token, noted, poisoned)", "pass", examples=RARE),
    Mutant("a failed message shares its hand-out", "core/engine/gives.py",
           "return entry in core.suspects or (core.t.e_attempts[entry] > 0 and queue > POISON)",
           "return entry in core.suspects"),
    Mutant("a failed message stands in the chain after a restart", "core/load/rebuild.py",
           '(parts["attempts"] > 0)', '(parts["attempts"] > 9999)', examples=RARE),
    Mutant("a backout does not count over a restart", "format/frame_rules.py",
           '"backed out{it.on}{it.why}", _READER | _MANAGER,\n        entry=Entry(PartState.READY)',
           '"backed out{it.on}{it.why}", _READER | _MANAGER,\n'
           '        entry=Entry(PartState.READY, attempts=False)'),
    Mutant("a backout defers", "core/engine/backing_out.py", "    core.back(entry)\n",
           "    core.set_state(entry, 3)\n    core.wake_at(entry, 9_000_000_000)\n"),
    Mutant("a unit forgets what it took", "core/engine/units.py",
           "        done(core, entry, party, sequence, END if i == last else 0, unit)",
           "        pass"),
    Mutant("a unit with parts that are missing is carried out", "ipc/serving/units.py",
           "len(staged.taken) != r.argument or len(staged.new) != r.want", "False"),
    Mutant("an expired message is redone nowhere", "core/redo/changes.py",
           "[(frame[At.TARGET], frame[At.PRIORITY], 0)] if frame[At.TARGET] else []", "[]"),
    Mutant("a time that was over comes back with a start", "core/redo/changes.py",
           "            message.expiry = 0", "            pass"),
    Mutant("a start forgets the times", "core/load/rebuild.py",
           "    core.times.begin_many(np.arange(count), core.now_ns, core.mono_ns)", "    pass"),
    Mutant("what comes back is not looked at", "core/engine/times.py",
           "            self.came_back.append(slot)", "            pass"),
    Mutant("the queue's limit of time is not in the frame", "core/engine/puts.py",
           "argument=expiry,", "argument=new.expiry,"),
    Mutant("a message is over a second late", "core/engine/wheel.py",
           "rows[:, 0], now, side", "rows[:, 0], now - 10**9, side"),
    Mutant("the journal's order of a move is lost", "core/engine/moves.py",
           "core.new_entry(slot, part.queue, part.priority, lsn, part.until_ns)",
           "core.new_entry(slot, part.queue, part.priority, 1, part.until_ns)", seed=1),
)  # fmt: skip


def mutate(library: Path, mutant: Mutant) -> None:
    """Change the copy of omq in `library`."""
    path = library / "omq" / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.name}: stands {text.count(mutant.old)} times"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def run(mutant: Mutant | None) -> tuple[int, str]:
    """pytest's exit code and last words; None: omq as it is."""
    with tempfile.TemporaryDirectory(prefix="omq-mutant-") as folder:
        library = Path(folder) / "lib"
        shutil.copytree(ROOT / "lib" / "omq", library / "omq")  # what is compiled fits by its times
        if mutant is not None:
            mutate(library, mutant)
        examples, seed = (mutant.examples, mutant.seed) if mutant else (EXAMPLES, None)
        search = [] if seed is None else [f"--hypothesis-seed={seed}"]
        kind = "quick" if seed is None else "seeded"
        environment = os.environ | {"PYTHONPATH": str(library), "OMQ_MODEL": f"{kind}:{examples}",
                                    "PYTHONDONTWRITEBYTECODE": "1",
                                    "OMQ_FAST": "off"}  # the engine's own lines must run
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "--tb=short", "-p", "no:cacheprovider",
             *search, "tests/model/test_model.py"], cwd=ROOT, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    lines = [line.strip(" |") for line in done.stdout.splitlines()]
    words = [line for line in lines if line.startswith("assert ") or "Error: " in line]
    return done.returncode, (words or lines)[-1][:100] if done.returncode else ""


def main(names: list[str]) -> int:
    """Run the mutants named, or all."""
    missed = []
    for mutant in MUTANTS:
        if names and mutant.name not in names:
            continue
        code, words = run(mutant)
        assert code in (0, 1), f"{mutant.name}: pytest ended with {code}: {words}"
        print(f"{'caught' if code else 'MISSED'}  {mutant.name}: {words}", flush=True)
        if not code:
            missed.append(mutant.name)
    print(f"{len(missed)} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
