"""Run an environment and report every way in which it breaks the rules, each with its fix."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.data.batch import ACTION_MASK
from ding_like.data.spaces import HybridSpace
from ding_like.envs.adapters import as_lane_env
from ding_like.envs.di_engine_style import DiEngineStyleEnv
from ding_like.envs.spaces import ActionLayout, ObsLayout, Space
from ding_like.envs.wrappers import load_wrapper_states, wrapper_states
from ding_like.errors import DingError, EnvError, SchemaError, describe_error
from ding_like.types import EnvAction, EnvLike, EnvObs, State

__all__ = ["Finding", "check_env"]

Level = Literal["fault", "warning", "note"]
_LEVELS: tuple[Level, ...] = ("fault", "warning", "note")
_Trace = list[tuple[str, Any]]  # what an env returned, with the place where it did

_RESET = "def reset(self, *, seed=None, options=None): super().reset(seed=seed); ...; return obs, {}"
_STEP = "return obs, float(reward), terminated, truncated, {}"
_OWN_NUMBERS = "super().reset(seed=seed) first, then draw from self.np_random"

# So many episodes of one length hint at a time limit: random play seldom ends them all alike.
_ALIKE = 3
_TRACE_STEPS = 100  # of two plays that are compared
_SPEED_STEPS, _SPEED_S = 2000, 0.5
# A process of its own answers after some 40 microseconds; from about twice that, it pays.
_SLOW_STEP_S = 1e-4
_SLOW_RESET_S = 0.01


@dataclass(frozen=True)
class Finding:
    """One thing about an env, a config or a run: a fault breaks a run, a warning may spoil it, a note is advice."""

    level: Level
    topic: str
    seen: str
    expected: str = ""
    fix: str = ""
    count: int = 1  # how often it was seen; `seen` is the first time


class UncheckableError(Exception):
    """End of a check: what was found, and is in the report, makes the rest meaningless."""


def check_env(env: EnvLike, *, num_steps: int = 1000, seed: int = 0) -> list[Finding]:
    """Play random episodes and return what was found, faults first; without a fault, one can train in the env.

    `env` is a gymnasium.Env, an env in DI-engine's style, or a function or class that makes one: then a second one is
    compared with the first. Besides `num_steps` steps, some hundreds are played for seeding and speed. Every env is
    closed, also a given one. A DingError of the function is raised: an unknown id, a missing package.
    """
    found: dict[tuple[str, ...], Finding] = {}
    is_made = hasattr(env, "step") and not isinstance(env, type)
    try:
        check = EnvCheck(found, env, seed, is_made=is_made)
        try:
            check.check_spaces()
            check.play(num_steps)
            if check.check_seeding() and not is_made:
                check.compare_with(EnvCheck(found, env, seed))
            check.check_speed()
            check.check_rendering()
        finally:
            check.close()
    except UncheckableError:
        pass  # the findings have the reason
    return [each for level in _LEVELS for each in found.values() if each.level == level]


class EnvCheck:
    """Checks of one env; what they find is added to `found`, and counted where it is found again."""

    def __init__(
        self, found: dict[tuple[str, ...], Finding], env: EnvLike, seed: int, *, is_made: bool = False
    ) -> None:
        """Take an env that `is_made`, or make one. Raises UncheckableError where there is none."""
        self._found = found
        self._seed = seed
        self._last: tuple[Any, Any] | None = None  # the last observation as the env gave it, and a copy
        try:
            made = env if is_made else env()
        except DingError:
            raise  # an unknown id, a missing package, a wrapper that does not fit
        except Exception as error:  # an env may raise anything; it goes into the findings
            fix = "fix the constructor, or give it the arguments that it needs"
            raise self._stop("constructor", f"it raised {describe_error(error)}", "an env", fix) from error
        try:
            self._env = as_lane_env(made)
        except EnvError as error:
            seen, _, own = str(error).partition(". Set ")
            fix = "class MyEnv(gymnasium.Env): ..., with observation_space and action_space set in the constructor"
            fix = f"set {own}" if own else fix
            raise self._stop("environment", seen, "a gymnasium.Env or a BaseEnv", fix) from error

    def _add(self, level: Level, topic: str, seen: str, expected: str = "", fix: str = "") -> None:
        """Add a finding; those that differ in `seen` only are one."""
        new = Finding(level, topic, seen, expected, fix)
        old = self._found.get(key := (level, topic, expected, fix))
        self._found[key] = new if old is None else replace(old, count=old.count + 1)

    def _stop(self, topic: str, seen: str, expected: str, fix: str) -> UncheckableError:
        """Add a fault after which nothing can be checked, and return the exception to raise."""
        self._add("fault", topic, seen, expected, fix)
        self._add("note", "check", "it ended at a fault; there may be more behind it", fix="fix that and check again")
        return UncheckableError(seen)

    def _form(self, error: SchemaError) -> UncheckableError:
        """Return the exception to raise for an answer that is not of the form that our own adapter of the env takes."""
        seen, _, fix = str(error).rpartition(": ")
        return self._stop("form", seen, "answers that fit the env's spaces", fix)

    # --- calls, as managers make them

    def _reset(self, seed: int | None) -> Any:
        """Reset the env and return the observation. Raises UncheckableError if it does not answer with (obs, info)."""
        try:
            answer: Any = self._env.reset(seed=seed, options=None)
        except SchemaError as error:
            raise self._form(error) from error
        except Exception as error:  # an env may raise anything; it goes into the report
            is_old = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
            expected = "that it takes seed and options" if is_old else "an episode that begins"
            fix = _RESET if is_old else "fix reset()"
            raise self._stop("reset", f"it raised {describe_error(error)}", expected, fix) from error
        if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict):
            return answer[0]
        seen = f"it returned {_describe(answer)}"
        raise self._stop("reset", seen, "a tuple (obs, info), info being a dict", _RESET)

    def _step(self, action: EnvAction) -> tuple[Any, Any, Any, Any]:
        """Step the env with a copy of `action` and return (obs, reward, terminated, truncated).

        Raises UncheckableError if it raises, or does not answer with five values.
        """
        given = copy.deepcopy(action)
        try:
            answer: Any = self._env.step(given)
        except SchemaError as error:
            raise self._form(error) from error
        except Exception as error:  # an env may raise anything; it goes into the report
            fix = "fix step(), or declare the actions that it takes: Discrete(n, start=1) counts from 1"
            seen = f"with action {action!r} it raised {describe_error(error)}"
            expected = f"that it takes every action of {self._env.action_space}"
            raise self._stop("step", seen, expected, fix) from error
        if not isinstance(answer, tuple) or len(answer) != 5:
            seen = f"it returned {f'{len(answer)} values' if isinstance(answer, tuple) else _describe(answer)}"
            raise self._stop("step", seen, "5 values: obs, reward, terminated, truncated, info", _STEP)
        if not isinstance(answer[4], dict):
            self._add("fault", "step", f"info is {_describe(answer[4])}", "a dict", _STEP)
        if not np.array_equal(np.asarray(given), np.asarray(action)):
            seen = f"it wrote into the action that it was given: {action} became {given}"
            expected = "actions left as they are: a resumed run plays them again"
            self._add("warning", "step", seen, expected, "action = np.clip(action, low, high), not out=action")
        return answer[:4]

    def _sampler(self, seed: int) -> Space:
        """Return a copy of the action space that samples from a seed."""
        actions = copy.deepcopy(self._env.action_space)
        actions.seed(seed)
        return actions

    def close(self) -> None:
        """Close the env twice."""
        calls: tuple[tuple[Level, str, str], ...] = (
            ("fault", "that an env can be closed", "fix close()"),
            ("warning", "that close() may be called again", "if self._window is None: return"),
        )
        for level, expected, fix in calls:
            try:
                self._env.close()
            except Exception as error:  # an env may raise anything; it goes into the report
                self._add(level, "close", f"it raised {describe_error(error)}", expected, fix)
                return

    # --- spaces

    def check_spaces(self) -> None:
        """Check that both spaces are there, make sense and fit in arrays, and that the bounds of a Box are taken."""
        layouts: dict[str, Callable[[Any], Any]] = {"observation space": ObsLayout, "action space": ActionLayout}
        for name, layout in layouts.items():
            attribute = name.replace(" ", "_")
            space = getattr(self._env, attribute, None)
            if not isinstance(space, gymnasium.Space):
                fix = f"self.{attribute} = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)"
                raise self._stop(name, f"{attribute} is {space!r}", "a space, set in the constructor", fix)
            for box in _boxes(space):
                if (box.low > box.high).any():
                    seen = f"{box} has a lower bound above the upper one"
                    self._add("fault", name, seen, "low < high", "swap the bounds")
                elif (box.low == box.high).any():
                    seen = f"{box} has a lower bound equal to the upper one"
                    self._add("warning", name, seen, "low < high", "leave out what never changes")
            try:
                layout(space)
            except EnvError as error:
                seen, _, fix = str(error).partition(". ")
                self._add("fault", name, seen, "a space that the env managers can hold in arrays", fix)
        shape = tuple(self._env.observation_space.shape or ())
        if len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] > 4:
            seen, fix = f"images of shape {shape}, channels last", "env.wrappers=[dict(type='obs_transpose')]"
            self._add("warning", "observation space", seen, "channels first, as models take", fix)
        self._check_actions()

    def _check_actions(self) -> None:
        space, topic = self._env.action_space, "action space"
        if isinstance(space, spaces.Discrete) and space.start != 0:
            seen = f"{space} counts from {space.start}; policies see 0 to {space.n - 1}"
            self._add("note", topic, seen, fix="nothing to do: env managers add the start")
        if not isinstance(space, spaces.Box):
            return
        if not space.is_bounded():
            fix = "declare Box(-1.0, 1.0, ...) and stretch the action in step()"
            self._add("warning", topic, f"{space} has no bounds", "a finite range to explore and to scale to", fix)
            return
        ends = np.stack([space.low, space.high])
        if isinstance(space, HybridSpace):
            uses = [np.flatnonzero(own).tolist() for own in space.parameter_mask]
            seen = f"choices with parameters: policies see {space}"
            fix = "" if len(set(map(str, uses))) > 1 else f"self.parameter_mask = an array {space.parameter_mask.shape}"
            self._add("note", topic, seen, "which parameters each choice uses, where they differ" if fix else "", fix)
            ends = np.repeat(ends, space.num_choices, axis=0)
            ends[:, 0] = np.tile(np.arange(space.num_choices), 2)
        elif not (np.all(space.low == -1) and np.all(space.high == 1)):
            fix = "env.wrappers=[dict(type='rescale_action')], for policies whose actions lie from -1 to 1"
            self._add("note", topic, f"{space} is another range than -1 to 1", fix=fix)
        for action in ends:
            self._reset(self._seed)
            self._step(action.copy())

    # --- random episodes

    def play(self, num_steps: int) -> None:
        """Play random episodes of `num_steps` steps in all and check every answer."""
        actions = self._sampler(self._seed)
        ends: list[tuple[int, bool, bool]] = []  # length, terminated, truncated
        obs = self._reset(self._seed)
        self._check_obs(obs, "reset")
        length = 0
        for _ in range(num_steps):
            obs, reward, terminated, truncated = self._step(_draw(actions, obs))
            length += 1
            self._check_obs(obs, "step")
            self._check_reward(reward)
            for name, flag in (("terminated", terminated), ("truncated", truncated)):
                if not isinstance(flag, (bool, np.bool_)):
                    seen, fix = f"{name} is {_describe(flag)}", f"return bool({name})"
                    self._add("fault", "episode end", seen, "True or False", fix)
            if terminated or truncated:
                ends.append((length, bool(terminated), bool(truncated)))
                length = 0
                obs = self._reset(None)
                self._check_obs(obs, "reset")
        self._check_ends(ends, num_steps)

    def _check_obs(self, obs: EnvObs, method: str) -> None:
        for seen, expected, fix in _mismatches(self._env.observation_space, obs):
            self._add("fault", "observation", f"in {method}, {seen}", expected, fix)
        if self._last is not None and not _equal(*self._last):
            seen = f"{method} wrote over the observation that was returned before"
            expected = "new memory for every observation; managers copy theirs, other code may keep it"
            self._add("warning", "observation", seen, expected, "return self._obs.copy()")
        self._last = obs, copy.deepcopy(obs)

    def _check_reward(self, reward: object) -> None:
        if not isinstance(reward, (int, float, np.integer, np.floating, np.bool_)):
            expected, fix = "one number", "return float(reward)"
        elif not np.isfinite(reward):
            expected, fix = "a finite number: a run drops other episodes", "look for a division by 0 or a log of 0"
        else:
            return
        self._add("fault", "reward", f"it is {_describe(reward)}", expected, fix)

    def _check_ends(self, ends: Sequence[tuple[int, bool, bool]], num_steps: int) -> None:
        topic, lengths = "episode end", [length for length, _, _ in ends]
        if any(isinstance(env, DiEngineStyleEnv) for env in (self._env, getattr(self._env, "env", None))):  # of a team
            seen = "this env is in DI-engine's style, and its `done` is read as terminated"
            fix = "where a time limit ends an episode: info['TimeLimit.truncated'] = True"
            self._add("note", topic, seen, fix=fix)
        if not ends:
            limit = None if self._env.spec is None else self._env.spec.max_episode_steps
            seen = f"no episode ended in {num_steps} random steps"
            if limit is not None and limit >= num_steps:
                self._add("note", topic, f"{seen}; the time limit is {limit}", fix=f"--steps {2 * limit}")
                return
            expected = "episodes that end: evaluations play whole ones"
            fix = "env.wrappers=[dict(type='time_limit', max_episode_steps=500)]"
            self._add("warning", topic, f"{seen}, and no time limit is known", expected, fix)
        elif all(terminated and truncated for _, terminated, truncated in ends):
            seen = f"terminated and truncated were both True at the end of all {len(ends)} episodes"
            expected = "terminated where the task is over, truncated where only the time is up"
            fix = "terminated = reached or failed; truncated = self._t >= limit"
            self._add("fault" if len(ends) > 1 else "warning", topic, seen, expected, fix)
        elif len(ends) >= _ALIKE and len(set(lengths)) == 1 < lengths[0] and not any(cut for _, _, cut in ends):
            seen = f"all {len(ends)} episodes were terminated after {lengths[0]} steps, which looks like a time limit"
            expected = "truncated=True where only the time is up: the last state then keeps its value"
            self._add("warning", topic, seen, expected, "return obs, reward, False, self._t >= limit, info")

    # --- seeds

    def check_seeding(self) -> bool:
        """Play from the same seed twice, and once from another in between; return whether the env repeats itself."""
        known, seed = wrapper_states(self._env), self._seed
        first, other, again = (self._trace(each, known) for each in (seed, seed + 1, seed))
        at = _first_difference(first, again)
        if at is not None:
            fix = f"it draws from the global random numbers: {_OWN_NUMBERS}"
            if not self._repeats_with_global_seed():
                fix = (
                    f"{_OWN_NUMBERS}; let reset() set all state again, or give what is to last state_dict() and "
                    "load_state_dict(state)"
                )
            seen = f"the same seed and actions give another episode, first {at}"
            self._add("fault", "seeding", seen, "that an episode depends on its seed and actions alone", fix)
        elif _first_difference(first, other) is None:
            seen = f"seeds {seed} and {seed + 1} give the same {_TRACE_STEPS} steps"
            expected = "other episodes from other seeds, unless the env is meant to know no chance"
            self._add("warning", "seeding", seen, expected, _OWN_NUMBERS)
        return at is None

    def compare_with(self, twin: EnvCheck) -> None:
        """Play the same with a second env of the same kind, and close that."""
        try:
            known = wrapper_states(twin._env)
            at = _first_difference(self._trace(self._seed, known), twin._trace(self._seed, known))
            if at is not None:
                seen = f"a second env gives another episode from the same seed and actions, first {at}"
                expected = "equal envs: a resumed run and one that was recreated after a crash rely on it"
                fix = "keep state in self, not in the class or the module; let reset() set all of it again"
                self._add("fault", "seeding", seen, expected, fix)
        finally:
            twin.close()

    def _trace(self, seed: int, known: Sequence[State]) -> _Trace:
        """Play from a seed and from saved wrapper states: running statistics would differ from play to play."""
        load_wrapper_states(self._env, known)
        actions = self._sampler(0)
        obs = self._reset(seed)
        trace: _Trace = [("at the first observation", copy.deepcopy(obs))]
        for count in range(1, _TRACE_STEPS + 1):
            answer = self._step(_draw(actions, obs))
            obs = answer[0]
            trace.append((f"at step {count}", copy.deepcopy(answer)))
            if answer[2] or answer[3]:
                obs = self._reset(None)
                trace.append((f"at the reset after step {count}", copy.deepcopy(obs)))
        return trace

    def _repeats_with_global_seed(self) -> bool:
        """Return whether the env repeats itself once Python's and numpy's global generators are seeded too."""
        states = random.getstate(), np.random.get_state()
        known, traces = wrapper_states(self._env), []
        try:
            for _ in range(2):
                random.seed(self._seed)
                np.random.seed(self._seed)
                traces.append(self._trace(self._seed, known))
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
        return _first_difference(*traces) is None

    # --- what a run does besides playing

    def check_speed(self) -> None:
        """Measure steps and seeded resets, half a second at most, and report which manager fits."""
        actions = self._sampler(self._seed)
        obs = self._reset(self._seed)
        steps_s: list[float] = []
        resets_s: list[float] = []
        while len(steps_s) < _SPEED_STEPS and sum(steps_s) + sum(resets_s) < _SPEED_S:
            action = _draw(actions, obs)
            started = time.perf_counter()
            obs, _, terminated, truncated, _ = self._env.step(action)
            steps_s.append(time.perf_counter() - started)
            if terminated or truncated:
                started = time.perf_counter()
                obs, _ = self._env.reset(seed=self._seed + len(resets_s))
                resets_s.append(time.perf_counter() - started)
        mean_s = (sum(steps_s) + sum(resets_s)) / len(steps_s)
        if mean_s >= _SLOW_STEP_S:
            fix = "env.manager.type='subprocess': several envs step at once, on as many cores"
        elif self._env.spec is not None and self._env.spec.vector_entry_point is not None:
            fix = "env.manager.type='base', or 'gym_vector' for its vectorised version (without wrappers)"
        else:
            fix = "env.manager.type='base': a process of its own would answer later than it steps here"
        seen = f"{1 / mean_s:,.0f} steps a second ({1e6 * mean_s:,.0f} microseconds each), resets included"
        self._add("note", "speed", seen, fix=fix)
        if resets_s and np.mean(resets_s) > _SLOW_RESET_S:
            seen = f"a seeded reset takes {1e3 * np.mean(resets_s):.0f} ms"
            self._add("note", "speed", seen, fix="env.manager.reseed_after=5000 makes them rarer")

    def check_rendering(self) -> None:
        """Check the picture of an env that was made to draw; of any other, report whether it can."""
        if self._env.render_mode != "rgb_array":
            modes = list((self._env.metadata or {}).get("render_modes") or [])
            if "rgb_array" not in modes:
                seen = f"render_modes are {modes}, without 'rgb_array': there will be no video of the agent"
                fix = "metadata = {'render_modes': ['rgb_array'], 'render_fps': 30}; render() -> uint8 [H, W, 3]"
                self._add("note", "rendering", seen, fix=fix)
            return
        expected, fix = "an array uint8 [H, W, 3]", "return np.asarray(picture, np.uint8)"
        try:
            frame: Any = self._env.render()
        except Exception as error:  # render() may raise anything: errors of pygame, OpenGL or a driver
            self._add("fault", "rendering", f"render() raised {describe_error(error)}", expected, "fix render()")
            return
        if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            self._add("fault", "rendering", f"render() gave {_describe(frame)}", expected, fix)


def _draw(actions: Space, obs: EnvObs) -> EnvAction:
    """Return a random action; a legal one where the observation has a mask."""
    mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
    legal = None if mask is None else np.asarray(mask, np.int8)
    if legal is not None and isinstance(actions, spaces.Discrete) and legal.shape == (actions.n,):
        return actions.sample(legal)
    if legal is not None and isinstance(actions, spaces.MultiDiscrete) and legal.ndim == 2:
        return actions.sample(tuple(legal))
    return actions.sample()


def _boxes(space: Any) -> Iterator[spaces.Box]:
    if isinstance(space, spaces.Box):
        yield space
    for inner in space.spaces.values() if isinstance(space, spaces.Dict) else ():
        yield from _boxes(inner)


def _mismatches(space: Space, obs: EnvObs, name: str = "obs") -> Iterator[tuple[str, str, str]]:
    """Yield (what was seen, what is expected, how to fix it) for whatever keeps an observation out of its space."""
    if isinstance(space, spaces.Dict):
        if not isinstance(obs, dict):
            expected, fix = f"a dict with {list(space.spaces)}", f"return dict(...) as {name}"
            yield f"{name} is {_describe(obs)}", expected, fix
            return
        if obs.keys() != space.spaces.keys():
            expected = f"those of its space: {list(space.spaces)}"
            yield f"{name} has the keys {list(obs)}", expected, "give both the same keys"
        for key, inner in space.spaces.items():
            if key in obs:
                yield from _mismatches(inner, obs[key], f"{name}[{key!r}]")
    elif isinstance(space, spaces.Box):
        yield from _box_mismatches(space, obs, name)
    elif isinstance(space, spaces.Discrete) and (not isinstance(obs, (int, np.integer)) or isinstance(obs, bool)):
        yield f"{name} is {_describe(obs)}", "an int", f"return int({name})"
    elif isinstance(space, spaces.Discrete) and not space.contains(obs):
        expected = f"an int from {space.start} to {space.start + space.n - 1}"
        yield f"{name} is {obs}, outside {space}", expected, "declare a larger Discrete(n), or one with another start"
    elif not space.contains(obs):
        expected, fix = "what observation_space.sample() gives", f"return {name} in that form"
        yield f"{name} is {_describe(obs)}, which is not in {space}", expected, fix


def _box_mismatches(space: spaces.Box, given: Any, name: str) -> Iterator[tuple[str, str, str]]:
    dtype = np.dtype(space.dtype)
    as_array = f"return np.array({name}, dtype=np.{dtype.name})"
    if not isinstance(given, (np.ndarray, np.generic)):
        yield f"{name} is {_describe(given)}", f"a numpy array {dtype.name} {space.shape}", as_array
        return
    obs = np.asarray(given)
    if obs.shape != space.shape:
        fix = f"return another shape, or declare Box(..., shape={obs.shape})"
        yield f"{name} has shape {obs.shape}", f"{space.shape}, the shape of its space", fix
        return
    if obs.dtype != dtype:
        yield f"{name} has dtype {obs.dtype}", f"{dtype.name}, the dtype of its space", as_array
    if obs.dtype.kind not in "fiub":
        return
    is_finite = np.isfinite(obs)
    if not is_finite.all():
        index, value = _first(obs, ~is_finite)
        fix = "look for a division by 0 or a state that blows up, and end the episode before"
        yield f"{name}{index} is {value}", "finite numbers: a run drops episodes with others", fix
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    outside = is_finite & ((obs < low) | (obs > high))
    if outside.any():
        index, value = _first(obs, outside)
        bounds = f"a number from {_first(low, outside)[1]:g} to {_first(high, outside)[1]:g}, the bounds of its space"
        fix = f"widen the Box, or clip: {name} = np.clip({name}, space.low, space.high)"
        yield f"{name}{index} is {value:g}", bounds, fix


def _first(values: Any, mask: Any) -> tuple[str, Any]:
    """Return (index as text, value) where `mask` is first true."""
    at = tuple(int(index) for index in np.argwhere(mask)[0])
    return f"[{', '.join(map(str, at))}]" if at else "", values[at]


def _describe(value: object) -> str:
    """Return a value's type, and the value itself if it is short."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {value.shape}"
    return f"{type(value).__name__} {value!r}"[:80]


def _equal(first: EnvLike, second: Any) -> bool:
    """Return whether two answers of an env are the same, a NaN being equal to another."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_equal(first[key], second[key]) for key in first)
    if isinstance(first, (tuple, list)) and isinstance(second, (tuple, list)):
        return len(first) == len(second) and all(map(_equal, first, second))
    mine, theirs = np.asarray(first), np.asarray(second)
    return mine.shape == theirs.shape and bool(np.all((mine == theirs) | ((mine != mine) & (theirs != theirs))))


def _first_difference(first: _Trace, second: _Trace) -> str | None:
    for (at, mine), (same, theirs) in zip(first, second, strict=False):
        if at != same or not _equal(mine, theirs):
            return at
    return None
