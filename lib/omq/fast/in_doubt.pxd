from omq.fast.client_state cimport ClientState
from omq.fast.columns cimport Columns
from omq.fast.done cimport Dones
from omq.fast.frames cimport Frames
from omq.fast.limited_keys cimport Keys
from omq.fast.party cimport Party
from omq.fast.put cimport Puts
from omq.fast.request cimport Request
from omq.fast.unit_parts cimport Parts

cdef unsigned int _COMMIT, _IN_GROUP, _READY, _PREPARED, _KEYED
cdef Py_ssize_t _PUTS

cdef class Doubts:
    cdef object _core, _in_doubt, _plane
    cdef Columns _c
    cdef Frames _frames
    cdef Puts _puts
    cdef Dones _dones
    cdef Keys _limits
    cdef Parts _parts
    cdef Py_ssize_t prepare(self, Request r, ClientState session, object area, Party party
                            ) except -2
    cdef unsigned long long commit(self, Request r, ClientState session, Party party) except? 0
    cdef Py_ssize_t _took(self, list entries, unsigned int number) except? -1
    cdef int _appear(self, Py_ssize_t entry, unsigned long long sequence) except -1
