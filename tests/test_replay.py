"""Loops and their replay: found in NumPy's ufuncs, run over windows, on any thread."""

import threading

import numpy as np
import pytest

import nnflat as nf
from nnflat._loops import cast_loop, copy_loop, gather_loop, select_loop, ufunc_loop
from nnflat._replay import Form, Replay
from nnflat.lower import Instruction

RNG = np.random.default_rng(0)


def run(loop, inputs, target, **settings):
    """Run one loop over 1-D arrays; return the target."""
    operands = [(k, 0) for k in range(len(inputs) + 1)]
    strides = [array.strides[-1] if array.ndim else 0 for array in (*inputs, target)]
    instruction = Instruction("loop", "test", operands, (len(inputs),), loop=loop, dims=(target.shape[-1],),
                              strides=strides, **settings)
    form = Form("array", target.dtype, target.shape)
    replay = Replay([instruction], nbuffers=len(operands), constants=[], captured=[], temporaries=[], nbytes=0,
                    arguments=[(k, Form("array", x.dtype, x.shape, x.strides)) for k, x in enumerate(inputs)],
                    results=[(len(inputs), form)])
    return replay(tuple(inputs))[0]


@pytest.mark.parametrize("signature", ["ff->f", "dd->d", "ll->l", "FF->F", "??->?"])
def test_a_loop_of_a_ufunc_gives_what_the_ufunc_gives(signature):
    x, y = ((RNG.standard_normal((2, 100)) * 5).astype(signature[0]))
    assert run(ufunc_loop(np.add, signature), [x, y], np.empty_like(x)).tobytes() == (x + y).tobytes()


def test_of_two_loops_with_one_signature_the_dispatched_one_is_taken():
    x = RNG.standard_normal(10_000).astype(np.float32)
    assert np.exp.types.count("f->f") > 1
    assert run(ufunc_loop(np.exp, "f->f"), [x], x).tobytes() == np.exp(x).tobytes()


def test_a_signature_that_a_ufunc_does_not_have_gives_none():
    assert ufunc_loop(np.sin, "l->l") is None


@pytest.mark.parametrize(("ufunc", "signature", "clears"), [
    (np.add, "ff->f", False), (np.multiply, "dd->d", False), (np.maximum, "ff->f", True),
    (np.less, "dd->?", True), (np.matmul, "ff->f", False),
])
def test_which_loops_clear_the_flags_is_found_by_running_them(ufunc, signature, clears):
    assert ufunc_loop(ufunc, signature).clears == clears


@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8", "c16", "S3"])
def test_copies_and_choices_move_cells_of_any_size(dtype):
    x, y = RNG.integers(0, 2, (2, 20)).astype(dtype)
    mask = RNG.random(20) < 0.5
    size = x.dtype.itemsize
    assert run(copy_loop(size), [x[::2]], np.empty(10, dtype)).tobytes() == x[::2].tobytes()
    assert run(copy_loop(size, aligned=False), [x], np.empty_like(x)).tobytes() == x.tobytes()
    assert run(select_loop(size), [mask, x, y], np.empty_like(x)).tobytes() == np.where(mask, x, y).tobytes()
    table = np.array([3, 3, 0]) * size
    zero = np.lib.stride_tricks.as_strided(x, (3,), (0,))
    assert run(gather_loop(size), [zero, table], np.empty(3, dtype)).tobytes() == x[[3, 3, 0]].tobytes()


@pytest.mark.parametrize("source", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("target", ["f4", "f8"])
def test_quick_casts_round_as_numpy_does(source, target):
    x = (RNG.standard_normal(1000) * 1e6).astype("i8").astype(source)
    if source == "f8":
        x = RNG.standard_normal(1000)
    loop = cast_loop(np.dtype(source).str[1:], target)
    if loop is None:
        assert source == target
        return
    assert run(loop, [x], np.empty(1000, target)).tobytes() == x.astype(target).tobytes()


def test_a_form_says_what_it_accepts():
    assert Form("array", np.dtype("f4"), (2, 3)).describe() == "an array of shape (2, 3), dtype float32"
    assert "strides (8,)" in Form("array", np.dtype("f4"), (2,), (8,)).describe()
    assert Form("number", np.dtype("f8"), value=float).describe() == "float"
    assert Form("static", value="left").describe() == "'left'"


def test_a_take_out_of_range_raises_and_writes_nothing():
    program = nf.compile(lambda x, i: np.take(x, i, axis=0) * 2)
    x, out = np.arange(3.0), np.full(2, 7.0)
    program(x, np.array([0, 2]))
    with pytest.raises(IndexError, match="out of bounds"):
        program(x, np.array([0, 3]), out=out)
    assert np.array_equal(out, [7, 7])
    assert np.array_equal(program(x, np.array([2, -1])), [4, 4])


def test_results_whose_shape_depends_on_values_are_caught_at_replay():
    program = nf.compile(lambda x, n: np.repeat(x, n))
    program(np.arange(2.0), np.array([1, 2]))
    with pytest.raises(ValueError, match="depends on values"):
        program(np.arange(2.0), np.array([2, 2]))


def test_flags_that_were_set_before_are_not_reported():
    program = nf.compile(lambda x: x + 1)
    x = np.ones(3)
    program(x)
    with np.errstate(all="ignore"):
        np.log(np.zeros(3))
    with np.errstate(all="raise"):
        program(x)


def test_errstate_in_another_thread_is_its_own():
    program = nf.compile(lambda x: np.log(x))
    program(np.ones(3))
    seen = []

    def quiet():
        with np.errstate(all="ignore"):
            seen.append(program(np.zeros(3))[0])

    with np.errstate(all="raise"):
        thread = threading.Thread(target=quiet)
        thread.start()
        thread.join()
        with pytest.raises(FloatingPointError):
            program(np.zeros(3))
    assert seen == [-np.inf]


def test_a_replay_holds_no_workspace_that_outlives_it():
    import gc
    import weakref

    class Tag:
        pass

    program = nf.compile(lambda x: np.sort(x[::-1].astype(">f8")) + 1)
    program(np.ones(3))
    tag = Tag()
    reference = weakref.ref(tag)
    program.traces.plans[next(iter(program.traces.plans))].replay.build = lambda results, tag=tag: results[0]
    del program, tag
    gc.collect()
    assert reference() is None
