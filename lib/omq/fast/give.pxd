from omq.fast.attempts cimport Attempts
from omq.fast.client_state cimport ClientState
from omq.fast.columns cimport Columns
from omq.fast.frames cimport Frames
from omq.fast.groups cimport Rings
from omq.fast.limited_keys cimport Keys
from omq.fast.party cimport Party
from omq.fast.request cimport Request
from omq.fast.waiter cimport Waiter

cdef unsigned int _FIRST, _PRIORITIES, _SUSPENDED, _LIMITED, _KEYED
cdef unsigned int _GROUPED, _OUT_OF_TURN
cdef Py_ssize_t _GIVES, _HEAD, _ROW
cdef long long _FOREVER, _TIMEOUT_MAX, _MS, _S, _TIMEOUT_MS_MAX

cdef class Gives:
    cdef object _engine, _core
    cdef Columns _c
    cdef Frames _frames
    cdef Rings _rings
    cdef Keys _limits
    cdef Attempts _attempts
    cdef Py_ssize_t _chain
    cdef long long _soonest
    cdef long long soonest(self) except? -1
    cdef bint plain(self, Request r, ClientState session, Py_ssize_t batch_max) except -1
    cdef int wait(self, Request r, ClientState session, Party party, Py_ssize_t batch_max,
                  unsigned int queue, unsigned int by, unsigned long long key,
                  unsigned long long put) except -1
    cdef int _end_at(self, long long deadline, Waiter waiter) except -1
    cpdef bint dispatch(self, list given) except -1
    cdef bint _plain_queue(self, Py_ssize_t queue) except -1
    cdef Py_ssize_t _ready(self, Py_ssize_t queue) except -1
    cdef bint _hand_out(self, Py_ssize_t queue, object line, list given) except -1
    cdef Py_ssize_t _head(self, Py_ssize_t queue) except? -1
    cdef Py_ssize_t _returned(self, Py_ssize_t top, Py_ssize_t head) except? -1
    cdef list _give(self, Party party, Py_ssize_t queue, Py_ssize_t want,
                    unsigned long long sequence, bint laned, bint keyed)
