from omq.fast.client_state cimport ClientState
from omq.fast.columns cimport Columns
from omq.fast.frames cimport Frames
from omq.fast.groups cimport Rings
from omq.fast.limited_keys cimport Keys
from omq.fast.party cimport Party

cdef unsigned int _PUT, _READY, _PREPARED, _FIRST, _PRIORITIES, _IN_USE, _LOOK_AT
cdef unsigned int _NO_RECORD, _HAS_ID, _KEYED

cdef class Births:
    cdef object _core, _messages, _entries, _slots, _rights
    cdef list _offsets
    cdef Columns _c
    cdef Frames _frames
    cdef Rings _rings
    cdef Keys _limits
    cdef unsigned int _file, _word, _journal
    cdef Py_ssize_t _offset
    cdef long long _now
    cdef bint takes(self, ClientState session, Party party, unsigned int queue, Py_ssize_t count,
                    unsigned long long size) except -1
    cdef bint room(self, Py_ssize_t count, Party party) except -1
    cdef bint knows(self, ClientState session, unsigned int queue) except -1
    cdef bint may(self, ClientState session, str action, unsigned int queue) except -1
    cdef int place(self, Party party, unsigned int persistent, list bodies) except -1
    cdef int _appear(self, Py_ssize_t slot, Py_ssize_t entry, unsigned int queue,
                     unsigned int priority, unsigned long long key, unsigned int number
                     ) except -1
    cdef int born(self, Py_ssize_t slot, Py_ssize_t entry, unsigned long long qpool,
                  unsigned int queue, unsigned int priority, unsigned int flags,
                  unsigned long long size, unsigned int length, unsigned int crc,
                  unsigned long long correlation, long long expiry, unsigned long long sequence,
                  unsigned long long key, unsigned int number, Py_ssize_t place,
                  unsigned long long given, Party party) except -1
