from omq.fast.client_state cimport ClientState

cdef long long _LOOK

cdef class LookLine:
    cdef readonly object line
    cpdef int answered(self, ClientState session, long long mono_ns) except -1
