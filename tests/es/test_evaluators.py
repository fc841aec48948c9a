"""Evaluators turn a population and a key into a fitness a candidate."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

from nnflat import es, vmap

KEY = np.uint64(9)


def test_each_calls_the_function_with_every_candidate_in_order():
    population = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(es.Each(lambda theta, key: theta.sum())(population, KEY), [1, 5, 9])


def test_each_gives_all_candidates_the_same_key():
    keys = []
    es.Each(lambda theta, key: keys.append(key) or 0.0)(np.zeros((3, 2)), KEY)
    assert keys == [KEY] * 3


def test_batch_calls_the_function_once_with_everything():
    calls = []
    batch = es.Batch(lambda population, key: calls.append((population.shape, key)) or np.zeros(3))
    np.testing.assert_array_equal(batch(np.zeros((3, 2)), KEY), np.zeros(3))
    assert calls == [((3, 2), KEY)]


def test_each_and_batch_agree():
    strategy = es.OpenAIES(np.ones(4), maximize=True, pop=6, sigma=0.3)
    one = es.evaluate(strategy, es.Each(lambda theta, key: np.sum(theta**2)))
    np.testing.assert_array_equal(one, es.evaluate(strategy, es.Batch(lambda p, key: np.sum(p**2, axis=1))))


def test_evaluate_hands_over_the_candidates_and_the_key_of_the_generation():
    strategy, seen = es.OpenAIES(np.ones(4), maximize=True, pop=6, sigma=0.3), []
    es.evaluate(strategy, lambda population, key: seen.append((population, key)) or np.zeros(6))
    np.testing.assert_array_equal(seen[0][0], strategy.ask())
    assert seen[0][1] == strategy.key


def test_keys_differ_between_generations_and_seeds():
    keys = set()
    for seed in range(5):
        strategy = es.OpenAIES(np.ones(4), maximize=True, pop=2, sigma=0.3, seed=seed)
        for _ in range(5):
            keys.add(int(strategy.key))
            strategy.tell([0.0, 1.0])
    assert len(keys) == 25


def shifted(theta, key):
    return np.sum(np.tanh(theta - 0.5) ** 2) + (key % np.uint64(7)) * 0.5


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor, ProcessPoolExecutor])
def test_a_compiled_fitness_of_a_batch_gives_the_bits_of_each(executor):
    strategy = es.OpenAIES(np.linspace(0, 1, 9), maximize=False, pop=10, sigma=0.1)
    expected = es.evaluate(strategy, es.Each(shifted))
    compiled = es.Batch(vmap(shifted, (0, None)))
    with executor(2) if executor else nullcontext() as chosen:
        np.testing.assert_array_equal(es.evaluate(strategy, compiled, executor=chosen, chunk=4), expected)
