from omq.fast.client_state cimport ClientState
from omq.fast.done cimport Dones
from omq.fast.frames cimport Frames
from omq.fast.party cimport Party
from omq.fast.put cimport Puts
from omq.fast.request cimport Request

cdef Py_ssize_t _SETTLE, _PAYLOAD

cdef class Moves:
    cdef object _core
    cdef Frames _frames
    cdef Puts _puts
    cdef Dones _dones
    cdef bint reply(self, Request r, ClientState session, object area, Party party) except -1
