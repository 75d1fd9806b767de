from omq.fast.amqp_encoding cimport listed, put, uint

cdef Py_ssize_t _TAG_BYTES_MAX
cdef tuple _TAGS
cdef bytes _TRANSFER_HEAD, _ZERO_TRUE, _ZERO_FALSE, _HEAD, _ZERO, _NULL, _TRUE, _FALSE, _TRANSFER, _DISPOSITION, _FLOW

cpdef Py_ssize_t transfer(bytearray out, unsigned int channel, unsigned int handle,
                          unsigned long long delivery_id, bytes tag, bint settled, bint more,
                          bytes payload, Py_ssize_t at, Py_ssize_t room) except -1
cpdef void abort(bytearray out, unsigned int channel, unsigned int handle,
                 unsigned long long delivery_id) except *
cpdef void disposition(bytearray out, unsigned int channel, bint receives,
                       unsigned long long first, unsigned long long last, bytes state) except *
cpdef void flow(bytearray out, unsigned int channel, long long next_incoming,
                unsigned long long incoming_window, unsigned long long next_outgoing,
                unsigned long long outgoing_window, long long handle, long long delivery_count,
                unsigned long long credit, bint drain) except *
cpdef void performative(bytearray out, unsigned int channel, unsigned int code,
                        list fields) except *
cpdef void empty(bytearray out) except *
cdef void _maybe(bytearray out, long long number) except *
cdef void _frame(bytearray out, unsigned int channel, bytes descriptor, bytearray content,
                 Py_ssize_t count, Py_ssize_t payload) except *
