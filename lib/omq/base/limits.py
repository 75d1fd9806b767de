"""Hard limits: what the formats and the algorithms are built for. Settings may only go below them.

A limit stands here when a file format, a fixed-width field or an algorithm's cost depends on it;
what an administrator may choose is a key of omq.conf (omq.base.settings). Every number has its
reason.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

QUEUES_MAX: Final = 1000
"""Rows of a fixed table of the index, by their numbers; tools print them all."""

NAMED_QUEUES_MAX: Final = QUEUES_MAX - 1
"""Queues of one instance, with IDEL and POISON: number 0 is not a queue."""

QUEUE_NAME_BYTES: Final = 16
"""Width of a queue name in every format; enough for the original's names, which had up to eight."""

PRIORITIES: Final = 10
"""One chain each per queue, 9 first. The original's urgent, normal and low are 7, 4 and 1."""

PRIORITY_URGENT: Final = 7
PRIORITY_NORMAL: Final = 4
PRIORITY_LOW: Final = 1

QUEUES_PER_MESSAGE_MAX: Final = 64
"""Queues one message may be on at once: four pool records. It bounds the work of one request."""

POOL_FILES_MAX: Final = 100
"""Pool files 0QP to 99QP: the submitter's process id modulo 100 chooses (as in the original)."""

MESSAGE_ID_BYTES: Final = 24
UNIT_NAME_BYTES_MAX: Final = 200  # as the names of prepared transactions in PostgreSQL
"""The width IBM MQ made customary; printed as 48 hexadecimal digits."""

RECALL_MAX: Final = 500
"""Messages of one recall (core.engine.recall): bounds what one group of the manager does."""

BARRIER_MEMBERS_MAX: Final = 10_000
"""Messages that one barrier waits for: bounds what one request makes the manager do and keep."""

BARRIERS_PER_MESSAGE_MAX: Final = 8
"""Barriers that wait for one message: bounds the frames that its end may need."""

CORRELATION_ID_BYTES: Final = 24
"""As wide as a message id, because a reply's correlation id usually is one."""

PROPERTIES_BYTES_MAX: Final = 64 * KIB
"""All properties of one message, encoded. They travel in each hand-out, so they must stay small."""

PROPERTY_NAME_BYTES_MAX: Final = 64
"""Long enough for dotted names such as mail.orig.LOCAL, short enough for one column."""

REASON_BYTES_MAX: Final = 512
"""Text of a defer or fail reason kept in the journal; longer ones are cut, not refused."""

BROWSE_MAX: Final = 10_000_000
"""Rows of one browse when the caller names no limit: a bound, not a page size."""

BODY_BYTES_MAX: Final = 2 * GIB - 1
"""Sizes are unsigned 32-bit fields; half of the range leaves room for frames around the body."""

BATCH_MAX: Final = 1000
"""Messages in one put_many or next: bounds a request's memory and the time it holds the loop."""

CONTAINERS_PENDING_MAX: Final = 16
"""Large bodies of a uid that no put has named yet: bounds what it can make the manager hold."""

DEDUPE_CLIENTS_MAX: Final = 7000
"""Clients whose last request is remembered: a slot of poolctrl holds them and all queues."""

AUXILIARIES_MAX: Final = 20
"""Auxiliary readers per service (the original's limit): 21 readers with the main one."""

ATTEMPTS_MAX: Final = 255
"""The failed-attempts counter has one byte."""

AMQP_TTL_MAX_S: Final = 4_294_967.0
"""AMQP states the time that a message has left in 32 bits of milliseconds: 49.7 days. An expiry
that is further away is sent as this one."""

CONF_FILE_BYTES_MAX: Final = MIB
"""A configuration file above this is not one; refused before it is read into memory."""
