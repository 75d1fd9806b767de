from omq.fast.client_state cimport ClientState
from omq.fast.columns cimport Columns

cdef unsigned int _MAGIC, _REDELIVERED
cdef Py_ssize_t _ROWS_MAX

cdef class Replies:
    cdef object _made
    cdef Columns _c
    cdef unsigned long long _epoch
    cdef unsigned char[::1] _b8
    cdef unsigned short[::1] _b16
    cdef unsigned int[::1] _b32
    cdef unsigned long long[::1] _b64
    cpdef int answer(self, ClientState session, unsigned long long sequence, unsigned int count,
                     unsigned long long qpool, unsigned long long lsn, long long now) except -1
    cpdef int given(self, ClientState session, unsigned long long sequence, list entries,
                    unsigned long long qpool, unsigned long long lsn, long long now) except -1
    cpdef int announce(self, list sessions) except -1
    cdef int _head(self, unsigned int lost, unsigned long long sequence, unsigned int count,
                   unsigned long long qpool, unsigned long long lsn) except -1
    cdef int _row(self, Py_ssize_t i, Py_ssize_t entry) except -1
