"""Noise of many keys at once: rows of draws, weighted sums of them, pairs of candidates.

(a) Draws are those of `_random.pyx`, value by value. Signs: value k is -1 if bit k % 32 of word k // 32 of the
    key is set, and 1 if not: 32 values a word.
(b) Sums over many keys draw a chunk of each after the other, so that the sum stays in the first-level cache. An
    element is summed in the order of the keys, whatever the chunk; rows that are held give the same bits.
(c) A pair of candidates is theta + x and theta - x with x = sigma * noise, each operation rounded as NumPy's would
    be, in one pass over memory.
"""

import numpy as np

cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from nnflat._random cimport checked_out, fill, normal32, normal64, philox

cnp.import_array()

cdef cnp.dtype UINT64 = np.dtype(np.uint64)

cdef enum:
    GROUP = 16              # words that `philox` makes at a time, four blocks of four
    LANES = 4
    CHUNK = 256             # elements of a sum of draws that are made at a time
    WINDOW = 16384           # of a sum of windows
    DRAW = 0                # the domain of draws

ctypedef void (*draw_t)(uint64_t key, uint64_t start, void* out, Py_ssize_t n) noexcept nogil

ctypedef fused real:
    float
    double


# ---- loops ----

cdef void normals32(uint64_t key, uint64_t start, void* out, Py_ssize_t n) noexcept nogil:
    fill(normal32, 1, key, start, <char*>out, n)


cdef void normals64(uint64_t key, uint64_t start, void* out, Py_ssize_t n) noexcept nogil:
    fill(normal64, 2, key, start, <char*>out, n)


cdef void write_signs(uint64_t key, uint64_t start, real* out, Py_ssize_t n) noexcept nogil:
    cdef uint32_t[GROUP] words
    cdef uint64_t group = start // (32 * GROUP)
    cdef Py_ssize_t skip = start % (32 * GROUP), count, i
    while n > 0:
        philox(key, LANES * group, 0, DRAW, words)
        count = n if n < 32 * GROUP - skip else 32 * GROUP - skip
        for i in range(count):
            out[i] = <real>(1 - 2 * <int32_t>(words[(skip + i) >> 5] >> ((skip + i) & 31) & 1))
        out += count
        n -= count
        group += 1
        skip = 0


cdef void signs32(uint64_t key, uint64_t start, void* out, Py_ssize_t n) noexcept nogil:
    write_signs(key, start, <float*>out, n)


cdef void signs64(uint64_t key, uint64_t start, void* out, Py_ssize_t n) noexcept nogil:
    write_signs(key, start, <double*>out, n)


cdef inline void add_times(const real* drawn, real weight, real* total, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        total[i] += weight * drawn[i]


cdef inline void add_squares(const real* drawn, real weight, real* squares, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        squares[i] += weight * (drawn[i] * drawn[i])


cdef void add_rows(
    draw_t draw, const uint64_t* keys, const double* weights, const double* square_weights,
    Py_ssize_t rows, real* total, real* squares, Py_ssize_t n
) noexcept nogil:
    """Add the draws by each key, times its weight, to `total`; and their squares to `squares`, if there is one."""
    cdef real[CHUNK] drawn
    cdef Py_ssize_t first = 0, count, k
    while first < n:
        count = n - first if n - first < CHUNK else CHUNK
        for k in range(rows):
            draw(keys[k], first, drawn, count)
            add_times(<const real*>drawn, <real>weights[k], total + first, count)
            if squares != NULL:
                add_squares(<const real*>drawn, <real>square_weights[k], squares + first, count)
        first += count


cdef void add_held(
    const char* rows, Py_ssize_t stride, const double* weights, const double* square_weights,
    Py_ssize_t count, real* total, real* squares, Py_ssize_t n
) noexcept nogil:
    """Do as `add_rows`, to the bit, with draws that are in memory."""
    cdef const real* drawn
    cdef Py_ssize_t first = 0, size, k
    while first < n:
        size = n - first if n - first < CHUNK else CHUNK
        for k in range(count):
            drawn = <const real*>(rows + k * stride) + first
            add_times(drawn, <real>weights[k], total + first, size)
            if squares != NULL:
                add_squares(drawn, <real>square_weights[k], squares + first, size)
        first += size


cdef void add_scaled(real weight, const float* x, real* total, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        total[i] += weight * x[i]


cdef void add_table(
    const float* table, Py_ssize_t size, const int64_t* offsets, const double* weights,
    Py_ssize_t count, real* total, Py_ssize_t n
) noexcept nogil:
    """Add windows of a table that wraps around, each times its weight, to `total`."""
    cdef real weight
    cdef Py_ssize_t first = 0, block, start, part, done, k
    while first < n:
        block = n - first if n - first < WINDOW else WINDOW
        for k in range(count):
            weight = <real>weights[k]
            done = 0
            while done < block:
                start = (offsets[k] + first + done) % size
                part = block - done if block - done < size - start else size - start
                add_scaled(weight, table + start, total + first + done, part)
                done += part
        first += block


cdef void add_pairs(
    const char* noise, Py_ssize_t noise_stride, const real* theta, real sigma,
    char* out, Py_ssize_t stride, Py_ssize_t pairs, Py_ssize_t n
) noexcept nogil:
    """Write theta + sigma * noise k and theta - sigma * noise k into rows 2k and 2k + 1."""
    cdef real[CHUNK] x      # of its own, so that the noise may be row 2k
    cdef const real* drawn
    cdef real* plus
    cdef real* minus
    cdef Py_ssize_t k, i, first, count
    for k in range(pairs):
        first = 0
        while first < n:
            count = n - first if n - first < CHUNK else CHUNK
            drawn = <const real*>(noise + k * noise_stride) + first
            plus = <real*>(out + 2 * k * stride) + first
            minus = <real*>(out + (2 * k + 1) * stride) + first
            for i in range(count):
                x[i] = drawn[i] * sigma
            for i in range(count):
                plus[i] = theta[first + i] + x[i]
            for i in range(count):
                minus[i] = theta[first + i] - x[i]
            first += count


# ---- checking ----

cdef int run_rows(draw_t narrow, draw_t wide, cnp.ndarray keys, cnp.ndarray out, str dtypes) except -1:
    """Fill row k of `out`, whose rows are C-contiguous, with the draw by key k."""
    cdef Py_ssize_t rows = out.shape[0], n = out.shape[1], stride = out.strides[0], k
    cdef draw_t draw = narrow if checked_rows(keys, out, dtypes) == 1 else wide
    cdef const uint64_t* key = <const uint64_t*>cnp.PyArray_DATA(keys)
    cdef char* values = <char*>cnp.PyArray_DATA(out)
    with nogil:
        for k in range(rows):
            draw(key[k], 0, values + k * stride, n)
    return 0


cdef int checked_rows(cnp.ndarray keys, cnp.ndarray out, str dtypes) except -1:
    """Return the number of words that a value of `out` needs."""
    if keys.dtype != UINT64 or keys.ndim != 1 or out.ndim != 2 or keys.shape[0] != out.shape[0]:
        raise ValueError(f"one key a row is needed; got {(<object>keys).shape} keys for out {(<object>out).shape}")
    if not cnp.PyArray_ISCARRAY_RO(keys):
        raise ValueError("the keys need to be C-contiguous")
    return 1 if out.shape[0] == 0 else checked_out(out[0], cnp.PyArray_ISFLOAT(out), dtypes)


cdef int run_sum(
    draw_t narrow, draw_t wide, cnp.ndarray keys, object weights, cnp.ndarray out,
    object square_weights, cnp.ndarray squares, str dtypes
) except -1:
    cdef int width = checked_out(out, cnp.PyArray_ISFLOAT(out), dtypes)
    cdef cnp.ndarray first = np.ascontiguousarray(weights, np.float64), second = first
    cdef void* other = NULL
    if squares is not None:
        second = np.ascontiguousarray(square_weights, np.float64)
        checked_out(squares, squares.dtype == out.dtype and squares.size == out.size, f"{out.dtype}, as many as out")
        other = cnp.PyArray_DATA(squares)
    if keys.dtype != UINT64 or not cnp.PyArray_ISCARRAY_RO(keys) or not keys.size == first.size == second.size:
        raise ValueError(f"one key a weight is needed; got {keys.size} keys and {first.size}, {second.size} weights")
    cdef const uint64_t* key = <const uint64_t*>cnp.PyArray_DATA(keys)
    cdef const double* weight = <const double*>cnp.PyArray_DATA(first)
    cdef const double* square_weight = <const double*>cnp.PyArray_DATA(second)
    cdef void* total = cnp.PyArray_DATA(out)
    cdef Py_ssize_t rows = keys.size, n = cnp.PyArray_SIZE(out)
    with nogil:
        if width == 1:
            add_rows(narrow, key, weight, square_weight, rows, <float*>total, <float*>other, n)
        else:
            add_rows(wide, key, weight, square_weight, rows, <double*>total, <double*>other, n)
    return 0


cdef int run_held(
    cnp.ndarray rows, object weights, cnp.ndarray out, object square_weights, cnp.ndarray squares
) except -1:
    cdef int width = checked_out(out, cnp.PyArray_ISFLOAT(out), "float32 or float64")
    cdef cnp.ndarray first = np.ascontiguousarray(weights, np.float64), second = first
    cdef void* other = NULL
    if squares is not None:
        second = np.ascontiguousarray(square_weights, np.float64)
        checked_out(squares, squares.dtype == out.dtype and squares.size == out.size, f"{out.dtype}, as many as out")
        other = cnp.PyArray_DATA(squares)
    if rows.dtype != out.dtype or not cnp.PyArray_ISCARRAY_RO(rows) or rows.ndim != 2 or rows.shape[1] != out.size:
        raise ValueError(f"contiguous rows of {out.size} {out.dtype} needed; got {rows.dtype} {(<object>rows).shape}")
    if not rows.shape[0] == first.size == second.size:
        raise ValueError(f"one weight a row is needed; got {rows.shape[0]} rows, {first.size}, {second.size} weights")
    cdef const double* weight = <const double*>cnp.PyArray_DATA(first)
    cdef const double* square_weight = <const double*>cnp.PyArray_DATA(second)
    cdef const char* values = <const char*>cnp.PyArray_DATA(rows)
    cdef void* total = cnp.PyArray_DATA(out)
    cdef Py_ssize_t count = rows.shape[0], n = rows.shape[1], stride = rows.strides[0]
    with nogil:
        if width == 1:
            add_held(values, stride, weight, square_weight, count, <float*>total, <float*>other, n)
        else:
            add_held(values, stride, weight, square_weight, count, <double*>total, <double*>other, n)
    return 0


cdef int checked_pairs(cnp.ndarray noise, cnp.ndarray theta, cnp.ndarray out) except -1:
    """Raise unless these are rows of noise, a vector, and two rows a row of noise, all of one dtype."""
    cdef Py_ssize_t itemsize = cnp.PyArray_ITEMSIZE(theta)
    if not (cnp.PyArray_ISFLOAT(theta) and itemsize in (4, 8)) or not noise.dtype == out.dtype == theta.dtype:
        raise TypeError(f"pairs are float32 or float64 throughout; got {noise.dtype}, {theta.dtype}, {out.dtype}")
    if not (noise.ndim == out.ndim == 2 and theta.ndim == 1 and noise.shape[1] == out.shape[1] == theta.shape[0]
            and 2 * noise.shape[0] == out.shape[0]):
        raise ValueError(f"two rows a row of noise are needed; got {(<object>out).shape} for {(<object>noise).shape}")
    if not (cnp.PyArray_ISCARRAY_RO(theta) and cnp.PyArray_ISALIGNED(noise) and cnp.PyArray_ISBEHAVED(out)):
        raise ValueError("pairs need aligned memory of native byte order, and an out that is writeable")
    if noise.size > 0 and not noise.strides[1] == out.strides[1] == itemsize:
        raise ValueError("the rows of noise and of out need to be contiguous")
    return 0


# ---- called from Python ----

def fill_normal_rows(cnp.ndarray keys not None, cnp.ndarray out not None):
    """Write the normals of key k into row k of `out`: what `fill_normal` writes, row by row."""
    run_rows(normals32, normals64, keys, out, "float32 or float64")


def fill_sign_rows(cnp.ndarray keys not None, cnp.ndarray out not None):
    """Write the signs (-1 or 1) of key k into row k of `out`."""
    run_rows(signs32, signs64, keys, out, "float32 or float64")


def add_normals(
    cnp.ndarray keys not None, weights, cnp.ndarray out not None, square_weights=None, cnp.ndarray squares=None
):
    """Add the normals of each key, times its weight, to `out`; their squares, times another, to `squares`."""
    run_sum(normals32, normals64, keys, weights, out, square_weights, squares, "float32 or float64")


def add_signs(
    cnp.ndarray keys not None, weights, cnp.ndarray out not None, square_weights=None, cnp.ndarray squares=None
):
    """Add the signs of each key, times its weight, to `out`; their squares, times another, to `squares`."""
    run_sum(signs32, signs64, keys, weights, out, square_weights, squares, "float32 or float64")


def add_windows(cnp.ndarray table not None, cnp.ndarray offsets not None, weights, cnp.ndarray out not None):
    """Add windows of a float32 table, which begin at the offsets and wrap around, times weights, to `out`."""
    cdef int width = checked_out(out, cnp.PyArray_ISFLOAT(out), "float32 or float64")
    cdef cnp.ndarray each = np.ascontiguousarray(weights, np.float64)
    if table.dtype != np.float32 or not cnp.PyArray_ISCARRAY_RO(table) or table.size == 0:
        raise ValueError(f"a contiguous table of float32 is needed; got {table.dtype} of size {table.size}")
    if offsets.dtype != np.int64 or not cnp.PyArray_ISCARRAY_RO(offsets) or offsets.size != each.size:
        raise ValueError(f"one int64 offset a weight needed; got {offsets.size} {offsets.dtype}, {each.size} weights")
    if offsets.size and (offsets.min() < 0 or offsets.max() >= table.size):
        raise ValueError(f"offsets need to be within the table of {table.size}")
    cdef const float* values = <const float*>cnp.PyArray_DATA(table)
    cdef const int64_t* offset = <const int64_t*>cnp.PyArray_DATA(offsets)
    cdef const double* weight = <const double*>cnp.PyArray_DATA(each)
    cdef Py_ssize_t size = table.size, count = each.size, n = out.size
    cdef void* total = cnp.PyArray_DATA(out)
    with nogil:
        if width == 1:
            add_table(values, size, offset, weight, count, <float*>total, n)
        else:
            add_table(values, size, offset, weight, count, <double*>total, n)


def add_held_rows(
    cnp.ndarray rows not None, weights, cnp.ndarray out not None, square_weights=None, cnp.ndarray squares=None
):
    """Add each row, times its weight, to `out`: what `add_normals` or `add_signs` adds, had it drawn the rows."""
    run_held(rows, weights, out, square_weights, squares)


def write_pairs(cnp.ndarray noise not None, cnp.ndarray theta not None, double sigma, cnp.ndarray out not None):
    """Write theta + sigma * noise[k] and theta - sigma * noise[k] into rows 2k and 2k + 1 of `out`.

    noise[k] may be row 2k of `out` itself.
    """
    checked_pairs(noise, theta, out)
    cdef const char* drawn = <const char*>cnp.PyArray_DATA(noise)
    cdef const void* centre = cnp.PyArray_DATA(theta)
    cdef char* written = <char*>cnp.PyArray_DATA(out)
    cdef Py_ssize_t pairs = noise.shape[0], n = noise.shape[1]
    cdef Py_ssize_t stride = out.strides[0], noise_stride = noise.strides[0]
    cdef bint single = cnp.PyArray_ITEMSIZE(theta) == sizeof(float)
    with nogil:
        if single:
            add_pairs(drawn, noise_stride, <const float*>centre, <float>sigma, written, stride, pairs, n)
        else:
            add_pairs(drawn, noise_stride, <const double*>centre, sigma, written, stride, pairs, n)
