"""Walking trees: what is a node, a leaf, a static; what is refused; the verbs."""

import dataclasses
import functools
import inspect
import sys
import threading
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import reference
import zoo
from zoo import count

import nnflat as nf
from nnflat import tree

over_zoo = pytest.mark.parametrize("make", zoo.ZOO.values(), ids=zoo.ZOO.keys())


def there_and_back(model):
    flat, layout = nf.destructure(model)
    return layout.restructure(flat)


# ---- laws --------------------------------------------------------------------------------------------------------


@over_zoo
def test_leaves_and_items_are_the_arrays_themselves_in_order(make):
    model = make()
    expected = reference.items(model)
    assert [id(leaf) for leaf in tree.leaves(model)] == [id(leaf) for _, leaf in expected]
    assert [(path, id(leaf)) for path, leaf in tree.items(model)] == [(path, id(leaf)) for path, leaf in expected]


@over_zoo
def test_map_of_the_identity_shares_everything(make):
    model = make()
    again = tree.map(lambda leaf: leaf, model)
    assert reference.containers(again) == reference.containers(model)
    assert [(path, id(end)) for path, end in reference.walk(again)] == [
        (path, id(end)) for path, end in reference.walk(model)
    ]


@over_zoo
def test_replace_of_nothing_shares_everything(make):
    model = make()
    assert [id(end) for _, end in reference.walk(tree.replace(model, {}))] == [
        id(end) for _, end in reference.walk(model)
    ]


@over_zoo
def test_walking_changes_nothing(make):
    model = make()
    before = reference.memory(model), reference.identity(model), reference.containers(model)
    tree.leaves(model), tree.map(np.copy, model), nf.destructure(model)
    assert (reference.memory(model), reference.identity(model), reference.containers(model)) == before


# ---- nodes -------------------------------------------------------------------------------------------------------


def test_dicts_keep_kind_order_and_factory():
    model = zoo.dicts()
    again = there_and_back(model)
    assert type(again) is OrderedDict
    assert list(again) == ["second", "first", 3]
    assert type(again["second"]) is defaultdict
    assert again["second"].default_factory is list
    assert list(again["second"]) == ["z", "a"]
    assert list(again[3]) == [(), "with space"]


def test_rebuild_of_an_ordered_dict_keeps_an_order_moved_later():
    model = OrderedDict(a=count(1), b=count(2))
    model.move_to_end("a")
    flat, layout = nf.destructure(model)
    assert flat.tolist() == [1, 2, 1]
    assert list(layout.restructure(flat)) == ["b", "a"]
    model.move_to_end("b")
    assert layout.destructure(model).tolist() == [1, 2, 1]


class Point(NamedTuple):
    x: np.ndarray
    y: Any = None


class Shifted(namedtuple("Base", "x y")):
    """Its `__new__` takes other arguments than the fields."""

    def __new__(cls, x):
        return super().__new__(cls, x, x + 1)


@pytest.mark.parametrize("model", [Point(count(2)), Shifted(count(2)), zoo.named_tuple()])
def test_named_tuples_are_rebuilt_without_new(model):
    again = there_and_back(model)
    assert type(again) is type(model)
    for mine, its in zip(again, model, strict=True):
        assert its is None or np.array_equal(mine, its)


@dataclass
class Derived(zoo.Momentum):
    """Inherits fields, adds one, computes one."""

    extra: np.ndarray = field(default_factory=lambda: count(2))
    later: Any = field(init=False, default=None)

    def __post_init__(self):
        self.later = "post"


@dataclass(frozen=True, slots=True)
class FrozenSlots:
    weight: np.ndarray
    name: str = "f"


@dataclass(kw_only=True)
class Keywords:
    weight: np.ndarray


def test_dataclasses_are_rebuilt_without_init():
    model = Derived(count(1), 0.1)
    model.later, model.added = "changed", count(1)
    again = there_and_back(model)
    assert type(again) is Derived
    assert (again.rate, again.later) == (0.1, "changed")
    assert again.extra.tolist() == [1, 2]
    assert again.added.tolist() == [1]
    assert there_and_back(FrozenSlots(count(2))).weight.tolist() == [1, 2]
    assert there_and_back(FrozenSlots(count(2))).name == "f"
    assert there_and_back(Keywords(weight=count(2))).weight.tolist() == [1, 2]


def test_the_protocol_never_calls_init():
    model = zoo.protocol()
    before = zoo.Stack.made
    again = there_and_back(model)
    assert zoo.Stack.made == before
    assert type(again) is zoo.Stack
    assert again.layers[2] == "tanh"


class Once:
    """The protocol, with children that can be walked only once."""

    def __init__(self, *arrays):
        self.arrays = list(arrays)

    def __tree_children__(self):
        return ((index, array) for index, array in enumerate(self.arrays))

    @classmethod
    def __tree_rebuild__(cls, children):
        return cls(*children.values())


def test_children_given_as_a_generator_are_walked_once():
    model = Once(count(2), count(1))
    flat, layout = nf.destructure(model)
    assert flat.tolist() == [1, 2, 1]
    assert layout.restructure(2 * flat).arrays[0].tolist() == [2, 4]
    bound = layout.bind(model)
    bound.load(2 * flat)
    assert bound.store().tolist() == [2, 4, 2]


def test_a_layer_whose_shape_lies_is_measured_by_its_arrays():
    @tree.register
    class Liar:
        def __init__(self):
            self.shape, self.size, self.weight = (7, 7), 49, count(2, 3)

    flat, layout = nf.destructure(Liar())
    assert layout.shapes == ((2, 3),)
    assert flat.size == 6
    assert layout.restructure(flat).shape == (7, 7)


@pytest.mark.parametrize(
    "static",
    [1, 2.0, 1j, True, None, "text", b"bytes", np.float64(3), np.int32(1), np.tanh, np.add, len, int, slice(1, 2),
     range(3), ..., np.dtype("f4"), frozenset({1}), {1, 2}, np.array([1, 2]), np.array([True]), np.array(["a"]),
     np.zeros(2, "datetime64[s]"), np.zeros(2, [("a", "f8")]), np.random.default_rng(0), types.SimpleNamespace(a=1),
     functools.partial(np.add, 1), Counter("aab"), deque([1, 2]), object(), np],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_everything_but_inexact_arrays_is_static(static):
    model = {"weight": count(2), "static": static}
    flat, layout = nf.destructure(model)
    assert flat.tolist() == [1, 2]
    assert list(layout.statics) == [("static",)]
    assert type(layout.restructure(flat)["static"]) is type(static)
    assert "static" in str(layout)


@pytest.mark.parametrize("dtype", ["e", "f", "d", "g", "F", "D", "G", ">f4", ">f8", ">c8"])
def test_arrays_of_inexact_dtype_are_parameters(dtype):
    assert len(tree.leaves([np.zeros(2, dtype)])) == 1


def test_a_random_state_is_carried_as_a_copy():
    rng = np.random.default_rng(7)
    flat, layout = nf.destructure([count(1), rng])
    expected = np.random.default_rng(7).random(3).tolist()
    assert layout.restructure(flat)[1].random(3).tolist() == expected
    assert layout.restructure(flat)[1].random(3).tolist() == expected
    assert rng.random(3).tolist() == expected


# ---- registration ------------------------------------------------------------------------------------------------


def test_register_works_as_call_decorator_and_decorator_with_options():
    class Plain:
        def __init__(self):
            self.b, self.a = count(1), count(2)

    assert tree.register(Plain) is Plain
    assert [path for path, _ in tree.items(Plain())] == [("b",), ("a",)]

    @tree.register(static=("mean", "scale"))
    class Options:
        def __init__(self):
            self.weight, self.mean, self.scale = count(1), count(1), {"deep": [count(1)]}

    assert [path for path, _ in tree.items(Options())] == [("weight",)]

    @tree.register(static="mean")
    class One:
        def __init__(self):
            self.m, self.e, self.mean = count(1), count(1), count(1)

    assert len(tree.leaves(One())) == 2


def test_a_registered_class_is_rebuilt_without_init():
    class Guarded:
        def __init__(self):
            raise AssertionError("init was called")

        def __setattr__(self, name, value):
            raise AssertionError("setattr was called")

    tree.register(Guarded)
    model = object.__new__(Guarded)
    vars(model).update(weight=count(2), name="x")
    again = there_and_back(model)
    assert type(again) is Guarded
    assert again.weight.tolist() == [1, 2]
    assert again.name == "x"


def test_children_and_rebuild_may_be_given():
    class Poly:
        def __init__(self, *terms):
            self._terms = terms

    tree.register(
        Poly, children=lambda node: dict(enumerate(node._terms)), rebuild=lambda children: Poly(*children.values())
    )
    again = there_and_back(Poly(count(2), count(1)))
    assert [term.tolist() for term in again._terms] == [[1, 2], [1]]


def test_two_attributes_of_one_array_are_tied():
    @tree.register
    class Twice:
        def __init__(self):
            self.first = self.second = count(2)
            self.third = self.first[::1]

    flat, layout = nf.destructure(Twice())
    assert flat.size == 2
    assert layout.ties == {("second",): ("first",), ("third",): ("first",)}
    again = layout.restructure(flat)
    again.first[0] = 9
    assert again.second[0] == again.third[0] == 9


def test_classes_derived_from_a_registered_one_are_nodes_and_static_names_add_up():
    @tree.register(static="mean")
    class Base:
        def __init__(self):
            self.weight, self.mean, self.other = count(1), count(1), count(1)

    class Child(Base):
        pass

    @tree.register(static="other")
    class Grandchild(Child):
        pass

    assert [path for path, _ in tree.items(Child())] == [("weight",), ("other",)]
    assert [path for path, _ in tree.items(Grandchild())] == [("weight",)]
    assert type(there_and_back(Child())) is Child


def test_static_of_a_dataclass_or_protocol_may_be_named():
    @tree.register(static="rate")
    @dataclass
    class Data:
        weight: np.ndarray
        rate: np.ndarray

    model = Data(count(2), count(1))
    assert [path for path, _ in tree.items(model)] == [("weight",)]
    assert there_and_back(model).rate.tolist() == [1]


def test_slots_of_base_classes_and_private_names_are_attributes():
    class Base:
        __slots__ = ("__hidden", "weight")

        def __init__(self):
            self.weight, self.__hidden = count(2), count(1)

        def hidden(self):
            return self.__hidden

    @tree.register
    class Child(Base):
        __slots__ = ("__dict__", "bias", "unset")

        def __init__(self):
            super().__init__()
            self.bias, self.free = count(3), count(1)

    again = there_and_back(Child())
    assert again.hidden().tolist() == [1]
    assert again.weight.tolist() == [1, 2]
    assert again.bias.tolist() == [1, 2, 3]
    assert again.free.tolist() == [1]
    assert not hasattr(again, "unset")
    assert tree.format_path(tree.items(Child())[2][0]) == "bias"


def test_an_array_attribute_added_later_is_reported_not_mis_sliced():
    @tree.register
    class Growing:
        def __init__(self):
            self.weight = count(2)

    model = Growing()
    flat, layout = nf.destructure(model)
    bound = layout.bind(model)
    model.extra = count(2)
    for verb in (layout.destructure, layout.bind, lambda model: layout.restructure(flat, out=model)):
        with pytest.raises(ValueError, match="extra"):
            verb(model)
    assert bound.store().tolist() == [1, 2]


@pytest.mark.parametrize(
    "cls", [int, float, str, np.ndarray, np.float64, np.memmap, dict, list, tuple, OrderedDict, type(None), np.matrix,
            np.ma.MaskedArray, types.FunctionType, np.random.Generator, set, object]
)  # fmt: skip
def test_leaves_statics_and_built_in_classes_cannot_be_registered(cls):
    for options in ({}, {"children": dict, "rebuild": cls}):
        with pytest.raises(TypeError, match="cannot be registered"):
            tree.register(cls, **options)


def test_a_wrong_registration_says_what_is_wrong():
    class Plain:
        pass

    class Items(list):
        pass

    with pytest.raises(TypeError, match="needs a class"):
        tree.register(Plain())
    with pytest.raises(TypeError, match="both children= and rebuild="):
        tree.register(Plain, children=vars)
    with pytest.raises(TypeError, match="both children= and rebuild="):
        tree.register(Plain, rebuild=Plain)
    with pytest.raises(TypeError, match="beside its attributes"):
        tree.register(Items)
    assert tree.leaves([Plain()]) == []


# ---- what is refused ---------------------------------------------------------------------------------------------


class Opaque:
    def __init__(self, **attributes):
        vars(self).update(attributes)


class OpaqueSlots:
    __slots__ = ("weight",)

    def __init__(self, weight):
        self.weight = weight


class Items(list):
    pass


class Keys(dict):
    pass


def circular():
    one, two = Opaque(), Opaque()
    one.other, two.other, two.weight = two, one, count(1)
    return one


def cyclic_dict():
    model: dict = {"a": {}}
    model["a"]["back"] = model
    return model


def cyclic_list():
    model: list = [[]]
    model[0].append(model[0])
    return model


def deep(levels: int):
    model: Any = count(1)
    for _ in range(levels):
        model = [model]
    return model


class Tensor:
    __module__ = "torch"

    def __array__(self, dtype=None, copy=None):
        return np.zeros(3)


class Interface:
    """Of no known library, but an array by its looks."""

    __array_interface__ = None


class Sub(np.ndarray):
    pass


REFUSED = {
    "attribute": (lambda: [Opaque(weight=count(1))], TypeError, r"\[0\] is a Opaque .*\[0\]\.weight.*register"),
    "root": (lambda: Opaque(weight=count(1)), TypeError, "<root> is a Opaque .* weight"),
    "slots": (lambda: {"a": OpaqueSlots(count(1))}, TypeError, r"a\.weight"),
    "deep attribute": (lambda: [Opaque(a=Opaque(b=[{"c": count(1)}]))], TypeError, r"\[0\]\.a\.b\[0\]\.c"),
    "circular": (lambda: [circular()], TypeError, r"other\.weight"),
    "list subclass": (lambda: {"a": Items([count(1)])}, TypeError, r"a is a Items .*a\[0\]"),
    "dict subclass": (lambda: {"a": Keys(x=count(1))}, TypeError, r"a\.x"),
    "deque": (lambda: {"a": deque([count(1)])}, TypeError, r"a\[0\]"),
    "proxy": (lambda: {"a": types.MappingProxyType({"x": count(1)})}, TypeError, r"a\.x"),
    "partial": (lambda: {"a": functools.partial(np.add, count(1))}, TypeError, r"a\.args\[0\]"),
    "partial keyword": (lambda: {"a": functools.partial(np.add, out=count(1))}, TypeError, r"a\.keywords\.out"),
    "namespace": (lambda: {"a": types.SimpleNamespace(w=count(1))}, TypeError, r"a\.w"),
    "integers inside": (lambda: [Opaque(steps=np.array([1]))], TypeError, "steps"),
    "tensor inside": (lambda: [Opaque(weight=Tensor())], TypeError, "weight"),
    "tensor": (lambda: [Tensor()], TypeError, r"\[0\] is a Tensor, .*detach"),
    "interface": (lambda: [Interface()], TypeError, "np.asarray"),
    "generator": (lambda: {"a": (count(1) for _ in range(2))}, TypeError, "a is an iterator"),
    "iterator": (lambda: iter([count(1)]), TypeError, "<root> is an iterator"),
    "map": (lambda: [builtin_map(np.copy, [count(1)])], TypeError, r"\[0\] is an iterator"),
    "zip": (lambda: [zip([count(1)], strict=True)], TypeError, "iterator"),
    "dict view": (lambda: {"a": {"x": count(1)}.values()}, TypeError, "a"),
    "object array": (lambda: [np.array([count(1), None], object)], TypeError, r"\[0\] is an object array"),
    "masked": (lambda: [np.ma.array([1.0], mask=[True])], TypeError, r"\[0\] is a MaskedArray"),
    "masked integers": (lambda: [np.ma.array([1])], TypeError, "MaskedArray"),
    "matrix": (lambda: {"m": np.zeros((1, 1)).view(np.matrix)}, TypeError, "m is a matrix"),
    "subclass": (lambda: {"s": count(2).view(Sub)}, TypeError, "s is a Sub"),
    "cyclic dict": (cyclic_dict, ValueError, r"a\.back is <root> again"),
    "cyclic list": (cyclic_list, ValueError, r"\[0\]\[0\] is \[0\] again"),
    "deep": (lambda: deep(101), ValueError, "deeper than 100"),
    "very deep": (lambda: deep(100_000), ValueError, "deeper than 100"),
}
builtin_map = map


@pytest.mark.parametrize(("make", "error", "word"), list(REFUSED.values()), ids=list(REFUSED))
def test_what_could_hide_an_array_is_refused_with_its_path(make, error, word):
    model = make()
    for verb in (nf.destructure, nf.Layout.of, tree.leaves, tree.items, lambda model: tree.map(np.copy, model)):
        with pytest.raises(error, match=word):
            verb(model)


@pytest.mark.parametrize("name", ["attribute", "masked", "tensor", "object array"])
def test_what_is_refused_is_refused_in_place_too(name):
    layout = nf.Layout.of([count(1)])
    model = REFUSED[name][0]()
    for verb in (layout.bind, layout.destructure, lambda model: layout.restructure(np.zeros(1), out=model)):
        with pytest.raises((TypeError, ValueError), match=r"\[0\]"):
            verb(model)



def test_the_deepest_tree_works_in_every_verb():
    import copy
    import pickle

    model = deep(99)
    flat, layout = nf.destructure(model)
    assert flat.tolist() == [1]
    layout.restructure(flat, out=model)
    assert tree.leaves(layout.restructure(2 * flat))[0].tolist() == [2]
    assert layout == nf.Layout.of(deep(99))
    assert hash(layout) == hash(nf.Layout.of(deep(99)))
    assert str(layout)
    assert copy.deepcopy(layout) == layout
    assert pickle.loads(pickle.dumps(layout)) == layout


def test_an_object_without_arrays_is_static_and_needs_no_registration():
    model = [Opaque(name="x", deep=Opaque(a=[1, 2])), count(1)]
    again = there_and_back(model)
    assert again[0].name == "x"
    assert again[0].deep.a == [1, 2]
    assert again[0] is not model[0]


def test_the_same_node_twice_is_no_cycle():
    layer = {"weight": count(2)}
    assert nf.destructure([layer, [layer]])[0].tolist() == [1, 2]


def test_threads_and_locks_are_static():
    assert nf.destructure([threading.Lock(), count(1)])[0].tolist() == [1]


# ---- the verbs ---------------------------------------------------------------------------------------------------


def test_map_calls_once_for_an_array_at_several_paths_and_keeps_the_tie():
    calls = []
    made = tree.map(lambda leaf: calls.append(1) or leaf + 1, zoo.tied())
    assert len(calls) == 2
    assert made["encoder"] is made["decoder"]
    assert made["bias"].tolist() == [2, 3]


def test_map_takes_more_trees_by_path():
    first, second = {"a": count(2), "b": [count(1)], "c": "first"}, {"b": [count(1)], "a": 10 * count(2), "c": "second"}
    made = tree.map(np.add, first, second)
    assert made["a"].tolist() == [11, 22]
    assert made["b"][0].tolist() == [2]
    assert made["c"] == "first"


@pytest.mark.parametrize(
    ("other", "word"),
    [({"a": count(2)}, "tree 2 has no parameter at b"), ({"a": 1, "b": 2, "c": count(1)}, "tree 2 has")],
)
def test_map_of_trees_that_differ_is_refused_with_the_path(other, word):
    with pytest.raises(ValueError, match=word):
        tree.map(np.add, {"a": count(2), "b": count(1)}, other)


def test_replace_takes_paths_and_names():
    model = zoo.nested()
    made = tree.replace(model, {"layers[0].weight": np.zeros(1), ("layers", 1, "bias"): np.ones(1)})
    assert made["layers"][0].weight.tolist() == [0]
    assert made["layers"][1].bias.tolist() == [1]
    assert made["layers"][1].weight is model["layers"][1].weight
    assert model["layers"][1].bias.tolist() == [1, 2]


def test_replace_replaces_a_tied_array_at_all_its_paths_under_either_name():
    for name in ("encoder", "decoder"):
        new = np.zeros((3, 2))
        made = tree.replace(zoo.tied(), {name: new})
        assert made["encoder"] is made["decoder"] is new



def test_replace_with_two_values_for_one_array_names_both_paths():
    with pytest.raises(ValueError, match=r"encoder.*decoder|decoder.*encoder"):
        tree.replace(zoo.tied(), {"encoder": np.zeros((3, 2)), "decoder": np.ones((3, 2))})
    new = np.zeros((3, 2))
    assert tree.replace(zoo.tied(), {"encoder": new, "decoder": new})["decoder"] is new


@pytest.mark.parametrize("path", ["missing", ("a", 1), "name"])
def test_replace_at_an_unknown_path_is_a_key_error(path):
    with pytest.raises(KeyError, match="no parameter at"):
        tree.replace({"a": count(1), "name": 1}, {path: count(1)})


def test_replace_needs_arrays():
    with pytest.raises(TypeError, match="a needs an array; got float"):
        tree.replace({"a": count(1)}, {"a": 1.0})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ((), "<root>"),
        (("a",), "a"),
        ((0,), "[0]"),
        (("layers", 0, "weight"), "layers[0].weight"),
        (("with space", "b"), "['with space'].b"),
        ((0, "a", ("t", 1)), "[0].a[('t', 1)]"),
        (("0",), "['0']"),
        (("",), "['']"),
        (("a.b",), "['a.b']"),
        ((None, True), "[None][True]"),
    ],
)
def test_a_path_has_one_printed_name(path, name):
    assert tree.format_path(path) == name


def test_different_paths_have_different_names():
    keys = ["a", "a.b", "[0]", 0, "0", "", "b", None, "None", ("a",), 1.5]
    paths = [(one, two) for one in keys for two in keys] + [(one,) for one in keys]
    assert len({tree.format_path(path) for path in paths}) == len(paths)


# ---- classes with more than one nature ---------------------------------------------------------------------------


@dataclasses.dataclass
class Output(OrderedDict):
    scale: float = 1.0


@dataclasses.dataclass
class Stack(list):
    scale: float = 1.0


@pytest.mark.parametrize("cls", [Output, Stack])
def test_a_dataclass_that_keeps_items_is_refused_where_they_are_arrays(cls):
    node = cls()
    node.update(w=count(3)) if cls is Output else node.append(count(3))
    with pytest.raises(TypeError, match=f"is a {cls.__name__} that holds an array at .*children=, rebuild="):
        tree.leaves({"a": node})


class Pair(namedtuple("Pair", "a b")):
    """A namedtuple with attributes beside its fields."""


def test_attributes_of_a_namedtuple_are_children_and_come_back():
    pair = Pair(count(1), 2)
    pair.extra = count(3)
    assert [tree.format_path(path) for path, _ in tree.items(pair)] == ["a", "extra"]
    made = tree.map(np.negative, pair)
    assert type(made) is Pair
    assert (made.a.tolist(), made.b, made.extra.tolist()) == ([-1], 2, [-1, -2, -3])
    flat, layout = nf.destructure(pair)
    assert layout.restructure(flat, out=pair) is pair
    with pytest.raises(ValueError, match="extra"):
        layout.restructure(flat, out=Pair(count(1), 2))


def test_a_bound_method_of_an_object_with_arrays_is_refused():
    @tree.register
    class Model:
        def __init__(self):
            self.w = count(2)
            self.call = self.sum

        def sum(self):
            return self.w.sum()

    with pytest.raises(TypeError, match=r"call is a method that holds an array at call\.__self__\.w"):
        tree.leaves(Model())
    with pytest.raises(TypeError, match="__self__"):
        tree.leaves({"f": count(2).sum})
    assert tree.leaves({"f": np.tanh, "g": len, "h": np.random.default_rng(0).normal}) == []


def test_two_children_of_one_key_are_refused():
    class Twice:
        pass

    tree.register(Twice, children=lambda node: [("w", count(1)), ("w", count(2))], rebuild=lambda children: Twice())
    with pytest.raises(ValueError, match="two children of one key"):
        tree.leaves(Twice())


def test_two_paths_of_one_printed_name_are_refused():
    class Key(str):
        def __hash__(self):
            return 1

        def __eq__(self, other):
            return self is other

        def __repr__(self):
            return "'key'"

    with pytest.raises(ValueError, match="printed name of two paths"):
        nf.Layout.of({Key("a b"): count(1), Key("a b"): count(2)})


def test_a_property_over_an_attribute_of_its_name_is_passed_by():
    @tree.register
    class Model:
        def __init__(self):
            self.__dict__["w"] = count(2)

        @property
        def w(self):
            raise AssertionError

    flat, layout = nf.destructure(Model())
    assert layout.restructure(2 * flat).__dict__["w"].tolist() == [2, 4]


def test_a_metaclass_that_has_every_attribute_makes_no_node():
    class Meta(type):
        def __getattr__(cls, name):
            return lambda *args: {}

    class Anything(metaclass=Meta):
        pass

    assert tree.leaves([Anything(), count(1)])[0].tolist() == [1]


def test_a_tree_met_deep_in_the_stack_is_a_clear_error():
    def deeper(levels):
        return deeper(levels - 1) if levels else tree.leaves(deep(99))

    with pytest.raises(ValueError, match="recursion limit"):
        deeper(sys.getrecursionlimit() - len(inspect.stack()) - 60)
