"""Learn from what was achieved in place of what was wanted (Andrychowicz et al. 2017): hindsight experience replay.

Rows of a lane lie in a ring of its own, so that the rows after one in its episode are its neighbours. A sample is of
rows drawn evenly, a share k / (k + 1) of which get another goal: one that the same episode achieved. Goals are drawn
with every sample, and nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ding_like.data.batch import EpisodeBatch, TransitionBatch
from ding_like.data.rows import as_batch
from ding_like.data.schema import Schema
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array, State
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.registries import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.buffer import Parts, PresetBuffer, refuse_frame_stack
from ding_like.worker.replay_buffer.goals import Env, GoalRules
from ding_like.worker.replay_buffer.sampler import Sampler, draw_uniform, places_of_ages
from ding_like.worker.replay_buffer.store import StreamStore
from ding_like.worker.replay_buffer.streams import STREAM, StreamStorage

STRATEGIES = ("future", "final", "episode")
_NO_GOAL = -1
_NEEDED = ("reward", "terminated")


class HindsightStore(StreamStore):
    """Keep rows by lane; the number of a lane may be any, as where several processes collect.

    A lane that is new takes the ring of one which brought nothing while `capacity` rows came, or makes the rings
    smaller. With `counts_episodes` the capacity is a number of episodes, as long as the longest that ends in the first
    push.
    """

    def __init__(self, capacity: int, *, counts_episodes: bool = False) -> None:
        super().__init__(capacity)
        self._counts_episodes = counts_episodes
        self._streams: dict[int, int] = {}  # number of a lane -> its stream
        self._num_pushed = 0
        self._last_push: dict[int, int] = {}  # stream -> rows that had been pushed when it last got some
        self._is_loading = False
        self.longest = 1  # steps of an episode, at most, in what was pushed

    def as_rows(self, data: Any, *, as_objects: bool) -> Sequence[Any]:
        """Return what was pushed as rows; whole episodes, one or a list of them, are taken apart."""
        if isinstance(data, EpisodeBatch):
            return data.batch
        if isinstance(data, list) and data and not isinstance(data[0], Mapping):
            parts = [as_batch(part) for part in data]
            if all(part is not None for part in parts):
                return TransitionBatch.concat([part for part in parts if part is not None])
        return super().as_rows(data, as_objects=as_objects)

    def make(self, rows: Sequence[Any]) -> StreamStorage:
        """Return an empty storage. Raises SchemaError for rows that are no single transitions."""
        if not isinstance(rows, TransitionBatch):
            raise SchemaError("buffer 'her' keeps rows that stack to columns: give all rows equal keys and shapes.")
        columns = {name: np.asarray(column) for name, column in rows.columns.items()}
        missing = [name for name in _NEEDED if name not in columns]
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

    def append(self, rows: Sequence[Any]) -> StreamStorage:
        """Copy rows in, those of a lane in their order."""
        if not isinstance(rows, TransitionBatch):
            self.make(rows)  # says what is wrong
        assert isinstance(rows, TransitionBatch)
        columns = {name: np.asarray(column) for name, column in rows.columns.items()}
        if not self._is_loading:
            columns.pop(STREAM, None)  # of another buffer's file
        lanes = StreamStorage.streams_of(columns)
        seen, which = np.unique(lanes, return_inverse=True)
        # Where a state is loaded, rows say their streams themselves.
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
    """Draw rows evenly, and for a share of them a later row (or any, or the last) of the same episode.

    `rules` says what a row is worth under the goal which that other row achieved; it may be None with a share of 0.
    """

    def __init__(self, store: HindsightStore, strategy: str, share: float) -> None:
        self._store = store
        self._strategy = strategy
        self._share = share
        self.rules: GoalRules | None = None

    def draw(
        self,
        storage: StreamStorage,
        size: int,
        *,
        train_iter: int,
        ages: slice | None,
        replace: bool,
        rng: np.random.Generator,
    ) -> Array | int:
        """Return places [2, B]: of rows, and of those whose achieved goals the first rows get; -1 for the others."""
        among = None if ages is None else places_of_ages(storage, ages)
        num_rows = storage.count if among is None else len(among)
        if not size or not num_rows or (size > num_rows and not replace):
            return num_rows if size else np.zeros((2, 0), np.int64)
        places = np.full((2, size), _NO_GOAL, np.int64)
        picks = draw_uniform(rng, range(num_rows), size, replace=replace)
        places[0] = storage.places_of(picks) if among is None else among[picks]
        # The share is met on average, whatever the size; the rows come in no order, so the first may be those.
        relabelled = int(size * self._share + rng.random())
        places[1, :relabelled] = self._goals_of(storage, places[0, :relabelled], rng)
        return places

    def _goals_of(self, storage: StreamStorage, places: Array, rng: np.random.Generator) -> Array:
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
    """Keep rows of episodes with goals, and sample most of them with goals that the same episode achieved.

    The env that `make_env` returns says by `compute_reward` (and `compute_terminated`) what a row is worth under
    another goal; it is open until `close`. With k=0 rows come as they are, and no env is needed.
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

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,  # a MetricsSink, a SummaryWriter or None
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
        *,
        make_env: Callable[[], Env] | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Make the buffer and the env that computes rewards. Raises ConfigError for an env without goals."""
        self._rules: GoalRules | None = None
        k = self._full(cfg)["k"]
        if k and make_env is None:
            raise ConfigError("buffer 'her' computes rewards by an env's compute_reward: give make_env=, or set k=0.")
        super().__init__(cfg, tb_logger, exp_name, instance_name, rng=rng)
        if k and make_env is not None:
            assert isinstance(self._sampler, HindsightSampler), "make_parts gives one"
            self._rules = self._sampler.rules = GoalRules(make_env)

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the buffer's section."""
        if cfg["strategy"] not in STRATEGIES:
            yield "strategy", f"is {cfg['strategy']!r}, expected {', '.join(map(repr, STRATEGIES))}"
        if not FROM_0.hold(cfg["k"]):
            yield "k", f"is {cfg['k']}; give {FROM_0} relabelled rows for each that is not"
        if cfg["size_unit"] not in ("rows", "episodes"):
            yield "size_unit", f"is {cfg['size_unit']!r}, expected 'rows' or 'episodes'"

    @classmethod
    def check_policy(cls, policy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield (path, message) for what a policy section asks of this buffer in vain."""
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
    def make_parts(cls, cfg: Mapping[str, Any]) -> Parts:
        """Return the parts that a full config asks for. Raises ConfigError for settings that make no sense."""
        for path, message in cls.check_config(cfg):
            raise ConfigError(f"replay_buffer.{path} {message}.")
        refuse_frame_stack(cfg, what="a hindsight")
        store = HindsightStore(int(cfg["replay_buffer_size"]), counts_episodes=cfg["size_unit"] == "episodes")
        return Parts(store, HindsightSampler(store, cfg["strategy"], cfg["k"] / (cfg["k"] + 1)))

    def close(self) -> None:
        """Clear the buffer and close its log and its env; may be called again."""
        super().close()
        if self._rules is not None:
            self._rules.close()
