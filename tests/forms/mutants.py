"""Does the comparison of the forms notice a broken fast path? Each mutant is one line of omq.fast
changed by hand, run interpreted beside the engine's own way.

    python -m tests.forms.mutants             all of them (a minute or two)
    python -m tests.forms.mutants NAME ...    these

Exit code 0: each was caught.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from omq.base import form
from tests.forms.running import ROOT, Run, begin, end, parting
from tests.model.mutants import Mutant, mutate

SEEDS: Final = ("1", "2", "2 quiet", "4 quiet", "1 quiet", "6 quiet", "3", "4", "6", "7", "5 fuzz",
                "10 fuzz", "11 fuzz", "8", "9", "3 quiet")


_GOES_ON: Final = (
    "        self._gives.wait(r, session, party, self._batch_max, session.queue, ")
_BEGUN: Final = f"        self._begun.append((session, r.sequence, qpool))\n{_GOES_ON}"


def _mutant(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, f"fast/{file}.py", old, new)


MUTANTS: Final = (
    _mutant("what a look carried out is judged again", "path",
            "        if session.noted:  # a look has carried out some of it\n"
            "            return False\n", ""),
    _mutant("no look behind a settlement", "path", "            self._looks.after(session)\n", ""),
    _mutant("a used number is taken again", "path", "or r.sequence <= session.sequence", ""),
    _mutant("who waits for a certain message is passed over", "births",
            "            watched[queue].append(entry)\n", "            pass\n"),
    _mutant("who waits for a message with an id takes what comes", "path",
            "            by = r.flags\n", "            by = 0\n"),
    _mutant("any key is plain", "path",
            "            if (by != _CORRELATION and by != _MESSAGE_ID) or not r.correlation",
            "            if not r.correlation"),
    _mutant("no key is plain", "path", " or not r.correlation \\\n", " \\\n"),
    _mutant("messages with an id are had of IDEL", "path", "or session.queue == _IDEL:",
            "or False:"),
    _mutant("the second of one key is passed over", "find", "found != _NONE or ", ""),
    _mutant("a member is found before its turn", "find", " or c.m_flags[slot] & _IN_GROUP", ""),
    _mutant("what is late is found", "find",
            "c.m_expiry[slot] and self._core.times.is_over(slot)", "False"),
    _mutant("what is found on another queue", "find", "and c.e_queue[entry - 1] != queue:",
            "and c.e_queue[entry - 1] == 0:"),
    _mutant("what somebody has is found", "find", "c.e_state[entry - 1] == _READY", "True"),
    _mutant("what was found stays in its chain", "find", "            c.unlink(entry, chain)\n",
            "            pass\n"),
    _mutant("a chosen message is one that came next", "find",
            "self._frames.payload_bytes, _OUT_OF_TURN, now)",
            "self._frames.payload_bytes, 0, now)"),
    _mutant("no lease runs of what was found", "find", " or core.rules[queue].lease_ns\n",
            "\n"),
    _mutant("a suspect is found beside others", "find", "core.suspects or core.suspect_given or ",
            ""),
    _mutant("who has found waits on", "find", "        self._wanted.drop(waiter)\n", ""),
    _mutant("what was found is not counted", "find", "        c.counters[_GIVES] += 1\n", ""),
    _mutant("found without room for its frame", "find", " or not self._frames.fits(1, 0):", ":"),
    _mutant("several replies are one", "move", "r.parts or r.count != 1", "r.parts"),
    _mutant("what a reply settles is not looked at", "move",
            "not self._dones.one(area[:_SETTLE], party)",
            "self._dones.one(area[:_SETTLE], party) > 1"),
    _mutant("a reply is not looked at", "move",
            "or not self._puts.several(area[_SETTLE:_PAYLOAD], 1, payload, session, party)",
            "or self._puts.several(area[_SETTLE:_PAYLOAD], 1, payload, session, party) > 1"),
    _mutant("a reader's unit", "unit", "end > len(area) or session.queue or", "end > len(area) or"),
    _mutant("who waits commits", "unit", " or session.waiter is not None", ""),
    _mutant("an empty unit", "unit", " or not taken + count", ""),
    _mutant("a unit of which a part is missing", "unit", "r.argument != taken or ", ""),
    _mutant("a unit of which puts are missing", "unit", " or wanted != count", ""),
    _mutant("a unit leaves what it holds", "unit", " or party.active != taken", ""),
    _mutant("a unit beside one that is staged", "unit",
            "not self._plane.is_small(taken + count, (taken + count) * _FRAME + r.length)",
            "False"),
    _mutant("a unit is not counted", "unit", "        self._c.counters[_COMMITTED] += 1\n", ""),
    _mutant("a unit's frames are by themselves", "unit",
            "self._frames.unit = self._frames.first_lsn + self._frames.count", "pass"),
    _mutant("a unit without puts does not end", "unit", "ends: cython.bint = count == 0",
            "ends: cython.bint = False"),
    _mutant("no room for a unit", "unit",
            "\n                or not self._frames.fits(taken + count, r.length)):", "):"),
    _mutant("the right to take is not asked for", "unit",
            "\n                or session.rights.get((\"get\", queue)) is not True", ""),
    _mutant("a taker takes what it may not hold", "unit", "        left -= party.active\n", ""),
    _mutant("a reader takes for a unit", "unit", "        if (session.queue or session.auxiliary",
            "        if (session.auxiliary"),
    _mutant("a taker's id is passed over", "unit", " or r.flags or r.correlation\n", "\n"),
    _mutant("payloads of a unit in another order", "put", "self._h32[32 * i + 12] != at or ", ""),
    _mutant("no room for a reply", "move",
            "\n                or not self._frames.fits(2, r.length)):", "):"),
    _mutant("a reply is by itself", "move",
            "self._frames.unit = self._frames.first_lsn + self._frames.count", "pass"),
    _mutant("all that follows is of one unit", "move", "        self._frames.unit = 0\n", ""),
    _mutant("a settlement of a reply ends its request", "done",
            "_END if ends else 0)\n        self._carry", "_END)\n        self._carry"),
    _mutant("a unit in doubt of which a part is missing", "doubt", "r.argument != taken or ", ""),
    _mutant("a prepared unit leaves what it holds", "doubt",
            "                or party.active != taken\n", ""),
    _mutant("what is not persistent is prepared", "doubt",
            "\n                            and self._dones.last(taken)", ""),
    _mutant("what is put is prepared, whatever it is", "doubt", " and self._puts.last()", ""),
    _mutant("a new member of a group is prepared", "put", "& 1 and not self._grouped)", "& 1)"),
    _mutant("two units of one name", "doubt",
            "            self._in_doubt.check(facts, party)\n", ""),
    _mutant("no room for what is prepared", "doubt",
            "if not self._frames.fits(1 + taken + count, r.length + len(own)):", "if False:"),
    _mutant("another unit is prepared", "doubt",
            "self._frames.first_lsn + self._frames.count - 1", "self._frames.first_lsn"),
    _mutant("all that follows is prepared", "doubt",
            "self._frames.unit = self._frames.reason = 0", "self._frames.unit = 0"),
    _mutant("a unit that puts nothing does not end its request", "doubt",
            "        ends: cython.bint = count == 0\n", "        ends: cython.bint = False\n"),
    _mutant("a unit in doubt does not know what it put", "doubt",
            "                unit.entries.append(self._c.m_first[slot] - 1)\n",
            "                pass\n"),
    _mutant("a unit in doubt does not know what it took", "done",
            "            out.append(entry)\n", ""),
    _mutant("what is prepared is active", "done",
            "            c.q_active[c.e_queue[entry]] -= 1\n", ""),
    _mutant("what is prepared has a reader", "done",
            "            c.e_reader[entry] = 0\n            c.e_state", "            c.e_state"),
    _mutant("who prepares holds it still", "done",
            "            out.append(entry)\n        party.active -= count\n",
            "            out.append(entry)\n"),
    _mutant("prepared ones are counted as in hand", "done",
            "            out.append(entry)\n        party.active -= count\n"
            "        core.active -= count\n",
            "            out.append(entry)\n        party.active -= count\n"),
    _mutant("the end of a prepared one is the end of a hand-out", "done",
            "active: cython.bint = self._c.e_state[self._picked[0]] == _ACTIVE",
            "active: cython.bint = True"),
    _mutant("a prepared container is finished", "done",
            " or c.m_parts[slot] != 1\n                    or c.m_flags[slot] & _SPECIAL):\n"
            "                return False\n            self", "):\n"
            "                return False\n            self"),
    _mutant("every end is a commit", "doubt", "if not r.want:", "if False:"),
    _mutant("no room for a commit", "doubt",
            "\n                or not self._frames.fits(2 + count, 0)):", "):"),
    _mutant("a commit of two phases is by itself", "doubt",
            "        self._frames.unit = lsn\n", ""),
    _mutant("all that follows is of a unit in doubt", "doubt",
            "        self._frames.unit = 0\n", ""),
    _mutant("what a unit in doubt put is not counted", "doubt",
            "        self._c.counters[_PUTS] += count - taken\n", ""),
    _mutant("what comes out of doubt is ready twice", "doubt",
            "        c.q_ready[queue] += 1\n", "        c.q_ready[queue] += 2\n"),
    _mutant("what comes out of doubt is in it still", "doubt",
            "        c.e_until[entry] = 0\n", ""),
    _mutant("what is late comes out of doubt", "doubt",
            "        if core.times.over:\n            core.times.seen(slot)\n", ""),
    _mutant("what comes out of doubt is lost", "doubt",
            "        core.into_lane(entry, queue)\n", ""),
    _mutant("nobody is given what comes out of doubt", "doubt",
            "        core.is_ready(queue, entry)\n", ""),
    _mutant("what is put in doubt can be had", "births",
            "        if frames.reason:\n            c.e_state[entry] = _PREPARED\n        else:\n",
            "        if True:\n"),
    _mutant("frames of a unit in doubt do not say so", "put",
            "_PREPARED if self._frames.reason else 0", "0"),
    _mutant("what is put in doubt is counted", "put",
            "        if not prepared:\n            c.counters[_PUTS] += count\n",
            "        c.counters[_PUTS] += count\n"),
    _mutant("queues are looked at for what is in doubt", "put",
            "            if not prepared:\n                core",
            "            if True:\n                core"),
    Mutant("what is late and seen again makes no full turn", "core/engine/times.py",
           "            self.next_ns = 0  # a tick of this group, be it ever so plain\n", ""),
    _mutant("a unit's last message does not end it", "put",
            " | (_END if i == count - 1 else 0)", ""),
    _mutant("what waits for one thing stirs nothing", "give",
            "if queue in core.runnable and not self._plain_queue(queue):", "if False:"),
    _mutant("a chain that lost one in the middle is cut", "columns",
            "            self.e_next[before - 1] = after\n", "            pass\n"),
    _mutant("certain messages go to who takes what comes", "give",
            "            given += engine.wanted.serve()\n", "            engine.wanted.serve()\n"),
    _mutant("any token will do", "path", "r.token != session.token or ", ""),
    _mutant("members are believed", "path", " or not party.owns\n", "\n"),
    _mutant("a long payload is read past its end", "path",
            "\n                or r.length > len(session.request)):", "):"),
    _mutant("an asked time is not noted", "path",
            "self._c.r_request[party.slot] = self._core.now_ns", "pass"),
    _mutant("the count of a put is the client's", "path", "                count = 1\n", ""),
    _mutant("a settlement is not answered", "path",
            "self._done.append((session, r.sequence, count, qpool))",
            "if r.operation != _SETTLE: self._done.append((session, r.sequence, count, qpool))"),
    _mutant("version is not looked at", "request", " and version == _VERSION", ""),
    _mutant("a given id is lost", "put", "self.put_single(r, party, r.want)",
            "self.put_single(r, party, 0)"),
    _mutant("several queues become one", "put", "_SAID > 1 or r.parts or r.priority",
            "_SAID > 1 or r.priority"),
    _mutant("a container is plain", "put", "(r.flags & ~_SAID > 1 or",
            "(r.flags & ~_SAID > 3 or"),
    _mutant("any priority", "put", " or r.priority >= _PRIORITIES", ""),
    _mutant("no right is needed", "births",
            '\n                or session.rights.get(("put", queue)) is not True', ""),
    _mutant("a full queue takes one more", "births", "c.q_depth[queue] + count > ",
            "c.q_depth[queue] + count - 1 > "),
    _mutant("a message too long", "births", "size > c.q_max_length[queue] or ", ""),
    _mutant("an inhibited queue takes messages", "births",
            " | QueueFlag.PUT_INHIBITED", ""),
    _mutant("a queue's limit of time is passed by", "births", " | QueueFlag.LIMITS_TIME", ""),
    _mutant("a message never ends", "births", "        if expiry:\n",
            "        if expiry > 1 << 62:\n"),
    _mutant("what is late is handed out", "give",
            " and not core.times.behind\n", "\n"),
    _mutant("the reserve of the disk is used up", "births", " or not core.space_left", ""),
    _mutant("the total limit is forgotten", "births",
            "\n                    and used + rows <= core.messages_total_max)", ")"),
    _mutant("the reserve of the index is used up", "births",
            "rows = count + rows // 2  # who", "rows = count  # who"),
    _mutant("a part of a batch is not plain", "put",
            "or self._h16[64 * i + 31]\n", "\n"),
    _mutant("payloads of a batch reach too far", "put", "return total if total <= length else -1",
            "return total"),
    _mutant("a batch has no result frame", "put", "            if i == 0:\n",
            "            if i < 0:\n"),
    _mutant("a batch has no end", "put", "if i == count - 1:", "if i == count:"),
    _mutant("slots of a batch in another order", "put",
            "top - reused + i if bulk else top - 1 - i]\n            if i >= entry",
            "top - reused + i]\n            if i >= entry"),
    _mutant("wrong priority chain", "births", "queue * _PRIORITIES + priority",
            "queue * _PRIORITIES + 4"),
    _mutant("correlation is not indexed", "births", "        if correlation:\n",
            "        if correlation and lsn < 9:\n"),
    _mutant("the place of a payload is lost", "births", "frames.payload_bytes += length", "pass"),
    _mutant("the queue is not run", "put",
            "        core.runnable.add(r.queue)\n", ""),
    _mutant("a settled lease is not compared", "done",
            " or c.e_lease[entry] != self._s64[5 * i + 2]", ""),
    _mutant("any reader may settle", "done", "c.e_reader[entry] != row or ", ""),
    _mutant("the id of a settlement is not compared", "done",
            "c.m_qpool[slot] != self._s64[5 * i + 1] or ", ""),
    _mutant("any settlement is done", "done", "self._s8[40 * i] != _WORD or ", ""),
    _mutant("settled twice in one request", "done", "self._seen[entry] = entry, 1",
            "self._seen[entry] = entry, 0"),
    _mutant("marks stay", "done", "self._seen[self._picked[i]] = 0", "pass"),
    _mutant("a reason is lost", "done", " or self._s16[20 * i + 1]", ""),
    _mutant("room for evidence is not kept", "done", "0 if bulk else count * _EVIDENCE", "0"),
    _mutant("depth is not decremented", "done", "c.q_depth[queue] -= 1", "pass"),
    _mutant("a reader's count stays", "done", "            party.active -= count\n", ""),
    _mutant("the chain of ids is cut", "columns", "following[at - 1] = following[slot]",
            "following[at - 1] = 0"),
    _mutant("a pool slot is not freed", "done",
            "give_record(self._records, c.m_record[slot])", "pass"),
    _mutant("a record goes back to the file before", "done", "if c.m_file[slot] != self._file:",
            "if self._file < 0:"),
    _mutant("rows are free in another order", "records", "free[top + i] = given[i]",
            "free[top + count - 1 - i] = given[i]"),
    _mutant("payloads stay where they were", "journal", "c.m_offset[slot] += base", "pass"),
    _mutant("what is not persistent is never synced", "journal",
            " or unsynced >= block.unsynced_max", ""),
    _mutant("a persistent block is not synced", "journal", "force or block.persistent or",
            "force or"),
    _mutant("nothing is synced", "journal", "            self._sync(file)\n", ""),
    _mutant("synced before it is written", "journal",
            "        self._put_down(file, buffers, offset, length)\n",
            "        self._sync(file)\n        self._put_down(file, buffers, offset, length)\n"),
    _mutant("a block says that it is synced", "journal", "0 if flushed else _UNSYNCED", "0"),
    _mutant("the durable LSN stays", "journal", "writer.durable_lsn = last + count", "pass"),
    _mutant("the number of a block stays", "journal", "writer.sequence += 1", "pass"),
    _mutant("a block over the one before", "journal", "writer.offset = offset + length", "pass"),
    _mutant("a block has no checksum", "journal",
            "self._b32[1] = crc32c(view[8 : 128 + 128 * count])", "pass"),
    _mutant("the file seems to have room", "journal",
            "min(block.bytes_max, self._room(offset + length)) - 128",
            "min(block.bytes_max, self._room(offset)) - 128"),
    _mutant("unsynced frames are counted for ever", "journal", "            unsynced = 0\n", ""),
    _mutant("payloads move twice", "journal", "        block.puts.clear()\n", ""),
    _mutant("time brings nothing", "turn", "mono_ns >= self._due or ", ""),
    _mutant("the time-out of a wait is forgotten", "turn",
            "min(self._due, self.path.soonest(), self", "min(self._due, self"),
    _mutant("the next look is forgotten", "turn",
            "            self._due = min(self._due, line[0][0])\n", "            pass\n"),
    _mutant("who comes and goes stirs nothing", "turn",
            "        if drain():\n            self._stirred = True\n", "        drain()\n"),
    _mutant("what is not plain stirs nothing", "turn",
            "                self._stirred = True\n                server.handle_unplain(raw)",
            "                server.handle_unplain(raw)"),
    _mutant("the engine's hand-outs stir nothing", "turn",
            "        elif not self.path.dispatch(self._given):\n"
            "            self._stirred = True\n",
            "        else:\n            self.path.dispatch(self._given)\n"),
    _mutant("messages with a time wait for others", "turn",
            "\n                or mono_ns >= core.times.next_ns", "\n               "),
    _mutant("a message's time wakes nobody", "turn", ", self._core.times.next_ns + _LAG)", ")"),
    _mutant("what a start has found waits for others", "turn", ", times.loaded.next())",
            ", 1 << 62)"),
    _mutant("a deadline stays for ever", "turn",
            "            self._due = min(self._engine.next_deadline(), self._looks.due)\n", ""),
    _mutant("a group is under way for ever", "turn", "c.counters[_VERSION] += 1", "pass"),
    _mutant("the peak is not kept", "turn", "            c.counters[_PEAK] = high - top\n",
            "            pass\n"),
    _mutant("who was answered waits still", "turn", "            session.waiter = None\n", ""),
    _mutant("no look behind a hand-out", "turn", "                self._looks.after(session)\n",
            "                pass\n"),
    _mutant("hand-outs are answered twice", "turn", "        self._given.clear()\n", ""),
    _mutant("a refusal is not told", "turn", "        server.answer_refused(answered)\n", ""),
    _mutant("rows of those who left are lost", "turn",
            "        if sessions.gone:\n            sessions.close_gone()\n", ""),
    _mutant("the last frame does not end the request", "done", "count, r.sequence, _END)",
            "count, r.sequence, 0)"),
    _mutant("the lowest priority first", "give",
            "        self._chain = queue * _PRIORITIES + _PRIORITIES - 1\n        reader",
            "        self._chain = queue * _PRIORITIES\n        reader"),
    _mutant("one reader takes all", "give", "share = min(share, want)", "share = min(ready, want)"),
    _mutant("auxiliary readers go first", "give", "first = main or auxiliary",
            "first = auxiliary or main"),
    _mutant("a suspended queue gives", "give", " or c.q_flags[queue] & _SUSPENDED", ""),
    _mutant("who waits for a turn in a group is counted", "give",
            "        ready -= self._rings.behind(queue)\n", ""),
    _mutant("a failed message goes with others", "give",
            "                if c.e_attempts[top]:\n                    break\n", ""),
    _mutant("a lane is given like a batch", "give", "want >= _MANY and not laned", "want >= _MANY"),
    _mutant("the lane goes first", "give", "if top < 0 or head < 0 or c.e", "if top < 9**9 or c.e"),
    _mutant("what is taken off a lane stays", "give", "                self._rings.pop(queue)\n",
            "                pass\n"),
    _mutant("an item that is not true is believed", "rings",
            "c.e_state[entry] == _READY and c.e_sequence[entry] == sequence\n",
            "c.e_sequence[entry] == sequence\n"),
    _mutant("a number in a group is lost", "rings", ' != b"\\0\\0\\0\\0"\n', ' == b""\n'),
    _mutant("whole groups are not looked at", "rings", "or self._groups.numbered", "or False"),
    _mutant("a settled member of a whole group", "done",
            "\n                    and not (self._grouped and self._groups.numbered))", ")"),
    _mutant("a member stays what was in its row", "rings", " = key, 0\n", " = key, 9\n"),
    _mutant("all members have the turn", "rings",
            "        self._count(queue, 1)\n        return False", "        return True"),
    _mutant("a ring is not closed", "rings",
            "self._after[last] = self._before[first] = entry", "self._after[last] = entry"),
    _mutant("a group of one stays", "rings", "            del self._fronts[group]\n",
            "            pass\n"),
    _mutant("the turn is taken from the front", "rings", "            if front == entry:\n",
            "            if True:\n"),
    _mutant("a turn is taken in any state", "rings",
            "if self._c.e_state[following] == _READY:", "if True:"),
    _mutant("who takes the turn is counted as waiting", "rings", "self._count(queue, -1)", "pass"),
    _mutant("who takes the turn goes last", "rings",
            "not tail or c.e_sequence[tail - 1] < c.e_sequence[entry]", "True"),
    _mutant("a failed one takes the turn in a chain", "rings", "not c.e_attempts[entry] and (",
            "True and ("),
    _mutant("who takes the turn is not given out", "rings",
            "        self._core.is_ready(queue, entry)\n", ""),
    _mutant("the group of a message before", "put", "            self._keys[i] = 0\n", ""),
    _mutant("a batch of groups takes slots in bulk", "put", " and not self._grouped\n", "\n"),
    _mutant("groups are settled in bulk", "done", "            bulk = False\n",
            "            pass\n"),
    _mutant("the end of a message of a group gives nobody the turn", "done",
            "            self._rings.leave(slot, entry, queue)\n", "            pass\n"),
    _mutant("who came back stands behind", "give", "laned = bool(self._core.lanes.get(queue))",
            "laned = False"),
    _mutant("no lease runs", "give", " and not core.rules[queue].lease_ns and", " and"),
    _mutant("an attempt is not counted", "attempts", "c.e_attempts[entry] + 1, _MOST",
            "c.e_attempts[entry], _MOST"),
    _mutant("queues in any order", "give", "sorted(runnable) if len(runnable) > 1 else runnable",
            "sorted(runnable, reverse=True)"),
    _mutant("a wait without end", "give", "if timeout >= 0:\n            deadline",
            "if False:\n            deadline"),
    _mutant("a reader gets more than it has room for", "give", "want = min(want, batch_max)",
            "want = max(want, batch_max)"),
    _mutant("a chain is left half", "columns", "self.e_prev[after - 1] = before", "pass"),
    _mutant("frames beyond the block", "frames",
            "count <= block.frames_max\n                    and",
            "True\n                    and"),
    _mutant("bytes beyond the block", "frames",
            "count * 128 + collected + payload_bytes <= block.left", "True"),
    _mutant("a block is not synced", "frames", "block.persistent = True", "pass"),
    _mutant("a note outlives its message", "done", "CONTAINER | NOTED, IDEL", "CONTAINER, IDEL"),
    _mutant("that there is a note is not said", "reply", "flags |= _NOTED", "pass"),
    _mutant("who asks is not told that it was put", "path",
            f"{_BEGUN}_CORRELATION,", f"{_GOES_ON}_CORRELATION,"),
    _mutant("a reply that goes on is not told", "path",
            f"{_BEGUN}0, 0, qpool)", f"{_GOES_ON}0, 0, qpool)"),
    _mutant("who asks keeps what it had", "ask",
            "            self._dones.finish(count, r.sequence, ends, party)\n",
            "            pass\n"),
    _mutant("settlements end what is asked", "ask", "        ends: cython.bint = False\n",
            "        ends: cython.bint = True\n"),
    _mutant("another reply is waited for", "ask", "derived_id(self._core.uuid, qpool)",
            "derived_id(self._core.uuid, qpool + 1)"),
    _mutant("who asks has an id of its own", "ask", " or r.flags & ~_FLAGS", ""),
    _mutant("a remembered id is put alone", "put", " or (r.want and self._remembers(r.queue))", ""),
    _mutant("remembered ids are put in a batch", "put",
            "\n                or (self._given and self._remembers(queue))", ""),
    _mutant("remembered ids take the place of a message", "put",
            "\n                    or (self._h64[16 * i + 9] and self._remembers(",
            "\n                    or (False and self._remembers("),
    _mutant("a unique key is any id", "put", "_SAID = int(PutFlag.GROUPED | PutFlag.GIVEN_ID)",
            "_SAID = int(PutFlag.GROUPED | PutFlag.GIVEN_ID | PutFlag.UNIQUE)"),
    _mutant("an id is not found", "births", "bucket: cython.Py_ssize_t = own & c.mask",
            "bucket: cython.Py_ssize_t = qpool & c.mask"),
    _mutant("an id is not said to be given", "births", "            c.m_flags[slot] |= _HAS_ID\n",
            ""),
    _mutant("nobody looks for what has an id", "births", "            self._core.t.given += 1\n",
            "            pass\n"),
    _mutant("an id is not in the frame", "births", "record, 0, given, sequence,\n",
            "record, 0, 0, sequence,\n"),
    _mutant("a volatile id is not in the frame", "births", " given, sequence, correlation,",
            " 0, sequence, correlation,"),
    _mutant("who reads IDEL asks", "ask", "session.queue == _IDEL or ", ""),
    _mutant("the number of what was put is not said with a reply", "reply",
            "self._head(session.lost, sequence, count, qpool, lsn)\n        session.reply[:end]",
            "self._head(session.lost, sequence, count, 0, lsn)\n        session.reply[:end]"),
    _mutant("redelivered is not said", "reply", "flags |= _REDELIVERED", "pass"),
    _mutant("the last answer is not kept", "reply",
            "session.last = (sequence, count, qpool, lsn)\n"
            "        self._c.r_response[session.party.slot] = now\n\n    def given",
            "self._c.r_response[session.party.slot] = now\n\n    def given"),
    _mutant("the last hand-out is not kept", "reply",
            "session.last = (sequence, count, qpool, lsn)\n"
            "        self._c.r_response[session.party.slot] = now\n\n    def announce",
            "self._c.r_response[session.party.slot] = now\n\n    def announce"),
    _mutant("the high-water mark stays", "records", "del used[high:]", "pass"),
)  # fmt: skip


def run(mutant: Mutant | None, folder: Path, seed: str) -> Run:
    """A workload with the mutant, interpreted; None: the engine's own way."""
    number, *extra = seed.split()
    arguments = (number, "2000" if extra == ["quiet"] else "500", *extra)
    if mutant is None:
        return end(begin(folder, form.OFF, *arguments))
    library = folder / "lib"
    shutil.copytree(ROOT / "lib" / "omq", library / "omq",
                    ignore=shutil.ignore_patterns("__pycache__", "compiled"))
    mutate(library, mutant)
    return end(begin(folder / "work", form.INTERPRETED, *arguments, library=library))


def _as_it_is(root: Path, usual: list[int]) -> int:
    """How many requests the fast path takes without a mutant, with the first seed: what leaves them
    to the engine does the same, slower. `usual`: where that is noted."""
    if not usual:
        usual.append(end(begin(root / "usual", form.INTERPRETED, SEEDS[0], "500")).fast)
    return usual[0]


def main(names: list[str]) -> int:
    """Run the mutants named, or all."""
    missed = []
    with tempfile.TemporaryDirectory(prefix="omq-forms-") as folder:
        root = Path(folder)
        off: dict[str, Run] = {}
        usual: list[int] = []
        for number, mutant in enumerate(MUTANTS):
            if names and mutant.name not in names:
                continue
            words, plain = "", 0
            for seed in SEEDS:
                if seed not in off:
                    off[seed] = run(None, root / f"off {seed}", seed)
                found = run(mutant, root / f"{number} {seed}", seed)
                words = parting(off[seed], found)
                plain = plain or found.fast if not words else 0
                shutil.rmtree(root / f"{number} {seed}")
                if words:
                    words = f"seed {seed}, {words}"
                    break
            if not words and plain < _as_it_is(root, usual):
                words = f"{plain} requests are plain, not {usual[0]}"
            print(f"{'caught' if words else 'MISSED'}  {mutant.name}: {words[:100]}", flush=True)
            if not words:
                missed.append(mutant.name)
    print(f"{len(missed)} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
