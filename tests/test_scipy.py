"""With SciPy, as it stands: optimisers, differential equations, and a sampler in ten lines."""

import numpy as np
import pytest

import nnflat as nf
from nnflat import nn

optimize = pytest.importorskip("scipy.optimize")
integrate = pytest.importorskip("scipy.integrate")

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (40, 2)).astype(np.float32)
Y = np.sin(3 * X[:, :1]) * X[:, 1:]
MODEL = nn.Chain(nn.Dense(2, 8, "tanh", rng=RNG), nn.Dense(8, 1, rng=RNG))
FLAT, LAYOUT = nf.destructure(MODEL)


def penalised(model, x, y):
    weights = sum(np.sum(layer.weight**2) for layer in model.layers)
    return nn.mse(model(x), y) + 1e-4 * weights


LOSS = LAYOUT.astype(np.float64).lift(penalised)
X0 = FLAT.astype(np.float64)


def test_l_bfgs_trains_a_network():
    result = optimize.minimize(nf.value_and_grad(LOSS), X0, args=(X, Y), jac=True, method="L-BFGS-B")
    assert result.fun < 0.05 * LOSS(X0, X, Y)
    assert np.abs(result.jac).max() < 1e-3


def test_trust_ncg_trains_a_network_with_products_of_the_hessian():
    slope, product = nf.value_and_grad(LOSS), nf.hvp(LOSS)
    result = optimize.minimize(slope, X0, args=(X, Y), jac=True, hessp=product, method="trust-ncg")
    assert result.fun < 0.05 * LOSS(X0, X, Y)


@pytest.mark.parametrize("method", ["BFGS", "CG"])
def test_methods_that_keep_a_gradient_get_a_fresh_one(method):
    slope, options = nf.value_and_grad(LOSS), {"maxiter": 200}
    result = optimize.minimize(slope, X0, args=(X, Y), jac=True, method=method, options=options)
    assert result.fun < 0.1 * LOSS(X0, X, Y)


def test_the_gradient_passes_the_check_of_scipy():
    assert optimize.check_grad(lambda v: LOSS(v, X, Y), lambda v: nf.grad(LOSS)(v, X, Y), X0) < 1e-5


def test_least_squares_takes_a_jacobian():
    def residual(v):
        return v[0] * np.exp(-v[1] * np.arange(5.0)) - 2 * np.exp(-0.5 * np.arange(5.0))

    result = optimize.least_squares(residual, np.array([1.0, 1.0]), jac=nf.jacobian(residual))
    np.testing.assert_allclose(result.x, [2, 0.5], rtol=1e-6)


def test_a_network_inside_a_differential_equation_is_fitted_through_its_flat_vector():
    rng = np.random.default_rng(1)
    field = nn.Chain(nn.Dense(2, 6, "tanh", rng=rng, dtype=np.float64), nn.Dense(6, 2, rng=rng, dtype=np.float64))
    flat, layout = nf.destructure(field)
    times, start = np.linspace(0, 1, 6), np.array([1.0, 0.0])
    spiral = integrate.solve_ivp(lambda t, y: np.array([[-0.5, 2], [-2, -0.5]]) @ y, (0, 1), start, t_eval=times).y.T

    def euler(model):
        def step(y, h):
            y = y + h * model(y)
            return y, y

        return nf.scan(step, start, np.full(50, 0.02))[1][9::10]

    def loss(model):
        return np.mean((euler(model) - spiral[1:]) ** 2)

    result = optimize.minimize(nf.value_and_grad(layout.lift(loss)), flat, jac=True, method="L-BFGS-B",
                               options={"maxiter": 100})  # fmt: skip
    fitted = nf.compile(layout.lift(lambda model, y: model(y)))
    path = integrate.solve_ivp(lambda t, y: fitted(result.x, y), (0, 1), start, t_eval=times).y.T
    assert np.abs(path - spiral).max() < 0.1


def test_hamiltonian_monte_carlo_samples_a_posterior():
    """A linear model with a normal prior: the posterior is known. Neal, "MCMC using Hamiltonian dynamics", 2011."""
    rng = np.random.default_rng(2)
    x, noise = rng.standard_normal((30, 2)), 0.5
    y = x @ np.array([1.0, -2.0]) + noise * rng.standard_normal(30)

    def energy(w):
        return np.sum((x @ w - y) ** 2) / (2 * noise**2) + np.sum(w**2) / 2

    slope, w, samples = nf.value_and_grad(energy), np.zeros(2), []
    value, g = slope(w)
    for _ in range(600):
        new, p, old, gradient = w, rng.standard_normal(2), value, g
        before = old + p @ p / 2
        for _ in range(10):
            p = p - 0.025 * gradient
            new = new + 0.05 * p
            after, gradient = slope(new)
            p = p - 0.025 * gradient
        if np.log(rng.random()) < before - after - p @ p / 2:
            w, value, g = new, after, gradient
        samples.append(w)
    precision = x.T @ x / noise**2 + np.eye(2)
    mean = np.linalg.solve(precision, x.T @ y / noise**2)
    deviation = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert (np.abs(np.mean(samples[50:], axis=0) - mean) < 0.3 * deviation).all()
    np.testing.assert_allclose(np.std(samples[50:], axis=0), deviation, rtol=0.25)
