"""The tape and its plan: windows, dead code, one workspace, elementwise chains in blocks."""

import numpy as np

import nnflat as nf
from nnflat._replay import BLOCK_SIZE
from nnflat.context import tracing
from nnflat.tape import Buffer, Tape, extent, view_window
from nnflat.trace import Trace

X = np.random.default_rng(0).standard_normal((4, 5))
LONG = np.random.default_rng(1).standard_normal(10 * BLOCK_SIZE + 17)


def instructions(function, *args):
    return nf.compile(function).trace(*args).replay.instructions


def test_a_window_of_a_view_says_where_numpy_put_it():
    whole = view_window(Buffer("argument", X.nbytes), 0, X)
    for view in (X[1:, ::2], X.T[::-1], X[2], X[..., None], X[1:1]):
        if view.size:
            window = whole.over(view, X)
            assert (window.shape, window.strides) == (view.shape, view.strides)
            assert window.offset == view.ctypes.data - X.ctypes.data


def test_a_standin_has_the_form_of_its_window():
    odd = np.frombuffer(bytearray(41), np.float64, 5, 1)
    for array in (X, X[:, ::-1], odd, X.astype(">f8"), np.float32(1)[...]):
        standin = view_window(Buffer("argument", 0), 0, array).standin()
        assert (standin.shape, standin.strides, standin.dtype) == (array.shape, array.strides, array.dtype)
        assert standin.flags.aligned == array.flags.aligned


def test_an_extent_covers_negative_strides():
    assert extent((3, 4), (-32, 8), 8) == (-64, 32)
    assert extent((3, 0), (-32, 8), 8) == (0, 0)


def test_what_nobody_reads_is_dropped():
    program = nf.compile(lambda x: (np.exp(x), x + 1)[1])
    assert [operation.name for operation in program.trace(X).operations] == ["add"]


def test_a_view_is_no_operation():
    trace = Trace()
    with tracing(trace):
        x = trace.argument(X)
        x.T[1:].reshape(4, 4)[None, ::-1].swapaxes(0, 1)
    assert trace.tape.operations == []


def test_a_captured_array_has_one_buffer():
    tape = Tape()
    assert tape.capture(X) is tape.capture(X)


def test_temporaries_share_memory_when_their_lives_do_not_overlap():
    plan = nf.compile(lambda x: np.tanh((np.tanh((np.tanh(x @ x.T) @ x)) @ x.T) @ x)).trace(X)
    assert plan.replay.nbytes <= 2 * 256


def test_an_elementwise_operation_works_in_place_on_what_ends_with_it():
    plan = nf.compile(lambda x: np.exp(np.sin(x[::2, ::2]) + 1) @ x[::2, ::2].T).trace(np.ones((6, 6)))
    assert plan.replay.nbytes == 9 * 8


def test_a_product_never_works_in_place():
    plan = nf.compile(lambda x: ((x @ x) @ x) @ x).trace(np.ones((4, 4)))
    assert plan.replay.nbytes == 2 * 128


def test_a_long_chain_needs_the_memory_of_a_block():
    def chain(x):
        for _ in range(10):
            x = np.maximum(x * 1.5, x - 0.5)
        return x

    program = nf.compile(chain)
    plan = program.trace(LONG)
    assert plan.replay.nbytes <= 4 * BLOCK_SIZE * 8
    assert plan.replay.instructions[0].chain == 30
    assert np.array_equal(program(LONG), chain(LONG))


def test_a_chain_ends_where_elements_are_read_from_another_place():
    function = lambda x: np.cumsum((x + 1)[::-1] * x + (x * 2).sum())  # noqa: E731
    assert np.array_equal(nf.compile(function)(LONG), function(LONG))
    shifted = lambda x: (x + 1)[1:] * (x * 3)[:-1]  # noqa: E731
    assert np.array_equal(nf.compile(shifted)(LONG), shifted(LONG))


def test_a_chain_that_reads_what_it_will_overwrite_is_right():
    def function(x):
        first = x + 1
        return (first * 2 + first[:1]) * first[0] - x

    assert np.array_equal(nf.compile(function)(LONG), function(LONG))


def test_operands_that_are_one_memory_stay_one_memory():
    a = np.random.default_rng(0).standard_normal((64, 33)).astype(np.float32)
    product = instructions(lambda a: a @ a.T, a)[0]
    assert product.operands[0] == product.operands[1]
    assert np.array_equal(nf.compile(lambda a, b: a @ b.T)(a, a), a @ a.T)
    assert np.array_equal(nf.compile(lambda a, b: a @ b.T)(a, a.copy()), a @ a.copy().T)


def test_a_reversed_or_casting_reduction_replays_the_iterator_of_numpy():
    assert [each.action for each in instructions(lambda x: x[:, ::-1].sum(axis=1), X)] == ["loop", "iterate"]
    assert [each.action for each in instructions(lambda x: x.sum(axis=1), X)] == ["loop", "loop"]
    assert instructions(lambda x: x.sum(axis=0), X.astype(">f8"))[-1].action == "iterate"


def test_an_operation_on_no_element_is_no_instruction():
    assert instructions(lambda x: np.exp(x) + 1, np.ones((0, 3))) == []


def test_thirty_operations_plan_into_thirty_instructions():
    def function(x):
        for _ in range(10):
            x = np.tanh(x + 1) * 2
        return x

    assert len(instructions(function, X)) == 30
