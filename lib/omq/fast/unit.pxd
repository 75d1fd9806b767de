from omq.fast.client_state cimport ClientState
from omq.fast.columns cimport Columns
from omq.fast.done cimport Dones
from omq.fast.frames cimport Frames
from omq.fast.party cimport Party
from omq.fast.put cimport Puts
from omq.fast.request cimport Request
from omq.fast.unit_parts cimport Parts

cdef unsigned int _FIRST, _IN_USE
cdef Py_ssize_t _COMMITTED

cdef class Units:
    cdef object _core, _plane
    cdef Columns _c
    cdef Frames _frames
    cdef Puts _puts
    cdef Dones _dones
    cdef Parts _parts
    cdef Py_ssize_t left(self, Request r, ClientState session, Party party) except -1
    cdef Py_ssize_t commit(self, Request r, ClientState session, object area, Party party) except -2
