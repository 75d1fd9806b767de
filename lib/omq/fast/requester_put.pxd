from omq.fast.client_state cimport ClientState
from omq.fast.done cimport Dones
from omq.fast.frames cimport Frames
from omq.fast.party cimport Party
from omq.fast.put cimport Puts
from omq.fast.request cimport Request

cdef Py_ssize_t _ROW, _IDEL
cdef unsigned int _FLAGS

cdef class Asks:
    cdef object _core
    cdef Frames _frames
    cdef Puts _puts
    cdef Dones _dones
    cdef bint ask(self, Request r, ClientState session, object area, Party party,
                  Py_ssize_t batch_max) except -1
    cdef object key(self, unsigned long long qpool)
