cimport cython

cdef Py_ssize_t _BINS, _SHIFT, _HASHES
cdef unsigned long long _MASK, _US

cdef Py_ssize_t bits(unsigned long long number) noexcept

@cython.final
cdef class Columns:
    cdef unsigned long long[::1] counters, e_lease, e_sequence, m_corr, m_key, m_lsn, m_qpool
    cdef unsigned long long[::1] j_groups, j_syncs, q_ever, q_processed, q_waited_us, q_waits
    cdef unsigned long long[::1] q_worked_us, q_works, r_processed
    cdef long long[::1] e_submitted, e_until, m_expiry, m_time, r_request, r_response
    cdef unsigned int[::1] b_corr, b_id, e_message, e_next, e_prev, e_reader, e_sibling
    cdef unsigned int[::1] free_entries, free_messages, m_corrnext, m_corrprev, m_crc
    cdef unsigned int[::1] m_first, m_idnext, m_idprev
    cdef unsigned int[::1] m_length, m_location, m_offset, m_pid, m_record, m_size, m_uid
    cdef unsigned int[::1] q_active, q_depth, q_flags, q_head, q_hour, q_max_depth, q_max_length
    cdef unsigned int[::1] q_ready, q_tail, r_timeout
    cdef unsigned short[::1] e_attempts, e_queue, e_retries, m_flags, m_origin, m_parts
    cdef unsigned char[::1] e_priority, e_state, m_file
    cdef unsigned long long mask, _moved, _one, _other, _upper
    cdef unsigned int _bits
    cdef object _buckets
    cdef Py_ssize_t queues
    cdef int link(self, Py_ssize_t entry, Py_ssize_t chain) except -1
    cdef int unlink(self, Py_ssize_t entry, Py_ssize_t chain) except -1
    cdef Py_ssize_t bucket(self, unsigned long long key) noexcept
    cdef int enchain(self, unsigned int[::1] heads, unsigned int[::1] following,
                     unsigned int[::1] before, unsigned long long key, Py_ssize_t slot) except -1
    cdef int unchain(self, unsigned int[::1] heads, unsigned int[::1] following,
                     unsigned int[::1] before, unsigned long long key, Py_ssize_t slot) except -1
    cdef int waited(self, Py_ssize_t queue, long long ns, unsigned long long count) except -1
    cdef int worked(self, Py_ssize_t queue, long long ns, unsigned long long count) except -1
