"""CartPole and Pendulum as NumPy functions of many lanes: gymnasium's equations, step by step.

A state is an array of (elements, lanes), so that each element is contiguous. Arithmetic is in the state's dtype.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.random import uniform

__all__ = ["CartPole", "Pendulum"]

Stepped = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
TOTAL = CART + POLE
FAR, LEANING = 2.4, 12 * 2 * np.pi / 360

PULL, MASS, LENGTH, TICK, MOST_SPEED, MOST_TORQUE = 10.0, 1.0, 1.0, 0.05, 8.0, 2.0


@dataclass(frozen=True)
class CartPole:
    """CartPole-v1: push a cart left or right to keep a pole upright; 1 a step, 500 steps at most.

    A state is position, speed, angle, angular speed.

    References
    ----------
    Barto, Sutton, Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems",
    IEEE Trans. Systems, Man, and Cybernetics 13, 1983.

    Examples
    --------
    >>> pole = CartPole()
    >>> state, reward, over = pole.step(pole.start(np.uint64(1), 3), np.array([True, False, True]))
    >>> state.shape, reward, over
    ((4, 3), array([1., 1., 1.], dtype=float32), array([False, False, False]))
    """

    n_in = 4
    n_out = 2
    limit = 500

    def start(self, key: np.uint64, episodes: int) -> NDArray[np.float32]:
        """Return first states, uniform within 0.05 of zero."""
        return np.ascontiguousarray(uniform(key, (episodes, 4)).T * np.float32(0.1) - np.float32(0.05))

    def observe(self, state: NDArray[Any]) -> NDArray[Any]:
        """Return the state."""
        return state

    def act(self, outputs: NDArray[Any]) -> NDArray[np.bool_]:
        """Push right where the second output is the larger."""
        return outputs[:, 1] > outputs[:, 0]

    def step(self, state: NDArray[Any], action: NDArray[Any]) -> Stepped:
        """Move by one step of Euler's method."""
        x, speed, angle, spin = state[0], state[1], state[2], state[3]
        sin, cos = np.sin(angle), np.cos(angle)
        force = np.where(action, state.dtype.type(FORCE), state.dtype.type(-FORCE))
        pull = (force + POLE * HALF_LENGTH * np.square(spin) * sin) / TOTAL
        turn = (GRAVITY * sin - cos * pull) / (HALF_LENGTH * (4.0 / 3.0 - POLE * np.square(cos) / TOTAL))
        push = pull - POLE * HALF_LENGTH * turn * cos / TOTAL
        moved = np.stack([x + SECONDS * speed, speed + SECONDS * push, angle + SECONDS * spin, spin + SECONDS * turn])
        over = (np.abs(moved[0]) > FAR) | (np.abs(moved[2]) > LEANING)
        return moved, np.ones_like(x), over


@dataclass(frozen=True)
class Pendulum:
    """Pendulum-v1: swing a pendulum up and hold it by a torque of at most 2; 200 steps, a cost each.

    A state is the angle, 0 upright, and the angular speed.

    Examples
    --------
    >>> pendulum = Pendulum()
    >>> state = np.float32([[0.0], [0.0]])  # upright, at rest
    >>> pendulum.step(state, np.float32([0.0]))[1]
    array([-0.], dtype=float32)
    """

    n_in = 3
    n_out = 1
    limit = 200

    def start(self, key: np.uint64, episodes: int) -> NDArray[np.float32]:
        """Return first states, uniform: any angle, a speed of at most 1."""
        return np.ascontiguousarray(((uniform(key, (episodes, 2)) * 2 - 1) * np.array([np.pi, 1], np.float32)).T)

    def observe(self, state: NDArray[Any]) -> NDArray[Any]:
        """Return cosine and sine of the angle, and the speed."""
        return np.stack([np.cos(state[0]), np.sin(state[0]), state[1]])

    def act(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """Turn an output into a torque by tanh."""
        return np.tanh(outputs[:, 0]) * MOST_TORQUE

    def step(self, state: NDArray[Any], action: NDArray[Any]) -> Stepped:
        """Move by one step of the semi-implicit Euler method."""
        angle, speed = state[0], state[1]
        torque = np.clip(action.astype(state.dtype), -MOST_TORQUE, MOST_TORQUE)
        apart = (angle + np.pi) % (2 * np.pi) - np.pi
        cost = np.square(apart) + 0.1 * np.square(speed) + 0.001 * np.square(torque)
        faster = 3 * PULL / (2 * LENGTH) * np.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        speed = np.clip(speed + faster * TICK, -MOST_SPEED, MOST_SPEED)
        return np.stack([angle + speed * TICK, speed]), -cost, np.zeros(angle.shape, np.bool_)
