from omq.fast.columns cimport Columns
from omq.fast.lane cimport Lane
from omq.fast.limited_keys cimport Keys

cdef unsigned int _READY, _IN_GROUP, _PRIORITIES, _KEYED
cdef Py_ssize_t _AT, _ID, _NUMBER, _KNOWN_MAX, _WAITING, _RETURNED, _SAID, _RECENT_BITS, _BITS
cdef unsigned long long _SPREAD, _ALL, _MIX

cdef class Rings:
    cdef object _core, _groups
    cdef Columns _c
    cdef Keys _limits
    cdef object _bytes
    cdef unsigned char[::1] _said
    cdef unsigned long long[::1] _keys, _fronts, _recent, _words
    cdef unsigned int[::1] _numbers, _after, _before, _first, _following, _halves
    cdef long long[::1] _behind
    cdef bint _settles
    cdef unsigned int _stirred
    cdef dict _known, _numbered, _candidates
    cdef unsigned int number
    cdef Py_ssize_t _whole
    cdef unsigned long long key(self, const unsigned char[::1] payload, Py_ssize_t at) except? 0
    cdef int soon(self, const unsigned char[::1] payload, Py_ssize_t at) except -1
    cdef int meets(self, unsigned int queue, unsigned long long key) except -1
    cdef int leaves(self, Py_ssize_t slot, unsigned int queue) except -1
    cdef bint _read(self, const unsigned char[::1] payload, Py_ssize_t at) except -1
    cdef Py_ssize_t _place(self) except -1
    cdef unsigned long long _hash(self) except? 0
    cdef Py_ssize_t _chain(self, unsigned int queue, unsigned long long key) except -1
    cdef bint _is_of(self, Py_ssize_t entry, unsigned int queue, unsigned long long key
                     ) except -1
    cdef bint _is_front(self, Py_ssize_t entry, Py_ssize_t chain) except -1
    cdef bint _drop(self, Py_ssize_t entry, Py_ssize_t chain) except -1
    cdef int _enter(self, Py_ssize_t entry, Py_ssize_t chain) except -1
    cdef bint join(self, Py_ssize_t slot, Py_ssize_t entry, unsigned int queue,
                   unsigned long long key, unsigned int number) except -1
    cdef Py_ssize_t leave(self, Py_ssize_t slot, Py_ssize_t entry, unsigned int queue) except -2
    cdef int begin(self) except -1
    cdef int end(self) except -1
    cdef int follow(self, Py_ssize_t entry, unsigned int queue) except -1
    cdef int _ready(self, Py_ssize_t queue, Py_ssize_t entry) except -1
    cdef bint detach(self, Py_ssize_t entry, unsigned int queue) except -1
    cdef int _take_turn(self, Py_ssize_t entry, unsigned int queue) except -1
    cdef object _group(self, unsigned int queue, unsigned long long key)
    cdef int _count(self, unsigned int queue, long long change) except -1
    cdef Py_ssize_t behind(self, Py_ssize_t queue) except -1
    cdef Py_ssize_t top(self, Py_ssize_t queue) except? -1
    cdef int _push(self, Py_ssize_t entry, unsigned int queue) except -1
    cdef int pop(self, Py_ssize_t queue) except -1
