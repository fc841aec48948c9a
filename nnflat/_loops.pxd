cimport numpy as cnp

ctypedef void (*InnerLoop)(char** args, const cnp.npy_intp* dims, const cnp.npy_intp* strides,
                           void* data) noexcept nogil

cdef class Loop:
    cdef InnerLoop run
    cdef void* data
    cdef object owner
    cdef readonly bint clears
