# cython: language_level=3
"""Find the leaves of a tree again, without a search: containers and keys, nothing else.

 a. A Way goes through a tree of a known structure and gives its leaves, or makes such a tree of leaves. It gives None
    where anything is other than the structure says, so that the caller, who has the words for it, looks for himself.
 b. A Watch remembers what mutable containers held, and tells the first that holds something else.
 c. A dict is asked at the position where the key was before; only where it has moved, by its hash.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject

# By bare pointers: no reference is counted, so that looking at an object does not write to it.
cdef extern from "Python.h":
    bint PyDict_Next(PyObject*, Py_ssize_t*, PyObject**, PyObject**) noexcept
    PyObject* PyDict_GetItemWithError(PyObject*, PyObject*) except? NULL
    Py_ssize_t PyDict_Size(PyObject*) except -1
    PyObject* PyList_GET_ITEM(PyObject*, Py_ssize_t) noexcept
    Py_ssize_t PyList_GET_SIZE(PyObject*) noexcept
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t) noexcept
    Py_ssize_t PyTuple_GET_SIZE(PyObject*) noexcept
    void* Py_TYPE(PyObject*) noexcept
    PyObject* PyCell_GET(PyObject*) noexcept
    bint PyCell_Check(PyObject*) noexcept
    bint PyWeakref_CheckRef(PyObject*) noexcept


cdef enum Access:
    BY_KEY, BY_INDEX_OF_LIST, BY_INDEX_OF_TUPLE, BY_ATTRIBUTE, BY_CELL, BY_REFERENCE, BY_CHILDREN


cdef inline PyObject* item_of_dict(PyObject* container, PyObject* key, Py_ssize_t position) except? NULL:
    """The value at a key (borrowed), or NULL."""
    cdef PyObject* found
    cdef PyObject* value
    if PyDict_Next(container, &position, &found, &value) and found == key:
        return value
    return PyDict_GetItemWithError(container, key)


cdef inline PyObject* item_of_list(PyObject* container, Py_ssize_t index) noexcept:
    return PyList_GET_ITEM(container, index) if index < PyList_GET_SIZE(container) else NULL


# ---- ways --------------------------------------------------------------------------------------------------------

cdef enum Child:
    NODE, LEAF, STATIC


cdef struct Node:
    Access access
    void* cls
    PyObject* children  # BY_CHILDREN: the function that gives the children,
    PyObject* rebuild  # and the one that makes a node of them
    Py_ssize_t first  # of its steps
    Py_ssize_t count


cdef struct Step:
    PyObject* key
    Child child
    Py_ssize_t number  # among the nodes, leaves or statics
    void* cls  # of a static


cdef class Way:
    """The way through trees of one structure, to their leaves or from leaves to a new tree.

    `nodes` are (cls, access, children, rebuild, steps), the root first, each after the one that holds it, where
    `access` is "dict", "list", "tuple" or "children", and steps are (key, "node" | "leaf" | "static", number, cls). The
    root stands in a tuple of one, so that a tree that is a leaf is no case of its own.
    """

    cdef Node* nodes
    cdef Step* steps
    cdef Py_ssize_t n
    cdef Py_ssize_t leaf_count
    cdef list held

    def __init__(self, list nodes not None):
        cdef Py_ssize_t i, k = 0
        self.leaf_count = 0
        accesses = {"dict": BY_KEY, "list": BY_INDEX_OF_LIST, "tuple": BY_INDEX_OF_TUPLE, "children": BY_CHILDREN}
        kinds = {"node": NODE, "leaf": LEAF, "static": STATIC}
        self.held, self.n = nodes, len(nodes)
        self.release()
        self.nodes = <Node*>PyMem_Malloc(max(1, self.n) * sizeof(Node))
        self.steps = <Step*>PyMem_Malloc(max(1, sum([len(node[4]) for node in nodes])) * sizeof(Step))
        if self.nodes == NULL or self.steps == NULL:
            raise MemoryError
        for i in range(self.n):
            cls, access, children, rebuild, steps = nodes[i]
            self.nodes[i].cls, self.nodes[i].access = <void*>cls, accesses[access]
            self.nodes[i].children, self.nodes[i].rebuild = <PyObject*>children, <PyObject*>rebuild
            self.nodes[i].first, self.nodes[i].count = k, len(steps)
            for step in steps:
                key, kind, number, child = step
                self.steps[k].key, self.steps[k].child = <PyObject*>key, kinds[kind]
                self.steps[k].number, self.steps[k].cls = number, <void*>child
                self.leaf_count += kind == "leaf"
                k += 1

    cdef void release(self) noexcept:
        PyMem_Free(self.nodes)
        PyMem_Free(self.steps)
        self.nodes = NULL
        self.steps = NULL

    def __dealloc__(self):
        self.release()

    def follow(self, tree):
        """Return the leaves of `tree` in order, or None where it is not of this structure, as far as can be seen."""
        cdef list leaves = [None] * self.leaf_count
        cdef list found = [None] * self.n  # owns the nodes: a function for children may re-bind any of them
        cdef Py_ssize_t i
        found[0] = (tree,)
        for i in range(self.n):
            if not self.enter(&self.nodes[i], found[i], found, leaves):
                return None
        return leaves

    cdef bint enter(self, const Node* node, object held, list found, list leaves) except -1:
        """Note the nodes and leaves in one node; whether all is as the structure says."""
        cdef PyObject* container = <PyObject*>held
        cdef PyObject* child
        cdef const Step* step
        cdef Py_ssize_t i
        if Py_TYPE(container) != node.cls:
            return False
        if node.access == BY_CHILDREN:
            held = (<object>node.children)(held)
            if type(held) is not dict:
                held = dict(held)
            container = <PyObject*>held
        if size_of(container, node.access) != node.count:
            return False
        for i in range(node.count):
            step = &self.steps[node.first + i]
            if node.access == BY_INDEX_OF_LIST:
                child = item_of_list(container, i)
            elif node.access == BY_INDEX_OF_TUPLE:
                child = PyTuple_GET_ITEM(container, i)
            else:
                child = item_of_dict(container, step.key, i)
            if child == NULL:
                return False
            if step.child == NODE:
                found[step.number] = <object>child
            elif step.child == LEAF:
                leaves[step.number] = <object>child
            elif Py_TYPE(child) != step.cls:
                return False
        return True

    def build(self, list leaves not None, list statics not None):
        """Return a new tree of these leaves and statics, which it shares."""
        cdef list made = [None] * self.n
        cdef Py_ssize_t i
        for i in range(self.n - 1, -1, -1):
            made[i] = self.make(&self.nodes[i], made, leaves, statics)
        return made[0][0]

    cdef object make(self, const Node* node, list made, list leaves, list statics):
        """Make one node of children that have been made."""
        cdef const Step* step
        cdef Py_ssize_t i
        cdef dict children = {}
        cdef list items = []
        for i in range(node.count):
            step = &self.steps[node.first + i]
            child = (made if step.child == NODE else leaves if step.child == LEAF else statics)[step.number]
            if node.access == BY_INDEX_OF_LIST or node.access == BY_INDEX_OF_TUPLE:
                items.append(child)
            else:
                children[<object>step.key] = child
        if <object>node.rebuild is not None:
            return (<object>node.rebuild)(children or dict(zip(range(node.count), items)))
        if node.access == BY_INDEX_OF_LIST:
            return items
        return tuple(items) if node.access == BY_INDEX_OF_TUPLE else children


cdef inline Py_ssize_t size_of(PyObject* container, Access access) except -1:
    if access == BY_INDEX_OF_LIST:
        return PyList_GET_SIZE(container)
    if access == BY_INDEX_OF_TUPLE:
        return PyTuple_GET_SIZE(container)
    return PyDict_Size(container)


# ---- watches -----------------------------------------------------------------------------------------------------

cdef struct Link:
    Access access
    Py_ssize_t position
    PyObject* container  # borrowed from Watch.links
    PyObject* key
    PyObject* child


cdef class Watch:
    """What mutable containers held: `links` are (container, position, key, child, children).

    The child is an item of the container (dict, list), an attribute (of the object itself, or of what a weak reference
    leads to), or what the cell of a closure holds; or, where `children` is a function, one of the
    children that it gives.
    """

    def __init__(self, list links not None):
        cdef Py_ssize_t i
        self.links, self.n, self.asks = links, len(links), False
        PyMem_Free(self.link)
        self.link = <Link*>PyMem_Malloc(max(1, self.n) * sizeof(Link))
        if self.link == NULL:
            raise MemoryError
        for i in range(self.n):
            container, position, key, child, children = links[i]
            self.link[i].container, self.link[i].key = <PyObject*>container, <PyObject*>key
            self.link[i].child, self.link[i].position = <PyObject*>child, position
            if children is not None:
                self.link[i].access, self.asks = BY_CHILDREN, True
            elif isinstance(container, list):
                self.link[i].access = BY_INDEX_OF_LIST
            elif PyCell_Check(<PyObject*>container):
                self.link[i].access = BY_CELL
            elif PyWeakref_CheckRef(<PyObject*>container):
                self.link[i].access = BY_REFERENCE
            else:
                self.link[i].access = BY_KEY if isinstance(container, dict) else BY_ATTRIBUTE

    def __dealloc__(self):
        PyMem_Free(self.link)

    cpdef Py_ssize_t changed(self) except -2:
        """Return the number of the first link whose container holds something else now, or -1."""
        cdef Py_ssize_t i
        cdef dict given = {} if self.asks else None  # the children of each container that has to be asked for them
        for i in range(self.n):
            if not self.holds(i, given):
                return i
        return -1

    cdef bint holds(self, Py_ssize_t i, dict given) except -1:
        cdef const Link* link = &self.link[i]
        if link.access == BY_KEY:
            return item_of_dict(link.container, link.key, link.position) == link.child
        if link.access == BY_INDEX_OF_LIST:
            return item_of_list(link.container, link.position) == link.child
        if link.access == BY_CELL:
            return PyCell_GET(link.container) == link.child
        if link.access == BY_REFERENCE:
            return getattr((<object>link.container)(), <object>link.key, None) is <object>link.child
        if link.access == BY_ATTRIBUTE:
            return getattr(<object>link.container, <object>link.key, None) is <object>link.child
        number = <size_t>link.container
        if number not in given:
            given[number] = dict((<tuple>self.links[i])[4](<object>link.container))
        return given[number].get(<object>link.key) is <object>link.child
