"""Every failure omq reports: one class each, with its message, wire status and exit code.

A class docstring is the message template; keyword arguments fill it. `status` travels in replies of
the queue manager (two bytes, 0 means success), `exit_code` is what a command line tool exits with
(the numbers of sysexits.h, so that scripts may tell "try later" from "wrong input").

One module of more than 300 lines, for it is a table: a class is five lines of fact (message,
status, exit code) and no code, read by looking a name or a number up. In modules by subject the
next free status would be looked for in all of them, and which statuses `from_status` knows would
depend on which of them had been imported.

Invariants (tests/tidy): 1. `status` is unique; 2. every template names what happened and what to do
or where to look; 3. every class is reachable from its status through `from_status`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

from omq.base.amounts import number


class Exit(IntEnum):
    """Exit codes of every omq command (sysexits.h; 1 is left to grep-like answers)."""

    OK = 0
    NO = 1  # the question has the answer "no" (nothing found, check failed)
    USAGE = 64  # wrong options or arguments
    DATA = 65  # the input is wrong: message, spool or journal bytes
    NO_INPUT = 66  # a named thing does not exist: queue, file, spool
    UNAVAILABLE = 69  # the queue manager does not run or does not answer
    SOFTWARE = 70  # a bug of ours
    OS = 71  # the system refuses: IPC limits, memory, processes
    CANT_CREATE = 73  # a file or object cannot be made
    IO = 74  # a disk said no
    TEMPORARY = 75  # try again later: queue full, inhibited, busy
    NO_PERMISSION = 77  # no authority
    CONFIG = 78  # the configuration is wrong; units do not restart on it


class OmqError(Exception):
    """{text}"""

    status: ClassVar[int] = 1
    exit_code: ClassVar[Exit] = Exit.SOFTWARE

    def __init__(self, text: str = "", /, **fields: Any) -> None:
        """`text` alone makes one again of `args`, as pickle, copy and Celery's results do. In the
        message a float is a number that people read, and no time is less than nothing."""
        self.fields = fields
        if text:
            super().__init__(text)
            return
        template = type(self).__doc__ or "{text}"
        try:
            text = template.format(**{key: _shown(key, value) for key, value in fields.items()})
        except (KeyError, IndexError, ValueError):
            text = f"{template} {fields}"
        super().__init__(text)


def _shown(key: str, value: Any) -> Any:
    """A field as its message has it; whoever looks at `fields` gets it as it is."""
    if type(value) is not float:
        return value
    return number(max(0.0, value) if key == "seconds" or key.endswith("_s") else value)


class BadRequest(OmqError):
    """the request was refused: {reason}"""

    status = 2
    exit_code = Exit.USAGE


class BadArgument(BadRequest):
    """argument {argument} cannot be {value}: {rule}"""

    status = 175
    exit_code = Exit.USAGE


class BadSelector(BadRequest):
    """selector {selector!r}, character {position}: {reason}"""

    status = 201
    exit_code = Exit.USAGE


class NotRegistered(OmqError):
    """the queue manager does not know this client (wrong token or an old epoch); connect again"""

    status = 3
    exit_code = Exit.UNAVAILABLE


class NoAuthority(OmqError):
    """uid {uid} has no authority to {action} on queue {queue}; see authority.conf"""

    status = 4
    exit_code = Exit.NO_PERMISSION


class UnknownQueue(OmqError):
    """queue {queue} is not defined; 'omq queue list' lists those that are, 'omq queue define' and \
queues.conf define them"""

    status = 5
    exit_code = Exit.NO_INPUT


class QueueGone(OmqError):
    """queue {queue} was renamed, redefined or deleted in the meantime; nothing was done: open it \
again"""

    status = 202
    exit_code = Exit.TEMPORARY


class BadDefinition(OmqError):
    """queue {queue}, {key}: {reason}; allowed: {allowed}"""

    status = 203
    exit_code = Exit.USAGE


class QueueExists(OmqError):
    """queue {queue} already exists; 'omq queue show {queue}' shows its definition"""

    status = 204
    exit_code = Exit.CANT_CREATE


class QueueOfFile(OmqError):
    """queue {queue} is defined in queues.conf: change it there and reload the queue manager"""

    status = 205
    exit_code = Exit.USAGE


class QueueNotEmpty(OmqError):
    """queue {queue} holds {messages} messages: 'omq queue clear {queue}' deletes them"""

    status = 206
    exit_code = Exit.TEMPORARY


class QueueInUse(OmqError):
    """queue {queue} is in use ({by}) and was not changed"""

    status = 207
    exit_code = Exit.TEMPORARY


class TooManyQueues(OmqError):
    """too many queues: the limit is {limit} {what}; delete some first"""

    status = 208
    exit_code = Exit.CANT_CREATE


class WrongKind(OmqError):
    """queue {queue} is of kind {kind}: {reason}"""

    status = 209
    exit_code = Exit.USAGE


class NoTruncate(OmqError):
    """queue {queue} was not truncated: {condition} ({detail})"""

    status = 210
    exit_code = Exit.TEMPORARY


class UnknownPeer(OmqError):
    """unknown mail peer or channel: {peer}; 'omq peers' lists the known ones"""

    status = 230
    exit_code = Exit.NO_INPUT


class BadName(OmqError):
    """{kind} name {name!r} is not allowed: {rule}"""

    status = 6
    exit_code = Exit.USAGE


class BadPriority(OmqError):
    """priority {priority} is not allowed: 0 (lowest) to 9, or urgent, normal, low"""

    status = 7
    exit_code = Exit.USAGE


class PutInhibited(OmqError):
    """queue {queue} is inhibited for put; set put = allowed in queues.conf and reload"""

    status = 8
    exit_code = Exit.TEMPORARY


class GetInhibited(OmqError):
    """queue {queue} is inhibited for get; set get = allowed in queues.conf and reload"""

    status = 9
    exit_code = Exit.TEMPORARY


class QueueFull(OmqError):
    """queue {queue} holds its maximum of {limit} messages; try again later or raise max_depth"""

    status = 10
    exit_code = Exit.TEMPORARY


class MessageTooLong(OmqError):
    """the message has {size} bytes, but queue {queue} takes at most {limit} (max_length)"""

    status = 11
    exit_code = Exit.DATA


class IndexFull(OmqError):
    """the index holds its maximum of {limit} messages for this user; raise messages_max and restart"""

    status = 12
    exit_code = Exit.TEMPORARY


class SpoolFull(OmqError):
    """no disk space for new messages in {path}: {detail}; done, move and delete still work"""

    status = 13
    exit_code = Exit.TEMPORARY


class LeaseLost(OmqError):
    """message {qpool_id} is no longer this reader's: its lease ended or another operation took it"""

    status = 14
    exit_code = Exit.NO


class MessageCancelled(LeaseLost):
    """message {qpool_id} was cancelled, or taken away by an operator, while it was being processed: \
stop working on it"""

    status = 350
    exit_code = Exit.NO


class NoMessage(OmqError):
    """no such message on queue {queue}"""

    status = 15
    exit_code = Exit.NO


class NothingMeant(OmqError):
    """'{action}' matches no message; --count and --dry-run show which messages match"""

    status = 145
    exit_code = Exit.NO


class TimedOut(OmqError):
    """no answer within {seconds} s while waiting for {what}"""

    status = 16
    exit_code = Exit.UNAVAILABLE


class ManagerUnavailable(OmqError):
    """the queue manager of {spool} cannot be reached: {reason}; start it with omrc"""

    status = 17
    exit_code = Exit.UNAVAILABLE


class ManagerNotExpected(OmqError):
    """no queue manager runs in {spool}, and none is being restarted; start it with omrc"""

    status = 25
    exit_code = Exit.NO_INPUT


class ShuttingDown(OmqError):
    """the queue manager is shutting down; the request was not carried out"""

    status = 18
    exit_code = Exit.TEMPORARY


class TooManyClients(OmqError):
    """the queue manager serves its maximum of {limit} clients (clients_max)"""

    status = 19
    exit_code = Exit.TEMPORARY


class BadProperty(OmqError):
    """property {name!r} is not allowed: {rule}"""

    status = 20
    exit_code = Exit.DATA


class BodyUnavailable(OmqError):
    """the body of message {qpool_id} cannot be read from {where}: {reason}"""

    status = 21
    exit_code = Exit.DATA


class BodyDamaged(OmqError):
    """the body of message {qpool_id} in {where} fails its CRC: expected {expected:08x}, got {got:08x}"""

    status = 22
    exit_code = Exit.DATA


class BadItemRef(OmqError):
    """item reference {ref!r} is refused: {reason}"""

    status = 23
    exit_code = Exit.DATA


class SequenceReused(OmqError):
    """request {sequence} is older than the last one carried out for this client"""

    status = 24
    exit_code = Exit.SOFTWARE


class ConfigError(OmqError):
    """{file}:{line}: {key}: {reason}; allowed: {allowed}"""

    status = 40
    exit_code = Exit.CONFIG


class SpoolMissing(OmqError):
    """there is no spool at {path}; 'omrc --embedded --spool DIR' creates one"""

    status = 41
    exit_code = Exit.NO_INPUT


class SpoolOwner(OmqError):
    """{path} has owner {owner} and mode {mode:04o}, expected {expected}"""

    status = 42
    exit_code = Exit.NO_PERMISSION


class SpoolLocked(OmqError):
    """{path} is locked by process {pid} ({what}); stop it first"""

    status = 43
    exit_code = Exit.TEMPORARY


class SpoolTwin(OmqError):
    """{path}: process {pid} serves another copy of it, and both would assign the same message \
ids; stop that process, or, to go on with this copy instead: {command}"""

    status = 54
    exit_code = Exit.TEMPORARY


class NotPrimary(OmqError):
    """{path} is a {role} of its instance (member {member}) and cannot be changed; make the change \
on the primary: {primary}; 'omqcheck --spool {path}' looks at this one"""

    status = 257
    exit_code = Exit.UNAVAILABLE


class StreamBroken(OmqError):
    """the stream from {peer} was abandoned: {reason}; none of it was applied, and a new \
connection resumes where this standby is"""

    status = 258
    exit_code = Exit.TEMPORARY


class PrimaryAnswers(OmqError):
    """the primary answers ({primary}), and two primaries would diverge; stop it first, and run \
'omq standby demote' there"""

    status = 260
    exit_code = Exit.TEMPORARY


class NeedsCopy(OmqError):
    """{path} cannot become a standby in place: {reason}; nothing was changed. 'omq standby init' in \
an empty directory makes one, and this spool is kept to look at"""

    status = 262
    exit_code = Exit.DATA


class MembersSilent(OmqError):
    """who does not answer may be the primary of a later term than {term}: {members}. Start again \
when all of standby_members answer; or see to it that none of them serves, and let this one start \
alone (standby_start_alone = yes)"""

    status = 261
    exit_code = Exit.TEMPORARY


class LeaseMissing(OmqError):
    """{path} has no lease (standby_lease), so another member may be the primary: {reason}. \
'omq standby keep' takes the lease and starts what this member is; 'omq standby status' shows it"""

    status = 263
    exit_code = Exit.TEMPORARY


class LeaseUnreachable(OmqError):
    """no member of etcd has answered: {reason}; nobody knows who holds the lease. See that a \
majority of etcd runs and that standby_lease names it"""

    status = 264
    exit_code = Exit.TEMPORARY


class LeaseRefused(OmqError):
    """etcd refuses: {reason}; see standby_lease_user, its password and its role in etcd"""

    status = 265
    exit_code = Exit.NO_PERMISSION


class TermUnknown(OmqError):
    """{reason}: etcd has lost what it knew, and nobody is made primary by it. Make sure which member \
was the last primary, and run 'omq standby register' on it"""

    status = 266
    exit_code = Exit.DATA


class NotInSync(OmqError):
    """member {member} may lack what was acknowledged: {reason}. Start a member that is in sync, or \
give that up with 'omq standby promote --behind'"""

    status = 267
    exit_code = Exit.TEMPORARY


class LeaseTaken(OmqError):
    """member {member} is the primary of term {term}, as etcd says; stop it there first, or follow it"""

    status = 268
    exit_code = Exit.TEMPORARY


class StandbyDiverged(OmqError):
    """{path} cannot follow: {reason}; make a new standby from a copy of the primary, and keep \
this one until you have examined it"""

    status = 259
    exit_code = Exit.DATA


class NewerFormat(OmqError):
    """{file} has format version {version}, but this omq reads versions up to {known}; use the \
newer omq"""

    status = 44
    exit_code = Exit.CONFIG


class Damaged(OmqError):
    """{file} at offset {offset}: {reason}"""

    status = 45
    exit_code = Exit.DATA


class DiskError(OmqError):
    """{operation} on {file} failed: {reason}; the daemon stops, and nothing unsynced was \
acknowledged"""

    status = 46
    exit_code = Exit.IO


class ContainerUnknown(OmqError):
    """no container {ref!r} of {size} bytes was created for this client: {reason}; put the message \
again"""

    status = 156
    exit_code = Exit.DATA


class TooManyContainers(OmqError):
    """uid {uid} has sent {count} large bodies that no message refers to yet, and the limit is \
{limit}; put those messages first"""

    status = 157
    exit_code = Exit.TEMPORARY


class IpcLimit(OmqError):
    """the system refuses a System V {what}: {reason}; see sysctl {sysctl}"""

    status = 47
    exit_code = Exit.OS


class NeedsRepair(OmqError):
    """{path} cannot be used as it is: {reason}; run: {command}"""

    status = 48
    exit_code = Exit.DATA


class PortInUse(OmqError):
    """{address} port {port} cannot be bound: {reason}; set {key} in omq.conf, to a different port \
for each instance"""

    status = 49
    exit_code = Exit.UNAVAILABLE


class ServiceUnknown(OmqError):
    """service {service} is not defined in services.conf; known: {known}"""

    status = 50
    exit_code = Exit.NO_INPUT


class ServiceQueueMissing(OmqError):
    """service {service} cannot run: its queue {queue} is not defined; add [{queue}] to \
queues.conf and reload the queue manager (kill -HUP, systemctl reload), or run: omq queue define \
{queue}"""

    status = 256
    exit_code = Exit.NO_INPUT


class IpcRemoved(OmqError):
    """the System V {what} {id} was removed (by ipcrm?); the daemon ends, and the next one creates \
another"""

    status = 61
    exit_code = Exit.TEMPORARY


class InputUnreadable(OmqError):
    """{file} cannot be read: {reason}"""

    status = 58
    exit_code = Exit.NO_INPUT


class CommandUnusable(OmqError):
    """command {command} cannot be started: {reason}; the message was released untouched"""

    status = 59
    exit_code = Exit.UNAVAILABLE


class FileNotWritten(OmqError):
    """{path} cannot be written: {reason}; choose another file"""

    status = 60
    exit_code = Exit.CANT_CREATE


class MessageBusy(OmqError):
    """message {qpool_id} on queue {queue} is being processed by {reader}; wait for it, or have an \
operator force it"""

    status = 80
    exit_code = Exit.TEMPORARY


class NotInState(OmqError):
    """message {qpool_id} on queue {queue} cannot take '{action}': it is {state}"""

    status = 81
    exit_code = Exit.NO


class MessageChanged(OmqError):
    """message {qpool_id} has changed since it was looked at (LSN {then}, now {now}); look again"""

    status = 82
    exit_code = Exit.TEMPORARY


class OutBusy(OmqError):
    """another omq-spark is changing the tables of {path}; run again when it has ended"""

    status = 165
    exit_code = Exit.TEMPORARY


class OutHeld(OmqError):
    """process {pid} on host {host} has been changing the tables of {path} since {since}; if it has \
ended without removing its lock, remove the object {lock} and run again"""

    status = 318
    exit_code = Exit.TEMPORARY


class NoArchive(OmqError):
    """{path} contains no archive files (NNNNNNNNNN.oma); omq-archive creates them in archive/ of \
a spool"""

    status = 90
    exit_code = Exit.NO_INPUT


class NoTables(NoArchive):
    """there are no tables in {path} yet; 'omq-spark run --archive DIR --out {path}' makes them"""

    status = 319


class MixedArchives(OmqError):
    """{file} belongs to instance {uuid}, the files before it to {expected}; keep one instance per \
directory"""

    status = 91
    exit_code = Exit.DATA


class ArchivePruned(OmqError):
    """file {number} was removed before the stream read it, and the oldest is {oldest}; start \
again with an empty checkpointLocation, and keep history for its readers with 'omq-archive \
--hold NAME'"""

    status = 92
    exit_code = Exit.DATA


class OffsetUnknown(OmqError):
    """the checkpoint of the stream says file {number}, but the newest in {path} is {newest}: it \
belongs to another spool, or the spool was restored; start again with an empty checkpointLocation"""

    status = 290
    exit_code = Exit.DATA


class SparkMissing(OmqError):
    """{what} is missing: {reason}; install it with 'make setup-spark' or pip install 'omq-suite[spark]', and a JRE 17"""

    status = 93
    exit_code = Exit.UNAVAILABLE


class SparkFailed(OmqError):
    """the Spark job failed: {reason}; what was committed before still counts, run it again once \
the cause is fixed"""

    status = 94
    exit_code = Exit.IO


class NoPermission(OmqError):
    """you may not {action} ({what}); do it as root"""

    status = 140
    exit_code = Exit.NO_PERMISSION


class SetupUnfit(OmqError):
    """nothing was installed: {reason}; {advice}"""

    status = 141
    exit_code = Exit.OS


class FileInTheWay(OmqError):
    """nothing was changed: {path} {reason}; move it away, or use --force to replace it"""

    status = 142
    exit_code = Exit.CANT_CREATE


class SystemctlFailed(OmqError):
    """'{command}' failed: {reason}; see 'systemctl status {unit}' and 'journalctl -u {unit}'"""

    status = 143
    exit_code = Exit.UNAVAILABLE


class SysctlTooLow(OmqError):
    """kernel.{key} is {found}, but {needed} is needed for {what}; set it in /etc/sysctl.d and run \
'sysctl --system'"""

    status = 144
    exit_code = Exit.CONFIG


class PlanOutdated(OmqError):
    """the plan does not fit this spool as it is now: {reason}; make a new one: 'omqrecover plan'"""

    status = 70
    exit_code = Exit.DATA


class LossNotAccepted(OmqError):
    """{what}; nothing was changed; use --accept-loss if you have no better copy of the spool"""

    status = 71
    exit_code = Exit.DATA


class NotRepairable(OmqError):
    """{what}; nothing was changed: {reason}"""

    status = 72
    exit_code = Exit.DATA


class NotConfirmed(OmqError):
    """{count} {what} would be changed ({action}), but this was not confirmed; look first, then \
use --yes"""

    status = 120
    exit_code = Exit.USAGE


class PlanUnusable(OmqError):
    """plan {file} cannot be applied: {reason}; make a new one with --dry-run"""

    status = 121
    exit_code = Exit.DATA


class MessagesRefused(OmqError):
    """{refused} of {count} messages were left as they are; the first: {text}"""

    status = 122
    exit_code = Exit.TEMPORARY


class NoSuchHandle(OmqError):
    """no message is open under handle {handle}; option a lists the open ones"""

    status = 123
    exit_code = Exit.NO


class TooManyConnections(OmqError):
    """uid {uid} has too many unregistered connections: the limit is {limit} ({key} of omq.conf); \
try again later"""

    status = 150
    exit_code = Exit.TEMPORARY


class TooManyOfUser(OmqError):
    """uid {uid} has its maximum of {limit} clients (clients_per_uid_max of omq.conf)"""

    status = 151
    exit_code = Exit.TEMPORARY


class ManagerShort(OmqError):
    """the queue manager has no {what} for another client: {reason}; try again later"""

    status = 152
    exit_code = Exit.TEMPORARY


class TooFewDescriptors(OmqError):
    """the limit of open files is {found}, but the queue manager needs {needed} for one client; \
raise LimitNOFILE= or ulimit -n"""

    status = 153
    exit_code = Exit.CONFIG


class AccessDenied(DiskError):
    """{user} may not use {path} ({reason}); {advice}"""

    status = 160
    exit_code = Exit.NO_PERMISSION


class NotOperator(AccessDenied):
    """{user} may not use the index of {path}; {advice}"""

    status = 155
    exit_code = Exit.NO_PERMISSION


class ManagerHung(ManagerUnavailable):
    """the queue manager of {spool} (process {pid}) {state}; {advice}"""

    status = 161
    exit_code = Exit.UNAVAILABLE


class ConnectionForked(OmqError):
    """a connection of process {maker} cannot be used in its child {child}: connect again there"""

    status = 162
    exit_code = Exit.USAGE


class ConnectionBusy(OmqError):
    """the connection is in use by thread {holder}: use one connection per thread, and connect \
again in {thread}"""

    status = 176
    exit_code = Exit.USAGE


class ConnectionClosed(OmqError):
    """the connection {name} was closed: connect again"""

    status = 177
    exit_code = Exit.USAGE


class ReaderClosed(OmqError):
    """the reader of queue {queue} was closed: create another with connection.reader(...)"""

    status = 178
    exit_code = Exit.USAGE


class UnitTooLarge(OmqError):
    """a unit of work has at most {limit} {what}: commit it in parts, or raise {key} in omq.conf"""

    status = 190
    exit_code = Exit.DATA


class UnitEnded(OmqError):
    """the unit of work was {how}: begin another with connection.unit()"""

    status = 191
    exit_code = Exit.USAGE


class MessageInUnit(OmqError):
    """message {qpool_id} is part of a unit of work: it ends with the unit's commit or backout"""

    status = 192
    exit_code = Exit.USAGE


class UnitOpen(OmqError):
    """the connection has {what} open: end it first, or use another connection for {wanted}"""

    status = 193
    exit_code = Exit.USAGE


class UnitBackedOut(OmqError):
    """the unit of work was backed out because the queue manager ended before the commit: do it \
again"""

    status = 194
    exit_code = Exit.TEMPORARY


class UnitsFull(OmqError):
    """open units of work already hold {bytes} bytes in the queue manager: try again later"""

    status = 195
    exit_code = Exit.TEMPORARY


class RoleMissing(OmqError):
    """{user} may not do that in the console without the role {role}; section [console] of \
authority.conf grants roles"""

    status = 196
    exit_code = Exit.NO_PERMISSION


class NotLoggedIn(OmqError):
    """{reason}: log in, or send a token (omq-web --token makes one)"""

    status = 197
    exit_code = Exit.NO_PERMISSION


class DeliveryUnknown(OmqError):
    """delivery {delivery} is not open here: it was settled, or its time ran out and the message \
went back"""

    status = 198
    exit_code = Exit.NO_INPUT


class UnderSupervisor(OmqError):
    """omrc --embedded (process {pid}) supervises {spool} and would start its daemons again; omshut \
stops them and it"""

    status = 327
    exit_code = Exit.USAGE


class ConsoleBusy(OmqError):
    """{what}: try again in {seconds} s"""

    status = 199
    exit_code = Exit.TEMPORARY


class UnitUnknown(OmqError):
    """no unit of work {unit} is in doubt: it has ended, or never existed; see omqwhy and omqlog"""

    status = 179
    exit_code = Exit.NO


class UnitResolved(OmqError):
    """unit of work {unit} was already {how}"""

    status = 180
    exit_code = Exit.NO


class UnitNotPrepared(OmqError):
    """the unit of work cannot be prepared: {reason}. It is still open: commit it or back it out"""

    status = 181
    exit_code = Exit.DATA


class UnitNameTaken(OmqError):
    """a unit of work named {name} is already in doubt: end that one, or use another name"""

    status = 182
    exit_code = Exit.USAGE


class TooManyInDoubt(OmqError):
    """too many units of work are in doubt, the limit is {limit}: end some (omq units), or raise \
units_in_doubt_max"""

    status = 183
    exit_code = Exit.TEMPORARY


class NoReply(OmqError):
    """no reply to request {request} on queue {queue} within {seconds} s (expected on {reply_to})"""

    status = 200
    exit_code = Exit.UNAVAILABLE


class MessageInGroup(OmqError):
    """message {qpool_id} is part of a whole group: end the group, with group.done() or a similar \
call"""

    status = 221
    exit_code = Exit.USAGE


class DuplicateKey(OmqError):
    """queue {queue} has already had a message with the id {key}: this one was not put"""

    status = 222
    exit_code = Exit.NO


class DuplicateAbsorbed(DuplicateKey):
    """queue {queue} has already had a message with the id {key}: a large duplicate is absorbed \
only if it is put on its own"""

    status = 225
    exit_code = Exit.NO


class KeysFull(OmqError):
    """queue {queue} remembers {limit} message ids, its maximum: try again later, or raise its \
dedupe_keys_max"""

    status = 223
    exit_code = Exit.TEMPORARY


class NoDeduplication(OmqError):
    """queue {queue} remembers no message ids, so unique_key has no effect there: give it a \
dedupe_s"""

    status = 224
    exit_code = Exit.DATA


class LookBehind(OmqError):
    """the reader does not know (yet, or any more) what arrived on its queue: it looks at the \
whole queue"""

    status = 220
    exit_code = Exit.TEMPORARY


class BadEnvelope(OmqError):
    """a message on queue {queue} is not a task, it begins with {start}: look at it on {aside}"""

    status = 236
    exit_code = Exit.DATA


class TaskUnknown(OmqError):
    """no function to call for each message: {name}: {reason}; give MODULE:FUNCTION, {path} is \
searched first"""

    status = 237
    exit_code = Exit.CONFIG


class NotRemote(OmqError):
    """{what} is not possible over AMQP: {instead}"""

    status = 253
    exit_code = Exit.USAGE


class RemoteLost(OmqError):
    """the connection to {url} ended: {reason}. Messages whose put was not answered may have \
arrived; connect again"""

    status = 254
    exit_code = Exit.TEMPORARY


class RemoteRefused(OmqError):
    """{queue}: refused by the server: {condition}: {reason}"""

    status = 255
    exit_code = Exit.NO


class ChannelUnknown(OmqError):
    """there is no channel {channel}: 'omq channel list' lists them"""

    status = 240
    exit_code = Exit.NO_INPUT


class BadChannel(OmqError):
    """channel {channel}, {key}: {reason}; allowed: {allowed}"""

    status = 241
    exit_code = Exit.USAGE


class ChannelOutOfStep(OmqError):
    """channel {channel}: {reason}. Look at both sides, then: omq channel resolve, omq channel reset"""

    status = 242
    exit_code = Exit.DATA


class ChannelRefused(OmqError):
    """channel {channel}: {peer} refuses: {reason}; its event log may say more"""

    status = 243
    exit_code = Exit.UNAVAILABLE


class ChannelInDoubt(OmqError):
    """channel {channel}: batches {batches} are in doubt; 'omq channel resolve {channel}' resolves \
them"""

    status = 244
    exit_code = Exit.TEMPORARY


class ChannelInUse(OmqError):
    """channel {channel} is connected and resolves by itself what is in doubt; stop it first: 'omq \
channel stop {channel}'"""

    status = 229
    exit_code = Exit.TEMPORARY


class ChannelBroken(OmqError):
    """channel {channel}: no connection to {peer}: {reason}"""

    status = 245
    exit_code = Exit.TEMPORARY


class PlaceUnavailable(OmqError):
    """{url} is unavailable: {reason}"""

    status = 300
    exit_code = Exit.TEMPORARY


class PlaceRefused(PlaceUnavailable):
    """{url} refuses: {reason}; check the credentials in the environment, their rights to list, \
read, create and delete objects there, and the clock of this host"""

    status = 307
    exit_code = Exit.NO_PERMISSION


class PlaceUnfit(OmqError):
    """{url} replaces an object that is already there, although it was asked to create it only where \
there is none (If-None-Match: *): two instances could ship there unnoticed; use a store that does, or \
a newer version of this one"""

    status = 308
    exit_code = Exit.CONFIG


class PlaceDamaged(OmqError):
    """{name} at {url} is damaged or missing: {reason}"""

    status = 301
    exit_code = Exit.DATA


class ForeignPlace(OmqError):
    """{url} belongs to another instance ({found}), but this one is {uuid}; give each instance a \
place of its own"""

    status = 302
    exit_code = Exit.CONFIG


class Superseded(OmqError):
    """{name} at {url} was written by another member, and this is the primary of term {term}: \
somebody else ships there as this instance; only one of them may go on, and 'omq standby demote' \
ends this one"""

    status = 303
    exit_code = Exit.UNAVAILABLE


class PlaceEmpty(OmqError):
    """{url} holds nothing of this instance, which has shipped before: mount it, or name the right \
place; 'omq ship run --anew' starts over there"""

    status = 305
    exit_code = Exit.CONFIG


class OtherHistory(OmqError):
    """{file} is not of the history at {url}: use an empty directory"""

    status = 306
    exit_code = Exit.DATA


class NothingToRestore(OmqError):
    """{url} has nothing to restore a spool from: {reason}"""

    status = 304
    exit_code = Exit.DATA


class ExtraMissing(OmqError):
    """{command} needs the package {package}, which is not installed: pip install '{extra}'"""

    status = 163
    exit_code = Exit.UNAVAILABLE


class InstanceFailed(OmqError):
    """the test instance in {folder}: {program} {reason}; its output is in {output}"""

    status = 270
    exit_code = Exit.UNAVAILABLE


class BadSchedule(OmqError):
    """schedule {name}: {reason}"""

    status = 271
    exit_code = Exit.USAGE


class UnknownSchedule(OmqError):
    """there is no schedule {name}; 'omq schedule list' lists them"""

    status = 272
    exit_code = Exit.NO_INPUT


class DropDamaged(OmqError):
    """the maildrop's file {file} is damaged: {reason}; it was moved to quarantine/, look there"""

    status = 280
    exit_code = Exit.DATA


class MaildropFull(OmqError):
    """{folder} takes no more mail ({key} = {limit}): check whether the queue manager runs (omstat)"""

    status = 281
    exit_code = Exit.TEMPORARY


class NotSubmitter(OmqError):
    """user {user} may not submit mail on this host: drop_users of omq.conf lists who may"""

    status = 282
    exit_code = Exit.NO_PERMISSION


class NobodyTakesMail(OmqError):
    """no program accepts mail now: {reason}; 'omon drop' starts one that always does"""

    status = 284
    exit_code = Exit.TEMPORARY


class TooManyMails(OmqError):
    """{what} of uid {uid}, and {key} is {limit}: try again later"""

    status = 283
    exit_code = Exit.TEMPORARY


class NothingNoted(OmqError):
    """nothing was noted of TLS with peers on {day} (UTC): no mail went out, or it is older than \
unix_tls_sessions_bytes_max keeps, or that is 0"""

    status = 285
    exit_code = Exit.NO_INPUT


class BodyRefused(BadRequest):
    """queue {queue} does not take this body: at {path}: {reason}"""

    status = 273
    exit_code = Exit.DATA


class SchemaWrong(OmqError):
    """{file} is not a valid schema: {reason}; nothing can be put on its queue until it is"""

    status = 274
    exit_code = Exit.CONFIG


class BodyNotRead(OmqError):
    """the body cannot be read as {kind}: {reason}"""

    status = 275
    exit_code = Exit.DATA


class PlatformUnsupported(OmqError):
    """omq.{what} needs Linux, but this is {platform}; omq.codec, omq.base.errors and the times of \
schedules work here, and clients of AMQP 1.0 reach an instance on another host"""

    status = 276
    exit_code = Exit.UNAVAILABLE


class MemberFailed(OmqError):
    """message {qpool_id} on queue {queue} has failed too often already: a barrier would wait for it \
in vain; 'omqdump' shows why it failed"""

    status = 277
    exit_code = Exit.DATA


class TooManyMembers(OmqError):
    """{count} {what}: the limit is {limit}; let barriers wait for barriers"""

    status = 278
    exit_code = Exit.USAGE


class NotMember(OmqError):
    """a barrier cannot wait for message {qpool_id}: {reason}"""

    status = 279
    exit_code = Exit.USAGE


class FileNotPut(OmqError):
    """{path} cannot become the body of a message: {reason}"""

    status = 294
    exit_code = Exit.NO_INPUT


class FileChanged(OmqError):
    """{path} was changed while it was put ({reason}), and nothing was put: put it when its writer is \
done, best under another name that the writer renames it to"""

    status = 295
    exit_code = Exit.TEMPORARY


class FileNotShared(OmqError):
    """{path} cannot share its blocks with the spool: {reason}; put it with a copy allowed, or keep it \
on the file system of the spool (XFS or Btrfs)"""

    status = 296
    exit_code = Exit.UNAVAILABLE


class DefinitionsRefused(OmqError):
    """{count} of the definitions cannot be taken, so nothing was changed: {first}; correct the file \
and import it again"""

    mistakes: tuple[str, ...] = ()
    """The first ones, each with its place."""
    status = 298
    exit_code = Exit.DATA


class DefinitionsStopped(OmqError):
    """{done} of {count} definitions were taken, then {name} was refused: {reason}; once that is \
solved import the file again: what is in force stays so"""

    status = 299
    exit_code = Exit.TEMPORARY


class ServerAway(OmqError):
    """{server} does not run or does not answer: {reason}; 'omstat' shows it, 'omon' starts it"""

    status = 310
    exit_code = Exit.UNAVAILABLE


class ConnectionUnknown(OmqError):
    """there is no connection {number} any more; 'omq connections' lists those that are there"""

    status = 311
    exit_code = Exit.NO_INPUT


class LinkUnknown(OmqError):
    """connection {number} has no link {link!r} any more; 'omq connections --links' lists them"""

    status = 320
    exit_code = Exit.NO_INPUT


class TlsReportsWait(OmqError):
    """{count} reports of TLS could not be sent now, the last because: {reason}; the next run of \
'omq tls --mail' tries them again, up to the day after next"""

    status = 321
    exit_code = Exit.TEMPORARY


class HoldsUnknown(OmqError):
    """{path} cannot be used ({reason}), so whom an operator holds is not known and nothing is sent \
to anybody; make it readable, or move it away, which releases all, and hold anew whom you want held"""

    status = 322
    exit_code = Exit.DATA


def _all_errors(root: type[OmqError]) -> dict[int, type[OmqError]]:
    found: dict[int, type[OmqError]] = {root.status: root}
    for child in root.__subclasses__():
        for status, error in _all_errors(child).items():
            assert status not in found, f"status {status} is used twice"
            found[status] = error
    return found


BY_STATUS: dict[int, type[OmqError]] = _all_errors(OmqError)


def from_status(status: int, fields: dict[str, Any]) -> OmqError:
    """The error for a wire status; an unknown one becomes OmqError with the number in its text."""
    error = BY_STATUS.get(status)
    if error is None or error is OmqError:
        return OmqError(text=f"status {status}: {fields}")
    return error(**fields)


REFUSALS: tuple[type[OmqError], ...] = (
    BadRequest, BadPriority, BadProperty, NoAuthority, UnknownQueue, PutInhibited, QueueFull,
    IndexFull, SpoolFull, MessageTooLong)
"""The manager answered, nothing was done, and the connection is good: an error of one message."""
