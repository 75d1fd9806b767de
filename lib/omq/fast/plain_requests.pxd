from omq.fast.client_state cimport ClientState
from omq.fast.columns cimport Columns
from omq.fast.done cimport Dones
from omq.fast.frames cimport Frames
from omq.fast.give cimport Gives
from omq.fast.in_doubt cimport Doubts
from omq.fast.limited_keys cimport Keys
from omq.fast.look_line cimport LookLine
from omq.fast.move cimport Moves
from omq.fast.party cimport Party
from omq.fast.put cimport Puts
from omq.fast.reply cimport Replies
from omq.fast.request cimport Request
from omq.fast.requester_put cimport Asks
from omq.fast.unit cimport Units
from omq.fast.unit_parts cimport Parts
from omq.fast.waiter cimport Waiter

cdef unsigned int _PUT, _PUT_MANY, _NEXT, _GET, _SETTLE, _MOVE, _TAKE, _COMMIT, _ASK
cdef unsigned int _PREPARE, _RESOLVE, _STAGE
cdef unsigned int _CONTAINER
cdef Py_ssize_t _ROW
cdef unsigned int _CORRELATION, _MESSAGE_ID, _GROUP, _IDEL

cdef class Path:
    cdef object _core
    cdef dict _sessions
    cdef list _done, _begun
    cdef object _foreign
    cdef LookLine _looks
    cdef Py_ssize_t _batch_max
    cdef Columns _c
    cdef Frames _frames
    cdef Request _request
    cdef Puts _puts
    cdef Moves _moves
    cdef Asks _asks
    cdef Units _units
    cdef Parts _parts
    cdef Doubts _doubts
    cdef Dones _dones
    cdef Gives _gives
    cdef Keys _keys
    cdef Replies _replies
    cdef public Py_ssize_t taken
    cpdef bint handle(self, bytes raw) except -1
    cdef Py_ssize_t _unit(self, Request r, ClientState session, object area, Party party) except -2
    cdef object _looked_at(self, Request r, object area)
    cdef bint _next(self, Request r, ClientState session, Party party) except -1
    cdef bint _ask(self, Request r, ClientState session, object area, Party party) except -1
    cdef bint _move_and_next(self, Request r, ClientState session, object area, Party party
                             ) except -1
    cpdef bint dispatch(self, list given) except -1
    cdef long long soonest(self) except? -1
    cdef long long next_token(self) except? -1
    cpdef int answer(self, list answered, unsigned long long lsn) except -1
    cpdef int give(self, ClientState session, Waiter waiter, list entries, unsigned long long lsn
                   ) except -1
    cpdef int announce(self, list answered) except -1
