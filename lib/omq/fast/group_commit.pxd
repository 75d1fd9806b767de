from omq.fast.client_state cimport ClientState
from omq.fast.columns cimport Columns
from omq.fast.journal cimport Journal
from omq.fast.look_line cimport LookLine
from omq.fast.plain_requests cimport Path
from omq.fast.waiter cimport Waiter

cdef Py_ssize_t _VERSION, _NEXT, _LAST, _BEAT, _DURABLE, _SYNCS, _ACTIVE_PEAK
cdef Py_ssize_t _MESSAGES, _MESSAGES_HIGH, _PEAK, _ENTRIES, _ENTRIES_HIGH

cdef class Turn:
    cdef object _server, _engine, _core, _recent, _sessions
    cdef LookLine _looks
    cdef dict _by_id
    cdef list _given
    cdef readonly Path path
    cdef Journal _journal
    cdef Columns _c
    cdef Py_ssize_t _rows_max
    cdef bint _stirred
    cdef long long _due
    cdef long long _moment
    cpdef int close(self) except -1
    cpdef int stir(self) except -1
    cpdef bint is_plain(self) except -1
    cpdef long long due(self) except? -1
    cpdef Columns columns(self)
    cpdef object writer(self)
    cpdef int run(self, list batch, long long wall_ns, long long mono_ns, object drain) except -1
    cdef int group(self, list batch, long long wall_ns, long long mono_ns, object drain,
                   bint asks) except -1
    cdef int _take(self, list batch) except -1
    cdef int _commit(self) except -1
    cpdef int release(self) except -1
