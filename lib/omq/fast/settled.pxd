from omq.fast.columns cimport Columns
from omq.fast.groups cimport Rings
from omq.fast.limited_keys cimport Keys
from omq.fast.party cimport Party

cdef unsigned int _ACTIVE, _LIMITED, _IDEL, _IN_GROUP
cdef Py_ssize_t _DONES

cdef class SettledEntries:
    cdef object _core, _messages, _entries, _records
    cdef Columns _c
    cdef Rings _rings
    cdef Keys _limits
    cdef unsigned int[::1] _picked, _slots
    cdef unsigned int _opened
    cdef int _file
    cdef int all(self, Py_ssize_t count, Party party) except -1
    cdef int _unindex(self, Py_ssize_t count) except -1
    cdef int _worked(self, Py_ssize_t count) except -1
    cdef int _drop(self, Py_ssize_t i, Py_ssize_t entry, bint active) except -1
