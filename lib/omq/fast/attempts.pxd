from omq.fast.columns cimport Columns
from omq.fast.frames cimport Frames
from omq.fast.party cimport Party

cdef unsigned int _GIVE, _ACTIVE, _MOST
cdef long long _FOREVER

cdef class Attempts:
    cdef object _core
    cdef Columns _c
    cdef Frames _frames
    cdef long long _due
    cdef int begin(self, Py_ssize_t queue) except -1
    cdef int hand(self, Py_ssize_t entry, Py_ssize_t queue, unsigned int reader,
                  unsigned long long sequence, Py_ssize_t offset, long long argument,
                  long long now) except -1
    cdef int count(self, Party party, Py_ssize_t queue, Py_ssize_t count) except -1
