"""The catalogue of events: every line that a daemon logs has one number and one text, here only.

Numbers are for programs and for the search engine of whoever reads the log: they never change their
meaning and are never reused. 7601, 7603, 7604, 7605, 7608, 7618 and 8807 are the original's, with
its texts; the other numbers are grouped around them. Fields carry the particulars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Event:
    """`[OM nnnn] text`."""

    number: int
    text: str


CATALOGUE: Final[dict[int, Event]] = {}


def _event(number: int, text: str) -> Event:
    assert number not in CATALOGUE, f"event number {number} is used twice"
    CATALOGUE[number] = Event(number, text)
    return CATALOGUE[number]


# 1000: any daemon
SERVICE_STARTED = _event(1001, "Service Started Up")
SERVICE_STOPPED = _event(1002, "Service Shut Down")
SERVICE_DRAINING = _event(1003, "Service is finishing its messages before it stops")
SERVICE_RELOADED = _event(1004, "Configuration Reloaded")
RELOAD_REFUSED = _event(1005, "Configuration refused; the old one stays in force")
CONFIG_WRONG = _event(1006, "Configuration is wrong; the service does not start")
BUG = _event(1007, "Unexpected error in the program")
FAILED = _event(1008, "Operation failed")
FAULT_ARMED = _event(1011, "Crash points are armed by OMQ_FAULT")

# 1100: supervisor and service parents
READER_STARTED = _event(1101, "Reader process started")
READER_STOPPED = _event(1102, "Reader process stopped")
READER_DIED = _event(1103, "Reader process died")
READER_KILLED = _event(1105, "Reader process did not stop in time and was killed")
DAEMON_STARTED = _event(1111, "Daemon started")
DAEMON_READY = _event(1112, "Daemon is ready")
DAEMON_DIED = _event(1113, "Daemon died")
DAEMON_STOPPED = _event(1115, "Daemon stopped")
DAEMON_KILLED = _event(1116, "Daemon did not stop in time and was killed")
DAEMON_NOT_READY = _event(1117, "Daemon did not become ready in time")
DAEMON_GIVEN_UP = _event(1118, "Daemon is not restarted: its configuration is wrong")
DAEMON_REFUSES = _event(1119, "Daemon is not restarted: it refuses the spool")
DAEMON_HUNG = _event(1120, "Daemon gave no sign of life and is aborted: its main loop hangs")
SUPERVISOR_STARTED = _event(1121, "Supervisor Started Up")
SUPERVISOR_STOPPED = _event(1122, "Supervisor Shut Down")
SIDE_FILES_REFUSED = _event(
    1123, "Files for tools cannot be written; the work goes on without them")
SIDE_FILES_WRITTEN = _event(1124, "Files for tools can be written again")
EVENTS_LOST = _event(1125, "Lines of this log are missing: it could not be written")
SIDE_FILE_UNREADABLE = _event(1128, "A file for tools cannot be read; treated as absent")
FORK_SERVER_GONE = _event(1129, "Daemons start without the fork server, each in a new interpreter")

# 1200: queue manager
MANAGER_STARTED = _event(1201, "Queue Manager Started Up")
MANAGER_STOPPED = _event(1202, "Queue Manager Shut Down")
MANAGER_READY = _event(1203, "Queue Manager serves requests")
MANAGER_DIED = _event(1204, "Queue Manager is dying; its state is in the tombstone file")
CLIENT_DIED = _event(1213, "Client died")
REQUEST_REFUSED = _event(1215, "Request refused")
INDEX_LOW = _event(1216, "The index is almost full: new messages are refused")
INDEX_FREE = _event(1217, "The index has room again: new messages are accepted")
READER_LOST = _event(1223, "Queue reader died while it was processing messages")
LEASE_ENDED = _event(1224, "Lease ended; the message was taken back")
MESSAGE_POISONED = _event(1232, "Message put on the POISON queue")
MESSAGE_DEAD_LETTER = _event(1233, "Message failed too often and went to its dead-letter queue")
QUEUE_DEFINED = _event(1241, "Queue defined")
QUEUE_CHANGED = _event(1242, "Queue changed")
QUEUE_REMOVED = _event(1243, "Queue is no longer configured; its messages stay")
SPOOL_FULL = _event(1246, "Disk space is short: new messages are refused")
SPOOL_FREE = _event(1247, "Disk space is enough again: new messages are accepted")
BACK_PRESSURE = _event(1248, "Checkpoint is far behind: clients are slowed down")
BACK_PRESSURE_OVER = _event(1249, "Checkpoint has caught up: clients are no longer slowed down")
OPERATOR_COMMAND = _event(1251, "Operator command carried out")
MESSAGES_NOT_READ = _event(1252, "Messages of the pool were not read at start, as configured")
CALLER_REFUSED = _event(1253, "Connection refused: its user, or all users together, have too many")
DOOR_CLOSED = _event(1254, "Connection closed: what arrived on it does not come from a client")
DOOR_SCARCE = _event(1255, "Connections cannot be accepted: descriptors or memory are short")
CLIENTS_LOWERED = _event(1256, "Fewer clients than configured: the limit of open files is too low")
GARBAGE_TAKEN = _event(1257, "Garbage was removed from the request queue")
THREAD_FAILED = _event(1258, "A thread ended with an unexpected error")
SPOOL_MOVED = _event(1271, "The spool was moved here or restored from a copy")
SPOOL_COPY = _event(1272, "Another spool has the same identity: never serve both")
UNITS_IN_DOUBT = _event(1273, "Units of work are in doubt: their messages wait for the outcome")
UNIT_ENDED = _event(1274, "A unit of work in doubt was ended by an operator")
UNIT_DAMAGED = _event(1275, "Part of a unit of work in doubt is missing")
CLOCK_SET = _event(1259, "The clock of this host was set")
CLOCK_BEHIND = _event(1261, "The clock is earlier than the newest message: is it wrong?")
MESSAGES_EXPIRED = _event(1260, "Messages have expired and left their queue")
KEYS_FORGOTTEN = _event(
    1262, "More keys than limit_keys_max: rates of some were forgotten before their time")

ACCESS_RESTRICTED = _event(1265, "Files that others could open are restricted to their owner")
FOREIGN_FILES = _event(1266, "Files in the spool belong to another user: daemons cannot use them")

QUEUE_DELETED = _event(1276, "Queue deleted")
QUEUE_RENAMED = _event(1277, "Queue renamed")
QUEUE_OF_FILE = _event(1278, "Queue made at run time is now defined by queues.conf")
DEFINITION_UNUSABLE = _event(1279, "Definition of a queue cannot be used; its messages stay")
QUEUE_LOST = _event(1288, "The name of a queue is lost; its messages stay under another name")

# 1280, 1300: recovery
TRIGGER_OWED = _event(1283, "A trigger message cannot be put; it will be once there is room")
TRIGGER_STARTED = _event(1284, "Triggered program started")
TRIGGER_ENDED = _event(1285, "Triggered program ended")
TRIGGER_FAILED = _event(1286, "Triggered program failed; it is restarted after a pause")
TRIGGER_UNKNOWN = _event(1287, "A queue asks for a program that is not in triggers.conf")
SCHEDULES_READ = _event(1640, "Schedules were read")
SCHEDULE_PUT = _event(1641, "A schedule put a message")
SCHEDULE_MISSED = _event(1642, "Planned times of a schedule were missed")
SCHEDULE_SKIPPED = _event(
    1643, "A planned time was skipped: the previous message is still being processed")
SCHEDULE_WITHOUT_QUEUE = _event(
    1644, "The queue of a schedule is not there: what is due waits until it is defined")

# 1660: standbys
STANDBY_LISTENS = _event(1660, "Standbys are served")
STANDBY_LISTENS_NO_MORE = _event(1661, "Standbys are no longer served")
STANDBY_CONNECTED = _event(1662, "A standby has connected")
STANDBY_GONE = _event(1663, "The connection to a standby ended")
STANDBY_REFUSED = _event(1664, "A standby was refused")
PROTECTION_CHANGED = _event(1666, "The protection behind an acknowledgement has changed")
MEMBERS_SILENT = _event(1665, "Members do not answer; whether one was promoted is not known")

POOL_DIFFERS = _event(1281, "A pool file differs from what was written into it")
SPOOL_UPGRADED = _event(1282, "Files of an earlier version were upgraded")
NOT_COMPILED = _event(1300, "The compiled fast path cannot be used; it runs interpreted")
RECOVERY_FINISHED = _event(1304, "Recovery finished")
LEFT_OVERS = _event(1307, "IPC objects of a dead queue manager removed")
BLOCK_QUARANTINED = _event(1312, "Damaged journal block set aside in quarantine")
RECORD_QUARANTINED = _event(1313, "Damaged record set aside in quarantine")
SEQUENCE_GAP = _event(1315, "Log sequence numbers are missing in the journal")

# 1320: what operators do, and what is left of those that died
READER_FREED = _event(1320, "Queue reader was released by an operator; its messages are ready")
DIED_OF_SIGNAL = _event(1321, "A process died of a fatal signal; its stack is here")

# 1340: services and mail
DISPOSITION_REFUSED = _event(1340, "The outcome of a message was refused; the message waits")
REPORTS_WAIT = _event(1341, "Too many non-delivery reports: the rest wait")

# 1400: journal, pool, store
JOURNAL_RETIRED = _event(1402, "Journal file retired")
JOURNAL_ARCHIVED = _event(1404, "Journal file archived")
ARCHIVE_PRUNED = _event(1405, "Old archive file removed")
ARCHIVE_DAMAGED = _event(1406, "Damage was found while journal files were archived")
JOURNAL_LATE = _event(1403, "Next journal file was not ready in time")
CHECKPOINT = _event(1411, "Checkpoint finished")
CHECKPOINT_LATE = _event(1412, "Checkpoint is late; the journal grows")
POOL_WRITER_STARTED = _event(1421, "Pool Writer Started Up")
POOL_WRITER_STOPPED = _event(1422, "Pool Writer Shut Down")
STORE_COMPACTED = _event(1431, "Store file compacted")
DISK_ERROR = _event(1441, "Disk error; the daemon stops")
BODY_DAMAGED = _event(1442, "Message body is damaged")

# 1500: item delete daemon
IDEL_STARTED = _event(1501, "Item Delete Daemon Started Up")
IDEL_STOPPED = _event(1502, "Item Delete Daemon Shut Down")
IDEL_DELETED = _event(1503, "Messages deleted")
IDEL_STUCK = _event(1267, "A message cannot be deleted; it stays on IDEL and is retried")
IDEL_MORE_STUCK = _event(1268, "More messages cannot be deleted; they stay on IDEL")
IDEL_SET_ASIDE = _event(
    1269, "A container cannot be deleted and was set aside; its message is gone")
IDEL_ALREADY_GONE = _event(1504, "Item was already gone")

# 1505-1506: channels
CHANNEL_STARTED = _event(1505, "Channel process started")
CHANNEL_DIED = _event(1506, "Channel process died")

# 1507-1529: mail: encryption, who somebody is, names
SMTP_TLS_FAILED = _event(1507, "TLS with a client failed")
SMTP_LOGIN = _event(1508, "A client logged in")
SMTP_LOGIN_FAILED = _event(1509, "Wrong name or password")
GATEWAY_TLS_FAILED = _event(1510, "TLS with a peer failed; sending without it from now on")
SMTP_FILTER_FAILED = _event(1511, "The content filter does not answer; the mail is not accepted")
SMTP_FILTER_KEPT = _event(1512, "The content filter accepted a mail and returned nothing")
DROP_STARTED = _event(1513, "Mail Drop Started Up")
DROP_STOPPED = _event(1514, "Mail Drop Shut Down")
DROP_REFUSED = _event(1515, "A user of this host could not submit mail")
DROP_WAITS = _event(1516, "A mail in the maildrop is refused by its queue; it will be retried")
DROP_FILE = _event(1517, "A file in the maildrop is not valid")
SMTP_MILTER_FAILED = _event(1519, "A milter is away, silent or faulty; smtp_milter_default applies")
SMTP_POLICY_FAILED = _event(1520, "A policy service is away, silent or faulty")
MAIL_MAP_FAILED = _event(1521, "A map of addresses is away, slow or faulty; its mail waits")
REPORT_TEMPLATE_WRONG = _event(
    1522, "A template of a report is wrong; the built-in one is used")
DROP_AWAY = _event(1518, "No queue manager; mail waits in the maildrop")

# 1530-1540: the lease of a primary
LEASE_WON = _event(1530, "This member has the lease and is the primary")
LEASE_LOST = _event(1531, "This member has lost the lease; nothing is acknowledged")
LEASE_SILENT = _event(1532, "etcd does not answer, or refuses; the lease cannot be read")
LEASE_NOT_TAKEN = _event(1533, "The lease is free, and this member may not take it")
LEASE_CHILD_ENDED = _event(1534, "A process that this member started has ended")
IN_SYNC_CHANGED = _event(1535, "The list of standbys in sync has changed in etcd")
LEASE_KEEPER_STARTED = _event(1536, "The keeper of the lease has started")
LEASE_KEEPER_STOPPED = _event(1537, "The keeper of the lease has stopped")
LEASE_MANAGER_HUNG = _event(
    1540, "The queue manager hangs; its lease is not renewed, and another member may be promoted")

AMQP_CLOSED = _event(1580, "An operator closed a connection of AMQP")
# 1585-1599: AMQP
AMQP_STARTED = _event(1585, "AMQP Server Started Up")
AMQP_STOPPED = _event(1586, "AMQP Server Shut Down")
AMQP_LOGIN = _event(1587, "An AMQP client logged in")
AMQP_LOGIN_FAILED = _event(1588, "An AMQP client failed to log in or is not admitted")
AMQP_REFUSED = _event(1589, "An AMQP client was refused")
AMQP_BROKE = _event(1590, "An AMQP connection broke off")
AMQP_REJECTED = _event(1591, "An AMQP message was rejected")
AMQP_WAITS = _event(1592, "A queue takes no messages now; an AMQP client waits")
AMQP_RESOLVED = _event(1593, "Units of work that a dead amqp.server left in doubt were ended")

# 1600: channels between instances
CHANNELS_STARTED = _event(1600, "Channel Sender Started Up")
CHANNELS_STOPPED = _event(1601, "Channel Sender Shut Down")
CHANNEL_RUNNING = _event(1602, "Channel is running: the other side is connected")
CHANNEL_ENDED = _event(1603, "Channel ended: it was stopped, or had nothing to do")
CHANNEL_BROKE = _event(1604, "Channel has no connection; it is retried after a pause")
CHANNEL_OUT_OF_STEP = _event(
    1605, "Channel is out of step with the other side: an operator must act")
CHANNEL_RESOLVED = _event(1606, "A batch in doubt was resolved")
CHANNEL_DEAD_LETTER = _event(1607, "A message of a channel became a dead letter")
CHANNEL_WRONG = _event(1608, "The definition of a channel is wrong; it does not run")
CHANNEL_RECEIVES = _event(1609, "A channel of another instance is connected")
CHANNEL_ADOPTED = _event(
    1610, "A channel reconnected while its old connection was open; the old one ends")
CHANNEL_REFUSED = _event(1611, "A channel of another instance was refused")
CHANNEL_WAITS = _event(1612, "A batch cannot be put now; its channel waits")
CHANNEL_RESET = _event(1625, "The number of a channel's last batch was set by an operator")
CHANNEL_TWICE = _event(1613, "A peer that is not omq gets messages again that it may already have")

# 1550-1551: mail: policies of peers
STS_FAILED = _event(1550, "The MTA-STS policy of a domain cannot be obtained")
STS_NOT_KEPT = _event(
    1551, "An MTA-STS policy could not be written to the spool; it will be fetched again")

# 1552: mail: checks of content
MAIL_CHECK_FAILED = _event(1552, "A mail cannot be checked by its content now; it waits")

# 1560-1565: omq worker
WORKER_STARTED = _event(1560, "A worker started")
WORKER_STOPPED = _event(1561, "A worker stopped")
TASK_DONE = _event(1562, "A task is done")
TASK_FAILED = _event(1563, "A task failed")
TASK_STOPPED = _event(1564, "A task did not finish in time at a stop; its message goes back")
TASK_CANCELLED = _event(
    1565, "A task's message was cancelled while it was processed; its function has ended")

# 1570-1572: alarms
ALARM_RAISED = _event(1570, "Alarm raised")
ALARM_CLEARED = _event(1571, "Alarm cleared")
ALARM_NOT_TOLD = _event(1572, "Nobody could be notified of an alarm")

# 1573-1584: the console
WEB_STARTED = _event(1573, "Console Started Up")
WEB_STOPPED = _event(1574, "Console Shut Down")
WEB_LOGIN = _event(1575, "Somebody logged in to the console")
WEB_LOGIN_FAILED = _event(1576, "Somebody could not log in to the console")
WEB_REFUSED = _event(1577, "The console refused a request or a connection")
WEB_ACTION = _event(1578, "A user of the console did something")
WEB_FAILED = _event(1579, "A user of the console could not do something")

# 7000: service router
ROUTER_STARTED = _event(7001, "Service Router Started Up")
ROUTER_STOPPED = _event(7002, "Service Router Shut Down")
ROUTED = _event(7003, "Message routed")
ROUTER_NO_ROUTE = _event(7004, "No route for recipient")

# 7200: SMTP server
SMTP_STARTED = _event(7201, "SMTP Server Started Up")
SMTP_STOPPED = _event(7202, "SMTP Server Shut Down")
SMTP_ACCEPTED = _event(7203, "Message accepted")
SMTP_REFUSED = _event(7204, "Message refused for now")
SMTP_REJECTED = _event(7205, "Message rejected")
SMTP_SESSION_FAILED = _event(7206, "Session broke off")

# 7400: internet mail gateway
GATEWAY_STARTED = _event(7401, "Internet Mail Gateway Started Up")
GATEWAY_STOPPED = _event(7402, "Internet Mail Gateway Shut Down")
GATEWAY_SENT = _event(7403, "Message sent")
GATEWAY_DEFERRED = _event(7404, "Message could not be sent; it will be retried")
GATEWAY_REJECTED = _event(7405, "Message was rejected by the peer")
GATEWAY_EXPIRED = _event(7406, "Message could not be sent in time; no more retries")
GATEWAY_NO_PEER = _event(7407, "Peer cannot be reached")
HOLDS_UNKNOWN = _event(7408, "Whom an operator holds is not known: nothing is sent")

# 7500: the sendmail interface
XPORT_STARTED = _event(7501, "Sendmail Interface Started Up")
XPORT_STOPPED = _event(7502, "Sendmail Interface Shut Down")
XPORT_GIVEN = _event(7503, "Message given to the command")
XPORT_DEFERRED = _event(7504, "The command did not take a message; it will be retried")
XPORT_REFUSED = _event(7505, "The command refused a message")
XPORT_EXPIRED = _event(7506, "The command did not take a message in time; no more retries")

# 7600: local delivery (the original's numbers and texts where it has them)
LOCAL_STARTED = _event(7601, "Local Delivery Started Up")
LOCAL_STOPPED = _event(7602, "Local Delivery Shut Down")
LOCAL_DELIVERY_STARTED = _event(7603, "Started delivery of message")
LOCAL_DELIVERY_FINISHED = _event(7604, "Finished delivery of message")
LOCAL_MESSAGE_ID = _event(7605, "Current message Id")
LOCAL_RECIPIENT_FINISHED = _event(7608, "Finished delivery to recipient")
LOCAL_RECIPIENT_UNKNOWN = _event(7609, "Recipient has no mailbox here")
LOCAL_ALREADY_DELIVERED = _event(7610, "Message was delivered before; not written again")
LOCAL_FAILED = _event(7611, "Delivery failed; it will be retried")
LOCAL_CREATOR = _event(7618, "Creator of message")

# 8800: error manager
ERRMGR_STARTED = _event(8801, "Error Manager Started Up")
ERRMGR_STOPPED = _event(8802, "Error Manager Shut Down")
ERRMGR_REPORTED = _event(8803, "Non-delivery report sent")
ERRMGR_NO_REPORT = _event(8804, "No report: the message has no sender")
ERRMGR_UNUSABLE = _event(8805, "Message put on the ERROR queue: no report can be made")
# The original's; here an instance always has one. Kept, so that the number stays taken.
ERRMGR_NOT_CONFIGURED = _event(8807, "No Error Manager Configured. Please Configure One")

# 9000: client programs (omsend, omread)
COMMAND_FAILED = _event(9001, "Command failed; the message counts one more attempt")
COMMAND_DEFERRED = _event(9002, "Command asked to be run again later")
COMMAND_DONE = _event(9003, "Command finished the message")
