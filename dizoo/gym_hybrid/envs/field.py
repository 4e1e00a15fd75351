"""Stop inside a disc on a square field, by choices that have parameters.

After gym-hybrid (thomashirtz/gym-hybrid, README), and HardMove after Li et al. 2022, "HyAR: addressing
discrete-continuous action reinforcement learning via hybrid action representation", appendix; the constants were not
held against the originals, so returns need not be comparable with those published for them. The
observation has the time in it: an episode that runs out of steps has failed, which is an end of the task and no cut.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.types import Array

ACCELERATE, TURN, BRAKE = range(3)
_RED, _GREEN, _WHITE, _BLACK = (200, 30, 30), (60, 180, 75), (255, 255, 255), (0, 0, 0)
_PIXELS = 200  # sides of a picture


class FieldEnv(gymnasium.Env[Array, dict[str, Any]]):
    """Field, target and rewards; a sub-class moves the agent.

    The field is [-1, 1] x [-1, 1], the target a disc of radius 0.1 in it. The reward of a step is by how much the
    distance to the target's centre has shrunk, less `penalty`; +1 for reaching the goal, -1 for leaving the field or
    for `max_step` steps without reaching it. All three end the episode.

    An action is {"action_type": the choice, "action_args": the parameters [P]}, of which a choice uses those that
    `parameter_mask` [K, P] says. With `act_scale` parameters lie in [-1, 1], else in their own units.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    target_radius = 0.1
    position: Array  # [2]
    target: Array  # [2]

    def __init__(
        self,
        *,
        parameter_mask: Array,
        low: list[float],
        high: list[float],
        obs_size: int,
        max_step: int,
        penalty: float,
        act_scale: bool,
        render_mode: str | None,
    ) -> None:
        self.parameter_mask = parameter_mask
        self._low: Array = np.array(low, np.float32)
        self._high: Array = np.array(high, np.float32)
        args = spaces.Box(-1.0, 1.0, (len(low),)) if act_scale else spaces.Box(self._low, self._high)
        self.action_space = spaces.Dict(action_type=spaces.Discrete(len(parameter_mask)), action_args=args)
        self.observation_space = spaces.Box(-np.inf, np.inf, (obs_size,), np.float32)
        self.render_mode = render_mode
        self._act_scale = act_scale
        self._max_step = max_step
        self._penalty = penalty

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Put agent and target anywhere on the field, the agent at rest."""
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1.0, 1.0, 2)
        inside = 1.0 - self.target_radius
        self.target = self.np_random.uniform(-inside, inside, 2)
        self._begin()
        self._num_steps = 0
        self._distance = self._distance_now()
        return self._obs(), {}

    def step(self, action: dict[str, Any]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        args = np.asarray(action["action_args"], np.float64).reshape(-1)
        if self._act_scale:
            args = self._low + (args + 1.0) / 2.0 * (self._high - self._low)
        self._move(int(action["action_type"]), args)
        self._num_steps += 1
        before, self._distance = self._distance, self._distance_now()
        reward = before - self._distance - self._penalty
        has_reached = self._distance < self.target_radius and self._is_at_rest()
        has_failed = bool((np.abs(self.position) > 1.0).any()) or self._num_steps >= self._max_step
        if has_reached:
            reward += 1.0
        elif has_failed:
            reward -= 1.0
        return self._obs(), float(reward), has_reached or has_failed, False, {}

    def render(self) -> Array:
        """Return a picture uint8 [H, W, 3]: the target green, the agent red with a line the way it looks."""
        rows, columns = np.mgrid[1 : -1 : _PIXELS * 1j, -1 : 1 : _PIXELS * 1j]
        picture = np.full((_PIXELS, _PIXELS, 3), _WHITE, np.uint8)

        def paint(centre: Array, radius: float, colour: tuple[int, int, int]) -> None:
            picture[(columns - centre[0]) ** 2 + (rows - centre[1]) ** 2 < radius**2] = colour

        paint(self.target, self.target_radius, _GREEN)
        paint(self.position, 0.04, _RED)
        for reach in np.linspace(0.0, 0.1, 20):
            paint(self.position + reach * self._heading(), 0.008, _BLACK)
        return picture

    def _distance_now(self) -> float:
        return math.dist(self.position, self.target)

    @property
    def _place(self) -> list[float]:
        """Return what all observations end with: the target, and how far it and the end are."""
        is_inside = float(self._distance < self.target_radius)
        return [*self.target, self._distance, is_inside, self._num_steps / self._max_step]

    def _obs(self) -> Array:
        return np.array([*self.position, *self._own_state(), *self._place], np.float32)

    # ---- what a sub-class says

    def _begin(self) -> None:
        """Set up the agent's own state."""

    def _own_state(self) -> list[float]:
        """Return what is observed of the agent beside its position."""
        return []

    def _heading(self) -> Array:
        """Return the unit vector [2] of where the agent looks."""
        return np.zeros(2)

    def _is_at_rest(self) -> bool:
        return True

    def _move(self, choice: int, args: Array) -> None:
        raise NotImplementedError(f"{type(self).__name__} must say how the agent moves: _move().")


class MovingEnv(FieldEnv):
    """Drive: accelerate by 0 to 1, turn by -1 to 1, or brake, which has no parameter; always the way it looks.

    Observed are x, y, speed, cosine and sine of the direction, the target's x and y, the distance to it, 1 inside it,
    and the share of steps taken. The goal is to be at rest in the target.
    """

    def __init__(
        self,
        *,
        max_turn: float = math.pi / 2,
        max_acceleration: float = 0.5,
        delta_t: float = 0.005,
        break_value: float = 0.1,
        max_step: int = 200,
        penalty: float = 0.001,
        act_scale: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            parameter_mask=np.array([[1, 0], [0, 1], [0, 0]], bool),
            low=[0.0, -1.0],
            high=[1.0, 1.0],
            obs_size=10,
            max_step=max_step,
            penalty=penalty,
            act_scale=act_scale,
            render_mode=render_mode,
        )
        self._max_turn = max_turn
        self._max_acceleration = max_acceleration
        self._delta_t = delta_t
        self._break_value = break_value

    def _begin(self) -> None:
        self.direction = float(self.np_random.uniform(0.0, 2.0 * math.pi))
        self.velocity = np.zeros(2)
        self.speed = 0.0

    def _own_state(self) -> list[float]:
        return [self.speed, math.cos(self.direction), math.sin(self.direction)]

    def _heading(self) -> Array:
        return np.array([math.cos(self.direction), math.sin(self.direction)])

    def _is_at_rest(self) -> bool:
        return self.speed == 0.0

    def _move(self, choice: int, args: Array) -> None:
        if choice == ACCELERATE:
            self._accelerate(args[0] * self._max_acceleration)
        elif choice == TURN:
            self.direction += args[1] * self._max_turn
        else:
            self._brake()
        self.position = self.position + self._delta_t * self._velocity_now()

    def _accelerate(self, by: float) -> None:
        self.speed += by

    def _brake(self) -> None:
        self.speed = 0.0 if self.speed < self._break_value else self.speed - self._break_value

    def _velocity_now(self) -> Array:
        return self.speed * self._heading()


class SlidingEnv(MovingEnv):
    """Drive on ice: who turns goes on the old way, and accelerating adds to that; otherwise as `MovingEnv`."""

    def _accelerate(self, by: float) -> None:
        self._set_velocity(self.velocity + by * self._heading())

    def _brake(self) -> None:
        kept = 0.0 if self.speed < self._break_value else 1.0 - self._break_value / self.speed
        self._set_velocity(kept * self.velocity)

    def _set_velocity(self, velocity: Array) -> None:
        self.velocity = velocity
        self.speed = math.hypot(*velocity)

    def _velocity_now(self) -> Array:
        return self.velocity


class HardMoveEnv(FieldEnv):
    """Move by `num_actuators` actuators in equal angles: the choice is which of them are on, one of 2^n.

    Each that is on moves the agent by its parameter, -1 to 1, times 0.1 along its own direction. Observed are x, y, the
    target's x and y, the distance to it, 1 inside it, and the share of steps taken. The goal is to reach the target.
    """

    def __init__(
        self,
        *,
        num_actuators: int = 4,
        max_move: float = 0.1,
        max_step: int = 25,
        penalty: float = 0.001,
        act_scale: bool = False,
        render_mode: str | None = None,
    ) -> None:
        choices = np.arange(2**num_actuators)
        super().__init__(
            parameter_mask=(choices[:, None] >> np.arange(num_actuators)) % 2 == 1,
            low=[-1.0] * num_actuators,
            high=[1.0] * num_actuators,
            obs_size=7,
            max_step=max_step,
            penalty=penalty,
            act_scale=act_scale,
            render_mode=render_mode,
        )
        angles = 2.0 * math.pi * np.arange(num_actuators) / num_actuators
        self._reach = max_move * np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def _move(self, choice: int, args: Array) -> None:
        self.position = self.position + np.where(self.parameter_mask[choice], args, 0.0) @ self._reach
