from libc.stdint cimport uint32_t, uint64_t

ctypedef void (*transform_t)(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil

cdef void philox(uint64_t key, uint64_t block, uint32_t number, uint32_t domain, uint32_t* out) noexcept nogil
cdef void fill(transform_t transform, int width, uint64_t key, uint64_t start, char* out, Py_ssize_t n) noexcept nogil
cdef uint64_t fold_one(uint64_t key, uint64_t number, bint negative) noexcept nogil

cdef void bits32(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil
cdef void bits64(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil
cdef void uniform32(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil
cdef void uniform64(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil
cdef void normal32(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil
cdef void normal64(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil

cdef int checked_out(object out, bint right_kind, str dtypes) except -1
