"""A pole on a cart, as in Barto, Sutton and Anderson (1983), and processes that play it."""

import math
import multiprocessing as mp
import queue
import signal
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 200
"""Steps of an episode that ends by itself."""

Weights = dict[str, NDArray[np.float32]]


class Cart:
    """Push a cart left or right so that the pole on it stays up. Every step is worth 1.

    Constants and the end of an episode are those of the paper: 0.02 s a step, a force of 10 N, 12 degrees, 2.4 m.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self.state = random.uniform(-0.05, 0.05, 4)

    def push(self, right: bool) -> bool:
        """One step of 0.02 s. Returns whether the pole still stands."""
        x, speed, angle, turning = self.state
        force, mass, pole, length = (10.0 if right else -10.0), 1.1, 0.1, 0.5
        common = (force + pole * length * turning**2 * math.sin(angle)) / mass
        turn = (9.8 * math.sin(angle) - math.cos(angle) * common) / (
            length * (4 / 3 - pole * math.cos(angle) ** 2 / mass)
        )
        push = common - pole * length * turn * math.cos(angle) / mass
        self.state = np.array([x + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * turning, turning + 0.02 * turn])
        return bool(abs(self.state[0]) < 2.4 and abs(self.state[2]) < math.radians(12))


@dataclass(frozen=True)
class Episode:
    """What a simulator saw and did under one version of the policy."""

    version: int
    simulator: int
    seen: NDArray[np.float32]
    """Shape (steps, 4)."""
    pushed: NDArray[np.int64]
    """Shape (steps,)."""


def play(weights: Weights, version: int, simulator: int, seed: int) -> Episode:
    """One episode. What is random about it depends on seed, version and simulator alone: it can be had again."""
    random = np.random.default_rng([seed, version, simulator])
    cart, seen, pushed = Cart(random), [], []
    for _ in range(LONGEST):
        seen.append(cart.state.astype(np.float32))
        hidden = np.tanh(seen[-1] @ weights["0.weight"].T + weights["0.bias"])
        logits = hidden @ weights["2.weight"].T + weights["2.bias"]
        pushed.append(int(random.random() < 1 / (1 + math.exp(float(logits[0] - logits[1])))))
        if not cart.push(bool(pushed[-1])):
            break
    return Episode(version, simulator, np.stack(seen), np.array(pushed))


class Simulators:
    """Processes that play, each with its own copy of the policy: new weights go in, episodes come out of one queue."""

    def __init__(self, numbers: range, seed: int) -> None:
        context = mp.get_context("fork")  # they use no torch and no GPU
        self.experience: Any = context.Queue(maxsize=4 * len(numbers))
        self.policies: list[Any] = [context.SimpleQueue() for _ in numbers]
        self.processes = [
            context.Process(target=_simulate, args=(number, seed, policy, self.experience), daemon=True)
            for number, policy in zip(numbers, self.policies, strict=True)
        ]
        for each in self.processes:
            each.start()

    def publish(self, weights: Weights, version: int) -> None:
        """Gives every simulator the policy of a version; each plays one episode with it."""
        for policy in self.policies:
            policy.put((version, weights))

    def collect(self, version: int, limit_s: float = 60.0) -> list[Episode]:
        """One episode of each simulator under that version. Raises TimeoutError, as where one has died."""
        found: dict[int, Episode] = {}
        while len(found) < len(self.processes):
            try:
                episode = self.experience.get(timeout=limit_s)
            except queue.Empty:
                dead = [each.name for each in self.processes if not each.is_alive()]
                raise TimeoutError(f"no experience for {limit_s:g} s, dead simulators: {dead}") from None
            if episode.version == version:
                found[episode.simulator] = episode
        return [found[each] for each in sorted(found)]

    def close(self) -> None:
        """Ends all simulators."""
        for policy in self.policies:
            policy.put(None)
        for each in self.processes:
            each.join(5)
            if each.is_alive():
                each.kill()


def _simulate(number: int, seed: int, policy: Any, experience: Any) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(each, signal.SIG_IGN)  # the trainer decides when to stop; the queue's end tells
    while (told := policy.get()) is not None:
        version, weights = told
        experience.put(play(weights, version, number, seed))
