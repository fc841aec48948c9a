"""Counter-based random numbers: value k of a draw is a function of (key, k) and of nothing else.

(a) Words. Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011)
    is a bijection of 128 bits under a 64-bit key. Our key is that key; our counter is (block, block >> 32,
    number, domain) in 32-bit words. Word w of a draw is word w % 4 of block w // 4. There is no state.
(b) Domains. Draws count in domain 0 (number 0); `fold` counts in domain 1, with the low 64 bits of its number
    as the block and its sign as the number. So no fold uses a block that a draw, or another number, uses.
(c) Widths. Value k of a 32-bit dtype is made from word k, of a 64-bit dtype from words 2k (low half) and
    2k + 1 (high half). The three kinds (bits, uniform, normal) of one key are made from the same words.
(d) Uniform. The upper 24 (53) bits times 2**-24 (2**-53), which is exact: [0, 1), every multiple possible.
(e) Normal. The first bit is the sign. The other 31 (63) bits m are a tail probability
    p = (m + 1/2) * 2**-32 (2**-64) in (0, 1/2], and |z| solves P(Z > |z|) = p. So the draw is symmetric
    to the bit, monotone in p up to rounding, and reaches 6.3 (9.1) standard deviations.
    float64: the rational approximations of AS 241 (Wichura, Applied Statistics 37, 1988) with a logarithm of
    our own; the error is at most 1e-15 max(1, |z|). float32: the same function, interpolated. An octave of p
    is cut into 128 segments, each with the parabola through its two ends and its middle (hierarchical
    segmentation: Cheung, Lee, Luk, Villasenor, IEEE Trans. VLSI 15, 2007). Ends are shared, so |z| is
    continuous; the error is at most 1.3 units in the last place where |z| >= 1, and 1.1e-7 elsewhere.
(f) The same bits everywhere. Integers decide every choice; the rest is IEEE + - * / and sqrt of a fixed
    order in the declared width, each correctly rounded by the standard, never contracted (setup.py), with
    no call to libm's log or exp, whose last bits differ between systems. The table of (e) is made of the
    same operations at import (0.3 ms).
(g) Speed. Four blocks stand side by side in arrays of four, so that a plain C compiler turns a round into
    SIMD; words pass through a buffer that stays in the first-level cache. Large fills release the GIL.
"""

import numpy as np

cimport numpy as cnp
from cpython.number cimport PyNumber_Index
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cnp.import_array()

cdef extern from *:
    """
    #include <float.h>
    #if FLT_EVAL_METHOD != 0
    #error "nnflat needs float and double arithmetic in their own width (FLT_EVAL_METHOD 0): see (f)"
    #endif
    """

cdef extern from "numpy/arrayobject.h":
    object PyArray_Scalar(void* data, cnp.dtype dtype, object base)

cdef cnp.dtype UINT64 = np.dtype(np.uint64)

cdef enum:
    BLOCK = 4               # words in a block
    LANES = 4               # blocks made at a time
    GROUP = 16              # words in these
    CHUNK = 256             # words in the buffer of a fill
    RELEASE = 4096          # words from which a fill releases the GIL
    OCTAVES = 32            # of p in float32, from 2**-33 up to 1/2
    SEGMENTS = 128          # in an octave

cdef enum Domain:
    DRAW = 0
    FOLD = 1

cdef union Single:
    float value
    uint32_t bits

cdef union Double:
    double value
    uint64_t bits


# ---- words ----

cdef void philox(
    uint64_t key, uint64_t block, uint32_t number, uint32_t domain, uint32_t* out
) noexcept nogil:
    """Write blocks `block` to `block` + 3."""
    cdef uint32_t[LANES] x0, x1, x2, x3
    cdef uint32_t k0 = <uint32_t>key, k1 = <uint32_t>(key >> 32)
    cdef uint64_t p, q
    cdef int _, j
    for j in range(LANES):
        x0[j] = <uint32_t>(block + j)
        x1[j] = <uint32_t>((block + j) >> 32)
        x2[j] = number
        x3[j] = domain
    for _ in range(10):
        for j in range(LANES):
            p = <uint64_t>x0[j] * 0xD2511F53u
            q = <uint64_t>x2[j] * 0xCD9E8D57u
            x0[j] = <uint32_t>(q >> 32) ^ x1[j] ^ k0
            x2[j] = <uint32_t>(p >> 32) ^ x3[j] ^ k1
            x1[j] = <uint32_t>q
            x3[j] = <uint32_t>p
        k0 += 0x9E3779B9u
        k1 += 0xBB67AE85u
    for j in range(LANES):
        out[BLOCK * j] = x0[j]
        out[BLOCK * j + 1] = x1[j]
        out[BLOCK * j + 2] = x2[j]
        out[BLOCK * j + 3] = x3[j]


cdef void fill(
    transform_t transform, int width, uint64_t key, uint64_t start, char* out, Py_ssize_t n
) noexcept nogil:
    """Write values `start` to `start` + n - 1, each made from `width` words and as wide as they are."""
    cdef uint32_t[CHUNK + GROUP] words
    cdef uint64_t word = start * width
    cdef Py_ssize_t skip, count, i
    while n > 0:
        skip = word % BLOCK
        count = (CHUNK - skip) // width
        if count > n:
            count = n
        for i in range((skip + count * width + GROUP - 1) // GROUP):
            philox(key, word // BLOCK + LANES * i, 0, DRAW, words + GROUP * i)
        transform(words + skip, out, count)
        out += count * width * sizeof(uint32_t)
        word += count * width
        n -= count


cdef uint64_t fold_one(uint64_t key, uint64_t number, bint negative) noexcept nogil:
    """Return the first half of a block of the other domain: the low 64 bits of the number are its counter."""
    cdef uint32_t[GROUP] words
    philox(key, number, negative, FOLD, words)
    return joined(words)


cdef inline uint64_t joined(const uint32_t* words) noexcept nogil:
    return words[0] | <uint64_t>words[1] << 32


# ---- the inverse of the normal tail probability ----

# AS 241, from the constant term up: p >= 0.075, then sqrt(-log p) <= 5, then beyond.
cdef double[8] CENTRE_OVER = [
    3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
    1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
    3.3430575583588128105e4, 2.5090809287301226727e3,
]
cdef double[8] CENTRE_UNDER = [
    1.0, 4.2313330701600911252e1, 6.8718700749205790830e2,
    5.3941960214247511077e3, 2.1213794301586595867e4, 3.9307895800092710610e4,
    2.8729085735721942674e4, 5.2264952788528545610e3,
]
cdef double[8] TAIL_OVER = [
    1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
    3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4,
]
cdef double[8] TAIL_UNDER = [
    1.0, 2.05319162663775882187e0, 1.67638483018380384940e0,
    6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
    5.47593808499534494600e-4, 1.05075007164441684324e-9,
]
cdef double[8] FAR_OVER = [
    6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
    2.71155556874348757815e-5, 2.01033439929228813265e-7,
]
cdef double[8] FAR_UNDER = [
    1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
    1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
    1.42151175831644588870e-7, 2.04426310338993978564e-15,
]
# artanh(s) / s, from the highest power of s**2 down: 2e-18 at the s**2 <= 0.0295 that come
cdef double[11] ARTANH = [
    1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0,
]
cdef double TAIL = 0.075
cdef double LOG_2 = 0.693147180559945309417232
cdef int64_t ROOT_HALF = 0x3FE6A09E667F3BCD     # the bits of sqrt(1/2)


cdef inline double ratio(const double* over, const double* under, double x) noexcept nogil:
    cdef double a = over[7], b = under[7]
    cdef int i
    for i in range(6, -1, -1):
        a = a * x + over[i]
        b = b * x + under[i]
    return a / b


cdef double minus_log(double p) noexcept nogil:
    """Return -log p of a normal number: p = 2**e * f with f near 1, log f = 2 artanh((f - 1) / (f + 1))."""
    cdef Double f
    cdef double s, square, total = 0.0
    cdef int64_t e
    cdef int i
    f.value = p
    e = (<int64_t>f.bits - ROOT_HALF) >> 52     # so that f is in [sqrt(1/2), sqrt(2))
    f.bits -= <uint64_t>e << 52
    s = (f.value - 1.0) / (f.value + 1.0)
    square = s * s
    for i in range(11):
        total = total * square + ARTANH[i]
    return -2.0 * s * total - e * LOG_2


cdef inline double centre(double p) noexcept nogil:
    cdef double q = 0.5 - p
    return q * ratio(CENTRE_OVER, CENTRE_UNDER, 0.180625 - q * q)


cdef double tail(double p) noexcept nogil:
    cdef double r = sqrt(minus_log(p))
    if r <= 5.0:
        return ratio(TAIL_OVER, TAIL_UNDER, r - 1.6)
    return ratio(FAR_OVER, FAR_UNDER, r - 5.0)


cdef double tail_quantile(double p) noexcept nogil:
    """Return the z >= 0 with P(Z > z) = p, for p in (0, 1/2]."""
    return tail(p) if p < TAIL else centre(p)


# Parabolas c[0] + c[1] x + c[2] x**2 for x in [-1/2, 1/2); the last row is p = 1/2, and stays 0.
cdef float[OCTAVES * SEGMENTS + 1][3] PARABOLAS


cdef void tabulate() noexcept nogil:
    cdef double octave = 1.0 / (1ULL << 33), low, middle, high
    cdef int o, segment
    cdef float* c
    for o in range(OCTAVES):
        for segment in range(SEGMENTS):
            low = tail_quantile(octave + octave * segment / SEGMENTS)
            middle = tail_quantile(octave + octave * (segment + 0.5) / SEGMENTS)
            high = tail_quantile(octave + octave * (segment + 1) / SEGMENTS)
            c = PARABOLAS[o * SEGMENTS + segment]
            c[0] = <float>middle
            c[1] = <float>(high - low)
            c[2] = <float>(2.0 * (high + low - 2.0 * middle))
        octave *= 2.0


# ---- from words to values ----

cdef void bits32(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil:
    cdef uint32_t* values = <uint32_t*>out
    cdef Py_ssize_t i
    for i in range(n):
        values[i] = words[i]


cdef void bits64(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil:
    cdef uint64_t* values = <uint64_t*>out
    cdef Py_ssize_t i
    for i in range(n):
        values[i] = joined(words + 2 * i)


cdef void uniform32(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil:
    cdef float* values = <float*>out
    cdef Py_ssize_t i
    for i in range(n):
        values[i] = <float><int32_t>(words[i] >> 8) * <float>(1.0 / (1 << 24))


cdef void uniform64(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil:
    cdef double* values = <double*>out
    cdef Py_ssize_t i
    for i in range(n):
        values[i] = <double><int64_t>(joined(words + 2 * i) >> 11) * (1.0 / (1ULL << 53))


cdef void normal32(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil:
    # The bits of the float p * 2**32 say it all: exponent and first 7 bits of the fraction are the row, the
    # other 16 bits are x. Three loops, because the first and the last are SIMD and the table walk is not.
    cdef float* values = <float*>out
    cdef uint32_t[CHUNK] rows
    cdef float[CHUNK] xs
    cdef int32_t word
    cdef Single p, x, z
    cdef const float* c
    cdef Py_ssize_t i
    for i in range(n):
        word = <int32_t>words[i]
        p.value = <float>(word ^ (word >> 31)) + <float>0.5
        rows[i] = (p.bits >> 16) - (126 << 7)
        x.bits = ((p.bits << 7) & 0x7FFFFF) | 0x3F800000
        xs[i] = x.value - <float>1.5
    for i in range(n):
        c = PARABOLAS[rows[i]]
        xs[i] = (c[2] * xs[i] + c[1]) * xs[i] + c[0]
    for i in range(n):
        z.value = xs[i]
        z.bits |= words[i] & 0x80000000u
        values[i] = z.value


cdef void normal64(const uint32_t* words, void* out, Py_ssize_t n) noexcept nogil:
    # `centre` is SIMD if it is computed for all (its denominator stays positive), and 85 % need no more.
    cdef double* values = <double*>out
    cdef double[CHUNK] p
    cdef int64_t word
    cdef Double z
    cdef Py_ssize_t i
    for i in range(n):
        word = <int64_t>joined(words + 2 * i)
        p[i] = (<double>(word ^ (word >> 63)) + 0.5) * (0.5 / (1ULL << 63))
    for i in range(n):
        values[i] = centre(p[i])
    for i in range(n):
        if p[i] < TAIL:
            values[i] = tail(p[i])
    for i in range(n):
        z.value = values[i]
        z.bits |= <uint64_t>(words[2 * i + 1] & 0x80000000u) << 32
        values[i] = z.value


# ---- checking ----

cdef uint64_t checked_key(object key) except? 0:
    key = checked_int(key, "a key")
    try:
        return key
    except OverflowError:
        raise ValueError(f"a key needs 0 <= key < 2**64; got {key}") from None


cdef object checked_int(object number, str what):
    try:
        if not isinstance(number, bool):
            return PyNumber_Index(number)
    except TypeError:
        pass
    raise TypeError(f"{what} needs one integer; got {described(number)}")


cdef str described(object value):
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    return f"{value!r} ({type(value).__name__})"


cdef int checked_out(object out, bint right_kind, str dtypes) except -1:
    """Return the number of words that a value of `out` needs."""
    cdef int width = cnp.PyArray_ITEMSIZE(out) // sizeof(uint32_t)
    if not right_kind or width not in (1, 2):
        raise TypeError(f"this draw needs dtype {dtypes}; got {out.dtype}")
    if not cnp.PyArray_ISCARRAY(out):
        raise ValueError(
            f"out needs to be C-contiguous, aligned, writeable and of native byte order; got {out.dtype.str} "
            f"of shape {out.shape} and strides {out.strides}, writeable={out.flags.writeable}"
        )
    return width


cdef int run(
    transform_t narrow, transform_t wide, object key, object start,
    cnp.ndarray out, bint right_kind, str dtypes
) except -1:
    cdef int width = checked_out(out, right_kind, dtypes)
    cdef uint64_t checked = checked_key(key)
    cdef Py_ssize_t first = checked_int(start, "start")
    cdef char* values = <char*>cnp.PyArray_DATA(out)
    cdef Py_ssize_t n = cnp.PyArray_SIZE(out)
    cdef transform_t transform = narrow if width == 1 else wide
    if first < 0:
        raise ValueError(f"start needs to be 0 or more; got {first}")
    if n * width < RELEASE:
        fill(transform, width, checked, first, values, n)
    else:
        with nogil:
            fill(transform, width, checked, first, values, n)
    return 0


cdef object as_keys(object keys):
    if not isinstance(keys, np.ndarray):
        return np.array(checked_key(keys), UINT64)
    if keys.dtype != UINT64:
        raise TypeError(f"an array of keys needs dtype uint64; got {keys.dtype}")
    return keys


cdef object as_numbers(object numbers):
    numbers = np.asarray(numbers)
    if numbers.dtype.kind not in "iu":
        raise TypeError(f"fold needs integers, -2**63 <= number < 2**64; got dtype {numbers.dtype}")
    return numbers


cdef object fold_arrays(object keys, object numbers):
    cdef cnp.ndarray folded = np.array(keys, UINT64, order="C")
    cdef cnp.ndarray lows = np.array(numbers, order="C").astype(UINT64)
    cdef cnp.ndarray signs = np.ascontiguousarray(numbers < 0)
    cdef uint64_t* key = <uint64_t*>cnp.PyArray_DATA(folded)
    cdef const uint64_t* low = <const uint64_t*>cnp.PyArray_DATA(lows)
    cdef const uint8_t* negative = <const uint8_t*>cnp.PyArray_DATA(signs)
    cdef Py_ssize_t i
    for i in range(cnp.PyArray_SIZE(folded)):
        key[i] = fold_one(key[i], low[i], negative[i])
    return folded[()]


# ---- called from Python ----

def fill_bits(key, start, cnp.ndarray out not None):
    """Write values `start`, `start` + 1, ... of the bits of `key` into `out` (uint32 or uint64)."""
    run(bits32, bits64, key, start, out, cnp.PyArray_ISUNSIGNED(out), "uint32 or uint64")


def fill_uniform(key, start, cnp.ndarray out not None):
    """Write values `start`, `start` + 1, ... of the uniforms of `key` into `out` (float32 or float64)."""
    run(uniform32, uniform64, key, start, out, cnp.PyArray_ISFLOAT(out), "float32 or float64")


def fill_normal(key, start, cnp.ndarray out not None):
    """Write values `start`, `start` + 1, ... of the normals of `key` into `out` (float32 or float64)."""
    run(normal32, normal64, key, start, out, cnp.PyArray_ISFLOAT(out), "float32 or float64")


def fold_range(key, start, Py_ssize_t count):
    """Return the keys that the integers `start`, `start` + 1, ... (0 <= number < 2**63) make of a key."""
    cdef uint64_t checked = checked_key(key)
    cdef int64_t first = checked_int(start, "fold")
    cdef cnp.npy_intp rows = count
    cdef cnp.ndarray keys = cnp.PyArray_SimpleNew(1, &rows, cnp.NPY_UINT64)
    cdef uint64_t* folded = <uint64_t*>cnp.PyArray_DATA(keys)
    cdef Py_ssize_t i
    if first < 0:
        raise ValueError(f"a range of folds starts at 0 or above; got {start}")
    for i in range(count):
        folded[i] = fold_one(checked, first + i, False)
    return keys


def fold_key(key, number):
    """Return the key that one integer (-2**63 <= number < 2**64) makes of a key; arrays broadcast."""
    cdef uint64_t checked, low, folded
    if isinstance(key, np.ndarray) or isinstance(number, np.ndarray):
        key, number = np.broadcast_arrays(as_keys(key), as_numbers(number))
        return fold_arrays(key, number)
    checked = checked_key(key)
    number = checked_int(number, "fold")
    try:
        low = <uint64_t><int64_t>number if number < 0 else <uint64_t>number
    except OverflowError:
        raise ValueError(f"fold needs -2**63 <= number < 2**64; got {number}") from None
    folded = fold_one(checked, low, number < 0)
    return PyArray_Scalar(&folded, UINT64, None)


def philox4x32(counter, key):
    """Return one block of the generator: four words from a counter of four words (what the tests check)."""
    cdef uint32_t[GROUP] words
    cdef uint32_t c0, c1, c2, c3
    c0, c1, c2, c3 = counter
    philox(checked_key(key), c0 | <uint64_t>c1 << 32, c2, c3, words)
    return words[0], words[1], words[2], words[3]


def quantile(double p):
    """Return the z >= 0 with P(Z > z) = p, for p in [2**-65, 1/2] (what the tests check)."""
    return tail_quantile(p)


tabulate()
