from omq.fast.amqp_decoding cimport Decoder

cdef Py_ssize_t _HEAD, _TAG_BYTES_MAX
cdef long long _ATTACH, _FLOW, _TRANSFER, _DISPOSITION, _MASK
cdef str _FRAMING

cdef class Frames:
    cdef Decoder _d
    cdef Py_ssize_t _size_max, _at, _have, _wanted
    cdef list _parts
    cdef bytes _data
    cdef readonly unsigned int channel
    cdef readonly long long code, handle, delivery_id, last_id, message_format, role, settled
    cdef readonly long long more, aborted, resume, batchable, next_incoming, incoming_window
    cdef readonly long long next_outgoing, outgoing_window, delivery_count, credit, available
    cdef readonly long long drain, echo, outcome
    cdef readonly list fields
    cdef readonly bytes tag, payload, state
    cdef void _none(self) except *
    cpdef void feed(self, bytes data) except *
    cpdef bint next(self) except -1
    cpdef tuple run(self, Py_ssize_t most, Py_ssize_t bytes_max, dict known)
    cdef void _body(self, Decoder d) except *
    cdef void _transfer(self, Decoder d, Py_ssize_t count) except *
    cdef void _disposition(self, Decoder d, Py_ssize_t count) except *
    cdef void _flow(self, Decoder d, Py_ssize_t count) except *
    cdef long long _uint(self, Decoder d) except -2
    cdef long long _bool(self, Decoder d) except -2
    cdef void _tag(self, Decoder d) except *
    cdef void _state(self, Decoder d) except *
