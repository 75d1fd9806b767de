from omq.fast.reader_note cimport Note

cdef int _MAGIC_1, _MAGIC_2, _VERSION
cdef unsigned int _INLINE, _DONE
cdef unsigned long long _HEAD
cdef Py_ssize_t _PART, _ROWS_MAX, _QUEUES_MAX, _EXTENT_MAX
cdef double _PROMPT_S
cdef int _process

cdef class Extent:
    cdef object _files
    cdef unsigned int _word
    cdef Py_ssize_t start, end
    cdef bytes _data
    cdef object piece(self, Py_ssize_t offset, Py_ssize_t length)

cdef class Facts:
    cdef public object _reader, _wire
    cdef public Extent _extent
    cdef public bytes _raw
    cdef public unsigned int _flags, _word, _crc, entry, priority, attempts, defers
    cdef public Py_ssize_t _offset, _length, _properties_at, _body_at
    cdef public unsigned long long qpool_id, lease, size
    cdef public long long put_time_ns
    cpdef bytes _load(self)
    cdef bint _bounded(self, bytes raw) except -1

cdef class SettleRows:
    cdef object _said
    cdef unsigned char[::1] _s8
    cdef unsigned short[::1] _s16
    cdef unsigned int[::1] _s32
    cdef unsigned long long[::1] _s64
    cdef long long[::1] _q64
    cdef bytes row(self, unsigned int kind, unsigned int entry, unsigned long long qpool,
                   unsigned long long lease, long long argument, unsigned int length,
                   unsigned int at)

cdef SettleRows _settle_rows
cpdef list done_rows(list messages)

cdef class Hold:
    cdef public int _maker
    cdef public dict _held, _also
    cdef public list _records
    cdef public Py_ssize_t _text_bytes
    cdef public Note _note
    cdef public object _work
    cdef public unsigned long long _list
    cdef public double _asked
    cdef public bint gathers
    cpdef bint settled(self, Facts message, unsigned int kind, long long argument,
                       bytes text) except -1
    cpdef int looked_into(self, Facts message) except -1

cdef class Rows:
    cdef dict _held
    cdef object _owner, _wire, _files, _message, _rows
    cdef Py_ssize_t _room
    cdef unsigned char[::1] _b8
    cdef unsigned short[::1] _b16
    cdef unsigned int[::1] _b32
    cdef unsigned long long[::1] _b64
    cdef long long[::1] _q64
    cdef int _make_room(self, Py_ssize_t count) except -1
    cpdef list take(self, object reply, Py_ssize_t count, bint by_files)
    cdef Py_ssize_t _fill(self, Facts message, Py_ssize_t i) except -1
