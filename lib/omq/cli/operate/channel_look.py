"""What `omq channel` shows: channels that send, and records of those that have come in.

What a channel does now is what channel.sender said last (run/channels.json); everything else is
asked of the queue manager.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from omq.base.errors import BadChannel, BadName, ChannelUnknown, UnknownQueue
from omq.base.names import check_queue_name, check_service_name, escape
from omq.cli.common import print_json
from omq.ipc.client.connection import Client
from omq.services.channel import records
from omq.services.channel.definition import STARTED, Channel, channel_of
from omq.services.channel.names import BatchName, batch_name
from omq.services.daemon import pid_file
from omq.services.daemon.options import Location

FILE: Final = "channels.json"


def channel_named(native: Client, options: argparse.Namespace) -> Channel:
    try:
        channel = channel_of(native.queues.show(check_queue_name(options.channel)))
    except UnknownQueue:
        channel = None
    if channel is None:
        raise ChannelUnknown(channel=escape(options.channel))
    return channel


def show_channel(native: Client, location: Location, options: argparse.Namespace) -> None:
    name, shown = options.channel, list[dict[str, Any]]()
    with suppress(ChannelUnknown):  # it may be one that comes in
        shown.append(_sending(native, location, channel_named(native, options)))
    shown += [each for each in _receiving(native) if each["channel"] == name]
    if not shown:
        raise ChannelUnknown(channel=escape(name))
    for each in shown:
        if options.json:
            print_json(each)
            continue
        sys.stdout.write(f"{each['channel']}: {each['side']}\n" + "".join(
            f"  {key} = {escape(str(value))}\n" for key, value in _flat(each)))


def _flat(told: Mapping[str, Any]) -> list[tuple[str, Any]]:
    keys = dict(told.get("keys", {}))
    rest = [(key, value) for key, value in told.items() if key not in ("keys", "channel", "side")]
    return [*keys.items(), *rest]


def list_channels(native: Client, location: Location, options: argparse.Namespace) -> None:
    shown = [_sending(native, location, channel) for channel in _all(native)]
    shown += _receiving(native)
    if options.json:
        for each in shown:
            print_json(each)
        return
    sys.stdout.write(f"{'channel':<16} {'side':<9} {'state':<12} {'batch':>10} {'messages':>10}  "
                     "peer\n")
    for each in shown:
        sys.stdout.write(f"{each['channel']:<16} {each['side']:<9} {each['state']:<12} "
                         f"{each['batch']:>10} {each['messages']:>10}  {escape(each['peer'])}\n")


def _all(native: Client) -> list[Channel]:
    found = []
    for info in native.queues.list():
        try:
            channel = channel_of(info)
        except BadChannel as error:
            sys.stderr.write(f"omq channel: {error}\n")
            continue
        if channel is not None:
            found.append(channel)
    return found


def _sending(native: Client, location: Location, channel: Channel) -> dict[str, Any]:
    running = running_channels(location).get(channel.name, {})
    wanted = channel.text("state")
    state = running.get("state", "") or (wanted if wanted != STARTED else "not running")
    return {"channel": channel.name, "side": "sends", "state": state, "peer": channel.peer,
            "batch": running.get("batch", 0), "messages": running.get("messages", 0),
            "bytes": running.get("bytes", 0), "tries": running.get("tries", 0),
            "reason": running.get("reason", ""),
            "waiting": native.queues.show(channel.name).messages,
            "in_doubt": [each.number for each in batches_in_doubt(native, channel.name)],
            "keys": dict(channel.values)}


def running_channels(location: Location) -> dict[str, dict[str, Any]]:
    """What channel.sender said last, if it runs: the lock of its pid file says so to anybody,
    where /proc may hide its process (hidepid). An older one did not say where to look."""
    try:
        told = json.loads((location.paths.run / FILE).read_bytes())
        return {str(each["channel"]): each for each in told if _runs(location, each)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, BadName):
        return {}


def _runs(location: Location, said: Mapping[str, Any]) -> bool:
    if "service" not in said:
        return False
    service = check_service_name(str(said["service"]))
    return bool(pid_file.running(location.paths.pid_file(service)) == said["pid"] != 0)


def _receiving(native: Client) -> list[dict[str, Any]]:
    found = records.come_in(native)
    return [{"channel": each.channel, "side": "receives", "state": "known", "batch": each.batch,
             "messages": each.messages, "peer": f"{each.manager} as {each.user}",
             "spool": each.spool} for each in sorted(found, key=lambda each: each.channel)]


def batches_in_doubt(native: Client, channel: str) -> list[BatchName]:
    names = [batch_name(unit.name) for unit in native.units_in_doubt()]
    return sorted((each for each in names if each is not None and each.channel == channel),
                  key=lambda each: each.number)
