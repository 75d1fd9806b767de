from omq.fast.columns cimport Columns
from omq.fast.frames cimport Frames
from omq.fast.request cimport Request
from omq.fast.rings cimport Rings

cdef unsigned int _PUT, _READY, _FIRST, _PRIORITIES, _IN_USE, _INHIBITED, _RESULT, _END, _NO_RECORD
cdef unsigned int _GROUPED, _DESCRIPTOR
cdef Py_ssize_t _PUTS, _MANY, _BATCH_MAX

cdef class Puts:
    cdef object _core, _messages, _entries, _heads, _slots
    cdef list _offsets
    cdef Columns _c
    cdef Frames _frames
    cdef Rings _rings
    cdef bint _grouped
    cdef unsigned char[::1] _h8
    cdef unsigned short[::1] _h16
    cdef unsigned int[::1] _h32
    cdef unsigned long long[::1] _h64, _keys
    cdef long long[::1] _q64
    cdef unsigned int _file, _word, _journal
    cdef Py_ssize_t _offset
    cdef long long _now
    cdef bint one(self, Request r, object session, object party) except -1
    cdef bint many(self, Request r, object session, object party, Py_ssize_t batch_max) except -1
    cdef bint _takes(self, object session, unsigned int queue, Py_ssize_t count,
                     unsigned long long size) except -1
    cdef int _place(self, object party, unsigned int persistent, list bodies) except -1
    cdef Py_ssize_t _plain(self, Py_ssize_t count, unsigned int persistent,
                           object payloads) except? -1
    cdef unsigned long long _longest(self, Py_ssize_t count) except? 0
    cdef list _split(self, Py_ssize_t count, object payloads)
    cdef int _born_many(self, Request r, object party, Py_ssize_t count, unsigned long long first,
                        unsigned int persistent) except -1
    cdef int _born(self, Py_ssize_t slot, Py_ssize_t entry, unsigned long long qpool,
                   unsigned int queue, unsigned int priority, unsigned int flags,
                   unsigned long long size, unsigned int length, unsigned int crc,
                   unsigned long long correlation, long long expiry, unsigned long long sequence,
                   unsigned long long key, object party) except -1
