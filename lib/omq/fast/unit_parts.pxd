from omq.fast.client_state cimport ClientState
from omq.fast.frames cimport Frames
from omq.fast.party cimport Party
from omq.fast.put cimport Puts
from omq.fast.request cimport Request

cdef Py_ssize_t _SETTLE, _FRAME
cdef unsigned int _DONE

cdef class Parts:
    cdef object _core, _plane
    cdef Frames _frames
    cdef Puts _puts
    cdef Py_ssize_t taken, count, kept, base, end, _heads, _bodies
    cdef bint _staged
    cdef object whole(self, Request r, ClientState session, object area, Party party)
    cdef bint fits(self, Py_ssize_t frames, Py_ssize_t payload_bytes) except -1
    cdef int begin(self, ClientState session, unsigned long long sequence, Py_ssize_t frames,
                   Py_ssize_t payload_bytes) except -1
    cdef bint stage(self, Request r, ClientState session, object area) except -1
    cdef bint _has_room(self, Request r, ClientState session, object area) except -1
