from omq.fast.party cimport Party
cdef class Frames:
    cdef object _block, _buffer
    cdef unsigned char[::1] _b8
    cdef unsigned short[::1] _b16
    cdef unsigned int[::1] _b32
    cdef unsigned long long[::1] _b64
    cdef unsigned long long first_lsn, unit, _token
    cdef Py_ssize_t count, payload_bytes
    cdef long long _time
    cdef unsigned int reason, _client, _pid, _uid, _persistent
    cdef bint fits(self, Py_ssize_t frames, Py_ssize_t payload_bytes) except -1
    cdef int open(self, Party party) except -1
    cdef int close(self) except -1
    cdef unsigned long long frame(self, unsigned int kind, unsigned int priority,
                                  unsigned int flags, unsigned int queue, unsigned int attempt,
                                  unsigned long long qpool, unsigned long long size,
                                  unsigned int length, unsigned int crc, Py_ssize_t offset,
                                  unsigned int file, unsigned int record, unsigned int parts,
                                  unsigned long long lease, unsigned long long sequence,
                                  unsigned long long correlation,
                                  long long argument) except? 0
