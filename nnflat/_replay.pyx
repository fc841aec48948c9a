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
from cpython.complex cimport PyComplex_AsCComplex, Py_complex
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset

from nnflat._loops cimport InnerLoop, Loop
from nnflat._walk cimport Watch

import numpy as np

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
    ctypedef struct PyListObject:
        PyObject** ob_item
    int PyDict_Next(object, Py_ssize_t*, PyObject**, PyObject**)
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
    ROWS = 64               # at most so many rows of a REPEAT run operation by operation,
    CACHE = 16384           # in about so many bytes of temporaries
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
    bint plain              # nothing but loops: rows of a REPEAT may run operation by operation

cdef struct Space:
    char** bases
    Size* steps             # how each base moves from row to row of a block, where rows run operation by operation
    Size width              # rows of such a block: the memory is made for them
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


include "_replay_operations.pxi"
include "_replay_tape.pxi"
include "_replay_forms.pxi"
include "_replay_containers.pxi"
include "_replay_helpers.pxi"
include "_replay_spaces.pxi"
include "_replay_flags.pxi"


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
    cdef public Watch watch         # over what could re-bind the captured arrays
    cdef readonly list outer        # (buffer, the window around this tape that it stands for)
    cdef readonly tuple forms
    cdef readonly tuple result_forms
    cdef readonly list argument_buffers
    cdef readonly list result_buffers
    cdef readonly Size nbytes
    cdef Size scratch_nbytes
    cdef public object structure        # of the arguments; None: they are the leaves
    cdef public object shape            # the structure of what the function gave
    cdef public frozenset constant_results      # which ends of it are no results of the tape
    cdef public object result_structure     # the same, where `assemble` can make what the function gave
    cdef public object build        # results -> what the function gave; None: the one result itself
    cdef public bint flat           # build gives a tuple of the results
    cdef public int threads         # that share the rows of a tape that is one REPEAT
    cdef public object share        # runs a function on parts at once
    cdef public tuple in_place      # for each result, the leaves whose memory it may take

    def __cinit__(self, list instructions, *, Size nbuffers, list arguments, list captured, list constants,
                  list temporaries, Size nbytes, list results, list outer=None):
        self.instructions, self.constants, self.temporaries = instructions, constants, temporaries
        self.captured, self.nbytes, self.pool, self.outer = captured, nbytes, [], outer or []
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
            self.fallible |= "raise" in instruction.errstate.values()
            self.own_errstate |= any(mode != "ignore" for mode in instruction.errstate.values())
            quiet += instruction.name in ("copy", "take", "where")
            if instruction.action == "repeat":
                self.code.careful |= (<Repeat>instruction.helper).replay.code.careful
                self.own_errstate |= (<Repeat>instruction.helper).replay.own_errstate
        self.quiet = quiet == self.code.nops
        self.code.plain = all([each.action == "loop" and each.chain == 1 and not each.chained for each in instructions])

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
        return self.watch is None or self.watch.changed() == -1

    def matches(self, tuple leaves) -> bool:
        """Whether the leaves, and the captured arrays as they are now, have the forms of this replay."""
        return self.accepts(items_of(leaves), len(leaves))

    def __call__(self, tuple leaves, tuple out=None):
        """Run on leaves that match; return the list of results, or `out` where it is given."""
        return self.replay(items_of(leaves), out)

    def structured(self, list results):
        """Make what the function gave of the list of results."""
        return self.finish(results)

    cdef object replay(self, PyObject** leaves, tuple out):
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

    cdef object replay_in(self, Space* space, PyObject** leaves, tuple out):
        cdef list results
        cdef bint detour = False
        cdef bint aliased = False
        self.aim_inputs(space, leaves)
        if out is None:
            results = self.fresh_results()
            self.aim_results(space, items_of_list(results), False)
        else:
            results = None
            detour = self.must_detour(leaves, out, &aliased)
            self.aim_results(space, items_of(out), detour)
        if self.threads > 1:
            self.run_threads(space)
        else:
            self.run_flagged(space, aliased and not detour and listen() != 0)
        if detour:
            self.deliver(space, out)
        return out if results is None else results

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

    cdef int aim_results(self, Space* space, PyObject** results, bint detour) except -1:
        cdef Size i, nresults = len(self.result_forms)
        cdef Size* slots = self.slots + len(self.forms) + self.ncaptured
        if detour and not space.scratch:
            space.scratch = <char*>PyMem_RawMalloc(self.scratch_nbytes + ALIGNMENT)
            if not space.scratch:
                raise MemoryError
        for i in range(nresults):
            space.bases[slots[i]] = (aligned(space.scratch) + slots[nresults + i] if detour
                                     else <char*>cnp.PyArray_DATA(<cnp.ndarray>results[i]))
        return 0

    cdef tuple outs_of(self, out):
        """The arrays of an `out`; None where it has another structure than the results, or a rare one."""
        cdef list ends
        if self.build is None:
            return (out,)
        if self.flat:
            return out if type(out) is tuple else None
        ends = []
        return tuple(ends) if self.result_structure is not None and follow(self.result_structure, out, ends) else None

    cdef int deliver(self, Space* space, tuple out) except -1:
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

    cdef bint must_detour(self, PyObject** leaves, tuple out, bint* aliased) except -1:
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

    cdef int meets(self, Size i, PyObject** leaves, tuple out) except -1:
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
        if self.quiet:
            return self.run_once(space, False)
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
            self.share(self.run_block, blocks)
        finally:
            for block in blocks:
                block.space.stop = -1
                self.release(block)
        return 0

    def run_block(self, Block block):
        """Run the rows that the block's space names."""
        self.run_flagged(block.space)

    cdef object finish(self, list results):
        cdef Form form
        cdef Size i, place = 0
        for i in range(len(results)):
            form = <Form>self.result_forms[i]
            if form.kind != ARRAY:
                results[i] = results[i].item() if form.kind == NUMBER else results[i][()]
        if self.build is None:
            return results[0]
        if self.result_structure is not None:
            return assemble(self.result_structure, results, &place)
        return tuple(results) if self.flat else self.build(results)


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


include "_replay_caller.pxi"
