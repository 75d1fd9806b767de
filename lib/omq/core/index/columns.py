"""The columns of the index as Python sees them: an item is one number (omq.format.index)."""

from __future__ import annotations


class Columns:
    """What omq.core.index.tables makes of a buffer. `m_`: by slot of a message, `e_`: of an entry,
    `q_`: by queue, or by queue and priority, `r_`: by reader, `b_`: by hash, `j_`: of the journal.
    """

    m_qpool: memoryview
    m_lsn: memoryview
    m_time: memoryview
    m_key: memoryview
    m_corr: memoryview
    m_expiry: memoryview
    m_location: memoryview
    m_offset: memoryview
    m_length: memoryview
    m_crc: memoryview
    m_size: memoryview
    m_pid: memoryview
    m_uid: memoryview
    m_record: memoryview
    m_first: memoryview
    m_idnext: memoryview
    m_idprev: memoryview
    m_corrnext: memoryview
    m_corrprev: memoryview
    m_flags: memoryview
    m_parts: memoryview
    m_origin: memoryview
    m_file: memoryview
    e_sequence: memoryview
    e_submitted: memoryview
    e_until: memoryview
    e_lease: memoryview
    e_message: memoryview
    e_next: memoryview
    e_prev: memoryview
    e_sibling: memoryview
    e_reader: memoryview
    e_queue: memoryview
    e_attempts: memoryview
    e_retries: memoryview
    e_priority: memoryview
    e_state: memoryview
    q_ever: memoryview
    q_expired: memoryview
    q_processed: memoryview
    q_hour_at: memoryview
    q_started: memoryview
    q_load1: memoryview
    q_load5: memoryview
    q_load15: memoryview
    q_rate1: memoryview
    q_rate5: memoryview
    q_rate15: memoryview
    q_sampled: memoryview
    q_flags: memoryview
    q_depth: memoryview
    q_ready: memoryview
    q_active: memoryview
    q_deferred: memoryview
    q_held: memoryview
    q_hour: memoryview
    q_last_hour: memoryview
    q_max_depth: memoryview
    q_max_length: memoryview
    q_waited_us: memoryview
    q_worked_us: memoryview
    q_failed: memoryview
    q_dead: memoryview
    q_waits: memoryview
    q_works: memoryview
    j_syncs: memoryview
    j_groups: memoryview
    r_registered: memoryview
    r_request: memoryview
    r_response: memoryview
    r_started: memoryview
    r_processed: memoryview
    r_pid: memoryview
    r_uid: memoryview
    r_client: memoryview
    r_timeout: memoryview
    r_queue: memoryview
    r_flags: memoryview
    q_head: memoryview
    q_tail: memoryview
    b_id: memoryview
    b_corr: memoryview
