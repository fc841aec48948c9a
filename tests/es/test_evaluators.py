"""Evaluators turn a population and a key into a fitness a candidate."""

import numpy as np

from nnflat import es

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
