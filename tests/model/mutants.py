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
EXAMPLES: Final = "150"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: in `file` (below lib/omq) `old`, which stands there once, becomes `new`."""

    name: str
    file: str
    old: str
    new: str


MUTANTS: Final = (
    Mutant("an attempt is not counted", "core/gives.py",
           "attempts = min(t.e_attempts[entry] + 1, limits.ATTEMPTS_MAX)",
           "attempts = t.e_attempts[entry]"),
    Mutant("an attempt is not counted in a batch", "core/gives.py",
           'np.minimum(v["e_attempts"][entries] + 1, limits.ATTEMPTS_MAX)',
           'v["e_attempts"][entries]'),
    Mutant("an attempt is not journaled", "core/redo_changes.py",
           "part.state, part.attempts = PartState.ACTIVE, frame[At.ATTEMPT]",
           "part.state = PartState.ACTIVE"),
    Mutant("wrong priority chain", "core/state.py",
           "t.link(entry, queue * PRIORITIES + priority)", "t.link(entry, queue * PRIORITIES + 4)"),
    Mutant("a returned message goes last", "core/state.py",
           "heappush(lane, (-t.e_priority[entry], t.e_sequence[entry], entry))",
           "t.link(entry, queue * PRIORITIES + t.e_priority[entry])"),
    Mutant("done removes another part", "core/redo_changes.py",
           "message.parts = [part for part in message.parts if part.queue != frame[At.QUEUE]]",
           "message.parts = message.parts[1:]"),
    Mutant("a defer is lost over a restart", "core/redo_changes.py",
           "part.state, part.until = PartState.DEFERRED, -(-frame[At.ARGUMENT] // NS)",
           "part.state, part.until = PartState.READY, 0"),
    Mutant("dedupe is forgotten on a restart", "core/redo.py",
           "update_answers(self.clients, window.frames)", "update_answers({}, window.frames)"),
    Mutant("dedupe is forgotten in a checkpoint", "core/recovery.py",
           "redo.queues, redo.clients = dict(control.queues), dict(control.clients)",
           "redo.queues = dict(control.queues)"),
    Mutant("depth is not decremented", "core/state.py", "t.q_depth[queue] -= 1", "pass"),
    Mutant("depth is not decremented in a batch", "core/bulk.py", "t.q_depth[queue] -= count",
           "pass"),
    Mutant("poison forgets the origin", "core/settle.py", "t.m_origin[slot] = queue", "pass"),
    Mutant("the pool forgets the origin", "core/redo_changes.py",
           "        message.parts.append(part)\n    message.origin = frame[At.QUEUE]",
           "        message.parts.append(part)"),
    Mutant("ids go on from the checkpoint only", "core/recovery.py",
           "next_qpool = max([redo.next_qpool, *(h.next_qpool for h in headers if h)])",
           "next_qpool = control.next_qpool if control else 1"),
    Mutant("numbers are not skipped after a crash", "core/recovery.py",
           "void = settings.block_frames_max + UNSYNCED_FRAMES_MAX", "void = 0"),
    Mutant("a block is not synced", "core/block.py",
           "sync = sync or self.persistent or self._unsynced >= self._unsynced_max", "pass"),
    Mutant("a held message is free after a restart", "core/redo_changes.py",
           "part.state, part.until = PartState.HELD, 0", "part.state, part.until = 1, 0"),
    Mutant("a returned message counts an attempt", "core/settle.py",
           "        if t.e_attempts[entry]:\n            t.e_attempts[entry] -= 1\n"
           "        frame_for(core, FrameType.RELEASE_GIVEN",
           "        frame_for(core, FrameType.RELEASE_GIVEN"),
    Mutant("an old time ends a new defer", "core/engine.py",
           "                    and t.e_lease[entry] == lease):\n                core.back(entry)",
           "                    ):\n                core.back(entry)"),
    Mutant("limbo lasts for ever", "core/engine.py",
           "if self.limbo and self.limbo_until <= now:", "if False:"),
    Mutant("a reader that came back has no lease", "core/limbo.py", "if lease_ns:", "if False:"),
    Mutant("a hand-out that killed the manager is not counted", "core/suspects.py",
           "    settle.frame_for(core, FrameType.RELEASE_GIVEN",
           "    t.e_attempts[entry] -= 1\n    settle.frame_for(core, FrameType.RELEASE_GIVEN"),
    Mutant("a hand-out kills managers for ever", "core/suspects.py",
           "t.e_attempts[entry] >= core.rules[queue].attempts_max", "False"),
    Mutant("suspects go together", "core/gives.py",
           "(suspect and (given or core.suspect_given))", "False"),
    Mutant("what a dead machine handed out is no suspect", "core/engine.py",
           "core.suspects.update(limbo)", "pass"),
    Mutant("auxiliary readers go first", "core/waiting.py",
           "line = self.main or self.auxiliary", "line = self.auxiliary or self.main"),
    Mutant("slots of ended messages stay in the pool", "core/redo.py",
           "self._clear(frame[At.FILE], range(first, first + max(1, frame[At.PARTS])))", "pass"),
    Mutant("a message on many queues keeps its first record only", "core/redo_window.py",
           "moves = (kind == FrameType.MOVE) & (frames[\"reason\"] != frames[\"record\"])",
           "moves = np.zeros(len(frames), dtype=bool)"),
    Mutant("a moved body is not told to the journal", "core/redo.py",
           "message.location, message.offset = word, offset", "pass"),
    Mutant("a batch shares the first lease", "core/gives.py",
           'v["e_lease"][entries] = leases', 'v["e_lease"][entries] = leases[0]'),
    Mutant("a reader's death is not a failed attempt", "core/engine.py",
           "reason, leases = 0 if orderly else REASON_DIED, self", "reason, leases = 0, self"),
    Mutant("the journal's order of a move is lost", "core/settle.py",
           "core.new_entry(slot, part.queue, part.priority, lsn, part.until * NS)",
           "core.new_entry(slot, part.queue, part.priority, 1, part.until * NS)"),
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
        shutil.copytree(ROOT / "lib" / "omq", library / "omq",
                        ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            mutate(library, mutant)
        environment = os.environ | {"PYTHONPATH": str(library), "OMQ_MODEL": f"quick:{EXAMPLES}",
                                    "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "--tb=short", "-p", "no:cacheprovider",
             "tests/model/test_model.py"], cwd=ROOT, env=environment, text=True,
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
