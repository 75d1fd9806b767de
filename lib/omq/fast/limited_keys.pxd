from omq.fast.columns cimport Columns
from omq.fast.values cimport value_in

cdef unsigned int _READY, _AT_LIMIT, _KEYED
cdef Py_ssize_t _KEYED_READY, _PLACES, _SLACK, _VALUES_MAX
cdef long long _NEVER

cdef class Key:
    cdef public unsigned long long name
    cdef public object owner, at
    cdef public list line
    cdef public Py_ssize_t count, in_work
    cdef public long long full, wakes
    cdef public bint paused, turned

cdef class Keys:
    cdef object _core, _limits, _rules, _turns, _ring, _key, _value, _kept
    cdef Columns _c
    cdef dict _queues, _known, _values
    cdef list _of, _held, _fresh
    cdef unsigned long long[::1] _names, _marks
    cdef bytes _property
    cdef long long _floor, _soonest
    cdef Py_ssize_t _most, _key_most, _number, _asked, _came
    cdef bint _flat, _fair, _made, _by_group, _rated
    cdef bint flat(self, Py_ssize_t queue) except -1
    cdef int forget(self) except -1
    cdef int _open(self, object limits, object rules) except -1
    cdef int mark(self, Py_ssize_t place, Py_ssize_t queue, object payload, Py_ssize_t at,
                  Py_ssize_t length) except -1
    cdef int came(self, Py_ssize_t entry, Py_ssize_t queue, unsigned long long group,
                  Py_ssize_t place) except -1
    cdef int enter(self, Py_ssize_t entry, Py_ssize_t queue) except -1
    cdef Py_ssize_t ready(self, Py_ssize_t queue, Py_ssize_t there) except -1
    cdef int spent(self, Py_ssize_t queue, Py_ssize_t count) except -1
    cdef int await_token(self, Py_ssize_t queue) except -1
    cdef long long soonest(self) except? -1
    cdef Py_ssize_t next(self) except? -1
    cdef int take(self, Py_ssize_t entry) except -1
    cdef int taken(self) except -1
    cdef int left(self, Py_ssize_t entry, Py_ssize_t queue, Py_ssize_t following) except -1
    cdef bint _is_as_new(self, Key key) except -1
    cdef int gone(self, Py_ssize_t entry, Py_ssize_t queue) except -1
    cdef Key _key_of(self, Py_ssize_t entry)
    cdef bint _may(self, Key key) except -1
    cdef int _look(self, Key key) except -1
    cdef int _forget(self, Key key) except -1
    cdef Py_ssize_t _first(self, Key key) except? -1
