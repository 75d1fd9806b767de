"""Queue manager and pool.writer die by SIGKILL at each named fault point; nothing is lost.

Clients go on over the death: what was acknowledged is there, puts and settlements under way are
carried out once (their request numbers say so), and the checker judges all of it.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.load import Load

SERVING = {
    "journal.before_write": 20, "journal.after_write": 20, "journal.before_sync": 20,
    "journal.after_sync": 20, "journal.before_rotate": 2, "journal.after_rotate": 2,
    "engine.before_append": 60, "engine.after_append": 60, "engine.before_reply": 60,
    "engine.after_reply": 60, "engine.before_hand_out": 20, "durable.before_rename": 3,
    "durable.after_rename": 3,
}
"""Points of a manager that serves, and at which visit it dies."""
STARTING = {
    "recovery.before_pool": 1, "recovery.after_pool": 1, "recovery.before_redo": 1,
    "recovery.in_redo": 2, "recovery.after_redo": 1, "recovery.before_serve": 1,
    "pool.before_write": 1, "pool.after_write": 1, "pool.before_sync": 1, "pool.after_sync": 1,
    "poolctrl.before_write": 1, "poolctrl.after_write": 1, "poolctrl.before_sync": 1,
    "poolctrl.after_sync": 1,
}
"""Points of a manager that recovers."""
WRITING = {
    "journal.prepare_next": 2, "journal.retire": 1, "archive.before_rename": 1,
    "pool.before_write": 3, "pool.after_write": 3, "pool.before_sync": 3, "pool.after_sync": 3,
    "pool.before_truncate": 1, "poolctrl.before_write": 3, "poolctrl.after_write": 3,
    "poolctrl.before_sync": 3, "poolctrl.after_sync": 3, "store.before_write": 2,
    "store.after_sync": 1, "store.compact": 1, "store.before_unlink": 1,
    "durable.before_rename": 2, "durable.after_rename": 2,
}
"""Points of pool.writer."""
ELSEWHERE = {
    "client.before_request", "client.after_request", "client.after_reply",
    "container.before_sync", "container.after_sync", "container.before_unlink",
    "reader.after_next", "reader.before_done", "reader.after_done",
    "idel.before_delete", "idel.after_delete", "local.before_rename", "local.after_rename",
    "router.before_move", "unix.before_send", "unix.after_send", "smtp.before_put",
    "smtp.after_put", "errmgr.before_move",
    "channel.before_send", "channel.after_send", "channel.split",
    "channel.before_resync", "channel.after_take", "channel.after_prepare", "channel.in_batch",
    "channel.half_batch", "channel.after_batch", "channel.before_commit", "channel.after_commit",
    "channel.before_put", "channel.after_put", "channel.before_accept", "channel.after_accept",
    "drop.after_file", "drop.after_put", "put_again.after_put",
}
"""Points of clients and services: test_clients, test_readers, test_service_points, test_channels,
test_channel, test_maildrop and test_standby_aside."""
STANDBYS = {
    "standby.before_send", "standby.after_send", "standby.after_ack", "standby.before_ack",
    "standby.before_redo", "standby.before_checkpoint", "standby.before_retire",
    "promote.after_mark", "promote.after_redo", "promote.after_note", "promote.after_instance",
}
"""Points of standbys and of what sends them: test_standby_points."""
REPAIRING = {"recover.before_step", "recover.before_swap", "recover.before_control"}
"""Points of omqrecover: tests/recovery kills it at every durable call, these included."""


def _busy(instance: Instance) -> None:
    """Small files and frequent checkpoints: every point is reached soon."""
    instance.settings(journal_file_bytes=1 << 18, block_bytes_max=160 << 10, journal_files_kept=0,
                      checkpoint_journal_bytes_max=1 << 16, store_file_bytes=1 << 16,
                      channel_bytes=1 << 19, container_threshold_bytes=68 << 10)


def _finish(instance: Instance, load: Load, fault: str) -> None:
    assert [line.split()[0] for line in instance.fired()] == [fault]
    verdict = load.verdict()
    assert verdict.faults == {}
    assert verdict.acknowledged >= load.messages


@pytest.mark.cases
@pytest.mark.parametrize("point", SERVING)
def test_the_manager_dies_serving(omq_instance: Instance, tmp_path: Path, point: str) -> None:
    _busy(omq_instance)
    fault = f"{point}:kill:{SERVING[point]}"
    load = Load(omq_instance, tmp_path)
    victim = omq_instance.start(WRITER, MANAGER, fault=fault)
    clients = load.until_dead(victim)
    load.deaths.say({"op": "death"})
    assert victim.wait() == -signal.SIGKILL
    omq_instance.start()
    load.join(clients)
    _finish(omq_instance, load, fault)


@pytest.mark.cases
@pytest.mark.parametrize("point", STARTING)
def test_the_manager_dies_starting(omq_instance: Instance, tmp_path: Path, point: str) -> None:
    """A manager was killed; its successor is killed as well while it recovers."""
    _busy(omq_instance)
    fault = f"{point}:kill:{STARTING[point]}"
    load = Load(omq_instance, tmp_path)
    omq_instance.start()
    load.join(load.round())
    omq_instance.kill()
    load.deaths.say({"op": "death"})
    assert omq_instance.start(fault=fault).wait() == -signal.SIGKILL
    omq_instance.start(MANAGER, WRITER)
    load.join(load.round())
    _finish(omq_instance, load, fault)


@pytest.mark.cases
@pytest.mark.parametrize("point", WRITING)
def test_the_pool_writer_dies(omq_instance: Instance, tmp_path: Path, point: str) -> None:
    """The manager goes on; afterwards it dies as well, so that what the writer left is read."""
    _busy(omq_instance)
    fault = f"{point}:kill:{WRITING[point]}"
    load = Load(omq_instance, tmp_path)
    omq_instance.start(MANAGER)
    victim = omq_instance.start(WRITER, fault=fault)
    clients = load.until_dead(victim)
    assert victim.wait() == -signal.SIGKILL
    load.join(clients)
    omq_instance.kill()
    load.deaths.say({"op": "death"})
    omq_instance.start(MANAGER, WRITER)
    load.join(load.round())
    _finish(omq_instance, load, fault)
