"""Check the spaces that an env declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.data.hybrid_space import HybridSpace
from ding_like.envs.checks import calls
from ding_like.envs.checks.report import Report
from ding_like.envs.spaces import ActionLayout, ObsLayout
from ding_like.errors import EnvError
from ding_like.types import Array

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env

_OBS, _ACTION = "observation space", "action space"


def check_spaces(report: Report, env: AnyEnv, seed: int) -> None:
    """Check that both spaces are there, make sense and fit in arrays, and that the bounds of a Box are taken."""
    for name in (_OBS, _ACTION):
        attribute = name.replace(" ", "_")
        space = getattr(env, attribute, None)
        if not isinstance(space, gymnasium.Space):
            fix = f"self.{attribute} = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)"
            raise report.stop(name, f"{attribute} is {space!r}", "a space, set in the constructor", fix)
        for box in _boxes(space):
            _check_box(report, name, box)
        _check_layout(report, name, space)
    _check_image(report, env.observation_space)
    _check_actions(report, env, seed)


def _boxes(space: Any) -> Iterator[spaces.Box]:
    if isinstance(space, spaces.Box):
        yield space
    for inner in space.spaces.values() if isinstance(space, spaces.Dict) else ():
        yield from _boxes(inner)


def _check_box(report: Report, name: str, box: spaces.Box) -> None:
    if (box.low > box.high).any():
        report.add("fault", name, f"{box} has a lower bound above the upper one", "low < high", "swap the bounds")
    elif (box.low == box.high).any():
        fix = "leave out what never changes"
        report.add("warning", name, f"{box} has a lower bound equal to the upper one", "low < high", fix)


def _check_layout(report: Report, name: str, space: Any) -> None:
    try:
        ObsLayout(space) if name == _OBS else ActionLayout(space)
    except EnvError as error:
        seen, _, fix = str(error).partition(". ")
        report.add("fault", name, seen, "a space that the env managers can hold in arrays", fix)


def _check_image(report: Report, space: Any) -> None:
    shape: tuple[int, ...] = tuple(space.shape or ())
    if len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] > 4:
        fix = "env.wrappers=[dict(type='obs_transpose')]"
        report.add("warning", _OBS, f"images of shape {shape}, channels last", "channels first, as models take", fix)


def _check_actions(report: Report, env: AnyEnv, seed: int) -> None:
    space = env.action_space
    if isinstance(space, spaces.Discrete) and space.start != 0:
        fix = "nothing to do: env managers add the start"
        report.add("note", _ACTION, f"{space} counts from {space.start}; policies see 0 to {space.n - 1}", fix=fix)
    if not isinstance(space, spaces.Box):
        return
    if not space.is_bounded():
        fix = "declare Box(-1.0, 1.0, ...) and stretch the action in step()"
        report.add("warning", _ACTION, f"{space} has no bounds", "a finite range to explore and to scale to", fix)
        return
    if isinstance(space, HybridSpace):
        uses = [np.flatnonzero(own).tolist() for own in space.parameter_mask]
        seen = f"choices with parameters: policies see {space}"
        fix = "" if len(set(map(str, uses))) > 1 else f"self.parameter_mask = an array {space.parameter_mask.shape}"
        report.add("note", _ACTION, seen, "which parameters each choice uses, where they differ" if fix else "", fix)
    elif not (np.all(space.low == -1) and np.all(space.high == 1)):
        fix = "env.wrappers=[dict(type='rescale_action')], for policies whose actions lie from -1 to 1"
        report.add("note", _ACTION, f"{space} is another range than -1 to 1", fix=fix)
    for action in _ends(space):
        calls.reset(report, env, seed)
        calls.step(report, env, action)


def _ends(space: spaces.Box) -> list[Array]:
    """Return the lowest and the highest action, of hybrid actions for each choice."""
    if not isinstance(space, HybridSpace):
        return [space.low.copy(), space.high.copy()]
    ends = np.repeat(np.stack([space.low, space.high]), space.num_choices, axis=0)
    ends[:, 0] = np.tile(np.arange(space.num_choices), 2)
    return list(ends)
