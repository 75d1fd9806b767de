"""Do the tests of the analytics notice a broken one? Each mutant is one place of omq-spark changed
by hand; the tests that are named with it must fail then.

    python -m tests.spark.mutants             all of them (half an hour)
    python -m tests.spark.mutants NAME ...    these

A copy of the package with that one file changed stands before the installed one, also for processes
that a test starts. Exit code 0: each was caught. tests/tidy looks whether each can still be made,
and test_mutants.py tries some.
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
SOURCE: Final = ROOT / "spark" / "omqspark"
FAILED: Final = 1
"""pytest's exit code; another one means that no test was run."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """In `file` `old`, which stands there once, becomes `new`; `tests` (a file and a word of their
    names) fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, str]


BELIEVED: Final = "test_believed.py"
BUCKETS: Final = "test_buckets.py"
DISTURBED: Final = "test_disturbed.py"
ABSENT: Final = "test_absent.py"
FOLLOW: Final = "test_follow.py"
HISTORIES: Final = "test_histories.py"
PRESENCE: Final = "test_presence.py"
REPORT: Final = "test_report.py"
STRAYS: Final = "test_strays.py"
TABLES: Final = "test_tables.py"
STEPS: Final = "test_audit_steps.py"
SPLITS: Final = "test_splits.py"
STORE: Final = "test_worker_files.py"
FAULTS: Final = "test_store_faults.py"
ENGINES: Final = "test_engines.py"
_LOCALE: Final = ('        return f"({value})" if value < 0 else str(value)',
                  '        import locale\n        locale.setlocale(locale.LC_ALL, "")\n'
                  '        return f"({value:n})"')

MUTANTS: Final = (
    # the locale of the process
    Mutant("numbers in SQL as the locale writes them", "duck_text.py", *_LOCALE,
           (DISTURBED, "locale and duckdb and de_DE")),
    # SIGKILL
    Mutant("a batch counts before its answers are there", "pipeline.py",
           '    say(f"batch {number}: messages and stays are written")\n',
           "    known.batches.append(Batch(number, files))\n    lake.publish(known)\n"
           '    say(f"batch {number}: messages and stays are written")\n    known.batches.pop()\n',
           (DISTURBED, "killed and messages")),
    # the clock
    Mutant("who ended last is said by the clock", "lifecycle.py",
           'F.max_by("last_ns", "last_lsn").alias("before_ns")',
           'F.max("last_ns").alias("before_ns")', (DISTURBED, "clock")),
    Mutant("messages end in the order of the clock", "lifecycle.py",
           '.orderBy("left_lsn", "qpool", "queue")', '.orderBy("left_ns", "qpool", "queue")',
           (DISTURBED, "clock")),
    # batches
    Mutant("what was open is not counted", "pipeline.py",
           "    frames = _frames(lake, known, job, [])\n    for place",
           "    frames = 0\n    for place",
           (ENGINES, "cut_into_batches")),
    Mutant("a batch has one file too many", "pipeline.py",
           "            return files[:place] or files\n", "            return files[:place + 1]\n",
           (ENGINES, "cut_into_batches")),
    Mutant("too little memory is not refused", "session.py",
           "        if self.few_frames is not None or _under_submit() or self.is_few(frames) \\\n",
           "        if True or self.few_frames is not None or self.is_few(frames) \\\n",
           (ENGINES, "too_little")),
    Mutant("the work of earlier batches is forgotten", "pipeline.py",
           "    worked = None if before < 0 else", "    worked = None if before < 9999 else",
           (SPLITS, "any_split_in_any_order and duckdb")),
    Mutant("what readers had ended before is forgotten", "pipeline.py",
           "    if first is None:\n        return None", "    if first is None or first:\n"
           "        return None", (SPLITS, "any_split_in_any_order and duckdb")),
    Mutant("a late file does not go back", "manifest.py",
           "            if any(each >= number for each in batch.files):\n                break\n",
           "", (SPLITS, "any_split_of_anything")),
    # what the report says, and shows
    Mutant("a busy queue's oldest is not reported", "summary.py",
           "        if row.age_s > AGE_S:\n", "        if row.age_s > AGE_S and row.waiting > 1:\n",
           (BELIEVED, "stuck")),
    Mutant("what came after the audit is accounted for", "summary.py",
           "    if verdict is None or (verdict", "    if True or verdict is None or (verdict",
           (BELIEVED, "behind_the_audit")),
    Mutant("names that look alike share a label", "topmost.py",
           "        if len(self._alike[cut]) < 2 or queue == OTHER:", "        if True:",
           (REPORT, "look_alike")),
    Mutant("a reader of one message is the busiest", "reader_bars.py",
           '["enough", "share", "messages"]', '["busy_share", "share", "messages"]',
           (REPORT, "one_message")),
    Mutant("an hour of which half is archived looks quiet", "report.py",
           'first.ceil("h"), last.floor("h")', 'first.floor("h"), last.ceil("h")',
           (REPORT, "in_part")),
    Mutant("other queues are left out of the waits", "topmost.py",
           "        return pd.concat([mine, other.assign(queue=OTHER)], ignore_index=True)",
           "        return mine", (REPORT, "all_other")),
    Mutant("the last minute is drawn", "interactive.py",
           "queues.parts(charts.whole_minutes(minutes))", "queues.parts(minutes)",
           (REPORT, "last_minute")),
    Mutant("names beside bars are cut", "interactive.py",
           '"autorange": "reversed", "automargin": True', '"autorange": "reversed", "automargin": '
           'False', ("test_report_browser.py", "everything and alike and 420 and light")),
    # what is stored
    Mutant("small batches stay apart", "compact.py",
           "    return [group] if len(group) > 1 else []\n", "    return []\n",
           ("test_derived.py", "small_behind")),
    Mutant("a large message ends when its file goes", "lifecycle.py",
           'F.bool_or(ends & (F.col("queue") == IDEL_QUEUE))',
           'F.bool_or(ends & (F.col("queue") == -IDEL_QUEUE))', ("test_truth.py", "every_message")),
    # files that are missing, strange or replaced
    Mutant("a hole in a spool ends what is read", "live.py",
           "            ends = head.follows_lsn if head else 0  #",
           "            if before != number:\n                return position\n"
           "            ends = head.follows_lsn if head else 0  #", (ABSENT, "hole_in_a_spool")),
    Mutant("who waits for a hole says nothing", "stream_waits.py",
           "        if self.said != (first, last):", "        if False:", (ABSENT, "waits")),
    Mutant("a stray stops the run", "plan.py",
           "                if not expected:\n", "                if True:\n", (STRAYS, "uuid")),
    Mutant("a file that was replaced is not told", "job.py",
           "            if record is not None and not record.is_of(header, item.size):",
           "            if False:", (STRAYS, "replaced")),
    # times without a reader
    Mutant("readers outlive their manager", "reader_presence.py",
           "    if there and epoch != max(last, default=epoch):", "    if False:",
           (PRESENCE, "deaths_of_managers")),
    Mutant("the replay knows no absence", "replay.py",
           "_back(away[reader], now) if away else now", "now", (PRESENCE, "nobody_is_there")),
    # omq-spark follow
    Mutant("a stray file makes a batch each round", "follow.py",
           "            elif self._passed_over.get(item.number) != item:",
           "            elif new := True:", (FOLLOW, "told_once")),
    Mutant("memory is never given back", "follow.py",
           "self._clock() - self._last >= self.pace.idle_s or", "False or",
           (FOLLOW, "told_once")),
    Mutant("history may go before it was read", "follow.py",
           "min(fresh, default=listed[-1].number + 1)", "listed[-1].number + 1",
           (FOLLOW, "history_may_go")),
    # by Spark
    Mutant("buckets are twice as wide", "buckets.py", "BITS: Final = 6", "BITS: Final = 5",
           (BUCKETS, "bucket or percentile")),
    Mutant("a wait holds the delay that the sender wished", "lifecycle.py",
           'F.greatest("arrived_ns", F.col("until_s") * NS_PER_S, freed)',
           'F.greatest("arrived_ns", freed)', (BUCKETS, "could_be_taken")),
    Mutant("in the last minute nobody is old", "gold.py",
           "basis.end_ns - basis.end_ns % MINUTE_NS + MINUTE_NS",
           "basis.end_ns - basis.end_ns % MINUTE_NS", (HISTORIES, "oldest_of_each")),
    Mutant("bytes of a program are not counted", "gold.py",
           'F.col("size").alias("put_bytes")', 'F.lit(0).alias("put_bytes")',
           (TABLES, "programs_are")),
    Mutant("old names are of other columns", "views.py",
           '", ".join(f"{now} AS {quote}{before}{quote}"', '", ".join(f"NULL AS {quote}{before}'
           '{quote}"', (TABLES, "old_names")),
    Mutant("rows pass through the driver", "parquet.py",
           "    if few:\n        table = frame.toArrow()", "    if True:\n        table = "
           "frame.toArrow()", ("test_driver.py", "no_rows")),
    Mutant("commits say a row too many", "tables.py", '{"numRecords": each.rows}',
           '{"numRecords": each.rows + 1}', ("test_object_store.py", "shipped")),
    # tables in a store
    Mutant("Spark's own writer is asked for a store", "parquet.py",
           "    if plan.is_store(where):\n        worker_files.write(",
           "    if False:\n        worker_files.write(", (STORE, "as_they_were")),
    Mutant("what an attempt wrote is seen before it counts", "worker_files.py",
           'f"{where}/.{name}.{self._attempt}"', 'f"{where}/{name}.{self._attempt}.parquet"',
           (STORE, "in_groups")),
    Mutant("attempts stay", "worker_files.py", "    forget_attempts(fs, path)\n", "",
           (STORE, "never_seen")),
    Mutant("what is to be replaced stays", "worker_files.py",
           "    if not append:\n        fs.delete_dir_contents(path)\n", "",
           (STORE, "never_seen")),
    Mutant("two folders share a file", "worker_files.py",
           "        if values != self._values:\n            self.close()\n",
           "        if values != self._values:\n            self._flush()\n",
           (STORE, "in_groups")),
    Mutant("rows of a store are in no order", "worker_files.py",
           "frame.sortWithinPartitions(*keys) if keys else frame", "frame",
           (STORE, "as_they_were")),
    Mutant("what executors wrote comes back through the driver", "parquet.py",
           "frame.schema, many=True)", "frame.schema)", (STORE, "by_the_driver")),
    Mutant("a rename that a store refuses is passed over", "worker_files.py",
           'list(pool.map(lambda row: fs.move(row["hidden"], row["final"]), done))',
           '[pool.submit(fs.move, row["hidden"], row["final"]) for row in done]',
           (FAULTS, "refuses_to_executors")),
    Mutant("who is at work loses its lock", "store_lock.py", "    if not _is_dead(whose):",
           "    if False:", (FAULTS, "runs_is_refused")),
    Mutant("a lock of another host is taken for dead", "store_lock.py",
           '(whose.get("boot"), whose.get("namespace")) == here', "here",
           (FAULTS, "nobody_here_can_know")),
    Mutant("two take over one lock", "store_lock.py", 'mode={"e_tag": meta["e_tag"]}',
           'mode="overwrite"', (FAULTS, "taken_over_by_one")),
    Mutant("the lock of another is removed", "store_lock.py",
           "            if _read(obstore, store)[0] == mine:", "            if True:",
           (FAULTS, "leaves_that_of_another")),
    Mutant("a run that goes on empties OUT first", "pipeline.py",
           "    if not incremental:\n        lake.clear()\n", "    lake.clear()\n",
           (FAULTS, "leaves_the_tables")),
    Mutant("a store is not locked", "out_directory.py",
           "            with store_lock.held(self.out):\n                yield\n",
           "            yield\n", (FAULTS, "runs_is_refused")),
    # the audit in steps
    Mutant("the pool is compared with one interval", "audit_steps.py",
           "        return merged(found)\n", "        return merged(found[:1])\n",
           (STEPS, "each_interval")),
    Mutant("each step forgets the lines of the one before", "audit_steps.py",
           '            turns = kept.dataset(f"turns-{place}", turns.schema).to_table()\n', "",
           (STEPS, "from_step_to_step")),
    Mutant("who waits is not waited for", "audit_steps.py",
           'turns.join(later.union(engine.streamed(waits).select(*LINE)).distinct()',
           "turns.join(later.distinct()", (STEPS, "from_step_to_step")),
    Mutant("who is handed out later is not waited for", "audit_steps.py",
           '(F.col("arrived_lsn") <= until)', '(F.col("arrived_lsn") > until)',
           (STEPS, "from_step_to_step")),
    Mutant("who chose a message is called out of order", "audit_steps.py",
           '(ds.field("argument") == GIVEN_OUT_OF_TURN)',
           '(ds.field("argument") == GIVEN_OUT_OF_TURN + 1)', (SPLITS, "who_was_chosen")),
    Mutant("hand-outs that were judged are judged again", "audit_steps.py",
           'stays.where(F.col("given_lsn") > self._before.last_lsn)', "stays",
           (STEPS, "damaged")),
    Mutant("a message that comes back is judged by its second half", "audit_steps.py",
           "        if totals.comes_back:\n            return None\n", "", (STEPS, "comes_back")),
    Mutant("intervals have a number in common", "intervals.py",
           "            close(begins - 1)", "            close(begins)", (STEPS, "intervals")),
    Mutant("intervals are as large as they come", "intervals.py",
           "        if here + count > rows_max:", "        if here > 100 * rows_max:",
           (STEPS, "intervals")),
    Mutant("a torn file is gone on with", "audit_kept.py",
           "self._rows(name, step) == rows for", "True or rows for", (STEPS, "goes_on")),
    Mutant("a step that has ended is done again", "audit_kept.py",
           "        return step in self._steps and all(", "        return False and all(",
           (STEPS, "goes_on")),
    Mutant("two work in one folder", "audit_kept.py",
           "        except BlockingIOError:\n            yield False\n",
           "        except BlockingIOError:\n            yield True\n", (STEPS, "two_at_once")),
)


def plant(folder: Path, mutant: Mutant) -> None:
    """The package as it is, with one place changed."""
    to = folder / "omqtools"
    to.mkdir(parents=True)
    shutil.copy(ROOT / "lib" / "omqtools" / "__init__.py", to)
    shutil.copytree(SOURCE, to / "omqspark", ignore=shutil.ignore_patterns("__pycache__"))
    path = to / "omqspark" / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.name}: stands {text.count(mutant.old)} times"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def outcome(mutant: Mutant | None, tests: tuple[str, str], folder: Path) -> tuple[int, str]:
    """What pytest ends with, and says; None: nothing is changed."""
    if mutant is not None:
        plant(folder / "mutant", mutant)
    path = os.pathsep.join([*([str(folder / "mutant")] if mutant else []), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", f"tests/spark/{tests[0]}", "-k", tests[1], "-q", "-x",
         "-p", "no:cacheprovider", f"--basetemp={folder / 'temp'}"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main(names: list[str]) -> int:
    """Run the mutants named, or all; how many were missed that should be caught."""
    missed = []
    for mutant in (each for each in MUTANTS if not names or each.name in names):
        with tempfile.TemporaryDirectory() as folder:
            code, said = outcome(mutant, mutant.tests, Path(folder))
        caught = code == FAILED and "FAILED tests/spark/" in said  # an error found nothing
        last = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))),
                    said[-300:])
        print(f"{'caught' if caught else 'MISSED'}  {mutant.name}: {last}", flush=True)
        if not caught:
            missed.append(mutant.name)
    return len(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
