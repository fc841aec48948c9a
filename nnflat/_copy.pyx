# cython: language_level=3
"""Copies between the leaves of a tree and one flat vector: numbers and offsets, nothing else.

 a. A leaf is a Spec: shape, strides, element and the place of its slot in the flat vector. A Plan is an array of them.
 b. The flat vector that arrives here is contiguous and native. A leaf may have any order, byte order and alignment.
 c. A leaf that is its slot byte by byte is one memcpy. Any other is a walk over coalesced axes by a Run, the inner
    loop of one kind of element (move, swap, cast); where the two sides run along different axes, in square tiles
    through a buffer that stays in the first-level cache, so that each side is read and written a cache line at a time.
 d. A complex element is two lanes of a real one. So a complex leaf in a real vector is a leaf with one axis more.
 e. A vector that no cache will hold is streamed past the caches, in which it would only push out what is needed.
 f. Everything is checked before anything is written (I5), and the loops cannot fail: no cast warns or raises. What no
    Run can do (long doubles, a cast of swapped bytes) is left to NumPy, after the loops.
 g. Pointers are read anew at every call and live for that call (I7).
"""

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy, memset

cimport numpy as cnp
from numpy cimport PyArray_DATA, PyArray_DIMS, PyArray_NDIM, PyArray_STRIDES

import numpy as np

cnp.import_array()

cdef extern from "numpy/arrayobject.h":
    void* descr_of "PyArray_DESCR"(cnp.ndarray)
    # A leaf by its bare pointer: no reference is counted, so that looking at it does not write to it.
    ctypedef struct Array "PyArrayObject":
        pass
    bint is_array "PyArray_Check"(const Array*) noexcept
    bint is_plain "PyArray_CheckExact"(const Array*) noexcept
    bint is_writeable "PyArray_ISWRITEABLE"(const Array*) noexcept
    char* data_of "PyArray_BYTES"(const Array*) noexcept
    int ndim_of "PyArray_NDIM"(const Array*) noexcept
    const cnp.npy_intp* shape_of "PyArray_DIMS"(const Array*) noexcept
    const cnp.npy_intp* strides_of "PyArray_STRIDES"(const Array*) noexcept
    void* dtype_of "PyArray_DESCR"(const Array*) noexcept

cdef extern from "Python.h":
    void* item_in "(void*)PyList_GET_ITEM"(object, Py_ssize_t) noexcept
    cnp.ndarray new_array "PyArray_NewFromDescr"(
        PyTypeObject* subtype, cnp.dtype descr, int nd, const cnp.npy_intp* shape, const cnp.npy_intp* strides,
        void* data, int flags, object obj)

cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    /* memcpy by stores that pass the caches by: what is written will not be read before it has left them anyway. */
    static void stream(char *dst, const char *src, size_t n)
    {
        size_t head = -(size_t)dst & 15, i;
        memcpy(dst, src, head);
        for (i = head; i + 64 <= n; i += 64) {
            __m128i a = _mm_loadu_si128((const __m128i *)(src + i));
            __m128i b = _mm_loadu_si128((const __m128i *)(src + i + 16));
            __m128i c = _mm_loadu_si128((const __m128i *)(src + i + 32));
            __m128i d = _mm_loadu_si128((const __m128i *)(src + i + 48));
            _mm_stream_si128((__m128i *)(dst + i), a);
            _mm_stream_si128((__m128i *)(dst + i + 16), b);
            _mm_stream_si128((__m128i *)(dst + i + 32), c);
            _mm_stream_si128((__m128i *)(dst + i + 48), d);
        }
        _mm_sfence();
        memcpy(dst + i, src + i, n - i);
    }
    #else
    #define stream memcpy
    #endif
    """
    void stream(char* dst, const char* src, size_t n) noexcept nogil

cdef enum:
    LARGE_VECTOR = 1 << 25  # bytes of a vector that no cache will hold
    LARGE_LEAF = 1 << 16  # bytes of a leaf from which streaming pays
    ALIGNMENT = 64  # bytes; the cache line, and what JAX needs to alias a vector
    MAX_TILE = 64  # elements on the side of a tile
    TILE_BYTES = 256  # on the side of a tile
    PITCH = 320  # bytes from row to row of a tile: a cache line more, so that its rows do not share cache sets
    WIDEST = 32  # bytes of the widest element (complex long double)
    MAX_AXES = 66  # NumPy's 64, the lanes, and one to spare
    ON_STACK = 64  # leaves whose pointers need no malloc
    GIL_FREE = 1 << 16  # bytes from which releasing the GIL pays

cdef enum Real:
    HALF, SINGLE, DOUBLE, LONG

ctypedef void (*Run)(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil

cdef struct Axis:
    Py_ssize_t n
    Py_ssize_t dst
    Py_ssize_t src

cdef struct Kernel:
    Run run  # reads source elements, writes destination elements
    Run move  # moves destination elements
    Py_ssize_t size  # of a destination element

cdef struct Spec:
    int nd
    int real  # the kind of one lane
    int lanes  # 1 real, 2 complex
    bint swapped  # bytes not in the machine's order
    bint plain  # byte by byte its slot
    void* dtype  # borrowed from Plan.dtypes
    Py_ssize_t itemsize
    Py_ssize_t start  # of the slot, in elements of the flat vector
    Py_ssize_t length
    Py_ssize_t low  # bytes that the leaf may touch, from its data pointer
    Py_ssize_t high
    cnp.npy_intp* shape
    cnp.npy_intp* strides


cdef uint16_t ONE = 1
cdef bint LITTLE = (<char*>&ONE)[0]  # endian

# ---- runs: the inner loops, one a kind of element ----------------------------------------------------------------

cdef inline void move(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n,
                      const Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    if ds == size and ss == size:
        memcpy(dst, src, n * size)
    elif ds == size and ss == 2 * size:  # constant strides, of which the compiler makes vectors
        for i in range(n):
            memcpy(dst + i * size, src + 2 * i * size, size)
    elif ds == 2 * size and ss == size:
        for i in range(n):
            memcpy(dst + 2 * i * size, src + i * size, size)
    elif ds == size and ss == -size:
        for i in range(n):
            memcpy(dst + i * size, src - i * size, size)
    elif ds == -size and ss == size:
        for i in range(n):
            memcpy(dst - i * size, src + i * size, size)
    else:
        for i in range(n):
            memcpy(dst + i * ds, src + i * ss, size)


cdef void move2(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    move(dst, ds, src, ss, n, 2)


cdef void move4(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    move(dst, ds, src, ss, n, 4)


cdef void move8(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    move(dst, ds, src, ss, n, 8)


cdef void move16(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    move(dst, ds, src, ss, n, 16)


cdef void move32(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    move(dst, ds, src, ss, n, 32)


cdef void swap2(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    cdef uint16_t x
    cdef Py_ssize_t i
    for i in range(n):
        memcpy(&x, src + i * ss, 2)
        x = <uint16_t>((x << 8) | (x >> 8))
        memcpy(dst + i * ds, &x, 2)


cdef inline uint32_t swapped4(uint32_t x) noexcept nogil:
    return (x << 24) | ((x & 0xFF00u) << 8) | ((x >> 8) & 0xFF00u) | (x >> 24)


cdef void swap4(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    cdef uint32_t x
    cdef Py_ssize_t i
    for i in range(n):
        memcpy(&x, src + i * ss, 4)
        x = swapped4(x)
        memcpy(dst + i * ds, &x, 4)


cdef void swap8(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    cdef uint64_t x
    cdef Py_ssize_t i
    for i in range(n):
        memcpy(&x, src + i * ss, 8)
        x = (<uint64_t>swapped4(<uint32_t>x) << 32) | swapped4(<uint32_t>(x >> 32))
        memcpy(dst + i * ds, &x, 8)


cdef inline void narrow(char* dst, const char* src) noexcept nogil:
    cdef double wide
    cdef float result
    memcpy(&wide, src, 8)
    result = <float>wide
    memcpy(dst, &result, 4)


cdef void single_from_double(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    if ds == 4 and ss == 8:  # constant strides, so that the compiler makes vectors of it
        for i in range(n):
            narrow(dst + 4 * i, src + 8 * i)
    else:
        for i in range(n):
            narrow(dst + i * ds, src + i * ss)


cdef inline void widen(char* dst, const char* src) noexcept nogil:
    cdef float slim
    cdef double result
    memcpy(&slim, src, 4)
    result = slim
    memcpy(dst, &result, 8)


cdef void double_from_single(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    if ds == 8 and ss == 4:
        for i in range(n):
            widen(dst + 8 * i, src + 4 * i)
    else:
        for i in range(n):
            widen(dst + i * ds, src + i * ss)


cdef inline float half_value(const char* src) noexcept nogil:
    """The half at `src`, exactly."""
    cdef uint16_t half
    cdef uint32_t bits, sign, exponent, fraction
    cdef float value
    memcpy(&half, src, 2)
    sign = (<uint32_t>half & 0x8000u) << 16
    exponent = (half >> 10) & 0x1F
    fraction = half & 0x3FF
    if exponent == 0:
        value = <float>fraction * <float>5.9604644775390625e-08  # 2**-24, a subnormal's unit
        memcpy(&bits, &value, 4)
        bits |= sign
    elif exponent == 31:
        bits = sign | 0x7F800000u | (fraction << 13)
    else:
        bits = sign | ((exponent + 112) << 23) | (fraction << 13)
    memcpy(&value, &bits, 4)
    return value


cdef inline uint16_t half_bits(double value) noexcept nogil:
    """The half nearest to `value`, ties to even, in one rounding."""
    cdef uint64_t bits, significand, rest, quotient
    cdef int64_t exponent, shift
    cdef uint16_t sign
    memcpy(&bits, &value, 8)
    sign = <uint16_t>((bits >> 48) & 0x8000u)
    exponent = <int64_t>((bits >> 52) & 0x7FF) - 1023
    significand = bits & 0xFFFFFFFFFFFFFu
    if exponent == 1024 and significand:  # NaN keeps its payload's top bits, and stays a NaN
        quotient = significand >> 42
        return <uint16_t>(sign | 0x7C00u | (quotient if quotient else 1))
    if exponent > 15:
        return sign | 0x7C00u
    if exponent < -25:
        return sign
    significand |= <uint64_t>1 << 52
    shift = 42 if exponent >= -14 else 28 - exponent
    quotient = significand >> shift
    rest = significand & ((<uint64_t>1 << shift) - 1)
    if rest > <uint64_t>1 << (shift - 1) or (rest == <uint64_t>1 << (shift - 1) and quotient & 1):
        quotient += 1  # a carry runs into the exponent, as it should
    if exponent >= -14:
        quotient += <uint64_t>(exponent + 14) << 10
    return <uint16_t>(sign | quotient)


cdef void single_from_half(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef float value
    for i in range(n):
        value = half_value(src + i * ss)
        memcpy(dst + i * ds, &value, 4)


cdef void double_from_half(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef double value
    for i in range(n):
        value = half_value(src + i * ss)
        memcpy(dst + i * ds, &value, 8)


cdef void half_from_single(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef float value
    cdef uint16_t half
    for i in range(n):
        memcpy(&value, src + i * ss, 4)
        half = half_bits(value)
        memcpy(dst + i * ds, &half, 2)


cdef void half_from_double(char* dst, Py_ssize_t ds, const char* src, Py_ssize_t ss, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef double value
    cdef uint16_t half
    for i in range(n):
        memcpy(&value, src + i * ss, 8)
        half = half_bits(value)
        memcpy(dst + i * ds, &half, 2)


cdef Run[WIDEST + 1] MOVES
MOVES[2], MOVES[4], MOVES[8], MOVES[16], MOVES[32] = move2, move4, move8, move16, move32

cdef Run[3] SWAPS
SWAPS[<int>HALF], SWAPS[<int>SINGLE], SWAPS[<int>DOUBLE] = swap2, swap4, swap8

cdef Run[3][3] CASTS  # [to][from]
CASTS[<int>HALF][<int>SINGLE], CASTS[<int>HALF][<int>DOUBLE] = half_from_single, half_from_double
CASTS[<int>SINGLE][<int>HALF], CASTS[<int>SINGLE][<int>DOUBLE] = single_from_half, single_from_double
CASTS[<int>DOUBLE][<int>HALF], CASTS[<int>DOUBLE][<int>SINGLE] = double_from_half, double_from_single
CASTS[<int>HALF][<int>HALF], CASTS[<int>SINGLE][<int>SINGLE] = move2, move4
CASTS[<int>DOUBLE][<int>DOUBLE] = move8


# ---- walks: any window to any window -----------------------------------------------------------------------------

cdef inline Py_ssize_t magnitude(Py_ssize_t x) noexcept nogil:
    return -x if x < 0 else x


cdef int coalesce(Axis* axes, int nd) noexcept nogil:
    """Drop axes of length one, join neighbours that run on in both windows; the number of axes that are left."""
    cdef int i, last = -1
    for i in range(nd):
        if axes[i].n == 1:
            continue
        if last >= 0 and axes[last].dst == axes[i].dst * axes[i].n and axes[last].src == axes[i].src * axes[i].n:
            axes[last].n *= axes[i].n
            axes[last].dst, axes[last].src = axes[i].dst, axes[i].src
        else:
            last += 1
            axes[last] = axes[i]
    return last + 1


cdef void interleave4(char* tile, const char* src, Py_ssize_t ss, Py_ssize_t rows, Py_ssize_t columns) noexcept nogil:
    """Transpose rows of four-byte elements into a tile, two elements of two rows in one register."""
    cdef uint64_t a, b, low = 0xFFFFFFFFu, x, y
    cdef Py_ssize_t i = 0, j
    while i + 2 <= rows:
        j = 0
        while j + 2 <= columns:
            memcpy(&a, src + i * ss + 4 * j, 8)
            memcpy(&b, src + (i + 1) * ss + 4 * j, 8)
            x, y = (a & low) | (b << 32), (a >> 32) | (b & ~low)
            memcpy(tile + j * PITCH + 4 * i, &x, 8)
            memcpy(tile + (j + 1) * PITCH + 4 * i, &y, 8)
            j += 2
        if j < columns:
            move4(tile + j * PITCH + 4 * i, 4, src + i * ss + 4 * j, ss, 2)
        i += 2
    if i < rows:
        move4(tile + 4 * i, PITCH, src + i * ss, 4, columns)


cdef void copy_tiles(char* dst, const char* src, const Axis along_dst, const Axis along_src,
                     const Kernel* kernel) noexcept nogil:
    """Copy a plane whose source runs along one axis and whose destination along the other (c)."""
    cdef char[MAX_TILE * PITCH] tile
    cdef Py_ssize_t i = 0, j, k, rows, columns, size = kernel.size
    cdef Py_ssize_t side = min(<Py_ssize_t>MAX_TILE, <Py_ssize_t>TILE_BYTES // size)
    while i < along_dst.n:
        rows = min(side, along_dst.n - i)
        j = 0
        while j < along_src.n:
            columns = min(side, along_src.n - j)
            if kernel.run == move4 and along_src.src == 4 and LITTLE:
                interleave4(tile, src + i * along_dst.src + 4 * j, along_dst.src, rows, columns)
            else:
                for k in range(rows):
                    kernel.run(tile + k * size, PITCH,
                               src + (i + k) * along_dst.src + j * along_src.src, along_src.src, columns)
            for k in range(columns):
                kernel.move(dst + i * along_dst.dst + (j + k) * along_src.dst, along_dst.dst,
                            tile + k * PITCH, size, rows)
            j += side
        i += side


cdef void copy_window(char* dst, const char* src, Axis* axes, int nd, const Kernel* kernel) noexcept nogil:
    """Copy a window; the axes are changed on the way. No axis may be empty."""
    cdef Py_ssize_t[MAX_AXES] index
    cdef Axis along_dst, along_src
    cdef int i, inner_dst, inner_src, outer
    nd = coalesce(axes, nd)
    if nd == 0:
        kernel.run(dst, 0, src, 0, 1)
        return
    inner_dst = inner_src = nd - 1
    for i in range(nd - 2, -1, -1):
        if magnitude(axes[i].dst) < magnitude(axes[inner_dst].dst):
            inner_dst = i
        if magnitude(axes[i].src) < magnitude(axes[inner_src].src):
            inner_src = i
    along_dst, along_src = axes[inner_dst], axes[inner_src]
    outer = 0
    for i in range(nd):
        if i != inner_dst and i != inner_src:
            axes[outer] = axes[i]
            index[outer] = 0
            outer += 1
    while True:
        if inner_dst == inner_src:
            kernel.run(dst, along_dst.dst, src, along_dst.src, along_dst.n)
        else:
            copy_tiles(dst, src, along_dst, along_src, kernel)
        i = outer - 1
        while i >= 0:
            index[i] += 1
            dst += axes[i].dst
            src += axes[i].src
            if index[i] < axes[i].n:
                break
            index[i] = 0
            dst -= axes[i].n * axes[i].dst
            src -= axes[i].n * axes[i].src
            i -= 1
        if i < 0:
            return


# ---- transfers: all leaves and the flat vector -------------------------------------------------------------------

cdef struct Vector:
    char* data
    int real
    Py_ssize_t lanes
    Py_ssize_t itemsize


cdef inline bint loopable(const Spec* leaf, const Vector* flat) noexcept nogil:
    """Whether a Run can copy the leaf (f)."""
    if leaf.real == flat.real:
        return not (leaf.swapped and leaf.real == LONG)
    return not (leaf.swapped or leaf.real == LONG or flat.real == LONG)


cdef void copy_leaf(const Spec* leaf, char* data, const Vector* flat, bint load) noexcept nogil:
    """Copy one leaf that is not byte by byte its slot, from (load) or to (store) the slot."""
    cdef Axis[MAX_AXES] axes
    cdef Kernel kernel
    cdef char* slot = flat.data + leaf.start * flat.itemsize
    cdef Py_ssize_t leaf_size = leaf.itemsize // leaf.lanes, flat_size = flat.itemsize // flat.lanes
    cdef Py_ssize_t step
    cdef bint same = leaf.real == flat.real
    cdef int i, nd = leaf.nd
    if flat.lanes > leaf.lanes and not load:
        memset(slot, 0, leaf.length * flat.itemsize)  # the imaginary parts
    step = flat.itemsize if flat.lanes >= leaf.lanes else leaf.lanes * flat_size
    for i in range(nd - 1, -1, -1):
        axes[i].n, axes[i].dst, axes[i].src = leaf.shape[i], leaf.strides[i], step
        step *= leaf.shape[i]
    if same and not leaf.swapped and leaf.lanes >= flat.lanes:
        kernel.size, kernel.run = leaf.itemsize, MOVES[leaf.itemsize]  # both lanes in one
    else:
        kernel.size = leaf_size if load else flat_size
        if leaf.swapped:
            kernel.run = SWAPS[leaf.real]
        elif same:
            kernel.run = MOVES[leaf_size]
        elif load:
            kernel.run = CASTS[leaf.real][flat.real]
        else:
            kernel.run = CASTS[flat.real][leaf.real]
        if leaf.lanes == 2:
            axes[nd].n, axes[nd].dst, axes[nd].src = 2, leaf_size, flat_size
            nd += 1
    kernel.move = MOVES[kernel.size]
    if load:
        copy_window(data, slot, axes, nd, &kernel)
        return
    for i in range(nd):
        axes[i].dst, axes[i].src = axes[i].src, axes[i].dst
    copy_window(slot, data, axes, nd, &kernel)


cdef void copy_leaves(const Spec* specs, Py_ssize_t n, char** data, const Vector* flat, bint load) noexcept nogil:
    cdef char* slot
    cdef Py_ssize_t i, nbytes
    cdef bint large = n > 0 and (specs[n - 1].start + specs[n - 1].length) * flat.itemsize >= LARGE_VECTOR
    for i in range(n):
        if data[i] == NULL:
            continue
        if specs[i].plain and specs[i].real == flat.real:
            slot = flat.data + specs[i].start * flat.itemsize
            nbytes = specs[i].length * flat.itemsize
            if large and nbytes >= LARGE_LEAF:
                stream(data[i] if load else slot, slot if load else data[i], nbytes)
            else:
                memcpy(data[i] if load else slot, slot if load else data[i], nbytes)
        else:
            copy_leaf(&specs[i], data[i], flat, load)


# ---- checks ------------------------------------------------------------------------------------------------------

cdef int real_of(int type_num) noexcept:
    if type_num == cnp.NPY_FLOAT32 or type_num == cnp.NPY_COMPLEX64:
        return SINGLE
    if type_num == cnp.NPY_FLOAT64 or type_num == cnp.NPY_COMPLEX128:
        return DOUBLE
    if type_num == cnp.NPY_FLOAT16:
        return HALF
    return LONG


cdef inline int lanes_of(int type_num) noexcept:
    return 2 if cnp.PyTypeNum_ISCOMPLEX(type_num) else 1


cdef inline bint as_planned(const Array* leaf, const Spec* spec) noexcept:
    """Whether a leaf is an array that has the shape, strides and dtype that were planned."""
    cdef const cnp.npy_intp* shape
    cdef const cnp.npy_intp* strides
    cdef int i
    if not is_array(leaf) or ndim_of(leaf) != spec.nd or dtype_of(leaf) != spec.dtype:
        return False
    shape, strides = shape_of(leaf), strides_of(leaf)
    for i in range(spec.nd):
        if shape[i] != spec.shape[i] or strides[i] != spec.strides[i]:
            return False
    return True


def aligned_empty(Py_ssize_t size, cnp.dtype dtype not None):
    """Return a fresh 1-D vector of `size` elements, 64-byte aligned, not initialised."""
    cdef cnp.npy_intp nbytes = size * dtype.itemsize + ALIGNMENT
    cdef cnp.npy_intp shape = size
    cdef cnp.ndarray block = cnp.PyArray_EMPTY(1, &nbytes, cnp.NPY_UINT8, 0)
    cdef uintptr_t start = (<uintptr_t>PyArray_DATA(block) + ALIGNMENT - 1) & ~<uintptr_t>(ALIGNMENT - 1)
    Py_INCREF(dtype)  # new_array takes the reference
    cdef cnp.ndarray flat = new_array(<PyTypeObject*>cnp.ndarray, dtype, 1, &shape, NULL, <void*>start,
                                      cnp.NPY_ARRAY_CARRAY, None)
    cnp.set_array_base(flat, block)
    return flat


def extent(cnp.ndarray array not None):
    """Return the addresses (first, one past the last) of the memory that an array may touch."""
    cdef Py_ssize_t low, high
    reach(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array), array.itemsize, &low, &high)
    cdef object data = <uintptr_t>PyArray_DATA(array)
    return data + low, data + high


cdef void reach(int nd, const cnp.npy_intp* shape, const cnp.npy_intp* strides, Py_ssize_t itemsize,
                Py_ssize_t* low, Py_ssize_t* high) noexcept:
    cdef int i
    low[0], high[0] = 0, itemsize
    for i in range(nd):
        if shape[i] == 0:
            low[0] = high[0] = 0
            return
        if strides[i] < 0:
            low[0] += (shape[i] - 1) * strides[i]
        else:
            high[0] += (shape[i] - 1) * strides[i]


cdef struct Span:
    const char* low
    const char* high


cdef int by_low(const void* a, const void* b) noexcept nogil:
    cdef const char* first = (<const Span*>a).low
    cdef const char* second = (<const Span*>b).low
    return (first > second) - (first < second)


cdef bint lie_apart(Span* spans, Py_ssize_t n) noexcept:
    """Whether no two spans of memory meet; they are sorted on the way."""
    cdef Py_ssize_t i
    qsort(spans, n, sizeof(Span), by_low)
    for i in range(1, n):
        if spans[i].low < spans[i - 1].high:
            return False
    return True


# ---- plans -------------------------------------------------------------------------------------------------------

cdef class Plan:
    """The leaves of a layout as numbers: each with its shape, strides, dtype and slot in a vector of `dtype`."""

    cdef Spec* specs
    cdef cnp.npy_intp* numbers
    cdef Py_ssize_t n
    cdef Py_ssize_t size
    cdef Py_ssize_t nbytes
    cdef cnp.dtype dtype
    cdef int type_num
    cdef tuple dtypes
    cdef int real
    cdef int lanes
    cdef bint mixed  # real leaves in a complex vector: its values have to be looked at
    cdef bint simple  # a Run can copy every leaf, unless the vector is of long doubles

    def __init__(self, shapes, strides, tuple dtypes not None, offsets, cnp.dtype dtype not None):
        cdef Py_ssize_t i, k = 0, nd
        self.dtype, self.dtypes, self.n, self.size = dtype, dtypes, len(dtypes), offsets[len(dtypes)]
        self.nbytes, self.type_num = self.size * dtype.itemsize, dtype.num
        self.real, self.lanes = real_of(dtype.num), lanes_of(dtype.num)
        self.simple, self.mixed = True, False
        self.release()
        self.specs = <Spec*>PyMem_Malloc(max(1, self.n) * sizeof(Spec))
        self.numbers = <cnp.npy_intp*>PyMem_Malloc(max(1, 2 * sum(map(len, shapes))) * sizeof(cnp.npy_intp))
        if self.specs == NULL or self.numbers == NULL:
            raise MemoryError
        for i in range(self.n):
            nd = len(shapes[i])
            self.specs[i].shape, self.specs[i].strides = &self.numbers[k], &self.numbers[k + nd]
            k += 2 * nd
            self.plan_leaf(&self.specs[i], shapes[i], strides[i], dtypes[i], offsets[i], offsets[i + 1])

    cdef void plan_leaf(self, Spec* spec, shape, strides, cnp.dtype dtype, Py_ssize_t start, Py_ssize_t stop):
        cdef Py_ssize_t step = dtype.itemsize
        cdef int i
        spec.nd, spec.start, spec.length = len(shape), start, stop - start
        spec.real, spec.lanes = real_of(dtype.num), lanes_of(dtype.num)
        spec.swapped, spec.itemsize = not dtype.isnative, dtype.itemsize
        spec.dtype = <void*>dtype
        if spec.swapped or spec.real == LONG or spec.length == 0:
            self.simple = False
        self.mixed |= spec.lanes < self.lanes
        spec.plain = spec.real == self.real and spec.lanes >= self.lanes and not spec.swapped
        for i in range(spec.nd - 1, -1, -1):
            spec.shape[i], spec.strides[i] = shape[i], strides[i]
            if spec.shape[i] != 1 and spec.strides[i] != step:
                spec.plain = False
            step *= spec.shape[i]
        reach(spec.nd, spec.shape, spec.strides, spec.itemsize, &spec.low, &spec.high)

    cdef void release(self) noexcept:
        PyMem_Free(self.specs)
        PyMem_Free(self.numbers)
        self.specs = NULL
        self.numbers = NULL

    def __dealloc__(self):
        self.release()

    cpdef bint takes(self, flat) noexcept:
        """Return whether `flat` is a vector that can be copied to the leaves as it stands (b)."""
        if self.mixed or not cnp.PyArray_CheckExact(flat):
            return False
        cdef cnp.ndarray vector = flat
        cdef int type_num = cnp.PyArray_TYPE(vector)
        if PyArray_NDIM(vector) != 1 or PyArray_DIMS(vector)[0] != self.size:
            return False
        return (
            cnp.PyTypeNum_ISFLOAT(type_num) + cnp.PyTypeNum_ISCOMPLEX(type_num) > 0
            and lanes_of(type_num) == self.lanes
            and cnp.PyArray_IS_C_CONTIGUOUS(vector)
            and cnp.PyArray_ISNOTSWAPPED(vector)
        )

    cpdef bint receives(self, out) noexcept:
        """Return whether `out` is a vector that the leaves can be copied into as it stands."""
        return (
            cnp.PyArray_CheckExact(out)
            and cnp.PyArray_TYPE(<cnp.ndarray>out) == self.type_num
            and cnp.PyArray_ISNOTSWAPPED(<cnp.ndarray>out)
            and PyArray_NDIM(<cnp.ndarray>out) == 1
            and PyArray_DIMS(<cnp.ndarray>out)[0] == self.size
            and cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray>out)
            and cnp.PyArray_ISWRITEABLE(<cnp.ndarray>out)
        )

    cdef Vector vector(self, cnp.ndarray flat):
        cdef Vector result
        result.data = <char*>PyArray_DATA(flat)
        result.real, result.lanes = real_of(cnp.PyArray_TYPE(flat)), self.lanes
        result.itemsize = cnp.PyArray_ITEMSIZE(flat)
        return result

    cdef int transfer(self, cnp.ndarray flat, char** data, list leaves, bint load) except -1:
        """Copy the leaves whose data pointer is not NULL; everything has been checked."""
        cdef Vector vector = self.vector(flat)
        cdef Py_ssize_t i
        cdef list rest = []
        if not self.simple or vector.real == LONG:
            for i in range(self.n):
                if self.specs[i].length == 0:
                    data[i] = NULL
                elif data[i] != NULL and not loopable(&self.specs[i], &vector):
                    data[i] = NULL
                    rest.append(i)
        if self.nbytes < GIL_FREE:
            copy_leaves(self.specs, self.n, data, &vector, load)
        else:
            with nogil:
                copy_leaves(self.specs, self.n, data, &vector, load)
        for i in rest:
            copy_by_numpy(leaves[i], flat[self.specs[i].start:][:self.specs[i].length], load)
        return 0

    cdef bint look(self, list leaves, cnp.ndarray flat, char** data, bint write) except -1:
        """Check every leaf and read its data pointer; whether a leaf touches `flat` elsewhere than in its slot.

        Raises where one is not as planned; nothing is written before this has passed (I5). A leaf that is its slot gets
        the pointer NULL."""
        cdef Vector vector = self.vector(flat)
        cdef char* first = vector.data
        cdef char* last = first + self.size * vector.itemsize
        cdef const Spec* spec
        cdef const Array* leaf
        cdef bint touches = False
        cdef Py_ssize_t i
        for i in range(self.n):
            spec = &self.specs[i]
            leaf = <const Array*>item_in(leaves, i)
            if not as_planned(leaf, spec) or (write and not is_writeable(leaf)):
                self.refuse_leaf(i, leaves[i])
            data[i] = data_of(leaf)
            if data[i] + spec.low < last and first < data[i] + spec.high:
                if spec.plain and spec.real == vector.real and data[i] == first + spec.start * vector.itemsize:
                    data[i] = NULL
                else:
                    touches = True
        return touches

    cdef int copy(self, list leaves, cnp.ndarray flat, bint load) except -1:
        """Check all leaves, then copy them from or to `flat`."""
        cdef char* few[ON_STACK]
        cdef char** data = &few[0]
        cdef cnp.ndarray scratch
        if len(leaves) != self.n:
            raise ValueError(f"{self.n} leaves are planned; got {len(leaves)}")
        if self.n > ON_STACK:
            data = <char**>malloc(self.n * sizeof(char*))
            if data == NULL:
                raise MemoryError
        try:
            if not self.look(leaves, flat, data, load):
                self.transfer(flat, data, leaves, load)
            else:
                scratch = flat.copy()
                self.look(leaves, scratch, data, load)
                self.transfer(scratch, data, leaves, load)
                if not load:
                    memcpy(PyArray_DATA(flat), PyArray_DATA(scratch), self.size * flat.itemsize)
        finally:
            if data != &few[0]:
                free(data)
        return 0

    def scatter(self, list leaves not None, flat):
        """Copy `flat` into arrays and return True; return False, nothing written, where either is not as planned."""
        if not (self.takes(flat) and self.fits(leaves)):
            return False
        self.copy(leaves, <cnp.ndarray>flat, True)
        return True

    def gather(self, list leaves not None, cnp.ndarray flat not None):
        """Copy arrays of exactly the planned shapes, strides and dtypes into `flat`; `refuse_leaf` tells of others."""
        self.copy(leaves, flat, False)

    cpdef bint fits(self, list leaves) except -1:
        """Return whether these are plain, writeable arrays as planned, in memory that lies apart."""
        cdef Py_ssize_t i
        cdef const Array* leaf
        cdef bint apart
        if len(leaves) != self.n:
            return False
        cdef Span* spans = <Span*>malloc(max(1, self.n) * sizeof(Span))
        if spans == NULL:
            raise MemoryError
        for i in range(self.n):
            leaf = <const Array*>item_in(leaves, i)
            if not is_plain(leaf) or not as_planned(leaf, &self.specs[i]) or not is_writeable(leaf):
                free(spans)
                return False
            spans[i].low = data_of(leaf) + self.specs[i].low
            spans[i].high = data_of(leaf) + self.specs[i].high
        apart = lie_apart(spans, self.n)
        free(spans)
        return apart

    def refuse_leaf(self, index, leaf):
        """Raise; a derived class has the words for it."""
        raise ValueError(f"leaf {index} is not as planned")

    def fresh(self, cnp.ndarray flat not None):
        """Return new arrays of the planned shapes, strides and dtypes, filled from `flat`."""
        cdef char** data = <char**>malloc(max(1, self.n) * sizeof(char*))
        if data == NULL:
            raise MemoryError
        cdef list leaves = PyList_New(self.n)
        cdef cnp.ndarray leaf
        cdef cnp.dtype dtype
        cdef Spec* spec
        cdef Py_ssize_t i
        try:
            for i in range(self.n):
                spec = &self.specs[i]
                dtype = <cnp.dtype>self.dtypes[i]
                Py_INCREF(dtype)
                leaf = new_array(<PyTypeObject*>cnp.ndarray, dtype, spec.nd, spec.shape, spec.strides, NULL, 0, None)
                data[i] = <char*>PyArray_DATA(leaf)
                Py_INCREF(leaf)
                PyList_SET_ITEM(leaves, i, leaf)
            self.transfer(flat, data, leaves, True)
        finally:
            free(data)
        return leaves

    def windows(self, cnp.ndarray flat not None):
        """Return arrays of the planned shapes and dtypes, in C order, whose memory is that of `flat`."""
        cdef list leaves = PyList_New(self.n)
        cdef Vector vector = self.vector(flat)
        cdef cnp.ndarray leaf
        cdef cnp.dtype dtype
        cdef Spec* spec
        cdef Py_ssize_t i
        cdef int flags = cnp.PyArray_FLAGS(flat) & (cnp.NPY_ARRAY_WRITEABLE | cnp.NPY_ARRAY_ALIGNED)
        for i in range(self.n):
            spec = &self.specs[i]
            dtype = <cnp.dtype>self.dtypes[i]
            Py_INCREF(dtype)
            leaf = new_array(<PyTypeObject*>cnp.ndarray, dtype, spec.nd, spec.shape, NULL,
                             vector.data + spec.start * vector.itemsize, flags, None)
            cnp.set_array_base(leaf, flat)
            Py_INCREF(leaf)
            PyList_SET_ITEM(leaves, i, leaf)
        return leaves


def copy_by_numpy(leaf, slot, bint load):
    """Copy one leaf from or to its slot through NumPy: long doubles, and casts of swapped bytes."""
    pairs = leaf.dtype.kind == "c" and slot.dtype.kind == "f"
    sides = [(leaf.real, slot[0::2]), (leaf.imag, slot[1::2])] if pairs else [(leaf, slot)]
    with np.errstate(all="ignore"):
        for mine, its in sides:
            its = its.reshape(leaf.shape)
            if not load:
                np.copyto(its, mine, casting="unsafe")
            elif mine.dtype.kind == "f":
                np.copyto(mine, its.real, casting="unsafe")
            else:
                np.copyto(mine, its, casting="unsafe")


# ---- bindings ----------------------------------------------------------------------------------------------------

cdef class Binding(Plan):
    """A plan and the arrays of one tree, which are checked and copied at every call.

    `watch.changed()` gives the number of the first of the tree's containers that holds something else now, or -1. A
    derived class says in `refuse_link` and `refuse_leaf` what is not as it was; `layout.check_vector` and `check_out`
    say what is wrong with a vector.
    """

    cdef readonly object layout
    cdef readonly object tree
    cdef list leaves
    cdef object watch

    def __init__(self, layout, tree, list leaves not None, watch, offsets, cnp.dtype dtype not None):
        super().__init__(
            [leaf.shape for leaf in leaves], [leaf.strides for leaf in leaves],
            tuple([leaf.dtype for leaf in leaves]), offsets, dtype)
        self.layout, self.tree, self.leaves, self.watch = layout, tree, leaves, watch

    cdef int check_links(self) except -1:
        if self.watch is not None:
            changed = self.watch.changed()
            if changed >= 0:
                self.refuse_link(changed)
        return 0

    def load(self, flat):
        """Copy a flat vector into the arrays of the bound tree, and return the tree.

        Nothing is allocated. Raises `StructureChanged`, naming the path, where a leaf was re-bound, resized or retyped
        since `bind`, and ValueError for a read-only leaf; then nothing has been written.

        Parameters
        ----------
        flat : ndarray, shape (layout.size,)
            Real or complex; cast to each leaf's dtype.

        Returns
        -------
        tree
            The bound tree itself.
        """
        if not self.takes(flat):
            flat = self.layout.check_vector(flat)
        self.check_links()
        self.copy(self.leaves, <cnp.ndarray>flat, True)
        return self.tree

    def store(self, *, out=None):
        """Copy the arrays of the bound tree into one flat vector, and return the vector.

        Parameters
        ----------
        out : ndarray, shape (layout.size,), dtype layout.dtype, C-contiguous, optional
            Written and returned. A fresh vector, 64-byte aligned, where it is left out.

        Raises
        ------
        StructureChanged
            Where a leaf was re-bound, resized or retyped since `bind`; nothing has been written.
        """
        if out is None:
            out = aligned_empty(self.size, self.dtype)
        elif not self.receives(out):
            self.layout.check_out(out)[...] = self.store()
            return out
        self.check_links()
        self.copy(self.leaves, <cnp.ndarray>out, False)
        return out

    def refuse_link(self, index):
        """Raise; a derived class has the words for it."""
        raise ValueError(f"container {index} holds something else now")
