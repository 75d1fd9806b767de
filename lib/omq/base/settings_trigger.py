"""The keys of section [trigger] of omq.conf: programs that queues have started (ADR 0051); see
omq.base.settings, whose base this is."""

from __future__ import annotations

from omq.base.settings_channel import ChannelSettings
from omq.base.settings_key import number, part


@part
class TriggerSettings(ChannelSettings):
    """One field per key of [trigger]."""

    # fmt: off
    trigger_interval_s: int = number("trigger", 60, 1, 86_400,
        "messages that a triggered program has left, or for which none was started, are triggered "
        "for again after this")
    trigger_processes_max: int = number("trigger", 20, 1, 500,
        "programs that trigger.monitor has running at once, over all sections of triggers.conf")
    trigger_starts_max: int = number("trigger", 60, 1, 100_000,
        "starts of one program within trigger_period_s; more wait")
    trigger_period_s: int = number("trigger", 60, 1, 86_400,
        "see trigger_starts_max")
    trigger_backoff_min_s: int = number("trigger", 1, 0, 3600,
        "pause before a program is started again that has failed; it doubles with each failure")
    trigger_backoff_max_s: int = number("trigger", 300, 1, 86_400,
        "up to this; a program that never works is tried so often, and nothing is lost meanwhile")
    trigger_waiting_max: int = number("trigger", 50, 1, 10_000,
        "trigger messages of one program that wait in trigger.monitor; more wait on the queue, so "
        "that they do not hide those of others")
    trigger_put_off_s: int = number("trigger", 5, 1, 3600,
        "after this those are looked at again")
    # fmt: on
