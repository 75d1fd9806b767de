from omq.fast.client_state cimport ClientState
from omq.fast.columns cimport Columns
from omq.fast.frames cimport Frames
from omq.fast.limited_keys cimport Keys
from omq.fast.party cimport Party
from omq.fast.request cimport Request
from omq.fast.settled cimport SettledEntries

cdef unsigned int _DONE, _PREPARE, _PREPARED, _WORD, _ACTIVE, _LAST, _END, _SPECIAL
cdef unsigned int _PSEUDO, _LIMITED

cdef class Dones:
    cdef object _core, _entries, _said
    cdef Py_ssize_t _most
    cdef Columns _c
    cdef Frames _frames
    cdef Keys _limits
    cdef SettledEntries _ends
    cdef unsigned char[::1] _s8, _seen
    cdef unsigned short[::1] _s16
    cdef unsigned int[::1] _s32, _picked
    cdef unsigned long long[::1] _s64
    cdef bint settle(self, Request r, ClientState session, Party party) except -1
    cdef Py_ssize_t _without(self, Py_ssize_t count, set known) except? -1
    cdef bint one(self, object said, Party party) except -1
    cdef bint all_of(self, object said, Py_ssize_t count, Party party) except -1
    cdef int finish(self, Py_ssize_t count, unsigned long long sequence, bint ends,
                    Party party) except -1
    cdef int _write(self, unsigned int kind, Py_ssize_t count, unsigned long long sequence,
                    unsigned int ends) except -1
    cdef bint last(self, Py_ssize_t count) except -1
    cdef int prepare(self, Py_ssize_t count, unsigned long long sequence, bint ends,
                     unsigned int number, Party party, list out) except -1
    cdef bint of_unit(self, list entries, Py_ssize_t count, unsigned int number) except -1
    cdef bint _judge(self, Py_ssize_t count, Party party) except -1
    cdef Py_ssize_t _pick(self, Py_ssize_t count, Party party) except -1
    cdef bint _takes(self, unsigned int queue) except -1
    cdef bint _stays(self, Py_ssize_t slot) except -1
    cdef int _frame(self, unsigned int kind, Py_ssize_t entry, unsigned long long sequence,
                    unsigned int flags) except -1
