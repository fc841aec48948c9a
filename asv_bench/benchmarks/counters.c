/* What a call costs, counted and not timed: allocations, and instructions under callgrind.

Allocations are those of Python (all three domains of PyMem_SetAllocator) and of NumPy's array data (the data
handler of NEP 49). Both hooks stand only while the counted call runs, pass every request on to the allocator that
was there before, or to malloc for array data, and so may be taken away while what was allocated lives on. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <stdlib.h>

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define HAVE_CALLGRIND 1
#endif
#endif
#ifndef HAVE_CALLGRIND
#define HAVE_CALLGRIND 0
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(label) (void)(label)
#endif

static long long allocations, bytes; /* the raw domain is entered without the GIL: atomic */

static void note(size_t size)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&bytes, (long long)size, __ATOMIC_RELAXED);
}

/* ---- Python's domains */

static const PyMemAllocatorDomain DOMAINS[] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
#define N_DOMAINS 3
static PyMemAllocatorEx before[N_DOMAINS];

static void *python_malloc(void *context, size_t size)
{
    PyMemAllocatorEx *next = context;
    note(size);
    return next->malloc(next->ctx, size);
}

static void *python_calloc(void *context, size_t count, size_t size)
{
    PyMemAllocatorEx *next = context;
    note(count * size);
    return next->calloc(next->ctx, count, size);
}

static void *python_realloc(void *context, void *memory, size_t size)
{
    PyMemAllocatorEx *next = context;
    note(size);
    return next->realloc(next->ctx, memory, size);
}

static void python_free(void *context, void *memory)
{
    PyMemAllocatorEx *next = context;
    next->free(next->ctx, memory);
}

/* ---- array data */

static void *data_malloc(void *context, size_t size)
{
    note(size);
    return malloc(size);
}

static void *data_calloc(void *context, size_t count, size_t size)
{
    note(count * size);
    return calloc(count, size);
}

static void *data_realloc(void *context, void *memory, size_t size)
{
    note(size);
    return realloc(memory, size);
}

static void data_free(void *context, void *memory, size_t size)
{
    free(memory);
}

static PyDataMem_Handler handler = {
    "nnflat_counters", 1, {NULL, data_malloc, data_calloc, data_realloc, data_free}};
static PyObject *capsule;

/* ---- what Python calls */

static PyObject *allocations_of(PyObject *module, PyObject *call)
{
    PyObject *data = PyDataMem_SetHandler(capsule), *result, *last;
    if (data == NULL)
        return NULL;
    for (int i = 0; i < N_DOMAINS; i++) {
        PyMemAllocatorEx hook = {&before[i], python_malloc, python_calloc, python_realloc, python_free};
        PyMem_GetAllocator(DOMAINS[i], &before[i]);
        PyMem_SetAllocator(DOMAINS[i], &hook);
    }
    allocations = bytes = 0;
    result = PyObject_CallNoArgs(call);
    long long counted = allocations, size = bytes;
    for (int i = 0; i < N_DOMAINS; i++)
        PyMem_SetAllocator(DOMAINS[i], &before[i]);
    last = PyDataMem_SetHandler(data);
    Py_DECREF(data);
    Py_XDECREF(last);
    if (result == NULL)
        return NULL;
    Py_DECREF(result);
    return Py_BuildValue("LL", counted, size);
}

static PyObject *instructions_of(PyObject *module, PyObject *args)
{
    PyObject *call, *result;
    const char *label;
    int repeats;
    if (!PyArg_ParseTuple(args, "Osi", &call, &label, &repeats))
        return NULL;
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    for (int i = 0; i < repeats; i++) {
        result = PyObject_CallNoArgs(call);
        if (result == NULL)
            return NULL;
        Py_DECREF(result);
    }
    CALLGRIND_DUMP_STATS_AT(label);
    CALLGRIND_STOP_INSTRUMENTATION;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"allocations_of", allocations_of, METH_O, "Call, and return how many allocations that made, of how many bytes."},
    {"instructions_of", instructions_of, METH_VARARGS, "Call so many times, and have callgrind dump what that took."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "counters", NULL, -1, methods};

PyMODINIT_FUNC PyInit_counters(void)
{
    import_array();
    capsule = PyCapsule_New(&handler, "mem_handler", NULL);
    PyObject *module = capsule == NULL ? NULL : PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "HAVE_CALLGRIND", HAVE_CALLGRIND) < 0)
        Py_CLEAR(module);
    return module;
}
