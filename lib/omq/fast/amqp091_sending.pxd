cdef bytes _DELIVER, _ACK, _TAIL, _YES, _NO
cdef Py_ssize_t _OVERHEAD
cdef tuple _KINDS

cpdef void deliver(bytearray out, unsigned int channel, bytes consumer, unsigned long long tag,
                   bint redelivered, bytes where, bytes head, bytes body,
                   Py_ssize_t most) except *
cpdef void content(bytearray out, unsigned int channel, bytes head, bytes body,
                   Py_ssize_t most) except *
cpdef void ack(bytearray out, unsigned int channel, unsigned long long tag, bint multiple) except *
cdef void _frame(bytearray out, Py_ssize_t kind, unsigned int channel, Py_ssize_t size) except *
