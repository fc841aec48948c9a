"""play: a policy in its environment, for people to see."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.lanes import make_env
from nnflat.es.policy import to_actions
from nnflat.random import fold

__all__ = ["play", "write_gif"]

SAMPLED = 8  # pictures whose colours all share: a palette each takes eight times as long


def play(
    env_id: str, policy: Callable[..., Any], *, episodes: int = 1, seed: int = 0, render: bool = False
) -> tuple[NDArray[np.float64], list[NDArray[np.uint8]]]:
    """Play episodes; return the return of each, and, where they are rendered, all pictures (height, width, 3).

    Examples
    --------
    >>> from nnflat import es
    >>> returns, pictures = play("CartPole-v1", es.policy_for("CartPole-v1"), episodes=2)
    >>> returns.shape, pictures
    ((2,), [])
    """
    env = make_env(env_id, render_mode="rgb_array" if render else None)
    returns, pictures = np.zeros(episodes), []
    for episode in range(episodes):
        observation, _ = env.reset(seed=int(fold(seed, episode)))
        step, over = _stepper(policy), False
        while not over:
            if render:
                pictures.append(env.render())
            action = to_actions(env.action_space, step(np.asarray(observation)[None]))[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            returns[episode] += float(reward)
            over = terminated or truncated
    env.close()
    return returns, pictures


def _stepper(policy: Any) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the policy of one episode: a recurrent one with a state of its own."""
    if not hasattr(policy, "start"):
        return policy
    state = policy.start(1)

    def step(x: NDArray[Any]) -> NDArray[Any]:
        nonlocal state
        output, state = policy(x, state)
        return output

    return step


def write_gif(path: str | PathLike[str], pictures: list[NDArray[np.uint8]], *, seconds: float = 1 / 30) -> None:
    """Write pictures of one size as an animation that repeats, in the 256 colours that some of them have most.

    Raises
    ------
    ImportError
        If Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("animations need Pillow: pip install pillow") from None
    colours = Image.fromarray(np.concatenate(pictures[:: -(-len(pictures) // SAMPLED)])).quantize()
    first, *rest = [Image.fromarray(each).quantize(palette=colours, dither=Image.Dither.NONE) for each in pictures]
    first.save(path, format="GIF", save_all=True, append_images=rest, duration=round(1000 * seconds), loop=0)
