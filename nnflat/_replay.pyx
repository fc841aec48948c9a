"""Replay a tape: compiled inner loops over windows of memory, without the interpreter.

Design:

 a) An operation is an inner loop, the addresses of its operands (base pointer of a buffer + byte offset), and
    the axes around it. Only base pointers change from call to call: swapping parameters is swapping a pointer.
 b) What needs NumPy's buffering (casts, unaligned, reversed reductions) replays NumPy's own iterator, made once
    with the flags of the ufunc machinery and pointed at new memory.
 c) What has no loop is a call of NumPy itself, with the GIL.
 d) All that one run writes (temporaries, iterators, base pointers) is in its Space. Spaces wait in a pool: replay
    is re-entrant and allocates nothing but its results.
 e) Floating-point flags are sampled before the loops that clear them and at the end. Where one is set that the
    caller wants to hear of, the operations are run once more, each with its own flags, to name it.

Invariants:

 R1  Code is never written after it is made; two runs share nothing else.
 R2  A pointer into an array lives for one call.
 R3  A result is handed out, and `out` is written, only after every operation has succeeded, where one can fail.
"""

cimport numpy as cnp
from cpython.complex cimport PyComplex_AsCComplex, PyComplex_CheckExact, Py_complex
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uintptr_t
from libc.string cimport memcmp, memcpy, memset

from nnflat._loops cimport InnerLoop, Loop

import numpy as np
import numpy._core.umath

cnp.import_array()
cnp.import_ufunc()

cdef extern from "<fenv.h>" nogil:
    int FE_DIVBYZERO
    int FE_OVERFLOW
    int FE_UNDERFLOW
    int FE_INVALID
    int fetestexcept(int)
    int feclearexcept(int)

cdef extern from "Python.h":
    ctypedef object (*vectorcallfunc)(object, PyObject**, size_t, PyObject*)
    ctypedef struct PyTypeObject:
        Py_ssize_t tp_vectorcall_offset
        void* tp_call
        unsigned long tp_flags
    ctypedef struct PyTupleObject:
        PyObject** ob_item
    unsigned long Py_TPFLAGS_HAVE_VECTORCALL
    Py_ssize_t PyVectorcall_NARGS(size_t)
    void* PyVectorcall_Call
    int PyContextVar_Get(object, PyObject*, PyObject**) except -1
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    void Py_DECREF(PyObject*)

ctypedef int (*IterNext)(NpyIter*) noexcept nogil

cdef extern from "numpy/arrayobject.h":
    ctypedef struct NpyIter:
        pass
    ctypedef struct Descr "PyArray_Descr":
        pass
    ctypedef struct ArrayObject "PyArrayObject":
        pass
    ctypedef struct TypeObject "PyTypeObject":
        pass
    NpyIter* NpyIter_AdvancedNew(int nop, ArrayObject** op, cnp.npy_uint32 flags, int order, int casting,
                                 cnp.npy_uint32* op_flags, Descr** op_dtypes, int oa_ndim, int** op_axes,
                                 cnp.npy_intp* itershape, cnp.npy_intp buffersize) except NULL
    NpyIter* NpyIter_Copy(NpyIter*) except NULL
    int NpyIter_Deallocate(NpyIter*)
    int NpyIter_ResetBasePointers(NpyIter*, char** bases, char** message) nogil
    IterNext NpyIter_GetIterNext(NpyIter*, char** message) nogil
    char** NpyIter_GetDataPtrArray(NpyIter*) nogil
    cnp.npy_intp* NpyIter_GetInnerStrideArray(NpyIter*) nogil
    cnp.npy_intp* NpyIter_GetInnerLoopSizePtr(NpyIter*) nogil
    cnp.npy_bool NpyIter_IsFirstVisit(NpyIter*, int) nogil
    object PyArray_NewFromDescr(TypeObject* subtype, Descr* descr, int nd, cnp.npy_intp* dims,
                                cnp.npy_intp* strides, void* data, int flags, PyObject* obj)
    Descr* array_descr "PyArray_DESCR"(cnp.ndarray)
    cnp.npy_intp* array_dims "PyArray_DIMS"(cnp.ndarray)
    cnp.npy_intp* array_strides "PyArray_STRIDES"(cnp.ndarray)
    bint array_aligned "PyArray_ISALIGNED"(cnp.ndarray)
    bint array_writeable "PyArray_ISWRITEABLE"(cnp.ndarray)
    object to_scalar "PyArray_ToScalar"(void* data, cnp.ndarray)
    void scalar_to_memory "PyArray_ScalarAsCtype"(object, void*)
    int copy_into "PyArray_CopyInto"(cnp.ndarray target, cnp.ndarray source) except -1

cdef extern from "numpy/ufuncobject.h":
    int PyUFunc_GiveFloatingpointErrors(const char* name, int flags) except -1

ctypedef cnp.npy_intp Size

cdef enum:
    MAX_ARGS = 1024         # of a repetition; loops have a few
    MAX_DIMS = 64
    ALIGNMENT = 64
    CELL = 16               # bytes of the largest number
    BLOCK = 2048            # elements in a block of an elementwise chain
    RELEASE = 4096          # elements of work from which a run releases the GIL

cdef enum:
    APART                   # how an array of `out` stands to the inputs
    MEETS
    TAKES
    IN_PLACE = 65536        # bytes of results from which they are written in place

cdef enum:
    ARRAY
    SCALAR
    NUMBER
    STATIC

cdef enum:
    LOOP
    ITERATE
    CALL
    TAKE
    REPEAT

KINDS = {"array": ARRAY, "scalar": SCALAR, "number": NUMBER, "static": STATIC}
BLOCK_SIZE = BLOCK
ACTIONS = {"loop": LOOP, "iterate": ITERATE, "call": CALL, "take": TAKE, "repeat": REPEAT}

cdef struct Op:
    int action
    int nargs
    int ndim                # axes around the inner loop
    int ndims               # sizes of the inner loop
    int clears              # its loop clears the floating-point flags
    int first               # a reduction without identity: what is visited first is there already
    int chain               # on the first of a chain: how many operations run block by block
    unsigned int local      # bit k: operand k is a block of the chain, no more
    InnerLoop loop
    void* data
    Size* buffers           # (nargs,)
    Size* offsets           # (nargs,) bytes
    Size* dims              # (ndims,)
    Size* strides           # bytes
    Size* outer             # (ndim,)
    Size* steps             # (ndim, nargs) bytes
    PyObject* helper        # Call, Iterator or Repeat

cdef struct Code:
    Op* ops
    Size nops
    Size nbuffers
    Size work               # elements touched
    bint careful            # read the flags after each operation, always

cdef struct Space:
    char** bases
    NpyIter** iterators     # one an operation, or NULL
    Space** nested          # one an operation, or NULL
    int* raised             # the flags that each operation raised
    char* memory            # temporaries
    char* numbers           # Python and NumPy scalars among the arguments, CELL bytes each
    char* scratch           # results on their way to `out`
    Size nops
    int flags
    Size start              # the rows of a REPEAT that this run does; all where stop < 0
    Size stop


# --- nogil: one operation ----------------------------------------------------------------------------------

cdef inline int pending() noexcept nogil:
    return fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID)


cdef inline void forget() noexcept nogil:
    feclearexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID)


cdef inline void address(const Op* op, char** bases, char** args) noexcept nogil:
    cdef int k
    for k in range(op.nargs):
        args[k] = bases[op.buffers[k]] + op.offsets[k]


cdef void nest(const Op* op, char** args) noexcept nogil:
    """Run the inner loop over all outer axes. Loops may move `args`, so each gets its own."""
    cdef char* at[MAX_ARGS]
    cdef Size index[MAX_DIMS]
    cdef int k, axis
    cdef Size i
    if op.ndim == 1:
        for i in range(op.outer[0]):
            for k in range(op.nargs):
                at[k] = args[k] + i * op.steps[k]
            op.loop(at, op.dims, op.strides, op.data)
        return
    memset(index, 0, op.ndim * sizeof(Size))
    while True:
        memcpy(at, args, op.nargs * sizeof(char*))
        op.loop(at, op.dims, op.strides, op.data)
        if not advance(op, args, index):
            return


cdef inline bint advance(const Op* op, char** args, Size* index) noexcept nogil:
    """Move to the next position of the outer axes, the last fastest; False after the last one."""
    cdef int k, axis = op.ndim - 1
    cdef const Size* step
    while axis >= 0:
        step = op.steps + axis * op.nargs
        index[axis] += 1
        if index[axis] < op.outer[axis]:
            for k in range(op.nargs):
                args[k] += step[k]
            return True
        for k in range(op.nargs):
            args[k] -= step[k] * (op.outer[axis] - 1)
        index[axis] = 0
        axis -= 1
    return False


cdef void nest_first(const Op* op, char** args) noexcept nogil:
    """As `nest`, for a reduction (out, in, out) whose first visits are copied already."""
    cdef char* at[3]
    cdef Size index[MAX_DIMS]
    cdef Size count
    cdef int axis
    cdef bint first
    memset(index, 0, op.ndim * sizeof(Size))
    while True:
        first = True
        for axis in range(op.ndim):
            if op.steps[axis * 3] == 0 and index[axis]:
                first = False
        count = op.dims[0]
        memcpy(at, args, sizeof(at))
        if first and op.strides[0] == 0:
            count -= 1
            at[1] += op.strides[1]
        elif first:
            count = 0
        if count > 0:
            op.loop(at, &count, op.strides, op.data)
        if not op.ndim or not advance(op, args, index):
            return


cdef int iterate(const Op* op, NpyIter* iterator, char** args) noexcept nogil:
    """Replay NumPy's iterator over new memory. A reduction has operands (out, in)."""
    cdef char* message = NULL
    cdef char* at[MAX_ARGS]
    cdef Size strides[MAX_ARGS]
    cdef Size count
    cdef IterNext next
    cdef char** pointers
    cdef Size* moves
    cdef Size* size
    cdef int nop = op.nargs
    if not NpyIter_ResetBasePointers(iterator, args, &message):
        return -1
    next = NpyIter_GetIterNext(iterator, &message)
    pointers = NpyIter_GetDataPtrArray(iterator)
    moves = NpyIter_GetInnerStrideArray(iterator)
    size = NpyIter_GetInnerLoopSizePtr(iterator)
    while True:
        memcpy(at, pointers, nop * sizeof(char*))
        memcpy(strides, moves, nop * sizeof(Size))
        count = size[0]
        if op.ndims:                            # a reduction
            if op.first and NpyIter_IsFirstVisit(iterator, 0):
                if strides[0] == 0:
                    count -= 1
                    at[1] += strides[1]
                else:
                    count = 0
            at[2] = at[0]
            strides[2] = strides[0]
        if count > 0:
            op.loop(at, &count, strides, op.data)
        if not next(iterator):
            return 0


cdef Size take(const Op* op, char** args) noexcept nogil:
    """Copy rows (source, index, target); return -1, or where the first index out of range is.

    dims: indices, rows of the source, bytes of a row; strides: of source rows, of the index, of target rows.
    """
    cdef Size i, row
    for i in range(op.dims[0]):
        row = (<Size*>(args[1] + i * op.strides[1]))[0]
        if row < 0:
            row += op.dims[1]
        if row < 0 or row >= op.dims[1]:
            return i
        memcpy(args[2] + i * op.strides[2], args[0] + row * op.strides[0], op.dims[2])
    return -1


cdef void run_chain(const Op* ops, Space* space, Size first, bint careful) noexcept nogil:
    """Run a chain of elementwise operations block by block, so that a block stays in the cache."""
    cdef char* args[MAX_ARGS]
    cdef const Op* op
    cdef Size done = 0, count
    cdef Size total = ops.dims[0]
    cdef int i, k
    while done < total:
        count = min(<Size>BLOCK, total - done)
        for i in range(ops.chain):
            op = ops + i
            if op.clears and not careful:
                space.flags |= pending()
            for k in range(op.nargs):
                args[k] = space.bases[op.buffers[k]] + op.offsets[k]
                if not op.local >> k & 1:
                    args[k] += done * op.strides[k]
            op.loop(args, &count, op.strides, op.data)
            if careful:
                collect(space, first + i)
        done += count


cdef inline void collect(Space* space, Size i) noexcept nogil:
    """Note the flags that operation i has raised, and clear them."""
    cdef int flags = pending()
    if flags:
        space.raised[i] |= flags
        space.flags |= flags
        forget()


# --- nogil: a whole tape -----------------------------------------------------------------------------------

cdef int run(const Code* code, Space* space, bint careful) except -1 nogil:
    cdef Size i = 0
    cdef const Op* op
    while i < code.nops:
        op = code.ops + i
        if op.chain > 1:
            run_chain(op, space, i, careful)
            i += op.chain
            continue
        run_one(op, space, i, careful)
        i += 1
    return 0


cdef int run_one(const Op* op, Space* space, Size i, bint careful) except -1 nogil:
    cdef char* args[MAX_ARGS]
    if op.clears and not careful:
        space.flags |= pending()
    address(op, space.bases, args)
    if op.action == LOOP:
        if op.first:
            nest_first(op, args)
        elif op.ndim:
            nest(op, args)
        else:
            op.loop(args, op.dims, op.strides, op.data)
    elif op.action == ITERATE:
        if iterate(op, space.iterators[i], args):
            with gil:
                raise MemoryError("NumPy's iterator found no memory for its buffers")
    elif op.action == TAKE:
        check_index(op, args, take(op, args))
    elif op.action == REPEAT:
        repeat(op, space, space.nested[i], args, careful)
    else:
        with gil:
            (<Call>op.helper).invoke(args)
        forget()
    if careful:
        collect(space, i)
    return 0


cdef int check_index(const Op* op, char** args, Size bad) except -1 nogil:
    if bad >= 0:
        with gil:
            row = (<Size*>(args[1] + bad * op.strides[1]))[0]
            raise IndexError(f"index {row} is out of bounds for axis 0 with size {op.dims[1]}")
    return 0


cdef int repeat(const Op* op, Space* space, Space* inner, char** args, bint careful) except -1 nogil:
    """Run a tape once a row, its buffers moving by `strides`; a carry goes from each row to the next.

    dims: rows, operands that move, carries. After those operands come four for each carry: where it starts,
    two places to keep it, where it ends. `outer` has the buffers inside: of operands, then in and out of carries.
    """
    cdef Size row, k, last
    cdef Size rows = op.dims[0], moving = op.dims[1], carries = op.dims[2]
    cdef Size start = 0, stop = rows
    cdef char** carry
    cdef const Code* code = (<Repeat>op.helper).code
    if space.stop >= 0:
        start, stop = space.start, space.stop
    last = rows - 1
    for row in range(start, stop):
        for k in range(moving):
            inner.bases[op.outer[k]] = args[k] + row * op.strides[k]
        for k in range(carries):
            carry = args + moving + 4 * k
            inner.bases[op.outer[moving + 2 * k]] = carry[0] if row == 0 else carry[1 + (row - 1) % 2]
            inner.bases[op.outer[moving + 2 * k + 1]] = carry[3] if row == last else carry[1 + row % 2]
        run(code, inner, careful)
    space.flags |= inner.flags
    inner.flags = 0
    return 0


# --- forms: what an operand is to Python -------------------------------------------------------------------

cdef class Form:
    """Dtype, shape, strides and kind of an operand; for a static, the value itself."""

    cdef int kind
    cdef int nd
    cdef bint aligned
    cdef bint contiguous
    cdef Size* sizes                # shape, then strides
    cdef Size low                   # bytes from the first element to the lowest
    cdef Size high                  # and to the end of the highest
    cdef readonly Size nbytes
    cdef readonly object dtype
    cdef readonly object value
    cdef readonly tuple shape
    cdef readonly tuple strides

    def __cinit__(self, str kind, dtype=None, tuple shape=(), strides=None, *, bint aligned=True, value=None):
        self.kind = KINDS[kind]
        self.dtype, self.shape, self.value, self.aligned = dtype, shape, value, aligned
        if dtype is None:
            return
        self.nd = len(shape)
        natural = np.empty(0, dtype).strides if not shape else c_strides(shape, dtype.itemsize)
        self.strides = natural[:self.nd] if strides is None else strides
        self.contiguous = not shape or self.strides == natural
        self.sizes = <Size*>PyMem_RawMalloc(max(2 * self.nd, 1) * sizeof(Size))
        if not self.sizes:
            raise MemoryError
        self.nbytes = self.high = dtype.itemsize
        for i in range(self.nd):
            self.sizes[i], self.sizes[self.nd + i] = shape[i], self.strides[i]
            self.nbytes *= shape[i]
            if self.strides[i] < 0:
                self.low += (shape[i] - 1) * self.strides[i]
            else:
                self.high += (shape[i] - 1) * self.strides[i]

    def __dealloc__(self):
        PyMem_RawFree(self.sizes)

    @property
    def name(self):
        return next(name for name, kind in KINDS.items() if kind == self.kind)

    def describe(self) -> str:
        """Say what the form asks for."""
        if self.kind == ARRAY:
            order = "" if self.contiguous else f", strides {self.strides}"
            return f"an array of shape {self.shape}, dtype {self.dtype}{order}{'' if self.aligned else ', unaligned'}"
        return repr(self.value) if self.kind == STATIC else self.value.__name__

    cdef inline bint accepts(self, object value) except -1:
        if self.kind == ARRAY:
            return type(value) is cnp.ndarray and self.fits(<cnp.ndarray>value)
        return self.accepts_other(value)

    cdef bint accepts_other(self, object value) except -1:
        if self.kind == NUMBER:
            return type(value) is self.value
        if self.kind == SCALAR:
            return type(value) is self.value and value.dtype == self.dtype
        return value is self.value or (type(value) is type(self.value) and value == self.value)

    cdef inline bint fits(self, cnp.ndarray array) noexcept:
        cdef Size* dims = array_dims(array)
        cdef Size* strides = array_strides(array)
        cdef int i
        if array_descr(array) != <Descr*>self.dtype and not self.same_dtype(array):
            return False
        if cnp.PyArray_NDIM(array) != self.nd or array_aligned(array) != self.aligned:
            return False
        for i in range(self.nd):
            if dims[i] != self.sizes[i] or strides[i] != self.sizes[self.nd + i]:
                return False
        return True

    cdef inline bint overlaps(self, object value, Form form, cnp.ndarray other) noexcept:
        """Whether the memory of `value`, which has this form, may meet that of `other`, which has `form`."""
        if self.kind != ARRAY:
            return False
        cdef char* data = <char*>cnp.PyArray_DATA(<cnp.ndarray>value)
        cdef char* start = <char*>cnp.PyArray_DATA(other)
        return data + self.low < start + form.high and start + form.low < data + self.high

    cdef bint same_dtype(self, cnp.ndarray array) noexcept:
        return array.dtype == self.dtype

    cdef cnp.ndarray over(self, char* data, bint writeable):
        """An array over memory that somebody else keeps."""
        Py_INCREF(self.dtype)
        return PyArray_NewFromDescr(<TypeObject*>cnp.ndarray, <Descr*>self.dtype, self.nd, self.sizes, self.sizes + self.nd, data,
                                    cnp.NPY_ARRAY_WRITEABLE if writeable else 0, NULL)

    cdef cnp.ndarray fresh(self):
        Py_INCREF(self.dtype)
        return PyArray_NewFromDescr(<TypeObject*>cnp.ndarray, <Descr*>self.dtype, self.nd, self.sizes,
                                    NULL if self.contiguous else self.sizes + self.nd, NULL, 0, NULL)

    cdef object read(self, char* data):
        """What Python sees of the operand in memory: an array that shares it, or a scalar or number."""
        array = self.over(data, False)
        if self.kind == ARRAY:
            return array
        return array.item() if self.kind == NUMBER else array[()]


cdef tuple c_strides(tuple shape, Size itemsize):
    strides = []
    for size in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(size, 1)
    return tuple(reversed(strides))


# --- helpers of operations ---------------------------------------------------------------------------------

cdef class Call:
    """NumPy itself: `function(*inputs)` gives a tuple of outputs, which are copied to their windows."""

    cdef object function
    cdef tuple inputs
    cdef tuple outputs

    def __cinit__(self, function, tuple inputs, tuple outputs):
        self.function, self.inputs, self.outputs = function, inputs, outputs

    cdef int invoke(self, char** args) except -1:
        cdef Form form
        cdef Size k = 0
        values = []
        for form in self.inputs:
            values.append(form.read(args[k]))
            k += 1
        results = self.function(*values)
        for form, result in zip(self.outputs, results, strict=True):
            self.store(form, result, args[k])
            k += 1
        return 0

    cdef int store(self, Form form, object result, char* data) except -1:
        value = np.asarray(result) if form.kind != NUMBER else np.asarray(result, form.dtype)
        if value.shape != form.shape or value.dtype != form.dtype:
            raise ValueError(f"a call gave shape {value.shape} and dtype {value.dtype} where the tape has "
                             f"{form.shape} and {form.dtype}: its result depends on values and cannot be traced")
        copy_into(form.over(data, True), value)
        return 0


cdef class Iterator:
    """NumPy's iterator over stand-ins of the operands; each Space works on a copy of it."""

    cdef NpyIter* iterator
    cdef object owners

    def __cinit__(self, list arrays, Size flags, list op_flags, list dtypes, op_axes=None, str order="K"):
        cdef ArrayObject* operands[MAX_ARGS]
        cdef Descr* descrs[MAX_ARGS]
        cdef cnp.npy_uint32 each[MAX_ARGS]
        cdef int axes[2][MAX_DIMS]
        cdef int* axes_of[2]
        cdef int ndim = -1
        self.owners = (arrays, dtypes)
        for k in range(len(arrays)):
            operands[k], each[k] = <ArrayObject*>arrays[k], op_flags[k]
            descrs[k] = <Descr*>dtypes[k]
        if op_axes is not None:
            ndim = len(op_axes[0])
            for k in range(2):
                axes_of[k] = axes[k]
                for i in range(ndim):
                    axes[k][i] = op_axes[k][i]
        self.iterator = NpyIter_AdvancedNew(
            len(arrays), operands, flags, cnp.NPY_KEEPORDER if order == "K" else cnp.NPY_CORDER,
            cnp.NPY_UNSAFE_CASTING, each, descrs, ndim, axes_of if ndim >= 0 else NULL, NULL, 0)

    def __dealloc__(self):
        if self.iterator:
            NpyIter_Deallocate(self.iterator)


cdef class Repeat:
    """The tape inside a vmap or scan."""

    cdef Replay replay
    cdef const Code* code

    def __cinit__(self, Replay replay):
        self.replay, self.code = replay, &replay.code


cdef class Block:
    """Owner of one Space. It holds no Replay: the pool of a Replay holds it."""

    cdef Space* space

    def __cinit__(self, Replay replay):
        self.space = make_space(replay)

    def __dealloc__(self):
        if self.space:
            free_space(self.space)


cdef inline char* aligned(char* memory) noexcept nogil:
    return <char*>((<uintptr_t>memory + ALIGNMENT - 1) & ~<uintptr_t>(ALIGNMENT - 1))


cdef Space* make_space(Replay replay) except NULL:
    cdef Code* code = &replay.code
    cdef Space* space = <Space*>PyMem_RawCalloc(1, sizeof(Space))
    cdef Size i
    if not space:
        raise MemoryError
    space.bases = <char**>PyMem_RawCalloc(code.nbuffers + 1, sizeof(char*))
    space.iterators = <NpyIter**>PyMem_RawCalloc(code.nops + 1, sizeof(NpyIter*))
    space.nested = <Space**>PyMem_RawCalloc(code.nops + 1, sizeof(Space*))
    space.raised = <int*>PyMem_RawCalloc(code.nops + 1, sizeof(int))
    space.memory = <char*>PyMem_RawMalloc(replay.nbytes + ALIGNMENT)
    space.numbers = <char*>PyMem_RawMalloc((len(replay.forms) + 1) * CELL)
    space.stop = -1
    space.nops = code.nops
    if not (space.bases and space.iterators and space.nested and space.raised and space.memory and space.numbers):
        free_space(space)
        raise MemoryError
    try:
        for i in range(code.nops):
            if code.ops[i].action == ITERATE:
                space.iterators[i] = NpyIter_Copy((<Iterator>code.ops[i].helper).iterator)
            elif code.ops[i].action == REPEAT:
                space.nested[i] = make_space((<Repeat>code.ops[i].helper).replay)
    except:
        free_space(space)
        raise
    for buffer, offset in replay.temporaries:
        space.bases[<Size>buffer] = aligned(space.memory) + <Size>offset
    for buffer, array in replay.constants:
        space.bases[<Size>buffer] = <char*>cnp.PyArray_DATA(array)
    return space


cdef void free_space(Space* space):
    cdef Size i
    for i in range(space.nops):
        if space.iterators and space.iterators[i]:
            NpyIter_Deallocate(space.iterators[i])
        if space.nested and space.nested[i]:
            free_space(space.nested[i])
    PyMem_RawFree(space.bases)
    PyMem_RawFree(space.iterators)
    PyMem_RawFree(space.nested)
    PyMem_RawFree(space.raised)
    PyMem_RawFree(space.memory)
    PyMem_RawFree(space.numbers)
    PyMem_RawFree(space.scratch)
    PyMem_RawFree(space)


# --- floating-point errors ---------------------------------------------------------------------------------

cdef enum:
    RAISING = 1 << 20
    DIVIDE = 1
    OVERFLOW = 2
    UNDERFLOW = 4
    INVALID = 8

cdef object ERRSTATE = getattr(np._core.umath, "_extobj_contextvar", None)
cdef object heard_in = None         # the errstate object that `heard` was read from
cdef int heard = 0


cdef int listen() except -1:
    """The flags that the errstate of the caller does not ignore, and RAISING where one of them raises."""
    global heard_in, heard
    cdef PyObject* state = NULL
    if ERRSTATE is None:
        return read_errstate()
    PyContextVar_Get(ERRSTATE, NULL, &state)
    if state != <PyObject*>heard_in:
        heard_in, heard = <object>state, read_errstate()
    Py_DECREF(state)
    return heard


cdef int read_errstate() except -1:
    cdef int flags = 0
    modes = np.geterr()
    if "raise" in modes.values():
        flags |= RAISING
    if modes["divide"] != "ignore":
        flags |= FE_DIVBYZERO
    if modes["over"] != "ignore":
        flags |= FE_OVERFLOW
    if modes["under"] != "ignore":
        flags |= FE_UNDERFLOW
    if modes["invalid"] != "ignore":
        flags |= FE_INVALID
    return flags


cdef int give(str name, int flags) except -1:
    cdef int numpys = 0
    if flags & FE_DIVBYZERO:
        numpys |= DIVIDE
    if flags & FE_OVERFLOW:
        numpys |= OVERFLOW
    if flags & FE_UNDERFLOW:
        numpys |= UNDERFLOW
    if flags & FE_INVALID:
        numpys |= INVALID
    text = name.encode()
    PyUFunc_GiveFloatingpointErrors(text, numpys)
    return 0


# --- arguments and results ---------------------------------------------------------------------------------

cdef char* store_number(Space* space, Size i, object value, Form form) except NULL:
    cdef char* cell = space.numbers + i * CELL
    cdef Py_complex pair
    cdef int overflow = 0
    if form.kind == SCALAR:
        scalar_to_memory(value, cell)
    elif form.value is float:
        (<double*>cell)[0] = PyFloat_AS_DOUBLE(value)
    elif form.value is complex:
        pair = PyComplex_AsCComplex(value)
        memcpy(cell, &pair, 16)
    elif form.value is bool:
        cell[0] = value is True
    else:
        (<long long*>cell)[0] = value
    return cell


cdef int check_out(Form form, object out) except -1:
    if type(out) is not cnp.ndarray:
        raise TypeError(f"out needs an array of shape {form.shape} and dtype {form.dtype}; got {type(out).__name__}")
    if out.shape != form.shape or out.dtype != form.dtype:
        raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}; "
                         f"the function gives {form.shape} and {form.dtype}")
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    return 0


cdef dict POOLS = {}


cdef object submit(int threads, function, argument):
    """Run in one of a number of threads that are kept, under the caller's context (its errstate)."""
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context
    if threads not in POOLS:
        POOLS[threads] = ThreadPoolExecutor(threads, thread_name_prefix="nnflat")
    return POOLS[threads].submit(copy_context().run, function, argument)


# --- replays -----------------------------------------------------------------------------------------------

cdef class Replay:
    """A planned tape, ready to run on arguments that have its forms.

    `arguments`, `captured`, `results` are lists of (buffer, form), (buffer, array, form) and (buffer, form);
    `constants` and `temporaries` of (buffer, array) and (buffer, offset into the workspace).
    """

    cdef Code code
    cdef Size* cells
    cdef Size* slots                # buffers of arguments, captured arrays, results; then places in the scratch
    cdef Size ncaptured
    cdef list pool
    cdef Block spare
    cdef bint fallible
    cdef bint quiet                 # no operation can set a floating-point flag
    cdef bint own_errstate
    cdef readonly list instructions
    cdef readonly list temporaries
    cdef readonly list constants
    cdef readonly list captured
    cdef tuple captured_arrays
    cdef tuple captured_forms
    cdef readonly list outer        # (buffer, the window around this tape that it stands for)
    cdef readonly tuple forms
    cdef readonly tuple result_forms
    cdef readonly list argument_buffers
    cdef readonly list result_buffers
    cdef readonly Size nbytes
    cdef Size scratch_nbytes
    cdef public object build        # results -> what the function gave; None: the one result itself
    cdef public bint flat           # build gives a tuple of the results
    cdef public int threads
    cdef public tuple in_place      # for each result, the leaves whose memory it may take

    def __cinit__(self, list instructions, *, Size nbuffers, list arguments, list captured, list constants,
                  list temporaries, Size nbytes, list results, list outer=[]):
        self.instructions, self.constants, self.temporaries = instructions, constants, temporaries
        self.captured, self.nbytes, self.pool, self.outer = captured, nbytes, [], outer
        self.argument_buffers = [buffer for buffer, _ in arguments]
        self.forms = tuple([form for _, form in arguments])
        self.result_buffers = [buffer for buffer, _ in results]
        self.result_forms = tuple([form for _, form in results])
        self.captured_arrays = tuple([array for _, array, _ in captured])
        self.captured_forms = tuple([form for _, _, form in captured])
        self.ncaptured = len(captured)
        self.build = None
        self.in_place = tuple([frozenset() for _ in results])
        self.place_buffers([buffer for buffer, _, _ in captured])
        self.code.nbuffers = nbuffers
        self.code.nops = len(instructions)
        self.code.ops = <Op*>PyMem_RawCalloc(self.code.nops + 1, sizeof(Op))
        self.cells = <Size*>PyMem_RawMalloc((sum([cells_needed(each) for each in instructions]) + 1) * sizeof(Size))
        if not (self.code.ops and self.cells):
            raise MemoryError
        cdef Size* free = self.cells
        cdef Size quiet = 0
        for i, instruction in enumerate(instructions):
            free = fill_op(&self.code.ops[<Size>i], instruction, free)
            self.code.work += instruction.work
            self.code.careful |= instruction.action == "call"
            self.fallible |= instruction.action in ("call", "take", "repeat")
            self.own_errstate |= any(mode != "ignore" for mode in instruction.errstate.values())
            quiet += instruction.name in ("copy", "take", "where")
            if instruction.action == "repeat":
                self.code.careful |= (<Repeat>instruction.helper).replay.code.careful
                self.own_errstate |= (<Repeat>instruction.helper).replay.own_errstate
        self.quiet = quiet == self.code.nops

    @property
    def work(self) -> int:
        """The elements that one run touches, and some for each operation."""
        return self.code.work + 32 * self.code.nops

    def __dealloc__(self):
        PyMem_RawFree(self.code.ops)
        PyMem_RawFree(self.cells)
        PyMem_RawFree(self.slots)

    cdef int place_buffers(self, list captured) except -1:
        cdef Form form
        cdef Size i, nargs = len(self.forms), nresults = len(self.result_forms)
        self.slots = <Size*>PyMem_RawMalloc((nargs + self.ncaptured + 2 * nresults + 1) * sizeof(Size))
        if not self.slots:
            raise MemoryError
        for i, buffer in enumerate([*self.argument_buffers, *captured, *self.result_buffers]):
            self.slots[i] = buffer
        for i, form in enumerate(self.result_forms):
            self.slots[nargs + self.ncaptured + nresults + i] = self.scratch_nbytes
            self.scratch_nbytes += (form.nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return 0

    cdef bint accepts(self, PyObject** leaves, Size nleaves) except -1:
        cdef Form form
        cdef Size i
        if nleaves != len(self.forms):
            return False
        for i in range(nleaves):
            form = <Form>self.forms[i]
            if not form.accepts(<object>leaves[i]):
                return False
        for i in range(self.ncaptured):
            if not (<Form>self.captured_forms[i]).fits(<cnp.ndarray>self.captured_arrays[i]):
                return False
        return True

    def matches(self, tuple leaves) -> bool:
        """Whether the leaves, and the captured arrays as they are now, have the forms of this replay."""
        return self.accepts(items_of(leaves), len(leaves))

    def __call__(self, tuple leaves, list out=None):
        """Run on leaves that match; return the list of results, in `out` where it is given."""
        return self.replay(items_of(leaves), out)

    def structured(self, list results):
        """Make what the function gave of the list of results."""
        return self.finish(results)

    cdef list replay(self, PyObject** leaves, list out):
        cdef Block block = self.acquire()
        try:
            return self.replay_in(block.space, leaves, out)
        finally:
            self.release(block)

    cdef Block acquire(self):
        """Take a workspace out of the pool: the spare one where nobody else runs."""
        cdef Block block = self.spare
        if block is not None:
            self.spare = None
            return block
        return self.pool.pop() if self.pool else Block(self)

    cdef int release(self, Block block) except -1:
        if self.spare is None:
            self.spare = block
        else:
            self.pool.append(block)
        return 0

    cdef list replay_in(self, Space* space, PyObject** leaves, list out):
        cdef list results
        cdef bint detour = False
        cdef bint aliased = False
        self.aim_inputs(space, leaves)
        if out is None:
            results = self.fresh_results()
        else:
            results = out
            detour = self.must_detour(leaves, out, &aliased)
        self.aim_results(space, results, detour)
        if self.threads > 1:
            self.run_threads(space)
        else:
            self.run_flagged(space, aliased and not detour and listen() != 0)
        if detour:
            self.deliver(space, out)
        return results

    cdef list fresh_results(self):
        cdef Form form
        cdef list results = []
        for form in self.result_forms:
            results.append(form.fresh())
        return results

    cdef int aim_inputs(self, Space* space, PyObject** leaves) except -1:
        cdef Size i, nargs = len(self.forms)
        cdef Form form
        for i in range(nargs):
            form = <Form>self.forms[i]
            if form.kind == ARRAY:
                space.bases[self.slots[i]] = <char*>cnp.PyArray_DATA(<cnp.ndarray>leaves[i])
            elif form.kind != STATIC:
                space.bases[self.slots[i]] = store_number(space, i, <object>leaves[i], form)
        for i in range(self.ncaptured):
            space.bases[self.slots[nargs + i]] = <char*>cnp.PyArray_DATA(<cnp.ndarray>self.captured_arrays[i])
        return 0

    cdef int aim_results(self, Space* space, list results, bint detour) except -1:
        cdef Size i, nresults = len(results)
        cdef Size* slots = self.slots + len(self.forms) + self.ncaptured
        if detour and not space.scratch:
            space.scratch = <char*>PyMem_RawMalloc(self.scratch_nbytes + ALIGNMENT)
            if not space.scratch:
                raise MemoryError
        for i in range(nresults):
            space.bases[slots[i]] = (aligned(space.scratch) + slots[nresults + i] if detour
                                     else <char*>cnp.PyArray_DATA(<cnp.ndarray>results[i]))
        return 0

    cdef int deliver(self, Space* space, list out) except -1:
        cdef Size i
        cdef Form form
        cdef char* data
        for i in range(len(out)):
            form = <Form>self.result_forms[i]
            data = space.bases[self.slots[len(self.forms) + self.ncaptured + i]]
            if form.nbytes == form.high - form.low and form.fits(<cnp.ndarray>out[i]):
                memcpy(<char*>cnp.PyArray_DATA(<cnp.ndarray>out[i]) + form.low, data + form.low, form.nbytes)
            else:
                copy_into(out[i], form.over(data, False))
        return 0

    cdef bint must_detour(self, PyObject** leaves, list out, bint* aliased) except -1:
        """Check `out`; whether results have to be finished elsewhere before it may be written (R3)."""
        cdef Size i
        cdef int found
        cdef bint detour = self.fallible or self.code.careful or (not self.quiet and listen() & RAISING)
        if len(out) != len(self.result_forms):
            raise ValueError(f"out has {len(out)} arrays; the function gives {len(self.result_forms)}")
        for i in range(len(out)):
            found = self.meets(i, leaves, out)
            detour |= found == MEETS
            aliased[0] |= found == TAKES
        return detour

    cdef int meets(self, Size i, PyObject** leaves, list out) except -1:
        """Whether out[i] has another form than its result, or may share memory with an input or an earlier out.

        TAKES where that is all the memory of an input, whose place the result may take.
        """
        cdef Form form = <Form>self.result_forms[i]
        cdef int found = APART
        cdef Size k
        if type(out[i]) is not cnp.ndarray or not form.fits(<cnp.ndarray>out[i]):
            check_out(form, out[i])
            return MEETS
        cdef cnp.ndarray array = <cnp.ndarray>out[i]
        if not array_writeable(array):
            raise ValueError("out is read-only")
        for k in range(len(self.forms)):
            if (<Form>self.forms[k]).overlaps(<object>leaves[k], form, array):
                if not self.takes(i, k, <object>leaves[k], array):
                    return MEETS
                found = TAKES
        for k in range(self.ncaptured):
            if (<Form>self.captured_forms[k]).overlaps(self.captured_arrays[k], form, array):
                return MEETS
        for k in range(i):
            if (<Form>self.result_forms[k]).fits(<cnp.ndarray>out[k]) and (
                    (<Form>self.result_forms[k]).overlaps(out[k], form, array)):
                raise ValueError(f"out[{k}] and out[{i}] share memory")
        return found

    cdef bint takes(self, Size i, Size k, object leaf, cnp.ndarray array) except -1:
        """Whether `array` is leaf k as it stands, and large enough for writing it in place to be worth the care."""
        return (self.scratch_nbytes >= IN_PLACE and k in <frozenset>self.in_place[i]
                and (<Form>self.forms[k]).fits(array) and type(leaf) is cnp.ndarray
                and cnp.PyArray_DATA(<cnp.ndarray>leaf) == cnp.PyArray_DATA(array))

    cdef int run_flagged(self, Space* space, bint careful=False) except -1:
        """Run, then give the warnings that eager NumPy gives under the errstate of the caller.

        `careful` says that there is no second run to find out which operation to name: inputs are overwritten.
        """
        careful |= self.code.careful
        if pending():
            forget()
        space.flags = 0
        self.run_once(space, careful)
        space.flags |= pending()
        if space.flags and (careful or self.own_errstate or listen() & space.flags):
            if not careful:
                forget()
                self.run_once(space, True)
            self.report(space)
        return 0

    cdef int run_once(self, Space* space, bint careful) except -1:
        if careful:
            memset(space.raised, 0, self.code.nops * sizeof(int))
        if self.code.work >= RELEASE:
            with nogil:
                run(&self.code, space, careful)
        else:
            run(&self.code, space, careful)
        return 0

    cdef int report(self, Space* space) except -1:
        cdef Size i
        for i in range(self.code.nops):
            instruction = self.instructions[i]
            if self.code.ops[i].action == REPEAT:
                (<Repeat>instruction.helper).replay.report(space.nested[i])
                memset(space.nested[i].raised, 0, (<Repeat>instruction.helper).code.nops * sizeof(int))
            elif space.raised[i] and instruction.errstate:
                with np.errstate(**instruction.errstate):
                    give(instruction.name, space.raised[i])
            elif space.raised[i]:
                give(instruction.name, space.raised[i])
        return 0

    cdef int run_threads(self, Space* space) except -1:
        """Share the rows of the one REPEAT among threads."""
        cdef Block block
        cdef Size rows = self.code.ops[0].dims[0]
        cdef int t, threads = min(<Size>self.threads, rows)
        if threads < 2:
            return self.run_flagged(space)
        blocks = [self.acquire() for _ in range(threads)]
        for t, block in enumerate(blocks):
            memcpy(block.space.bases, space.bases, self.code.nbuffers * sizeof(char*))
            block.space.start, block.space.stop = rows * t // threads, rows * (t + 1) // threads
        try:
            tasks = [submit(threads, self.run_block, block) for block in blocks]
            for task in tasks:
                task.exception()
            for task in tasks:
                task.result()
        finally:
            for block in blocks:
                block.space.stop = -1
                self.release(block)
        return 0

    def run_block(self, Block block):
        """Run the rows that the block's space names (in a thread of its own)."""
        self.run_flagged(block.space)

    cdef object finish(self, list results):
        cdef Form form
        cdef Size i
        for i in range(len(results)):
            form = <Form>self.result_forms[i]
            if form.kind != ARRAY:
                results[i] = results[i].item() if form.kind == NUMBER else results[i][()]
        if self.build is None:
            return results[0]
        return tuple(results) if self.flat else self.build(results)


cdef class Caller:
    """The quick way into the replays of a function, for arguments that are leaves themselves.

    It is called by vectorcall: no tuple and no dict of arguments is made where a replay accepts them.
    """

    cdef vectorcallfunc vectorcall
    cdef public list replays        # most recently used first
    cdef public object fn

    def __cinit__(self, *args, **kwargs):
        self.vectorcall = <vectorcallfunc>call_quickly
        self.replays = []

    def __call__(self, *args, out=None):
        return self.call_slowly(args, out)


cdef int traces = 0             # that are being made now, by any thread


def tracing_depth(int change):
    """Count a trace that begins (1) or ends (-1): a program that it calls is traced, too, and not replayed."""
    global traces
    traces += change


cdef object call_quickly(object callable, PyObject** args, size_t nargsf, PyObject* names):
    cdef Caller self = <Caller>callable
    cdef Size nargs = PyVectorcall_NARGS(nargsf)
    cdef object out = None
    cdef Replay replay
    cdef list replays = self.replays
    cdef Size i
    if names:
        out = out_of(args + nargs, <tuple>names)
    for i in range(0 if traces else len(replays)):
        if i >= len(replays):           # another thread has dropped a replay meanwhile
            break
        replay = <Replay>replays[i]
        if replay.accepts(args, nargs):
            if i:
                bring_forward(replays, replay)
            if out is None:
                return replay.finish(replay.replay(args, None))
            if replay.build is None or (replay.flat and type(out) is tuple):
                replay.replay(args, [out] if replay.build is None else list(out))
                return out
            break
    return self.call_slowly(tuple([<object>args[i] for i in range(nargs)]), out)


cdef int bring_forward(list replays, Replay replay) except -1:
    """Make a replay the most recent one."""
    if replay in replays:
        replays.remove(replay)
        replays.insert(0, replay)
    return 0


cdef object out_of(PyObject** values, tuple names):
    if len(names) != 1 or names[0] != "out":
        raise TypeError(f"a compiled function takes positional arguments and out=; got {names[0]}=")
    return <object>values[0]


cdef PyObject** items_of(tuple items) noexcept:
    return (<PyTupleObject*>items).ob_item


def vectorcalled(cls):
    """Let calls of instances of `cls`, a kind of Caller, go by vectorcall (heap types do not inherit it)."""
    cdef Caller probe = Caller.__new__(Caller)
    cdef PyTypeObject* kind = <PyTypeObject*>cls
    kind.tp_vectorcall_offset = <char*>&probe.vectorcall - <char*><PyObject*>probe
    kind.tp_call = PyVectorcall_Call
    kind.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL
    return cls


# --- filling the code --------------------------------------------------------------------------------------

cdef Size cells_needed(instruction):
    return (2 * len(instruction.operands) + len(instruction.dims) + len(instruction.strides)
            + len(instruction.outer) + len(instruction.steps))


cdef Size* put(Size* free, values) except NULL:
    for value in values:
        free[0] = value
        free += 1
    return free


cdef Size* fill_op(Op* op, instruction, Size* free) except NULL:
    cdef Loop loop
    if len(instruction.operands) > MAX_ARGS:
        raise ValueError(f"an operation has {len(instruction.operands)} operands; at most {MAX_ARGS} can be replayed")
    op.action, op.nargs = ACTIONS[instruction.action], len(instruction.operands)
    op.ndims, op.first = len(instruction.dims), instruction.first
    op.ndim = 0 if op.action == REPEAT else len(instruction.outer)
    op.chain, op.local = instruction.chain, instruction.local
    if instruction.loop is not None:
        loop = instruction.loop
        op.loop, op.data, op.clears = loop.run, loop.data, loop.clears
    op.helper = <PyObject*>instruction.helper
    op.buffers, free = free, put(free, [buffer for buffer, _ in instruction.operands])
    op.offsets, free = free, put(free, [offset for _, offset in instruction.operands])
    op.dims, free = free, put(free, instruction.dims)
    op.strides, free = free, put(free, instruction.strides)
    op.outer, free = free, put(free, instruction.outer)
    op.steps, free = free, put(free, instruction.steps)
    return free
