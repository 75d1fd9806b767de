from omq.fast.columns cimport Columns

cdef unsigned int _READY, _AT_LIMIT, _KEYED, _PARTS_MAX, _VERSION
cdef Py_ssize_t _KEYED_READY, _HEAD, _PART, _SAID, _PLACES, _SLACK
cdef int _MAGIC_1, _MAGIC_2

cdef class Keys:
    cdef object _core, _limits, _rules, _turns, _ring, _key
    cdef Columns _c
    cdef dict _queues, _known
    cdef unsigned long long[::1] _names
    cdef bytes _property
    cdef Py_ssize_t _most, _key_most, _number, _asked
    cdef bint _flat, _fair, _made, _by_group
    cdef bint flat(self, Py_ssize_t queue) except -1
    cdef int forget(self) except -1
    cdef int _open(self, object limits, object rules) except -1
    cdef unsigned long long mark(self, Py_ssize_t queue, object payload, Py_ssize_t at,
                                 Py_ssize_t length) except? 0
    cdef unsigned long long _value(self, bytes said, Py_ssize_t place, Py_ssize_t end) except? 0
    cdef int came(self, Py_ssize_t entry, Py_ssize_t queue, unsigned long long group,
                  unsigned long long mark) except -1
    cdef int enter(self, Py_ssize_t entry, Py_ssize_t queue) except -1
    cdef Py_ssize_t ready(self, Py_ssize_t queue, Py_ssize_t there) except -1
    cdef Py_ssize_t next(self) except? -1
    cdef int take(self, Py_ssize_t entry) except -1
    cdef int taken(self) except -1
    cdef int left(self, Py_ssize_t entry, Py_ssize_t queue) except -1
    cdef int gone(self, Py_ssize_t entry, Py_ssize_t queue) except -1
    cdef int opened(self, Py_ssize_t queue) except -1
    cdef bint _may(self, object key) except -1
    cdef int _look(self, object key) except -1
    cdef int _forget(self, object key) except -1
    cdef Py_ssize_t _first(self, object key) except? -1
