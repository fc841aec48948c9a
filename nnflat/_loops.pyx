"""Inner loops: NumPy's own, found in its ufuncs, and the few that no ufunc has, with the same signature.

 a) `loop(args, dims, strides, data)` runs without the GIL; `args` and `strides` have one entry an operand.
 b) A ufunc's table may list a signature twice: the first is the one that NumPy dispatches to.
 c) Whether a loop clears the sticky floating-point flags is found by running it, not from a table.
 d) Our own loops move cells (copy, select, gather) or widen numbers (cast). The one arithmetic done here is that of
    integer scalars, which have no ufunc loop: it says by the overflow flag that a result does not fit.
 e) Random draws are loops over (key, values); an arg-reduction is NumPy's own function over one row.
"""

cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from nnflat._random cimport (
    bits32,
    bits64,
    fill,
    fold_one,
    normal32,
    normal64,
    transform_t,
    uniform32,
    uniform64,
)

import numpy as np

cnp.import_array()
cnp.import_ufunc()

cdef extern from "<fenv.h>" nogil:
    int FE_DIVBYZERO
    int FE_OVERFLOW
    int FE_ALL_EXCEPT
    int fetestexcept(int)
    int feclearexcept(int)
    int feraiseexcept(int)

cdef extern from "numpy/ufuncobject.h":
    ctypedef struct UFunc "PyUFuncObject":
        int nargs
        InnerLoop* functions
        void** data

cdef extern from "numpy/arrayobject.h":
    ctypedef int (*ArgFunction "PyArray_ArgFunc*")(void* row, cnp.npy_intp n, cnp.npy_intp* found,
                                                   void* array) noexcept nogil
    ctypedef struct ArrayFunctions "PyArray_ArrFuncs":
        ArgFunction argmax
        ArgFunction argmin
    ArrayFunctions* functions_of "PyDataType_GetArrFuncs"(cnp.dtype)

cdef int64_t LOWEST = <int64_t>(<uint64_t>1 << 63)

ctypedef const cnp.npy_intp* Sizes
ctypedef bint (*Overflows)(int64_t a, int64_t b, int64_t* made) noexcept nogil

ctypedef fused Whole:
    int64_t
    uint64_t

ctypedef fused Cell:
    uint8_t
    uint16_t
    uint32_t
    uint64_t

ctypedef fused Number:
    int8_t
    uint8_t
    int16_t
    uint16_t
    int32_t
    uint32_t
    int64_t
    uint64_t
    float
    double


cdef void copy_cells(char** args, Sizes dims, Sizes strides, Cell* data) noexcept nogil:
    cdef char* source = args[0]
    cdef char* target = args[1]
    cdef cnp.npy_intp i, step = strides[0], stride = strides[1]
    if step == sizeof(Cell) and stride == sizeof(Cell):
        memcpy(target, source, dims[0] * sizeof(Cell))
        return
    for i in range(dims[0]):
        (<Cell*>(target + i * stride))[0] = (<Cell*>(source + i * step))[0]


cdef void copy_any(char** args, Sizes dims, Sizes strides, void* data) noexcept nogil:
    cdef cnp.npy_intp i, size = <cnp.npy_intp>data
    for i in range(dims[0]):
        memcpy(args[1] + i * strides[1], args[0] + i * strides[0], size)


cdef inline void select_rows(uint8_t* condition, Cell* yes, Cell* no, Cell* target, cnp.npy_intp n) noexcept nogil:
    """Select without a branch, which the condition would mislead: compilers make vectors of it."""
    cdef cnp.npy_intp i
    cdef Cell keep
    for i in range(n):
        keep = <Cell>0 - <Cell>(condition[i] != 0)
        target[i] = (yes[i] & keep) | (no[i] & ~keep)


cdef inline void select_or(uint8_t* condition, Cell* yes, Cell no, Cell* target, cnp.npy_intp n) noexcept nogil:
    cdef cnp.npy_intp i
    cdef Cell keep
    for i in range(n):
        keep = <Cell>0 - <Cell>(condition[i] != 0)
        target[i] = (yes[i] & keep) | (no & ~keep)


cdef void select_cells(char** args, Sizes dims, Sizes strides, Cell* data) noexcept nogil:
    cdef cnp.npy_intp i, n = dims[0], size = sizeof(Cell)
    cdef Cell yes, no
    if strides[0] == 1 and strides[1] == size and strides[3] == size and strides[2] == size:
        select_rows(<uint8_t*>args[0], <Cell*>args[1], <Cell*>args[2], <Cell*>args[3], n)
        return
    if strides[0] == 1 and strides[1] == size and strides[3] == size and strides[2] == 0 and n:
        select_or(<uint8_t*>args[0], <Cell*>args[1], (<Cell*>args[2])[0], <Cell*>args[3], n)
        return
    for i in range(n):
        yes = (<Cell*>(args[1] + i * strides[1]))[0]
        no = (<Cell*>(args[2] + i * strides[2]))[0]
        (<Cell*>(args[3] + i * strides[3]))[0] = yes if (args[0] + i * strides[0])[0] else no


cdef void select_any(char** args, Sizes dims, Sizes strides, void* data) noexcept nogil:
    cdef cnp.npy_intp i, size = <cnp.npy_intp>data
    cdef char* chosen
    for i in range(dims[0]):
        chosen = args[1] + i * strides[1] if (args[0] + i * strides[0])[0] else args[2] + i * strides[2]
        memcpy(args[3] + i * strides[3], chosen, size)


cdef void gather_cells(char** args, Sizes dims, Sizes strides, void* data) noexcept nogil:
    """args: the source, a table of byte offsets into it, the target."""
    cdef cnp.npy_intp i, size = <cnp.npy_intp>data
    cdef cnp.npy_intp offset
    for i in range(dims[0]):
        offset = (<cnp.npy_intp*>(args[1] + i * strides[1]))[0]
        memcpy(args[2] + i * strides[2], args[0] + offset, size)


cdef void widen_to_double(char** args, Sizes dims, Sizes strides, Number* data) noexcept nogil:
    cdef cnp.npy_intp i
    for i in range(dims[0]):
        (<double*>(args[1] + i * strides[1]))[0] = <double>(<Number*>(args[0] + i * strides[0]))[0]


cdef void widen_to_float(char** args, Sizes dims, Sizes strides, Number* data) noexcept nogil:
    cdef cnp.npy_intp i
    for i in range(dims[0]):
        (<float*>(args[1] + i * strides[1]))[0] = <float>(<Number*>(args[0] + i * strides[0]))[0]


cdef bint sum_overflows(int64_t a, int64_t b, int64_t* made) noexcept nogil:
    made[0] = <int64_t>(<uint64_t>a + <uint64_t>b)
    return (a ^ made[0]) & (b ^ made[0]) < 0


cdef bint difference_overflows(int64_t a, int64_t b, int64_t* made) noexcept nogil:
    made[0] = <int64_t>(<uint64_t>a - <uint64_t>b)
    return (a ^ b) & (a ^ made[0]) < 0


cdef bint product_overflows(int64_t a, int64_t b, int64_t* made) noexcept nogil:
    made[0] = <int64_t>(<uint64_t>a * <uint64_t>b)
    return (a == -1 and b == LOWEST) or (a != 0 and a != -1 and made[0] // a != b)


cdef void compute_checked(char** args, Sizes dims, Sizes strides, void* overflows) noexcept nogil:
    """args: a, b, what is made of them; the overflow flag says that one did not fit."""
    cdef cnp.npy_intp i
    for i in range(dims[0]):
        if (<Overflows>overflows)((<int64_t*>(args[0] + i * strides[0]))[0], (<int64_t*>(args[1] + i * strides[1]))[0],
                                  <int64_t*>(args[2] + i * strides[2])):
            feraiseexcept(FE_OVERFLOW)


cdef void draw_narrow(char** args, Sizes dims, Sizes strides, void* transform) noexcept nogil:
    """args: the key, the values, 32 bits wide and contiguous."""
    fill(<transform_t>transform, 1, (<uint64_t*>args[0])[0], 0, args[1], dims[0])


cdef void draw_wide(char** args, Sizes dims, Sizes strides, void* transform) noexcept nogil:
    fill(<transform_t>transform, 2, (<uint64_t*>args[0])[0], 0, args[1], dims[0])


cdef void fold_keys(char** args, Sizes dims, Sizes strides, Whole* data) noexcept nogil:
    """args: keys, numbers, the keys made of them."""
    cdef cnp.npy_intp i
    cdef Whole number
    cdef bint negative
    for i in range(dims[0]):
        number = (<Whole*>(args[1] + i * strides[1]))[0]
        negative = number < 0
        (<uint64_t*>(args[2] + i * strides[2]))[0] = fold_one(
            (<uint64_t*>(args[0] + i * strides[0]))[0], <uint64_t>number, negative)


cdef void find_extremum(char** args, Sizes dims, Sizes strides, void* function) noexcept nogil:
    """args: contiguous rows, the index found in each; dims: rows, and their length.

    NumPy does not report what comparing with a NaN raises.
    """
    cdef int before = fetestexcept(FE_ALL_EXCEPT)
    cdef int raised
    cdef cnp.npy_intp i
    for i in range(dims[0]):
        (<ArgFunction>function)(args[0] + i * strides[0], dims[1], <cnp.npy_intp*>(args[1] + i * strides[1]), NULL)
    raised = fetestexcept(FE_ALL_EXCEPT) & ~before
    if raised:
        feclearexcept(raised)


cdef class Loop:
    """One compiled inner loop. `clears`: it clears the floating-point flags that were set before it."""


cdef Loop make_loop(InnerLoop run, void* data, object owner):
    cdef Loop loop = Loop.__new__(Loop)
    loop.run, loop.data, loop.owner, loop.clears = run, data, owner, False
    return loop


cdef dict widen_double_table():
    return {
        "b1": make_loop(<InnerLoop>widen_to_double[uint8_t], NULL, None),
        "i1": make_loop(<InnerLoop>widen_to_double[int8_t], NULL, None),
        "u1": make_loop(<InnerLoop>widen_to_double[uint8_t], NULL, None),
        "i2": make_loop(<InnerLoop>widen_to_double[int16_t], NULL, None),
        "u2": make_loop(<InnerLoop>widen_to_double[uint16_t], NULL, None),
        "i4": make_loop(<InnerLoop>widen_to_double[int32_t], NULL, None),
        "u4": make_loop(<InnerLoop>widen_to_double[uint32_t], NULL, None),
        "i8": make_loop(<InnerLoop>widen_to_double[int64_t], NULL, None),
        "u8": make_loop(<InnerLoop>widen_to_double[uint64_t], NULL, None),
        "f4": make_loop(<InnerLoop>widen_to_double[float], NULL, None),
    }


cdef dict widen_float_table():
    return {
        "b1": make_loop(<InnerLoop>widen_to_float[uint8_t], NULL, None),
        "i1": make_loop(<InnerLoop>widen_to_float[int8_t], NULL, None),
        "u1": make_loop(<InnerLoop>widen_to_float[uint8_t], NULL, None),
        "i2": make_loop(<InnerLoop>widen_to_float[int16_t], NULL, None),
        "u2": make_loop(<InnerLoop>widen_to_float[uint16_t], NULL, None),
        "i4": make_loop(<InnerLoop>widen_to_float[int32_t], NULL, None),
        "u4": make_loop(<InnerLoop>widen_to_float[uint32_t], NULL, None),
        "i8": make_loop(<InnerLoop>widen_to_float[int64_t], NULL, None),
        "u8": make_loop(<InnerLoop>widen_to_float[uint64_t], NULL, None),
        "f8": make_loop(<InnerLoop>widen_to_float[double], NULL, None),
    }


CASTS = {"f8": widen_double_table(), "f4": widen_float_table()}
COPIES = {
    1: make_loop(<InnerLoop>copy_cells[uint8_t], NULL, None),
    2: make_loop(<InnerLoop>copy_cells[uint16_t], NULL, None),
    4: make_loop(<InnerLoop>copy_cells[uint32_t], NULL, None),
    8: make_loop(<InnerLoop>copy_cells[uint64_t], NULL, None),
    16: make_loop(copy_any, <void*>16, None),
}
SELECTS = {
    1: make_loop(<InnerLoop>select_cells[uint8_t], NULL, None),
    2: make_loop(<InnerLoop>select_cells[uint16_t], NULL, None),
    4: make_loop(<InnerLoop>select_cells[uint32_t], NULL, None),
    8: make_loop(<InnerLoop>select_cells[uint64_t], NULL, None),
    16: make_loop(select_any, <void*>16, None),
}

CHECKED = {
    "add": make_loop(compute_checked, <void*>sum_overflows, None),
    "subtract": make_loop(compute_checked, <void*>difference_overflows, None),
    "multiply": make_loop(compute_checked, <void*>product_overflows, None),
}
FOLDS = {
    "i": make_loop(<InnerLoop>fold_keys[int64_t], NULL, None),
    "u": make_loop(<InnerLoop>fold_keys[uint64_t], NULL, None),
}
DRAWS = {
    ("bits", 4): make_loop(draw_narrow, <void*>bits32, None),
    ("bits", 8): make_loop(draw_wide, <void*>bits64, None),
    ("uniform", 4): make_loop(draw_narrow, <void*>uniform32, None),
    ("uniform", 8): make_loop(draw_wide, <void*>uniform64, None),
    ("normal", 4): make_loop(draw_narrow, <void*>normal32, None),
    ("normal", 8): make_loop(draw_wide, <void*>normal64, None),
}


def address(array: np.ndarray) -> int:
    """Where the first element of an array is."""
    return <cnp.npy_intp>cnp.PyArray_DATA(<cnp.ndarray?>array)


def copy_loop(itemsize: int, aligned: bool = True) -> Loop:
    """Copy cells: operands (source, target)."""
    if aligned and itemsize in COPIES:
        return COPIES[itemsize]
    return make_loop(copy_any, <void*><cnp.npy_intp>itemsize, None)


def select_loop(itemsize: int) -> Loop:
    """Choose cells: operands (condition, yes, no, target)."""
    return SELECTS[itemsize] if itemsize in SELECTS else make_loop(select_any, <void*><cnp.npy_intp>itemsize, None)


def gather_loop(itemsize: int) -> Loop:
    """Copy cells from anywhere: operands (source, byte offsets, target)."""
    return make_loop(gather_cells, <void*><cnp.npy_intp>itemsize, None)


def draw_loop(name: str, itemsize: int) -> Loop:
    """Fill with `bits`, `uniform` or `normal` values: operands (key, values)."""
    return DRAWS[name, itemsize]


def fold_loop(kind: str) -> Loop:
    """Make keys of keys and 64-bit numbers, of kind "i" (with a sign) or "u": operands (keys, numbers, made)."""
    return FOLDS[kind]


def checked_loop(name: str) -> Loop:
    """Add, subtract or multiply int64, and raise the overflow flag where that does not fit: operands (a, b, made)."""
    return CHECKED[name]


def arg_loop(name: str, dtype: np.dtype) -> Loop:
    """Find where a row has its extremum, by `argmax` or `argmin` of its dtype: operands (rows, indices)."""
    cdef ArrayFunctions* functions = functions_of(dtype)
    return make_loop(find_extremum, <void*>(functions.argmax if name == "argmax" else functions.argmin), None)


def cast_loop(source: str, target: str) -> Loop | None:
    """Cast numbers to "f4" or "f8": operands (source, target); None where NumPy's iterator has to."""
    return CASTS.get(target, {}).get(source)


def ufunc_loop(ufunc, signature: str) -> Loop | None:
    """Find the inner loop of `ufunc` for dtype characters such as `"ff->f"`; None where there is none."""
    if signature not in ufunc.types:
        return None
    cdef UFunc* table = <UFunc*><PyObject*>ufunc
    cdef int k = ufunc.types.index(signature)
    cdef Loop loop = make_loop(table.functions[k], table.data[k] if table.data != NULL else NULL, ufunc)
    loop.clears = clears_flags(loop, signature) if ufunc.signature is None else ufunc is not np.matmul
    return loop


cdef bint clears_flags(Loop loop, str signature) except -1:
    """Set a flag, run the loop on ones, and see whether the flag is still set."""
    cdef char* args[32]
    cdef cnp.npy_intp strides[32]
    cdef cnp.npy_intp n
    cdef bint cleared = False
    cells = [np.ones(64, char) for char in signature.replace("->", "")]
    for n in (1, 64):
        for k in range(len(cells)):
            args[k] = <char*>cnp.PyArray_DATA(cells[k])
            strides[k] = cells[k].itemsize
        feraiseexcept(FE_DIVBYZERO)
        loop.run(args, &n, strides, loop.data)
        cleared = cleared or not fetestexcept(FE_DIVBYZERO)
    feclearexcept(FE_ALL_EXCEPT)
    return cleared
