"""The walk back: from the cotangents of results to those of what they were made of.

Nodes are numbered as they are made, so their order is an order of dependence. The rules are NumPy code: walked back
inside a trace they are recorded on the same tape, and make nodes themselves where a derivative of a derivative is
wanted.

Invariants:

 B1  A cotangent has the shape and the dtype of the value that it belongs to, in its logical order; None is zero.
 B2  A zero cotangent stays zero where a derivative may be unbounded: nothing comes back from a branch not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from nnflat.compositions import COMPOSITIONS
from nnflat.context import STACK, active, differentiated
from nnflat.folds import METHODS, fold, running
from nnflat.fourier import TRANSFORMS
from nnflat.linear import ALGEBRA
from nnflat.moves import MOVES, MOVING
from nnflat.polynomials import pull_roots
from nnflat.reductions import ACCUMULATIONS, REDUCTIONS
from nnflat.rules import BOUNDED, LINEAR, RULES
from nnflat.signature import WEAK
from nnflat.structure import put_together, take_apart
from nnflat.trace import Trace
from nnflat.tracer import SERIAL, Node, Tracer, as_array, is_traced, value_of
from nnflat.values import split
from nnflat.views import View, assemble, moved_numbers, pick, reshape, scatter, undo_view

Cotangent = Any


@contextmanager
def differentiating() -> Iterator[None]:
    """Make traced values remember of what they are made."""
    STACK.derivatives = differentiated() + 1
    STACK.taken = getattr(STACK, "taken", 0) + 1
    try:
        yield
    finally:
        STACK.derivatives -= 1


def variable(trace: Trace, x: Any) -> Tracer:
    """Return x as a traced value to differentiate by: a walk back ends there, one from further out goes on to x."""
    if is_traced(x) and any(s == 0 and n > 1 for s, n in zip(x.strides, x.shape, strict=True)):
        return trace.copy(x, x.value.copy())            # one place an element
    if not is_traced(x):
        return Tracer(trace, x, trace.window(x) if isinstance(x, np.ndarray) else trace.window(np.asarray(x)))
    return trace.same(x, x.value)


def is_inexact(x: Any) -> bool:
    value = value_of(x)
    return isinstance(value, np.ndarray | np.generic | float | complex) and as_array(value).dtype.kind in "fc"


# --- the walk ----------------------------------------------------------------------------------------------

def pull_back(results: Sequence[tuple[Any, Cotangent]], variables: Sequence[Tracer]) -> list[Cotangent]:
    """Return the cotangents of the variables, given those of results."""
    ends = {id(each) for each in variables}
    active_nodes = nodes_between([result for result, _ in results], ends)
    found: dict[int, Gathered] = {}
    for result, cotangent in results:
        if is_traced(result) and cotangent is not None:
            gathered = found.setdefault(id(result), Gathered(result))
            gathered.parts.append(fit(cotangent, result))
            gathered.gated |= np.ndim(value_of(cotangent)) > 0
    with np.errstate(all="ignore"):
        for node in reversed(active_nodes):
            pull_node(node, found, ends, active_nodes)
        return [found[id(each)].total() if id(each) in found else None for each in variables]


def nodes_between(results: Sequence[Any], ends: set[int]) -> dict[Node, bool]:
    """Return the nodes on the ways from the variables to the results, in the order in which they were made."""
    seen: set[Node] = set()
    todo = [each.node for each in results if is_traced(each) and each.node is not None and id(each) not in ends]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [x.node for x in node.operands if is_traced(x) and x.node is not None and id(x) not in ends]
    found: dict[Node, bool] = {}
    for node in sorted(seen, key=lambda node: node.serial):
        if any(is_inexact(y) for y in node.outputs) and any(needs(x, ends, found) for x in node.operands):
            found[node] = True
    return found


def needs(x: Any, ends: set[int], nodes: dict[Node, bool]) -> bool:
    return is_traced(x) and is_inexact(x) and (id(x) in ends or x.node in nodes)


class Gathered:
    """What came back to one value: whole cotangents, and those of views of it."""

    def __init__(self, of: Tracer) -> None:
        self.of = of
        self.parts: list[Cotangent] = []
        self.views: list[View] = []
        self.gated = False          # whether a zero may have been put in on the way

    def total(self) -> Cotangent:
        """Return the sum, with the shape and dtype of the value. # B1"""
        self.parts += assemble(self.of, self.views)
        self.views = []
        total = self.parts[0]
        for part in self.parts[1:]:
            total = total + part
        self.parts = [total]
        return total


def pull_node(node: Node, found: dict[int, Gathered], ends: set[int], nodes: dict[Node, bool]) -> None:
    arrived = [found.get(id(y)) if id(y) not in ends else None for y in node.outputs]
    if all(each is None for each in arrived):
        return
    cotangents = [None if each is None else each.total() for each in arrived]
    gated = any(each is not None and each.gated for each in arrived)
    needed = [needs(x, ends, nodes) for x in node.operands]
    pulled = PULLS[node.kind](node, cotangents, needed, gated)
    for x, cotangent in zip(node.operands, pulled, strict=True):
        if cotangent is None or not is_traced(x) or not is_inexact(x):
            continue
        gathered = found.setdefault(id(x), Gathered(x))
        gathered.gated |= gated or lets_zeros_in(node)
        if isinstance(cotangent, View):
            gathered.views.append(cotangent)
        else:
            gathered.parts.append(fit(cotangent, x))


def lets_zeros_in(node: Node) -> bool:
    if node.kind in ("ufunc", "reduce"):
        return node.settings["ufunc"] not in (LINEAR if node.kind == "ufunc" else {np.add})
    return node.kind not in ("same", "concatenate", "stack")


def fit(cotangent: Cotangent, x: Any) -> Cotangent:
    """Return a cotangent in the shape and dtype of x: broadcast axes are summed. # B1"""
    shape, dtype = np.shape(value_of(x)), as_array(value_of(x)).dtype
    if type(value_of(cotangent)) in WEAK:
        cotangent = strong(cotangent)
    if np.shape(value_of(cotangent)) != shape:
        cotangent = fit_shape(cotangent, shape)
    found = as_array(value_of(cotangent)).dtype
    if found == dtype:
        return cotangent
    if found.kind == "c" != dtype.kind:
        cotangent = np.real(cotangent)
    return cotangent.astype(dtype) if hasattr(cotangent, "astype") else dtype.type(cotangent)


def strong(x: Any) -> Any:
    """Return a Python number as NumPy's."""
    return active().same(x, as_array(x.value)[()]) if is_traced(x) else np.asarray(x)[()]


def fit_shape(cotangent: Cotangent, shape: tuple[int, ...]) -> Cotangent:
    has = np.shape(value_of(cotangent))
    extra = len(has) - len(shape)
    axes = tuple(i for i, n in enumerate(has) if n != 1 and (i < extra or shape[i - extra] == 1))
    if axes:
        cotangent = sum_rows(cotangent) if axes == (0,) and len(has) == 2 else np.sum(cotangent, axis=axes)
    if cotangent.size == int(np.prod(shape)):
        return cotangent.reshape(shape) if cotangent.ndim else cotangent[(None,) * len(shape)]
    return np.broadcast_to(cotangent, shape)


def sum_rows(x: Cotangent) -> Cotangent:
    """Return the sum of the rows of a matrix: a product with ones where BLAS makes it, some times faster than a sum."""
    rows, dtype = x.shape[0], x.dtype
    if dtype.char not in "fd" or x.size == 0 or not x.flags.c_contiguous:
        return np.sum(x, axis=0)
    made = np.matmul(np.ones(rows, dtype), x)
    return relinked(made, (x,), lambda back: [np.broadcast_to(back, x.shape)])


def keep_zeros(g: Cotangent, cotangent: Cotangent) -> Cotangent:
    """Return the cotangent with zeros where g has them. It is linear in g: its derivative passes through. # B2"""
    if not is_traced(g) and np.all(g):
        return cotangent
    made = np.where(g == 0, 0, cotangent)
    return relinked(made, (cotangent,), lambda back: [back])


def relinked(made: Any, operands: Sequence[Any], pull: Callable[[Cotangent], list[Cotangent]]) -> Any:
    trace = active()
    if trace is None or not is_traced(made):
        return made
    return trace.link("pulled", Tracer(trace, made.value, made.window), operands,
                      pull=lambda cotangents, needed: pull(cotangents[0]))


# --- how each kind of node is pulled through ---------------------------------------------------------------

def pull_ufunc(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    ufunc = node.settings["ufunc"]
    return apply_rules(ufunc, node, cotangents, needed, gated, node.operands)


def apply_rules(ufunc: Any, node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool,
                xs: Sequence[Any]) -> list[Cotangent]:
    if len(node.outputs) > 1:
        return pull_pair(ufunc, cotangents, needed, xs)
    if ufunc not in RULES:
        raise missing(node, f"np.{ufunc.__name__}")
    g, y = cotangents[0], node.outputs[0]
    found: list[Cotangent] = []
    for rule, x, wanted in zip(RULES[ufunc], xs, needed, strict=True):
        cotangent = rule(g, y, *xs) if wanted and rule is not None else None
        if cotangent is not None and gated and ufunc not in BOUNDED:
            cotangent = keep_zeros(g, cotangent)
        found.append(None if cotangent is None else fit(cotangent, x))
    return found


def pull_pair(ufunc: Any, cotangents: list[Cotangent], needed: list[bool], xs: Sequence[Any]) -> list[Cotangent]:
    first, second = cotangents
    if ufunc is np.modf:
        return [first]
    if ufunc is np.frexp:
        return [None if first is None else np.ldexp(first, -np.frexp(xs[0])[1])]
    if ufunc is np.divmod and second is not None:
        a, b = xs
        return [second, -(second * np.floor(a / b))]
    return [None] * len(needed)


def pull_reduce(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    ufunc, axes, (x,) = node.settings["ufunc"], node.settings["axes"], node.operands
    if ufunc not in REDUCTIONS:
        if ufunc not in RULES:
            raise missing(node, f"np.{ufunc.__name__}.reduce")
        keepdims = {"keepdims": node.outputs[0].ndim == x.ndim and x.ndim > 0 and bool(axes)}
        return recompute(partial(fold, ufunc), node, cotangents, needed, (x, axes), keepdims)
    cotangent = REDUCTIONS[ufunc](cotangents[0], node.outputs[0], x, axes)
    exact = ufunc in (np.add, np.maximum, np.minimum)
    return [cotangent if exact or not gated else keep_zeros(np.broadcast_to(cotangent, x.shape), cotangent)]


def pull_accumulate(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    ufunc, axis, (x,) = node.settings["ufunc"], node.settings["axis"], node.operands
    if ufunc in ACCUMULATIONS:
        return [ACCUMULATIONS[ufunc](cotangents[0], node.outputs[0], x, axis)]
    if ufunc not in RULES:
        raise missing(node, f"np.{ufunc.__name__}.accumulate")
    return recompute(partial(running, ufunc), node, cotangents, needed, (x, axis), {})


def pull_same(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    (x,) = node.operands
    return [reshape(cotangents[0], np.shape(value_of(x)))]


def pull_view(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    return [undo_view(cotangents[0], node.outputs[0], node.operands[0])]


def pull_real(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    (x,) = node.operands
    return [cotangents[0] if x.dtype.kind != "c" else cotangents[0].astype(x.dtype)]


def pull_imag(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    (x,) = node.operands
    return [None if x.dtype.kind != "c" else cotangents[0].astype(x.dtype) * -1j]


def pull_where(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    condition, g = node.operands[0], cotangents[0]
    return [None, np.where(condition, g, 0) if needed[1] else None, np.where(condition, 0, g) if needed[2] else None]


def pull_concatenate(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    axis, start, found = node.settings["axis"], 0, []
    for x, wanted in zip(node.operands, needed, strict=True):
        stop = start + x.shape[axis]
        found.append(cotangents[0][(*[slice(None)] * axis, slice(start, stop))] if wanted else None)
        start = stop
    return found


def pull_stack(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    rows = np.moveaxis(cotangents[0], node.settings["axis"], 0)
    return [rows[i] if wanted else None for i, wanted in enumerate(needed)]


def pull_gather(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    (x,) = node.operands
    numbers = moved_numbers(node.settings["function"], x, node.settings["args"], node.settings["kwargs"])
    return [scatter(cotangents[0], numbers, x.shape)]


def pull_ruled(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    """A function that brings its own rule: `(g, y, *operands) -> cotangent` of the first of them."""
    found = node.settings["rule"](cotangents[0], node.outputs[0], *node.operands, **node.settings["kwargs"])
    return [found, *[None] * (len(node.operands) - 1)]


def pull_pulled(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    return node.settings["pull"](cotangents, needed)


# --- calls of NumPy ----------------------------------------------------------------------------------------

OPERATORS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "pow": np.power,
             "neg": np.negative, "pos": np.positive, "abs": np.absolute, "floordiv": np.floor_divide,
             "mod": np.remainder, "divmod": np.divmod, "matmul": np.matmul}

def pull_call(node: Node, cotangents: list[Cotangent], needed: list[bool], gated: bool) -> list[Cotangent]:
    """Pull through a call of NumPy: a ufunc, a move of elements, a rule of its own, or a composition."""
    function, args, kwargs = (node.settings[key] for key in ("function", "args", "kwargs"))
    name = node.settings["name"]
    ufunc = function if isinstance(function, np.ufunc) else OPERATORS.get(name)
    if ufunc is not None and not kwargs and len(node.operands) <= len(args):
        operand_of = {id(x): wanted for x, wanted in zip(node.operands, needed, strict=True)}
        found = apply_rules(ufunc, node, cotangents, [operand_of.get(id(x), False) for x in args], gated,
                            tuple(array_of_list(x) for x in args))
        return aligned(node, args, found)
    rule = CALLS.get(function) or CALLS.get(name)
    if rule is not None:
        return aligned(node, args, rule(cotangents, node.outputs, *args, **kwargs))
    if name in MOVING:
        numbers = moved_numbers(function, args[0], args[1:], kwargs)
        return aligned(node, args, [scatter(cotangents[0], numbers, args[0].shape)])
    composition = composition_of(function, name)
    if composition is None:
        raise missing(node, f"np.{name}")

    def of_arrays(*args: Any, **kwargs: Any) -> Any:
        return composition(*[array_of_list(x) for x in args], **kwargs)

    return recompute(of_arrays, node, cotangents, needed, args, kwargs)


def array_of_list(x: Any) -> Any:
    """Return a list of Python numbers as the array that NumPy takes it for; anything else as it is."""
    numbers = type(x) is list and all(type(end) in (bool, int, float, complex) for end in take_apart(x)[0])
    return np.asarray(x) if numbers else x


def composition_of(function: Callable[..., Any], name: str) -> Callable[..., Any] | None:
    """Return what to run in the place of a function: it may be a method of a ufunc that has a rule itself."""
    ufunc = function if isinstance(function, np.ufunc) else getattr(function, "__self__", None)
    if not isinstance(ufunc, np.ufunc):
        return COMPOSITIONS.get(function) or COMPOSITIONS.get(name)
    method = "__call__" if function is ufunc else function.__name__
    found = COMPOSITIONS.get(f"{ufunc.__name__}.{method}")
    return found or (partial(METHODS[method], ufunc) if ufunc in RULES else None)


def aligned(node: Node, args: Sequence[Any], cotangents: Sequence[Cotangent]) -> list[Cotangent]:
    """Give each operand of a call the cotangents of the arguments that it stood for."""
    found: list[Cotangent] = [None] * len(node.operands)
    taken = 0
    for x, cotangent in zip(args, cotangents, strict=False):
        if taken < len(node.operands) and x is node.operands[taken]:
            found[taken], taken = cotangent, taken + 1
    return found


def recompute(function: Callable[..., Any], node: Node, cotangents: list[Cotangent], needed: list[bool],
              args: Sequence[Any], kwargs: dict[str, Any]) -> list[Cotangent]:
    """Run a composition on variables in the place of the operands, and pull back through it."""
    trace = active()
    assert trace is not None
    leaves, rebuild = split((args, kwargs))
    variables = [variable(trace, x) if wanted else x for x, wanted in zip(leaves, needed, strict=True)]
    again, options = rebuild(variables)
    with differentiating():
        made = function(*again, **{key: x for key, x in options.items() if x is not np._NoValue})
    results = made if isinstance(made, tuple | list) else [made]
    wanted = [x for x, want in zip(variables, needed, strict=True) if want]
    pairs = [(y, g) for y, g in zip(results, cotangents, strict=True) if is_traced(y)]
    back = iter(pull_back(pairs, wanted))
    return [next(back) if want else None for want in needed]


def missing(node: Node, name: str) -> TypeError:
    return TypeError(f"{name} has no derivative rule; write it in functions that have, give a ufunc one by "
                     "nf.defvjp, or keep it out by nf.stop_gradient")


CALLS: dict[Any, Callable[..., Any]] = {
    **MOVES, **ALGEBRA, **TRANSFORMS, np.roots: pull_roots,
    "scatter_add": lambda cotangents, outputs, values, numbers, shape: [pick(cotangents[0], numbers)],
    "astype": lambda cotangents, outputs, x: [cotangents[0]],
    "real": lambda cotangents, outputs, x: [cotangents[0]],
    "imag": lambda cotangents, outputs, x: [None],
}

PULLS: dict[str, Callable[..., list[Cotangent]]] = {
    "ufunc": pull_ufunc, "reduce": pull_reduce, "accumulate": pull_accumulate, "same": pull_same, "view": pull_view,
    "real": pull_real, "imag": pull_imag, "where": pull_where, "concatenate": pull_concatenate, "stack": pull_stack,
    "gather": pull_gather, "ruled": pull_ruled, "pulled": pull_pulled, "call": pull_call,
}


# --- functions inside --------------------------------------------------------------------------------------

def relabel(trace: Trace, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run a function, and give its results a node that runs it again when it is pulled through."""
    ends, structure = take_apart(args)
    first = next(SERIAL)
    variables = [variable(trace, end) if is_traced(end) else end for end in ends]
    out, shape = take_apart(fn(*put_together(structure, iter(variables))))
    made = [x for x in out if is_traced(x)]
    outside = captured(made, lambda x: x.node is None or x.node.serial < first, {id(x) for x in variables})
    operands = [*ends, *outside]

    def pull(cotangents: list[Cotangent], needed: list[bool]) -> list[Cotangent]:
        inside = active()
        assert inside is not None
        again = [variable(inside, end) if wanted else end for end, wanted in zip(ends, needed, strict=False)]
        with differentiating():
            results = take_apart(fn(*put_together(structure, iter(again))))[0]
        wanted = [x for x, want in zip([*again, *outside], needed, strict=True) if want]
        pairs = zip([x for x in results if is_traced(x)], cotangents, strict=True)
        back = iter(pull_back(list(pairs), wanted))
        return [next(back) if want else None for want in needed]

    fresh = tuple(Tracer(trace, x.value, trace.own(x)) for x in made)
    trace.link("pulled", fresh, operands, pull=pull)
    each = iter(fresh)
    return put_together(shape, iter([next(each) if is_traced(x) else x for x in out]))


def captured(results: Sequence[Any], outside: Callable[[Tracer], bool], ends: set[int]) -> list[Tracer]:
    """Return the traced values from outside that results are made of, in the order in which they were used."""
    found: dict[int, Tracer] = {}
    seen: set[Node] = set()
    todo = [x for x in results if is_traced(x)]
    nodes = []
    while todo:
        x = todo.pop()
        if id(x) in ends:
            continue
        if outside(x):
            found[id(x)] = x
        elif x.node is not None and x.node not in seen:
            seen.add(x.node)
            nodes.append(x.node)
            todo += [each for each in x.node.operands if is_traced(each)]
    used = [x for node in sorted(nodes, key=lambda node: node.serial) for x in node.operands if is_traced(x)]
    return list({id(x): x for x in [*used, *results] if is_traced(x) and id(x) in found}.values())
