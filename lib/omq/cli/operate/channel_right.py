"""What people set right on channels that are out of step: `omq channel resolve` and `reset`.

They do what RESOLVE CHANNEL and RESET CHANNEL of IBM MQ do. `resolve` ends what is in doubt here.
`reset` sets the number of the last batch that is there:

* of a channel that sends: it waits in the definition, and the other side's record says it when the
  channel connects next, before anything else; the definition forgets it when that is done. Refused
  while the channel runs (ChannelInUse) and while batches are in doubt (ChannelInDoubt): what
  happened to them is known by the old numbers alone;
* of a channel that has come in: the record here, at once. The other side is not notified, and
  finds out at its next batch.

In the middle of a crash: `resolve` ends one batch after the other; each kind of `reset` is one
request, and an order that waits is carried out once, however often it is given (names.Reset).

Errors: ChannelUnknown, ChannelInUse, ChannelInDoubt, BadRequest, those of omq.ipc.client.queues.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from omq.base.errors import BadRequest, ChannelInDoubt, ChannelInUse, ChannelUnknown
from omq.base.names import check_queue_name
from omq.cli.operate.channel_look import batches_in_doubt, channel_named, running_channels
from omq.ipc.client.connection import Client
from omq.ipc.client.operator import Operator
from omq.services.channel import records
from omq.services.channel.definition import ORDER, Channel, altered, write
from omq.services.channel.names import Reset
from omq.services.channel.records import Record
from omq.services.daemon.options import Location

SENDS, RECEIVES = "sends", "receives"
_DIGITS: Final = 17


def refuse_doubt(native: Client, channel: str) -> None:
    """ChannelInDoubt."""
    if found := batches_in_doubt(native, channel):
        raise ChannelInDoubt(channel=channel,
                             batches=", ".join(str(each.number) for each in found))


def _refuse_use(location: Location, channel: str) -> None:
    if running_channels(location).get(channel, {}).get("state") == "running":
        raise ChannelInUse(channel=channel)


def resolve(native: Client, location: Location, options: argparse.Namespace) -> None:
    """The command."""
    channel = channel_named(native, options)
    _refuse_use(location, channel.name)
    found = batches_in_doubt(native, channel.name)
    how = "committed" if options.commit else "backed out"
    for each in found if options.commit else reversed(found):
        Operator(native, f"omq channel resolve {channel.name}").end_unit(
            str(each), commit=options.commit, reason=options.reason)
        sys.stdout.write(f"{channel.name}: batch {each.number} {how}\n")
    if not found:
        sys.stdout.write(f"{channel.name}: nothing is in doubt\n")


def reset(native: Client, location: Location, options: argparse.Namespace,
          said: Mapping[str, str]) -> None:
    """The command; `said`: KEY=VALUE of it."""
    name, keys = check_queue_name(options.channel), dict(said)
    batch, side = keys.pop("batch", "0"), keys.pop("side", "")
    manager = keys.pop("manager", "")
    if (keys or side not in ("", SENDS, RECEIVES) or (manager and side == SENDS)
            or not (batch.isascii() and batch.isdigit() and len(batch) <= _DIGITS)):
        raise BadRequest(reason="reset CHANNEL batch=NUMBER [side=sends|receives] [manager=NAME]; "
                         "manager= is whose channel has come in")
    mine = [record for record in records.come_in(native) if record.channel == name
            and manager in ("", record.manager)]
    channel = None if manager or side == RECEIVES else _defined(native, options)
    if channel is not None and mine and not side:
        raise BadRequest(reason=f"{name} sends from here, and a channel of this name has come in, "
                         "too: say side=sends or side=receives")
    if channel is not None:
        _reset_sending(native, location, channel, int(batch), options.reason)
    elif mine and side != SENDS:
        _reset_receiving(native, mine, int(batch))
    else:
        raise ChannelUnknown(channel=name)


def _defined(native: Client, options: argparse.Namespace) -> Channel | None:
    try:
        return channel_named(native, options)
    except ChannelUnknown:
        return None


def _reset_sending(native: Client, location: Location, channel: Channel, batch: int, reason: str
                   ) -> None:
    if channel.foreign:
        raise BadRequest(reason=f"what {channel.name} sends to is not omq (peer=foreign): it "
                         "counts no batches")
    _refuse_use(location, channel.name)
    refuse_doubt(native, channel.name)
    order = Reset(batch, secrets.token_hex(8))
    write(native, altered(channel, **{ORDER: str(order)}), reason)
    sys.stdout.write(f"{channel.name}: the other side gets batch {batch} at the next "
                     "connection\n")


def _reset_receiving(native: Client, mine: list[Record], batch: int) -> None:
    """One unit of work: the old records go, the new ones come."""
    with native.unit() as unit:
        for record in {each.key: each for each in mine}.values():
            records.take(unit, record.key)
            records.put(unit, replace(record, batch=batch, mark=""))
    for record in mine:
        sys.stdout.write(f"{record.channel} of {record.manager}: batch {record.batch}, now "
                         f"{batch}\n")
