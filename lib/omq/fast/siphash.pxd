# SipHash-1-3 of one number, as omq.base.siphash has it.

cdef extern from *:
    """
    #define OMQ_TURN(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))
    static inline void omq_sip(unsigned long long *v, unsigned long long word) {
        v[3] ^= word;
        v[0] += v[1]; v[1] = OMQ_TURN(v[1], 13) ^ v[0]; v[0] = OMQ_TURN(v[0], 32);
        v[2] += v[3]; v[3] = OMQ_TURN(v[3], 16) ^ v[2];
        v[0] += v[3]; v[3] = OMQ_TURN(v[3], 21) ^ v[0];
        v[2] += v[1]; v[1] = OMQ_TURN(v[1], 17) ^ v[2]; v[2] = OMQ_TURN(v[2], 32);
        v[0] ^= word;
    }
    static inline unsigned long long omq_siphash(
            unsigned long long one, unsigned long long other, unsigned long long number) {
        unsigned long long v[4] = {one ^ 0x736f6d6570736575ULL, other ^ 0x646f72616e646f6dULL,
                                   one ^ 0x6c7967656e657261ULL, other ^ 0x7465646279746573ULL};
        omq_sip(v, number);
        omq_sip(v, 8ULL << 56);
        v[2] ^= 0xff;
        omq_sip(v, 0);
        omq_sip(v, 0);
        omq_sip(v, 0);
        return v[0] ^ v[1] ^ v[2] ^ v[3];
    }
    """
    unsigned long long omq_siphash(unsigned long long one, unsigned long long other,
                                   unsigned long long number) nogil


cdef inline unsigned long long keyed(unsigned long long one, unsigned long long other,
                                     unsigned long long number) noexcept:
    return omq_siphash(one, other, number)
