"""Ways through trees of a known structure, and watches over what can be re-bound."""

import numpy as np
import pytest
import zoo

import nnflat as nf
from nnflat import tree


class Counted:
    """A mutable node of the protocol that counts how often it is asked for its children."""

    def __init__(self, n):
        self.arrays = {str(i): np.full(2, i, float) for i in range(n)}
        self.asked = 0

    def __tree_children__(self):
        self.asked += 1
        return dict(self.arrays)

    @classmethod
    def __tree_rebuild__(cls, children):
        node = object.__new__(cls)
        node.arrays, node.asked = dict(children), 0
        return node


@pytest.mark.parametrize("nested", [False, True])
def test_a_container_is_asked_for_its_children_once_a_call(nested):
    node = Counted(50)
    model = {"a": node, "b": np.zeros(3)} if nested else node
    flat, layout = nf.destructure(model)
    bound = layout.bind(model)
    for verb in (lambda: bound.load(flat), bound.store, lambda: layout.restructure(flat, out=model)):
        node.asked = 0
        verb()
        assert node.asked == 1


def test_a_child_that_such_a_container_re_binds_is_named():
    node = Counted(5)
    flat, layout = nf.destructure([node])
    bound = layout.bind([node])
    node.arrays["3"] = np.zeros(2)
    with pytest.raises(nf.StructureChanged, match=r"\[0\]\['3'\]"):
        bound.load(flat)


@pytest.mark.parametrize("name", sorted(zoo.ZOO))
def test_a_way_leads_to_the_leaves_in_the_order_of_the_walk_and_back(name):
    model = zoo.ZOO[name]()
    flat = tree.flatten(model)
    way = tree.way(flat.structure, flat.statics)
    again = tree.flatten(way.build(flat.leaves, flat.statics))
    assert again.structure == flat.structure
    assert all(a is b for a, b in zip(again.leaves, flat.leaves, strict=True))
    if not any(isinstance(value, np.ndarray) for value in flat.statics):
        assert all(a is b for a, b in zip(way.follow(model), flat.leaves, strict=True))


OTHERS = [{"a": np.zeros(1)}, {"a": [np.zeros(1)], "b": 1, "c": 2}, {"a": (np.zeros(1),), "b": 1}, 3]


@pytest.mark.parametrize("other", OTHERS)
def test_a_way_through_another_tree_leads_nowhere(other):
    flat = tree.flatten({"a": [np.zeros(1)], "b": 1})
    assert tree.way(flat.structure, flat.statics).follow(other) is None


def test_a_tree_that_is_re_bound_while_its_children_are_given_is_still_held():
    class Rebinding(Counted):
        def __tree_children__(self):
            model["b"] = {"x": np.zeros(2)}  # the dict that was there has no other owner
            return super().__tree_children__()

    model = {"a": Rebinding(1), "b": {"x": np.zeros(2)}}
    layout = nf.Layout.of(model)
    old = model["b"]["x"]
    for step in range(200):
        layout.restructure(np.full(4, float(step)), out=model)
    assert model["a"].arrays["0"].tolist() == [199, 199]
    assert old.tolist() == [0, 0]


class Fresh:
    """A node that makes its children anew at each call."""

    def __init__(self):
        self.flat = np.arange(9.0)

    def __tree_children__(self):
        return {"w": self.flat[:6].reshape(2, 3), "pair": {"b": self.flat[6:]}}

    @classmethod
    def __tree_rebuild__(cls, children):
        node = object.__new__(cls)
        node.flat = np.concatenate([children["w"].reshape(-1), children["pair"]["b"]])
        return node


def test_children_that_are_made_at_each_call_are_loaded_and_stored():
    node = Fresh()
    flat, layout = nf.destructure(node)
    bound = layout.bind(node)
    bound.load(2 * flat)
    assert node.flat.tolist() == (2 * flat).tolist() == bound.store().tolist()
    layout.restructure(3 * flat, out=node)
    assert layout.destructure(node).tolist() == (3 * flat).tolist()
