from omq.fast.amqp_decoding cimport Decoder
from omq.fast.amqp_encoding cimport listed, put, text, uint

cdef long long _HEADER, _DELIVERY, _ANNOTATIONS, _PROPERTIES
cdef long long _APPLICATION, _DATA, _SEQUENCE, _VALUE, _FOOTER
cdef Py_ssize_t _PROPERTIES_MAX
cdef unsigned int _PRIORITY
cdef tuple _ONE
cdef Py_ssize_t _WHOLE_HEAD_MAX

cdef class Sections:
    cdef Decoder _d
    cdef readonly bint durable, first_acquirer
    cdef readonly unsigned int priority
    cdef readonly unsigned long long ttl, delivery_count
    cdef readonly dict annotations, application
    cdef readonly list properties
    cdef readonly str kind
    cdef readonly bytes body, footer
    cdef void _begin(self) except *
    cpdef void read(self, bytes data, Py_ssize_t head_max) except *
    cdef void _body(self, Decoder d, long long code, list parts) except *
    cdef void _section(self, Decoder d, long long code, Py_ssize_t at) except *
    cdef void _header(self, Decoder d) except *

cpdef bytes head(bint durable, unsigned int priority, unsigned long long ttl, bint first_acquirer,
                 unsigned long long delivery_count, dict annotations, list properties,
                 dict application)
cpdef Py_ssize_t body_at(bytes data)
cpdef bytes data_section(bytes body)
