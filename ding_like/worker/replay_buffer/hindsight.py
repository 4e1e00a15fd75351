"""Hindsight experience replay: learning from achieved goals in place of desired ones (Andrychowicz et al. 2017).

Rows of a lane lie in a ring of its own, so that the rows after one in its episode are its neighbours. A sample is of
rows drawn evenly, a share k / (k + 1) of which get another goal: one that the same episode achieved. Goals are drawn
with every sample, and nothing is stored twice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.random import Generator

from ding_like.data.batch import EpisodeBatch, Schema, TransitionBatch
from ding_like.data.rows import as_batch
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, Config, EnvObs, State
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.buffer import Parts, StreamStore
from ding_like.worker.replay_buffer.presets import PresetBuffer, raise_fault, refuse_frame_stack
from ding_like.worker.replay_buffer.sampler import Sampler, draw_uniform
from ding_like.worker.replay_buffer.storage import STREAM, Pushed, Rows, StreamStorage, arrays_of

STRATEGIES = ("future", "final", "episode")
_NO_GOAL = -1
_NUM_STEPS = 32  # of an env that are compared with its compute_reward
_SEED = 0  # of those steps: a run's own random numbers are not touched

# Any: an env of any kind, gymnasium's or one with its interface.
Env = Any


class GoalPlace(NamedTuple):
    """Column, and its part, that holds a goal, in rows whose observations are dicts or flat vectors."""

    key: str | None  # of a dict observation; None: the observation is one vector
    part: slice = slice(None)

    def column(self, prefix: str) -> str:
        """Return the column's name for `prefix` "obs" or "next_obs"."""
        return prefix if self.key is None else f"{prefix}/{self.key}"

    def of(self, columns: Mapping[str, Array], prefix: str) -> Array:
        """Return the goals [B, G] of rows, a view."""
        return columns[self.column(prefix)][:, self.part]

    def of_obs(self, obs: EnvObs) -> Array:
        """Return the goal [G] of one observation of the env."""
        return np.asarray(obs if self.key is None else obs[self.key])[self.part]


class GoalRules:
    """An env's `compute_reward` and, if it has one, `compute_terminated`, both of goals [B, G].

    The env is made for this alone; `close` closes it. Its observations are dicts with `achieved_goal` and
    `desired_goal` (gymnasium-robotics), or vectors whose first `goal_size` numbers are what was achieved and whose last
    ones are what is desired; without `goal_size` it is half of them (DI-engine's form).

    Raises ConfigError for an env that has no such function, whose rewards or ends differ from those of its functions,
    or whose goals a wrapper changes.
    """

    def __init__(self, make_env: Callable[[], Env]) -> None:
        self._env = make_env()
        try:
            owner = _owner_of(self._env, "compute_reward")
            if owner is None:
                raise ConfigError(
                    f"replay_buffer.type 'her' needs an env with compute_reward(achieved_goal, desired_goal, info), "
                    f"which {self._env} has not. Give it one (docs/algorithms/her.md), or set the type to 'naive'."
                )
            self._compute_reward: Callable[..., Any] = owner.compute_reward
            ending = _owner_of(self._env, "compute_terminated")
            self._compute_terminated = None if ending is None else ending.compute_terminated
            self.achieved, self.desired = _places(self._env)
            self._check_goals_of(owner)
            self._check()
        except BaseException:
            self._env.close()
            raise

    def reward(self, achieved: Array, desired: Array) -> Array:
        """Return the reward [B] of achieving `achieved` [B, G] where `desired` [B, G] was the goal."""
        return np.asarray(self._compute_reward(achieved, desired, {}))

    def terminated(self, achieved: Array, desired: Array) -> Array | None:
        """Return whether that ends an episode, bool [B]; None where the env has no `compute_terminated`."""
        if self._compute_terminated is None:
            return None
        ends = np.asarray(self._compute_terminated(achieved, desired, {}), bool)
        return np.broadcast_to(ends, (len(achieved),))

    def relabel(self, columns: MutableMapping[str, Array], goals: Array) -> None:
        """Give the first G of rows [B, ...] the goals [G, ...], with the rewards and the ends that follow; in place.

        A row that ended for another reason than its goal stays ended, and `truncated` stays as it is.
        """
        rows = slice(len(goals))
        achieved = self.achieved.of(columns, "next_obs")[rows]
        terminated = columns["terminated"]
        old_ends = self.terminated(achieved, self.desired.of(columns, "next_obs")[rows])
        new_ends = self.terminated(achieved, goals)
        if old_ends is not None and new_ends is not None:
            terminated[rows] = (terminated[rows] & ~old_ends) | new_ends
        columns["reward"][rows] = self.reward(achieved, goals)
        for prefix in ("obs", "next_obs"):
            self.desired.of(columns, prefix)[rows] = goals

    def close(self) -> None:
        """Close the env; may be called again."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _check(self) -> None:
        """Raise ConfigError unless the env's own steps have the rewards and ends of its functions, all at once."""
        achieved, desired, rewards, ended = self._played()
        # Goals that were reached, too: few are by chance.
        both, wanted = np.concatenate([achieved, achieved]), np.concatenate([desired, achieved])
        self._check_is_vectorised("compute_reward", self._compute_reward, both, wanted)
        if self._compute_terminated is not None:
            self._check_is_vectorised("compute_terminated", self._compute_terminated, both, wanted)
        computed = self.reward(achieved, desired)
        wrong = np.flatnonzero(~np.isclose(computed, rewards, rtol=1e-4, atol=1e-5))
        if len(wrong):
            raise ConfigError(
                f"replay_buffer.type 'her' computes rewards by the env's compute_reward, but {len(wrong)} of "
                f"{len(rewards)} steps of {self._env} were rewarded otherwise: the first with {rewards[wrong[0]]:g}, "
                f"where compute_reward gives {computed[wrong[0]]:g}. Take out the env.wrappers that change rewards or "
                "goals, or mend compute_reward."
            )
        computed_ends = self.terminated(achieved, desired)
        if computed_ends is None and ended.any():
            raise ConfigError(
                f"replay_buffer.type 'her' gives rows other goals, but {self._env} terminates episodes and does not "
                "say by which goals: give it compute_terminated(achieved_goal, desired_goal, info) "
                "(docs/algorithms/her.md)."
            )
        if computed_ends is not None and (computed_ends & ~ended).any():
            raise ConfigError(
                f"{int((computed_ends & ~ended).sum())} of {len(ended)} steps of {self._env} went on where its "
                "compute_terminated says that they end: make both agree."
            )

    def _check_goals_of(self, owner: Env) -> None:
        """Raise ConfigError where wrappers around the env that has `compute_reward` change goals.

        An env whose goals its random seed does not decide is not looked at.
        """
        if owner is self._env:
            return
        try:
            places = _places(owner)
        except ConfigError:
            return  # its goals have another form, which a wrapper brings into this one
        first, second = _goals(owner, places), _goals(owner, places)
        if np.array_equal(first, second) and not np.allclose(first, _goals(self._env, (self.achieved, self.desired))):
            raise ConfigError(
                f"replay_buffer.type 'her' computes rewards by the goals of {owner}, but the env.wrappers or keys "
                f"such as norm_obs around it change goals: {self._env}. Take them out, or let them leave goals alone."
            )

    def _check_is_vectorised(self, name: str, compute: Callable[..., Any], achieved: Array, desired: Array) -> None:
        """Raise ConfigError unless a function gives for all pairs [N, G] at once what it gives for each."""
        try:
            one_by_one = np.array([float(compute(*pair, {})) for pair in zip(achieved, desired, strict=True)])
        except KeyError as error:
            raise ConfigError(
                f"{name} of {self._env} reads info[{error}], but hindsight knows of no info under another goal: let it "
                "read the goals alone."
            ) from error
        try:
            together = np.asarray(compute(achieved, desired, {}), np.float64)
            # Of envs whose episodes never end it may be one number for all.
            fits = together.shape in ((len(achieved),), ()) and np.allclose(together, one_by_one, atol=1e-5)
        except (ValueError, TypeError, IndexError):
            fits = False
        if not fits or (name == "compute_reward" and together.shape == ()):
            raise ConfigError(
                f"{name} of {self._env} must take goals [B, {achieved.shape[1]}] and return [B], the same as for each "
                "pair alone, as gymnasium-robotics has it: use axis=-1 in norms and comparisons."
            )

    def _played(self) -> tuple[Array, Array, Array, Array]:
        """Return what random actions achieved [N, G], what was desired [N, G], rewards [N] and `terminated` [N]."""
        env = self._env
        actions = copy.deepcopy(env.action_space)
        actions.seed(_SEED)
        env.reset(seed=_SEED)
        achieved, desired, rewards, ended = [], [], [], []
        for _ in range(_NUM_STEPS):
            obs, reward, terminated, truncated, _ = env.step(actions.sample())
            achieved.append(np.array(self.achieved.of_obs(obs)))
            desired.append(np.array(self.desired.of_obs(obs)))
            rewards.append(float(reward))
            ended.append(bool(terminated))
            if terminated or truncated:
                env.reset()
        return np.stack(achieved), np.stack(desired), np.array(rewards), np.array(ended)


def _owner_of(env: Env, name: str) -> Env | None:
    """Return the env, or the one that it wraps, that has an attribute; None where none has it."""
    while env is not None and getattr(env, name, None) is None:
        env = getattr(env, "env", None)
    return env


def _goals(env: Env, places: Iterable[GoalPlace]) -> Array:
    """Return what an episode begins with: the achieved and the desired goal, [2, G]."""
    obs, _ = env.reset(seed=_SEED)
    return np.stack([np.array(place.of_obs(obs), np.float64) for place in places])


def _places(env: Env) -> tuple[GoalPlace, GoalPlace]:
    """Return where the achieved and the desired goal lie. Raises ConfigError for an observation that has none."""
    space = env.observation_space
    if isinstance(space, spaces.Dict):
        achieved, desired = (space.spaces.get(key) for key in ("achieved_goal", "desired_goal"))
        if achieved is not None and desired is not None and achieved.shape == desired.shape and achieved.shape:
            if len(achieved.shape) == 1:
                return GoalPlace("achieved_goal"), GoalPlace("desired_goal")
    elif isinstance(space, spaces.Box) and len(space.shape) == 1:
        length, owner = space.shape[0], _owner_of(env, "goal_size")
        size = (0 if length % 2 else length // 2) if owner is None else int(owner.goal_size)
        if 0 < 2 * size <= length:
            return GoalPlace(None, slice(0, size)), GoalPlace(None, slice(length - size, None))
    raise ConfigError(
        f"replay_buffer.type 'her' finds no goals in the observation {space} of {env}: expected a Dict with vectors "
        "'achieved_goal' and 'desired_goal' of one length, or one vector that begins with the achieved and ends with "
        "the desired goal, each of the env's `goal_size` numbers (default: half of it)."
    )


class HindsightStore(StreamStore):
    """Store of rows by lane; the number of a lane may be any, as where several processes collect.

    A new lane takes the ring of one that got no row while `capacity` rows were pushed, or makes the rings smaller.
    With `counts_episodes` the capacity is a number of episodes, as long as the longest that ends in the first push.
    """

    def __init__(self, capacity: int, *, counts_episodes: bool = False) -> None:
        super().__init__(capacity)
        self._counts_episodes = counts_episodes
        self._streams: dict[int, int] = {}  # number of a lane -> its stream
        self._num_pushed = 0
        self._last_push: dict[int, int] = {}  # stream -> rows that had been pushed when it last got some
        self._is_loading = False
        self.longest = 1  # steps of an episode, at most, in what was pushed

    def as_rows(self, data: Pushed, *, as_objects: bool) -> Rows:
        """Return what was pushed as rows; whole episodes, one or a list of them, are taken apart."""
        if isinstance(data, EpisodeBatch):
            return data.batch
        if isinstance(data, list) and data and not isinstance(data[0], Mapping):
            parts = [as_batch(part) for part in data]
            if all(part is not None for part in parts):
                return TransitionBatch.concat([part for part in parts if part is not None])
        return super().as_rows(data, as_objects=as_objects)

    def make(self, rows: Rows) -> StreamStorage:
        """Return an empty storage. Raises SchemaError for rows that are no single transitions."""
        if not isinstance(rows, TransitionBatch):
            raise SchemaError("buffer 'her' keeps rows that stack to columns: give all rows equal keys and shapes.")
        columns = arrays_of(rows)
        missing = [name for name in ("reward", "terminated") if name not in columns]
        if missing or columns["reward"].ndim != 1 or "discount" in columns:
            what = f"without {', '.join(missing)}" if missing else "of several steps"
            raise SchemaError(
                f"buffer 'her' was pushed rows {what}: hindsight needs transitions of one step (nstep=1)."
            )
        if self._counts_episodes and not self._is_loading:
            self.capacity *= _longest_ended(columns)
            self._counts_episodes = False
        num_streams = self._num_streams or int(StreamStorage.streams_of(columns).max()) + 1
        return StreamStorage(self.capacity, Schema.of(columns), num_streams, may_widen=True)

    def append(self, rows: Rows) -> StreamStorage:
        """Copy rows in, those of a lane in their order."""
        if not isinstance(rows, TransitionBatch):
            self.make(rows)  # raises an error that names the fault
        assert isinstance(rows, TransitionBatch)
        columns = arrays_of(rows)
        if not self._is_loading:
            columns.pop(STREAM, None)  # of another buffer's file
        lanes = StreamStorage.streams_of(columns)
        seen, which = np.unique(lanes, return_inverse=True)
        # Where a state is loaded, rows have a column of their streams.
        streams = {lane: lane for lane in seen.tolist()} if self._is_loading else self._placed(seen.tolist())
        of_lane = np.array([streams[lane] for lane in seen.tolist()], np.int64)
        storage = super().append(TransitionBatch({**columns, STREAM: of_lane[which]}))
        if not self._is_loading:  # and the rows fit
            self._streams = streams
            self._last_push.update(dict.fromkeys(of_lane.tolist(), self._num_pushed))
            self._num_pushed += len(lanes)
        self.longest = max(self.longest, int(columns["step"].max()) + 1 if "step" in columns else storage.ring_size)
        return storage

    def _placed(self, seen: list[int]) -> dict[int, int]:
        """Return the stream of each lane, those of `seen` among them."""
        if self.storage is None:
            self._streams, self._last_push = {}, {}
        streams = dict(self._streams)
        left = [
            lane
            for lane, stream in sorted(streams.items(), key=lambda item: self._last_push[item[1]])
            if self._num_pushed - self._last_push[stream] > self.capacity and lane not in seen
        ]
        for lane in seen:
            if lane in streams:
                continue
            if left:
                streams[lane] = streams.pop(left.pop(0))
                assert self.storage is not None, "a lane that left was here"
                self.storage.is_cut[streams[lane]] = True
            else:
                streams[lane] = len(streams)
        return streams

    def state_dict(self) -> State:
        if self.storage is None:
            return {}
        hindsight = {
            "lanes": list(self._streams),
            "streams": list(self._streams.values()),
            "last_push": [self._last_push[stream] for stream in self._streams.values()],
            "num_pushed": self._num_pushed,
            "capacity": self.capacity,
        }
        return {**super().state_dict(), "hindsight": hindsight}

    def begin_load(self, state: State) -> None:
        super().begin_load(state)
        self._is_loading, self.longest = "hindsight" in state, 1
        self._streams, self._last_push, self._num_pushed = {}, {}, 0
        if self._is_loading:
            self.capacity = int(state["hindsight"]["capacity"])
            self._counts_episodes = False

    def end_load(self, state: State) -> None:
        super().end_load(state)
        self._is_loading = False
        if "hindsight" in state:
            own = state["hindsight"]
            self._streams = dict(zip(own["lanes"], own["streams"], strict=True))
            self._last_push = dict(zip(own["streams"], own["last_push"], strict=True))
            self._num_pushed = own["num_pushed"]


def _longest_ended(columns: Mapping[str, Array]) -> int:
    """Return the steps of the longest episode that ends in rows. Raises SchemaError where none does."""
    done = columns["terminated"] | columns.get("truncated", False)
    if "step" not in columns or not done.any():
        raise SchemaError(
            "replay_buffer.size_unit is 'episodes', but no episode ends in the first rows that were pushed: collect "
            "whole episodes (collector type 'episode' and collect.n_episode), or set size_unit='rows'."
        )
    return int(columns["step"][done].max()) + 1


class HindsightSampler(Sampler[StreamStorage]):
    """Sampler that draws rows evenly, and for a share of them a later row (or any, or the last) of the same episode.

    `rules` compute the reward of a row under the goal that the other row achieved; None with a share of 0.
    """

    def __init__(self, store: HindsightStore, strategy: str, share: float) -> None:
        self._store = store
        self._strategy = strategy
        self._share = share
        self.rules: GoalRules | None = None

    def draw(
        self, storage: StreamStorage, size: int, *, train_iter: int, ages: slice | None, replace: bool, rng: Generator
    ) -> Array | int:
        """Return places [2, B]: of rows, and of those whose achieved goals the first rows get; -1 for the others."""
        among = None if ages is None else storage.places_of_ages(ages)
        num_rows = storage.count if among is None else len(among)
        if not size or not num_rows or (size > num_rows and not replace):
            return num_rows if size else np.zeros((2, 0), np.int64)
        places = np.full((2, size), _NO_GOAL, np.int64)
        picks = draw_uniform(rng, range(num_rows), size, replace=replace)
        places[0] = storage.places_of(picks) if among is None else among[picks]
        # The share is met on average, whatever the size; the rows are in no order, so the first may be those.
        relabelled = int(size * self._share + rng.random())
        places[1, :relabelled] = self._goals_of(storage, places[0, :relabelled], rng)
        return places

    def _goals_of(self, storage: StreamStorage, places: Array, rng: Generator) -> Array:
        """Return places [B] of rows of the same episodes, by strategy: what is achieved there becomes the goal."""
        most = self._store.longest
        after = storage.num_following(places, most=most)
        if self._strategy == "final":
            move = after
        else:
            before = storage.num_following(places, most=most, step=-1) if self._strategy == "episode" else 0
            # A row's own next observation is the first that was achieved after it.
            move = (rng.random(len(places)) * (before + after + 1)).astype(np.int64) - before
        in_ring = places % storage.ring_size
        found: Array = places - in_ring + (in_ring + move) % storage.ring_size
        return found

    def gather(self, storage: StreamStorage, places: Array, train_iter: int) -> TransitionBatch:
        rows, goal_rows = places
        columns = storage.gather(rows)
        del columns[STREAM]
        goal_rows = goal_rows[goal_rows != _NO_GOAL]
        if len(goal_rows):
            assert self.rules is not None, "a buffer with a share above 0 has rules"
            place = self.rules.achieved
            self.rules.relabel(columns, storage.take(place.column("next_obs"), goal_rows)[:, place.part])
        return TransitionBatch.of_length(len(rows), columns)


@BUFFER_REGISTRY.register("her")
class HindsightReplayBuffer(PresetBuffer):
    """Buffer of rows of episodes with goals, which samples most of them with goals that the same episode achieved.

    The env that `make_env` returns computes rewards under another goal by `compute_reward` (and ends by
    `compute_terminated`); it is open until `close`. With k=0 rows are unchanged, and no env is needed.
    """

    config: dict[str, Any] = {
        **PresetBuffer.config,
        "type": "her",
        # Which goals take the place of a row's own: achieved by a "future" step of the episode, by its "final" one, or
        # by any step of the "episode".
        "strategy": "future",
        # Rows with such a goal for each row that keeps its own.
        "k": 4,
        # What `replay_buffer_size` counts: "rows", or "episodes" as long as the longest of the first push.
        "size_unit": "rows",
    }
    config_types = {"k": (int, float)}
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"k": FROM_0}
    needs_env: ClassVar[bool] = True

    def __init__(self, cfg: Config, *args: Any, make_env: Callable[[], Env] | None = None, **kwargs: Any) -> None:
        """Make the buffer and the env that computes rewards; the other arguments are those of every buffer by config.

        Raises ConfigError for an env without goals.
        """
        self._rules: GoalRules | None = None
        k = self._full(cfg)["k"]
        if k and make_env is None:
            raise ConfigError("buffer 'her' computes rewards by an env's compute_reward: give make_env=, or set k=0.")
        super().__init__(cfg, *args, **kwargs)
        if k and make_env is not None:
            assert isinstance(self._sampler, HindsightSampler), "make_parts gives one"
            self._rules = self._sampler.rules = GoalRules(make_env)

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the buffer's section."""
        if cfg["strategy"] not in STRATEGIES:
            yield "strategy", f"is {cfg['strategy']!r}, expected {', '.join(map(repr, STRATEGIES))}"
        if cfg["size_unit"] not in ("rows", "episodes"):
            yield "size_unit", f"is {cfg['size_unit']!r}, expected 'rows' or 'episodes'"

    @classmethod
    def check_policy(cls, policy: Config) -> Iterator[tuple[str, str]]:
        """Yield (path, message) for each setting of a policy section that this buffer cannot serve."""
        section = "other.replay_buffer.type"
        if policy.get("on_policy"):
            yield (
                section,
                f"is 'her', but policy '{policy['type']}' is on-policy and keeps no rows: use an off-policy one",
            )
            return
        if policy.get("nstep", 1) != 1:
            yield (
                "nstep",
                f"is {policy['nstep']}, but buffer 'her' gives each row another goal, under which the rewards of later "
                "steps are not known: set it to 1",
            )
        if policy.get("priority"):
            yield "priority", "is True, but buffer 'her' draws rows evenly: set it to False, or choose 'advanced'"

    @classmethod
    def make_parts(cls, cfg: Config) -> Parts:
        """Return the parts that a full config asks for. Raises ConfigError for settings that make no sense."""
        raise_fault(cls.check_config(cfg))
        refuse_frame_stack(cfg, what="a hindsight")
        store = HindsightStore(int(cfg["replay_buffer_size"]), counts_episodes=cfg["size_unit"] == "episodes")
        return Parts(store, HindsightSampler(store, cfg["strategy"], cfg["k"] / (cfg["k"] + 1)))

    def close(self) -> None:
        """Clear the buffer and close its log and its env; may be called again."""
        super().close()
        if self._rules is not None:
            self._rules.close()
