"""Does the model notice a broken engine? Each mutant is one line of omq changed by hand.

    python -m tests.model.mutants             all of them (half an hour)
    python -m tests.model.mutants NAME ...    these

lib/omq with that one file changed, and the state machine searching in a process of its own. Exit
code 0: each was caught. tests/model/lives.py keeps for each a life that shows it, for CI.
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

from tests.model.steps import WHERE

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
    seed: int = 1
    """From which it shows soon; only the time that it takes depends on it."""
    machine: str = "test_model"
    """The module of the machine that searches."""


def _of_barriers(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, file, old, new, machine="test_barrier_model")


MUTANTS: Final = (
    Mutant("an attempt is not counted", "core/engine/gives.py",
           "attempts = min(t.e_attempts[entry] + 1, limits.ATTEMPTS_MAX)",
           "attempts = t.e_attempts[entry]"),
    Mutant("how long messages waited is not counted", "core/engine/gives.py",
           "    waited(t, entry, core.now_ns)", "    pass"),
    Mutant("an attempt is not journaled", "format/frame_rules.py",
           "entry=Entry(PartState.ACTIVE, Until.LEASE)",
           "entry=Entry(PartState.ACTIVE, Until.LEASE, attempts=False)"),
    Mutant("an arrival wakes nobody who waits for it", "core/engine/state.py",
           "            self.watched[queue].append(entry)", "            pass"),
    Mutant("what is there already is not seen", "core/engine/waiters_by_id.py",
           "        line.fresh.append(wish)", "        pass"),
    Mutant("correlations are looked up among ids", "core/engine/waiters_by_id.py",
           "    at = (t.b_corr if correlated else t.b_id)[t.bucket(key)]",
           "    at = t.b_id[t.bucket(key)]"),
    Mutant("a message with another key of the bucket is given", "core/engine/waiters_by_id.py",
           "        if keys[slot] == key:", "        if t.bucket(keys[slot]) == t.bucket(key):"),
    Mutant("a certain message is given from any queue", "core/engine/waiters_by_id.py",
           "if (entry and t.e_queue[entry - 1] == queue and", "if (entry and"),
    Mutant("a certain message is given twice", "core/engine/waiters_by_id.py",
           " and t.e_state[entry - 1] == _READY\n", "\n"),
    Mutant("of several the last comes first", "core/engine/waiters_by_id.py",
           "key=lambda entry: (-t.e_priority[entry], t.e_sequence[entry])",
           "key=lambda entry: (-t.e_priority[entry], -t.e_sequence[entry])"),
    Mutant("a given message stays in its chain", "core/engine/gives.py",
           "entries, Core.detach,", "entries, lambda core, entry: None,"),
    Mutant("who waited while a queue was inhibited waits for ever", "core/engine/waiters_by_id.py",
           "                    line.again, line.fresh = True, []", "                    pass"),
    Mutant("correlations are lost over a restart", "core/load/rebuild.py",
           "    if len(correlated):\n", "    if False:\n"),
    Mutant("wrong priority chain", "core/engine/state.py",
           "t.link(entry, queue * PRIORITIES + priority)", "t.link(entry, queue * PRIORITIES + 4)"),
    Mutant("a message of a group does not wait for its turn", "core/engine/state.py",
           "            if not has_turn:\n", "            if False:\n"),
    Mutant("who is next in a group never gets its turn", "core/engine/state.py",
           "        if following >= 0 and t.e_state[following] == _READY:", "        if False:"),
    Mutant("a message that comes back overtakes its group", "core/engine/state.py",
           "        if group and self.groups.fronts[group] != entry:", "        if False:"),
    Mutant("a group is in another order after a restart", "core/engine/groups.py",
           'lexsort((v["e_sequence"][members],', 'lexsort((-v["e_sequence"][members].astype(int),'),
    Mutant("redo forgets the group", "core/redo/births.py",
           '        out["group"][i] = message_format.id_hash(groups[i].tobytes())', "        pass"),
    Mutant("a whole group lacks one", "core/engine/groups.py",
           "if ([self.number(entry) for entry in found] == [*range(1, count + 1)]\n"
           "                    and all(", "if (all("),
    Mutant("of a whole group one is in other hands", "core/engine/groups.py",
           "all(t.e_state[entry] == _READY and not is_over(entry)", "all(not is_over(entry)"),
    Mutant("a whole group with one that is over is given", "core/engine/groups.py",
           "t.e_state[entry] == _READY and not is_over(entry)", "t.e_state[entry] == _READY",
           examples=RARE),
    Mutant("a whole group is not given as one", "core/engine/waiters_by_id.py",
           "whole=waiter.by == Key.GROUP", "whole=False"),
    Mutant("who waits for a group does not hear that it is whole", "core/engine/state.py",
           "            self.is_ready(queue, whole)", "            pass", examples=RARE),
    Mutant("numbers in groups are lost over a restart", "core/engine/groups.py",
           "np.asarray(self.numbers)[: len(numbers)] = numbers",
           "np.asarray(self._numbers)[: len(numbers)] = 0"),
    Mutant("a returned message goes last", "core/engine/lanes.py",
           "lane.push(t.e_priority[entry], t.e_sequence[entry], entry)",
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
    Mutant("a batch that moves is not checked as a whole", "core/engine/move_many.py",
           "    check_unit(core, entries, listed, kept)\n", "", examples=RARE),
    Mutant("a batch that moves ends with its first message", "core/engine/move_many.py",
           "0 if frames else END,\n", "END,\n", examples=RARE),
    Mutant("depth is not decremented", "core/engine/state.py", "t.q_depth[queue] -= 1", "pass"),
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
           "sync = bool(force) or self.persistent or self.unsynced >= self.unsynced_max", "pass"),
    Mutant("a held message is free after a restart", "format/frame_rules.py",
           "entry=Entry(PartState.HELD, attempts=False)", "entry=Entry(PartState.READY)"),
    Mutant("a returned message counts an attempt", "core/engine/settle.py",
           "    if t.e_attempts[entry]:\n        t.e_attempts[entry] -= 1\n"
           "    if t.e_queue[entry] != IDEL:\n        frame_for(core, FrameType.RELEASE_GIVEN",
           "    if t.e_queue[entry] != IDEL:\n        frame_for(core, FrameType.RELEASE_GIVEN"),
    Mutant("an old time ends a new defer", "core/engine/deadlines.py",
           "                    and t.e_lease[entry] == lease):\n                if entry in core.",
           "                    ):\n                if entry in core.", examples=RARE),
    Mutant("limbo lasts for ever", "core/engine/engine.py",
           "if self.limbo_until <= now:", "if False:", seed=6),
    Mutant("a reader that came back has no lease", "core/engine/leases_resumed.py", "if lease_ns:",
           "if False:", examples=RARE),
    Mutant("a hand-out that killed the manager is not counted", "core/engine/suspect_messages.py",
           "    settle.frame_for(core, FrameType.RELEASE_GIVEN",
           "    t.e_attempts[entry] -= 1\n    settle.frame_for(core, FrameType.RELEASE_GIVEN",
           seed=4),
    Mutant("a hand-out kills managers for ever", "core/engine/suspect_messages.py",
           "t.e_attempts[entry] >= core.rules[queue].attempts_max", "False", examples=RARE),
    Mutant("suspects go together", "core/engine/gives.py",
           "bool(given) or (core.suspect_given and entry in core.suspects)", "False",
           examples=RARE),
    Mutant("what a dead machine handed out is no suspect", "core/engine/reader_notes.py",
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
    Mutant("a reader's death is not a failed attempt", "core/engine/reader_notes.py",
           "reason if leases[entry] & LOW in charged else Reason.RETURNED", "Reason.RETURNED",
           seed=2),
    Mutant("a death charges what was not in work", "core/engine/reader_notes.py",
           "        charged = noted.charged(charged)", "        pass"),
    Mutant("what was noted is lost", "core/engine/reader_notes.py",
           "        settle_noted(core, party, noted, poisoned)", "        pass"),
    Mutant("a note of another lease holds", "core/engine/reader_notes.py",
           "found = held & self.in_work", "found = held"),
    Mutant("a note does not outlive the manager", "core/engine/reader_notes.py",
           "spared |= not_begun if final else set()", "pass", examples=RARE),
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
    Mutant("who waits for a reply is not told that the request was put",
           "ipc/server/group_commit.py",
           "            session.last = (sequence, 1, qpool, lsn)\n", "            pass\n",
           examples=RARE),
    Mutant("who asks settles nothing", "core/engine/requester_put.py", ") if verdicts else 0",
           ") if not verdicts else 0", examples=RARE),
    Mutant("who asks waits for another reply", "core/engine/requester_put.py",
           "derived_id(core.uuid, qpool)), lost", "derived_id(core.uuid, 1)), lost",
           examples=RARE),
    Mutant("a unit forgets what it took", "core/engine/units.py",
           "        done(core, entry, party, sequence, END if i == last else 0, unit)",
           "        pass"),
    Mutant("a unit with parts that are missing is carried out", "ipc/server/units.py",
           "len(staged.taken) != r.argument or len(staged.new) != r.want", "False", examples=RARE),
    Mutant("a commit is answered with another message's number", "ipc/server/units.py",
           "len(staged.new), first)", "len(staged.new), first + 1)"),
    Mutant("what a unit in doubt put is there after a restart", "core/redo/changes.py",
           "        state, until = PartState.PREPARED, frame[At.REASON]", "        pass"),
    Mutant("many births of units in doubt are there after a restart", "core/redo/births.py",
           "np.where(prepared, int(PartState.PREPARED), int(PartState.READY)) << 4",
           "int(PartState.READY) << 4"),
    Mutant("what a unit in doubt took comes back with a restart", "format/frame_rules.py",
           "Entry(PartState.PREPARED, Until.UNIT)", "Entry(PartState.READY)"),
    Mutant("units in doubt lose their numbers", "core/redo/changes.py",
           "        return attempts, deferrals, frame[At.REASON]",
           "        return attempts, deferrals, 7"),
    Mutant("a commit of a unit in doubt is not redone", "format/frame_rules.py",
           '"committed{it.on}", _READER | _OPERATOR,\n'
           "        entry=Entry(PartState.READY, attempts=False)",
           '"committed{it.on}", _READER | _OPERATOR,\n'
           "        entry=Entry(PartState.HELD, attempts=False)"),
    Mutant("a backout forgets what a unit in doubt put", "core/engine/in_doubt.py",
           "        _undo(core, by, entry, flags)\n", "        core.back(entry)\n"),
    Mutant("a unit in doubt is given back what it took twice", "core/engine/in_doubt.py",
           "            if entry == unit.own:", "            if entry != unit.own and not commit:\n"
           "                core.back(entry)\n            elif entry == unit.own:"),
    Mutant("the room of a unit in doubt is not looked at", "core/engine/in_doubt.py",
           "check_unit(core, (), listed, kept, more=1)",
           "check_unit(core, entries, listed, kept, more=1)"),
    Mutant("an exponential back-off does not grow", "core/engine/retry.py",
           "pause = min(pause << doublings, max(pause, rules.retry_max_ns))", "pass",
           examples=RARE),
    Mutant("a back-off knows no maximum", "core/engine/retry.py",
           "pause = min(pause << doublings, max(pause, rules.retry_max_ns))",
           "pause = pause << doublings", examples=RARE),
    Mutant("a linear back-off grows one step too far", "core/engine/retry.py",
           "pause * max(1, attempts)", "pause * (attempts + 1)", examples=RARE),
    Mutant("a death waits as a failure does", "core/engine/retry.py",
           "reason == Reason.FAILED and rules.retry_delay_ns >= 0", "rules.retry_delay_ns >= 0"),
    Mutant("the delay of one failure is forgotten", "core/engine/settle.py",
           "delay_ns=verdict.argument - 1 if verdict.argument > 0 else None", "delay_ns=None"),
    Mutant("what failed too often goes to POISON whatever its queue says", "core/engine/settle.py",
           "    target = core.rules[queue].dead_letter", "    target = POISON"),
    Mutant("attempts go on where failed messages go", "core/engine/settle.py",
           "        t.e_attempts[entry] = 0  # they begin anew", "        pass"),
    Mutant("an expired message is redone nowhere", "core/redo/changes.py",
           "[(frame[At.TARGET], frame[At.PRIORITY], 0)] if frame[At.TARGET] else []", "[]"),
    Mutant("a time that was over comes back with a start", "core/redo/changes.py",
           "            message.expiry = 0", "            pass"),
    Mutant("a start forgets the times", "core/load/rebuild.py",
           "    core.times.load(np.arange(count), core.now_ns)", "    pass"),
    Mutant("what a start found is over by the clock as it was then", "core/load/rebuild.py",
           "    core.times.load(np.arange(count), core.now_ns)",
           "    for slot in np.flatnonzero(core.t.v['m_expiry'][:count]).tolist():\n"
           "        core.times.begin(slot, core.now_ns, core.mono_ns)"),
    Mutant("what a start found comes by the clock as it was then", "core/load/rebuild.py",
           "    core.moments = [(t.e_until[e], e",
           "    core.due = [(core.mono_ns + t.e_until[e] - core.now_ns, e"),
    Mutant("a start remembers ids by the clock as it was then", "core/engine/duplicates.py",
           "        self._order = sorted(found, reverse=True)",
           "        for until_ns, key, identifier in sorted(found):\n"
           "            self._learn(key, identifier, core.mono_ns + until_ns - core.now_ns)\n"
           "        self._order = []"),
    Mutant("a moment does not follow the clock", "core/engine/state.py",
           "            if moment:\n", "            if False:\n"),
    Mutant("a delay follows the clock", "core/engine/state.py",
           "            if moment:\n", "            if True:\n"),
    Mutant("a moment in a MOVE is a delay", "core/engine/moves.py",
           "moment=part.is_moment)", "moment=False)"),
    Mutant("what comes back is not looked at", "core/engine/expiry_times.py",
           "            self.came_back.append(slot)", "            pass"),
    Mutant("the queue's limit of time is not in the frame", "core/engine/puts.py",
           "argument=expiry,", "argument=new.expiry,"),
    Mutant("a message is over a second late", "core/engine/wheel.py",
           "rows[:, 0], now, side", "rows[:, 0], now - 10**9, side"),
    Mutant("a duplicate is put", "core/engine/duplicates.py",
           "        if not had:\n            return False",
           "        if True:\n            return False"),
    Mutant("what one queue has had is absorbed for another", "core/engine/duplicates.py",
           "absorbs = len(had) == len(queues) and all(", "absorbs = all("),
    Mutant("ids are remembered without end", "core/engine/duplicates.py",
           "> rules.dedupe_keys_max:", "> 1 << 40:"),
    Mutant("an id is forgotten too soon", "core/engine/duplicates.py",
           "if until[oldest] > now:", "if until[oldest] > now + 20_000_000_000:"),
    Mutant("an id is not forgotten", "core/engine/duplicates.py",
           "            known.drop_over(core.mono_ns)\n", "            pass\n"),
    Mutant("a start forgets ids", "core/load/rebuild.py",
           "    _remember(core, rows.messages, parts[\"row\"][deferred], until[deferred])\n", ""),
    Mutant("a memory is redone as a message", "core/redo/births.py",
           "frames[\"flags\"] & _MEMORY", "frames[\"flags\"] & 0"),
    Mutant("a memory is taken for the answer", "core/redo/last_requests.py",
           "\n                          & (frames[\"flags\"] & FrameFlag.MEMORY == 0)", "",
           examples=RARE),
    Mutant("an operator has what is remembered", "core/engine/operate.py",
           "    if t.m_flags[slot] & REMEMBERS:", "    if False:"),
    Mutant("the journal's order of a move is lost", "core/engine/moves.py",
           "core.new_entry(slot, part.queue, part.priority, lsn, part.until_ns,",
           "core.new_entry(slot, part.queue, part.priority, 1, part.until_ns,", seed=1),
    _of_barriers("a barrier stays one when it has left its queue", "core/redo/changes.py",
                 "    message.flags &= ~_BARRIER\n", ""),
    _of_barriers("a start does not know who waits", "core/load/rebuild.py",
                 "    loaded.barriers = np.flatnonzero(barrier).tolist()",
                 "    loaded.barriers = []"),
    _of_barriers("a start lets a barrier go whose time is over", "core/load/rebuild.py",
                 "until * NS <= core.now_ns) & ~barrier", "until * NS <= core.now_ns)"),
    _of_barriers("a reader's deferral is a barrier again", "core/load/rebuild.py",
                 '(parts["attempts"] == 0) & (parts["retries"] == 0)', "True"),
    _of_barriers("the last member that is done is not seen", "core/engine/barriers.py",
                 "            live.discard(qpool)\n            if not live:",
                 "            live.discard(qpool)\n            if False:"),
    _of_barriers("one member is enough", "core/engine/barriers.py",
                 "            live.discard(qpool)\n            if not live:",
                 "            live.discard(qpool)\n            if True:"),
    _of_barriers("a barrier whose time is over is ready", "core/engine/deadlines.py",
                 "                if entry in core.barriers.waiting:", "                if False:"),
    _of_barriers("a member that expires is done", "core/engine/expiry.py",
                 "        failing(core, slot, f\"it expired on {core.rules[queue].name}\")",
                 "        core.barriers.done(core, slot)"),
    _of_barriers("a member that is deleted is done", "core/engine/operate.py",
                 "        failing(core, slot, f\"it was deleted from {core.rules[queue].name}\")",
                 "        core.barriers.done(core, slot)"),
    _of_barriers("a member that fails too often is waited for", "core/engine/settle.py",
                 "        core.barriers.poisoned(core, slot, queue)", "        pass"),
    _of_barriers("a member that is done is waited for", "core/engine/settle.py",
                 "        core.barriers.done(core, slot)", "        pass"),
    _of_barriers("who is freed by an operator waits on", "core/engine/state.py",
                 "        if before == _DEFERRED and self.barriers.waiting:", "        if False:"),
    _of_barriers("what has failed may be waited for", "core/engine/barriers.py",
                 "        if queue := failed_on(core, slot):\n            raise",
                 "        if queue := 0:\n            raise"),
    _of_barriers("a start does not look who has failed", "core/engine/barriers.py",
                 "            if queue := failed_on(core, slot):\n                self._fail",
                 "            if queue := 0:\n                self._fail"),
)  # fmt: skip


def mutate(library: Path, mutant: Mutant) -> None:
    """Change the copy of omq in `library`."""
    path = library / "omq" / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.name}: stands {text.count(mutant.old)} times"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def plant(library: Path, mutant: Mutant | None) -> None:
    """omq in the new folder `library`: links, but for the file that is changed."""
    library.mkdir()
    if mutant is None:
        (library / "omq").symlink_to(ROOT / "lib" / "omq")
        return
    here = library / "omq"
    original = ROOT / "lib" / "omq"
    for part in Path(mutant.file).parts:
        here.mkdir()
        for each in original.iterdir():
            if each.name not in (part, "__pycache__"):
                (here / each.name).symlink_to(each)
        here, original = here / part, original / part
    shutil.copy(original, here)
    mutate(library, mutant)


def surroundings(library: Path) -> dict[str, str]:
    """The environment of a process that imports omq from there."""
    return os.environ | {"PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1",
                         "OMQ_FAST": "off"}  # the engine's own lines must run


def search(mutant: Mutant | None, steps: Path | None = None) -> tuple[int, str]:
    """pytest's exit code and last words; None: omq as it is. `steps` gets the life that failed."""
    with tempfile.TemporaryDirectory(prefix="omq-mutant-") as folder:
        library = Path(folder) / "lib"
        plant(library, mutant)
        examples, seed = (mutant.examples, mutant.seed) if mutant else (EXAMPLES, 1)
        environment = surroundings(library) | {"OMQ_MODEL": f"seeded:{examples}"}
        module = mutant.machine if mutant else "test_model"
        if steps is not None:
            environment[WHERE] = str(steps)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "--tb=short", "-p", "no:cacheprovider",
             f"--hypothesis-seed={seed}", f"tests/model/{module}.py"],
            cwd=ROOT, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    lines = [line.strip(" |") for line in done.stdout.splitlines()]
    words = [line for line in lines if line.startswith("assert ") or "Error: " in line]
    return done.returncode, (words or lines)[-1][:100] if done.returncode else ""


def chosen(names: list[str]) -> list[Mutant]:
    """Those of these names; none named: all."""
    return [mutant for mutant in MUTANTS if not names or mutant.name in names]


def main(names: list[str]) -> int:
    """Run the mutants named, or all."""
    missed = 0
    for mutant in chosen(names):
        code, words = search(mutant)
        assert code in (0, 1), f"{mutant.name}: pytest ended with {code}: {words}"
        print(f"{'caught' if code else 'MISSED'}  {mutant.name}: {words}", flush=True)
        missed += not code
    print(f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
