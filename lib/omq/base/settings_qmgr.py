"""The keys of section [qmgr] of omq.conf: the scheduler of outgoing work (ADR 0030). The first six
are the second seed's, under its names; see omq.base.settings, whose base this is."""

from __future__ import annotations

from omq.base.limits import GIB, MIB
from omq.base.settings_key import number, part
from omq.base.settings_trigger import TriggerSettings


@part
class QmgrSettings(TriggerSettings):
    """One field per key of [qmgr]."""

    # fmt: off
    qmgr_maxchans: int = number("qmgr", 20, 1, 500,
        "channel processes of a service together, over all of its channels")
    qmgr_reserve_urgent: int = number("qmgr", 3, 0, 400,
        "the last of these are for urgent messages only")
    qmgr_reserve_normal: int = number("qmgr", 2, 0, 400,
        "this many more are for urgent and normal ones, not for those of low priority")
    qmgr_chan_time1_ms: int = number("qmgr", 500, 0, 600_000,
        "when the last process of a channel has ended, none is started within this time: messages "
        "gather meanwhile; urgent ones do not wait for it")
    qmgr_chan_time2_ms: int = number("qmgr", 20, 0, 600_000,
        "no process of a channel is started within this time after the one before")
    qmgr_chan_time3_ms: int = number("qmgr", 200, 0, 600_000,
        "the same while no more messages wait than the channel has processes; not for urgent ones")
    qmgr_chan_idle_ms: int = number("qmgr", 60_000, 0, 86_400_000,
        "a process without work ends after this; its start costs more than its memory")
    qmgr_peer_concurrency: int = number("qmgr", 4, 1, 500,
        "processes that serve one peer at once")
    qmgr_peer_reserve_urgent: int = number("qmgr", 1, 0, 400,
        "the last of these are for urgent messages only, one at least is for all")
    qmgr_affinity_ms: int = number("qmgr", 2000, 0, 600_000,
        "among equals a process stays this long with the peer that it has a connection to")
    qmgr_run_ms: int = number("qmgr", 100, 0, 60_000,
        "a process gets as many messages of a fast peer at once as this takes")
    qmgr_run_messages: int = number("qmgr", 20, 1, 100,
        "at most so many")
    qmgr_window: int = number("qmgr", 2000, 10, 100_000,
        "messages in hand; one peer has at most a quarter of what is free of them")
    qmgr_put_off_s_max: int = number("qmgr", 300, 1, 86_400,
        "what is beyond a peer's share is called back as soon as the peer has room; this is when "
        "it comes back by itself if it is no longer known")
    qmgr_put_off_messages_max: int = number("qmgr", 100_000, 0, 10_000_000,
        "this many postponed messages are known, and can be called back and shown by peer, "
        "at some 300 bytes each; those beyond it come back by themselves")
    qmgr_sends_bytes_max: int = number("qmgr", 16 * MIB, 0, 1024 * GIB,
        "the record of sends, logs/SERVICE.sends.jsonl (what went where, how long it waited and "
        "took; omq-spark whatif --sends reads it), is renamed to .1 at this size; 0: there is none")
    # fmt: on
