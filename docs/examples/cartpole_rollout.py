"""A whole roll-out in NumPy: the physics of CartPole, a policy, `scan` over time, `vmap` over candidates.

Everything is plain NumPy, written for one candidate and one step. Compiled, the roll-outs of a population run without
the interpreter, on threads, and give the bits of the Python loop.

    python docs/examples/cartpole_rollout.py
"""

import time

import numpy as np

import nnflat as nf
from nnflat import nn

GRAVITY, CART, POLE, LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
TOTAL = CART + POLE


def physics(state, force):
    """Move the cart and the pole by one step of Euler's method (Barto, Sutton and Anderson 1983)."""
    x, speed, angle, spin = state[0], state[1], state[2], state[3]
    sin, cos = np.sin(angle), np.cos(angle)
    pull = (force + POLE * LENGTH * spin * spin * sin) / TOTAL
    turn = (GRAVITY * sin - cos * pull) / (LENGTH * (4 / 3 - POLE * cos * cos / TOTAL))
    push = pull - POLE * LENGTH * turn * cos / TOTAL
    return np.stack([x + TAU * speed, speed + TAU * push, angle + TAU * spin, spin + TAU * turn])


def make_rollout(layout, steps):
    """Return a function of a flat vector and a first state: how many steps the pole stays up."""

    def rollout(flat, start):
        policy = layout.view(flat)

        def step(carry, _):
            state, alive = carry
            logits = policy(state)
            moved = physics(state, np.where(logits[1] > logits[0], FORCE, -FORCE))
            upright = (np.abs(moved[0]) < 2.4) & (np.abs(moved[2]) < 12 * np.pi / 180)
            alive = np.where(upright, alive, 0.0)
            return (np.where(alive > 0, moved, state), alive), alive

        _, lives = nf.scan(step, (start, np.ones(())), length=steps)
        return lives.sum()

    return rollout


def population_of(layout, count, rng):
    return 0.5 * rng.standard_normal((count, layout.size))


def main(count=256, steps=200):
    rng = np.random.default_rng(0)
    policy = nn.Chain(nn.Dense(4, 32, "tanh", rng=rng, dtype=float), nn.Dense(32, 2, rng=rng, dtype=float))
    layout = nf.Layout.of(policy)
    population, start = population_of(layout, count, rng), rng.uniform(-0.05, 0.05, 4)
    rollout = make_rollout(layout, steps)
    evaluate = nf.vmap(rollout, (0, None), threads=2)
    evaluate(population, start)
    began = time.perf_counter()
    fitness = evaluate(population, start)
    native = time.perf_counter() - began
    began = time.perf_counter()
    few = [rollout(flat, start) for flat in population[:4]]
    loop = (time.perf_counter() - began) / 4 * count
    print(f"{count} candidates, {steps} steps: {native * 1e3:.1f} ms; the Python loop {loop * 1e3:,.0f} ms")
    print(f"best {fitness.max():.0f} steps; equal to the loop to the bit: {np.array_equal(fitness[:4], few)}")


if __name__ == "__main__":
    main()
