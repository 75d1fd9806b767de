from omq.fast.columns cimport Columns
from omq.fast.company cimport Company
from omq.fast.group_commit cimport Turn

cdef unsigned int _KIND
cdef Py_ssize_t _LAST

cdef class PlainGroups:
    cdef Turn _turn
    cdef Columns _c
    cdef Company _company
    cdef object _requests, _keeper, _clock, _signals, _writer, _users, _finished
    cdef int _queue
    cdef Py_ssize_t _limit
    cdef long long _gather_ns
    cpdef tuple go_on(self, long long look_due, unsigned long long ease_above, object drain)
    cdef list _take(self)
