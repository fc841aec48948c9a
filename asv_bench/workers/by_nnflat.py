"""nnflat, as its documentation says to use it. Results go to memory that is given where a user would give it."""

import numpy as np

import nnflat as nf
from nnflat import es, nn, optim
from workers import cases
from workers.by_numpy import net, pure
from workers.cases import LR, Work


def policy(case):
    layers, x = cases.policy(case)
    program = nf.compile(lambda x: net(layers, x))
    return pure(lambda: program(x))


def candidates(case):
    layers, x = cases.candidates()
    (first, second), (third, last) = layers
    mapped = nf.vmap(lambda x, a, b, c, d: net([(a, b), (c, d)], x), 0, threads=1)
    return pure(lambda: mapped(x, first, second, third, last))


def chain(case):
    x = cases.drawn(10**6)

    @nf.compile
    def chain(x):
        for _ in range(10):
            x = (x + 1.5) * 0.5
        return x

    return pure(lambda: chain(x))


def empty(case):
    x = np.zeros(3)
    program = nf.compile(lambda x: x)
    out = program(x)
    return pure(lambda: program(x, out=out))


def linear_last(layers, x):
    *hidden, (weight, bias) = layers
    return net(hidden, x) @ weight + bias


def cross_entropy(layers, x, y):
    return nn.cross_entropy(linear_last(layers, x), y)


def squared(layers, x, y):
    return nn.mse(linear_last(layers, x), y)


def training(loss, layers, x, y):
    """Return the flat vector and the arrays of its rule's state, and a function of them that makes a step."""
    flat, layout = nf.destructure(layers)
    rule, slope = optim.Adam(LR), nf.value_and_grad(layout.lift(loss))
    state = rule.init(flat)

    def step(flat, *arrays_and_data):
        *arrays, x, y = arrays_and_data
        value, grad = slope(flat, x, y)
        flat, new = rule.step(flat, grad, dict(zip(state, arrays, strict=True)))
        return (flat, *new.values(), value)

    return (flat, *state.values()), step


def step(case):
    layers, x, y = cases.step(case)
    held, step = training(cross_entropy, layers, x, y)
    program, value = nf.compile(step), np.zeros((), np.float32)
    out = (*held, value)
    return Work(lambda: program(*held, x, y, out=out), lambda: value)


def regression(case):
    layers, x, y = cases.regression()
    held, step = training(squared, layers, x, y)
    out = (*held, np.zeros((), np.float32))

    @nf.compile
    def hundred(*held_and_data):
        *held, x, y = held_and_data

        def body(carry, _):
            *carry, value = step(*carry, x, y)
            return tuple(carry), value

        held, values = nf.scan(body, tuple(held), length=100)
        return (*held, values[-1])

    return Work(lambda: hundred(*held, x, y, out=out), lambda: out[-1])


def adam(case):
    flat = cases.drawn(800_000)
    grad, rule = np.float32(0.1) * flat, optim.Adam(LR)
    program, state = nf.compile(rule.step), rule.init(flat)
    return Work(lambda: program(flat, grad, state, out=(flat, state)), lambda: flat)


def destructure(case):
    leaves = cases.leaves(case)
    return pure(lambda: nf.destructure(leaves)[0])


def flatten(case):
    leaves = cases.leaves(case)
    layout = nf.Layout.of(leaves)
    return pure(lambda: layout.destructure(leaves))


def restructure(case):
    flat, layout = nf.destructure(cases.leaves(case))
    return Work(lambda: layout.restructure(flat), lambda: nf.destructure(layout.restructure(flat))[0])


def generation(case):
    size = cases.STRATEGIES[case]
    strategy = es.OpenAIES(
        cases.start(size), maximize=False, pop=cases.POP, sigma=cases.SIGMA, optimizer=optim.Adam(cases.ES_LR)
    )
    population = strategy.ask()

    def call():
        for _ in range(cases.GENERATIONS):
            strategy.ask(out=population)
            strategy.tell(np.einsum("ij,ij->i", population, population))

    return Work(call, lambda: float(np.square(strategy.theta).mean() < 1))


def fit(case):
    from sklearn.datasets import load_digits

    return cases.digits(load_digits(return_X_y=True), fit_one)


def fit_one(x, y, seed):
    rng = np.random.default_rng(seed)
    model = nn.Chain(nn.Dense(64, 32, "relu", rng=rng), nn.Dense(32, 10, rng=rng))
    loss = lambda model, x, y: nn.cross_entropy(model(x), y)  # noqa: E731
    nf.fit(model, (x, y), loss=loss, optimizer=optim.Adam(LR), epochs=200, batch_size=32, seed=seed, progress=False)
    return lambda x: model(x).argmax(axis=1)


MAKERS = {
    **dict.fromkeys(cases.POLICIES, policy),
    cases.VMAP: candidates,
    cases.CHAIN: chain,
    cases.EMPTY: empty,
    **dict.fromkeys(cases.STEPS, step),
    cases.REGRESSION: regression,
    cases.ADAM: adam,
    cases.DIGITS: fit,
    **{f"destructure {model}": destructure for model in cases.MODELS},
    **{f"flatten {model}": flatten for model in cases.MODELS},
    **{f"restructure {model}": restructure for model in cases.MODELS},
    **dict.fromkeys(cases.STRATEGIES, generation),
}
