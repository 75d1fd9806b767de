from omq.fast.births cimport Births
from omq.fast.client_state cimport ClientState
from omq.fast.columns cimport Columns
from omq.fast.frames cimport Frames
from omq.fast.groups cimport Rings
from omq.fast.limited_keys cimport Keys
from omq.fast.party cimport Party
from omq.fast.request cimport Request

cdef unsigned int _PRIORITIES, _RESULT, _END, _GROUPED, _DESCRIPTOR, _SAID, _PREPARED, _KEYED
cdef Py_ssize_t _PUTS, _COPIED_MAX

cdef class Puts:
    cdef object _core, _messages, _entries, _heads, _payload
    cdef unsigned long long _key
    cdef unsigned int _number
    cdef Columns _c
    cdef Frames _frames
    cdef Rings _rings
    cdef Keys _limits
    cdef Births _births
    cdef Py_ssize_t _most
    cdef bint _grouped, _given
    cdef unsigned char[::1] _h8
    cdef unsigned short[::1] _h16
    cdef unsigned int[::1] _h32, _numbers
    cdef unsigned long long[::1] _h64, _keys
    cdef long long[::1] _q64
    cdef bint one(self, Request r, ClientState session, object area, Party party) except -1
    cdef bint single(self, Request r, ClientState session, object area, Py_ssize_t at, Party party,
                     Py_ssize_t frames) except -1
    cdef int place_single(self, Request r, object area, Py_ssize_t at, Party party) except -1
    cdef int put_single(self, Request r, Party party, unsigned long long given) except -1
    cdef bint _remembers(self, unsigned int queue) except -1
    cdef bint many(self, Request r, ClientState session, object area, Party party,
                   Py_ssize_t batch_max) except -1
    cdef bint several(self, object heads, Py_ssize_t count, object payloads, ClientState session,
                      Party party, Py_ssize_t kept, Py_ssize_t base) except -1
    cdef object kept(self, object heads, Py_ssize_t count, object payloads, ClientState session,
                     Py_ssize_t base)
    cdef bint last(self) except -1
    cdef bint may(self, ClientState session, str action, unsigned int queue) except -1
    cdef bint room(self, Py_ssize_t count, Party party) except -1
    cdef int place(self, Py_ssize_t count, Party party, object payloads) except -1
    cdef int put(self, Py_ssize_t count, Party party, object payloads,
                 unsigned long long sequence) except -1
    cdef Py_ssize_t _plain(self, Py_ssize_t count, unsigned int persistent,
                           object payloads) except? -1
    cdef bint _grouped_by(self, Py_ssize_t count, const unsigned char[::1] payloads) except -1
    cdef unsigned long long _longest(self, Py_ssize_t count) except? 0
    cdef int _mark_all(self, unsigned int queue, Py_ssize_t count, object payloads) except -1
    cdef list _split(self, Py_ssize_t count, object payloads)
    cdef int _born_many(self, Py_ssize_t count, Party party, unsigned int queue,
                        unsigned int flags, unsigned int opening, unsigned long long sequence
                        ) except -1
