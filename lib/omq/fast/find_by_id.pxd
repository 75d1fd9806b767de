from omq.fast.attempts cimport Attempts
from omq.fast.columns cimport Columns
from omq.fast.frames cimport Frames
from omq.fast.groups cimport Rings

cdef unsigned int _READY, _PRIORITIES, _IN_GROUP
cdef Py_ssize_t _CORRELATION, _MESSAGE_ID, _GROUP, _GIVES, _STEPS, _NONE, _UNPLAIN
cdef long long _OUT_OF_TURN

cdef class Finds:
    cdef object _core, _wanted
    cdef Columns _c
    cdef Frames _frames
    cdef Attempts _attempts
    cdef Rings _rings
    cdef Py_ssize_t _find(self, Py_ssize_t queue, bint correlated, unsigned long long key) except? -1
    cdef int _detach(self, Py_ssize_t entry, Py_ssize_t queue) except -1
