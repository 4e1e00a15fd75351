"""What PPO and A2C share: acting, advantages along lanes, minibatches. Their losses are in their files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor, nn

from ding_like.config import NoEffect
from ding_like.data.batch import TransitionBatch, columns_to_obs, split_mask
from ding_like.data.rollout import Rollout
from ding_like.data.spaces import hybrid_mask
from ding_like.errors import ConfigError
from ding_like.model.flat_params import FlatParams
from ding_like.model.optimizer import FlatOptimizer
from ding_like.model.vac import num_outputs
from ding_like.policy.base import Policy
from ding_like.policy.forward import ForwardActor, NetworkForward, OfFamily
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.sharing import Moving, Pending, Share
from ding_like.rl_utils.distributions import ActionFamily, Hybrid, allowed_logits, build_family
from ding_like.rl_utils.exploration import Schedule, constant, linear_schedule
from ding_like.rl_utils.policy_gradient import normalise
from ding_like.rl_utils.returns import gae
from ding_like.types import Array, Config, Obs
from ding_like.utils.bounds import ABOVE_0, FINITE, FROM_0, FROM_1, SHARE, Bounds
from ding_like.utils.log import one_time_warning


class Progress(NamedTuple):
    """Progress of schedules, in rows trained on; a share of a row where rows are used more than once."""

    rows: float = 0.0
    begun: float = 0.0  # `rows` before the train call under way, by which its schedules stand


class OnPolicy(Policy):
    """Policy that learns from the rows that it has just made, in minibatches, by their lambda-returns."""

    config: dict[str, Any] = dict(
        on_policy=True,
        discount_factor=0.99,
        learn=dict(
            # How the gradient is clipped: "clip_norm" is the only way. DI-engine's key.
            grad_clip_type="clip_norm",
            # Largest norm of the gradient, DI-engine's name for learn.grad_clip_norm; None: no limit.
            grad_clip_value=0.5,
            # Adam's eps: large enough to keep its steps small where gradients vanish.
            adam_eps=1e-5,
            schedule=dict(
                # Env steps over which the learning rate, and PPO's clip ratio, change linearly; None: no schedule.
                env_steps=None,
                # Learning rate at the end of the schedule.
                lr_end=0.0,
            ),
        ),
        collect=dict(
            n_sample=1024,
            # DI-engine's place for policy.discount_factor; None: the value there.
            discount_factor=None,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.grad_clip_value": ABOVE_0,
        "learn.adam_eps": ABOVE_0,
        "learn.schedule.env_steps": FROM_1,
        "learn.schedule.lr_end": FROM_0,
        "collect.discount_factor": SHARE,
    }
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "learn.grad_clip_type": ("clip_norm", "there is no other way"),
        "priority": (False, "it has no use here: rows are used as they come"),
    }
    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
        "learn.schedule.env_steps": (None, ("learn.schedule.lr_end",)),
        "learn.optimizer.type": ("rmsprop", ("learn.adam_eps",)),
    }
    config_alternatives = (
        *Policy.config_alternatives,
        ("learn.grad_clip_norm", "learn.grad_clip_value"),
        ("learn.adam_eps", "learn.optimizer.eps"),
    )

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        collect = cfg["collect"]
        if cfg["on_policy"]:
            yield from cls._no_effect(
                cfg, ("learn.update_per_collect",), "all rows are learned from once, or epoch_per_collect times"
            )
        if collect["discount_factor"] is not None and collect["discount_factor"] != cfg["discount_factor"]:
            yield from cls._no_effect(cfg, ("discount_factor",), "collect.discount_factor is set too")

    def __init__(self, cfg: Config, model: nn.Module | None = None, enable_field: Sequence[str] | None = None) -> None:
        super().__init__(cfg, model, enable_field)
        own = self._cfg.learn.get("discount_factor", self._cfg.collect.discount_factor)
        self._gamma = float(self._cfg.discount_factor if own is None else own)

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._init_optimizer()
        self._learning_rate = self._schedule(learn.learning_rate, learn.schedule.lr_end)
        self._progress = Pending(Progress(), Progress._asdict, lambda state: Progress(**state))
        self._grad_weight = 1.0

    def _init_optimizer(self) -> None:
        self._params = FlatParams(self._model)
        self._optimizer = FlatOptimizer.from_config(self._params, self._cfg.learn)

    def _schedule(self, start: float, end: float | None) -> Schedule:
        num_steps = self._cfg.learn.schedule.env_steps
        return constant(start) if num_steps is None or end is None else linear_schedule(start, end, num_steps=num_steps)

    # ---- rows

    def num_ready(self, length: Array, ended: Array) -> int:
        """Return how many rows `segment` makes of stretches of these lengths [S]: all."""
        return int(length.sum())

    # Whether `segment` asks the networks: they have to be where rows are made.
    rows_need_networks = True

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        """Return (the rollout's rows with `value`, `advantage` and `return_`, nothing to keep per lane [E])."""
        batch = TransitionBatch({**rollout.columns(), **self._targets(rollout)})
        return batch, np.zeros(rollout.num_lanes, np.int64)

    def with_returns(self, batch: TransitionBatch) -> TransitionBatch:
        """Return the rows of a rollout with values, advantages and targets of the rewards that they have now."""
        rollout = Rollout(int(batch["lane"].max()) + 1, capacity=len(batch))  # the log that the rows came from
        rollout.append(batch.columns)
        return batch.with_columns(**self._targets(rollout))

    def _targets(self, rollout: Rollout) -> dict[str, Array]:
        """Return values, advantages and the critic's targets of a rollout's rows [N]."""
        columns, lanes = rollout.columns(), rollout.as_lanes()
        ended = columns["terminated"] | columns["truncated"]
        terminated = np.zeros_like(ended) if self._cfg.learn.ignore_done else columns["terminated"]
        # The next observation of a row is the observation of the lane's next row, but for the last row of an episode
        # and of a lane. There the true one is needed, unless nothing comes after it.
        is_edge = ended.copy()
        is_edge[lanes.row[lanes.length - 1, np.arange(len(lanes.length))][lanes.length > 0]] = True
        edge = np.flatnonzero(is_edge & ~terminated)
        value, edge_value = self._values_of(columns, edge)
        next_value = np.zeros_like(value)
        follows = lanes.valid[1:]
        next_value[lanes.row[:-1][follows]] = value[lanes.row[1:][follows]]
        next_value[edge] = edge_value
        advantage = np.empty_like(value)
        advantage[lanes.row[lanes.valid]] = gae(
            *(column[lanes.row] for column in (columns["reward"], value, next_value, terminated, ended)),
            gamma=self._gamma,
            lam=self._lambda,
            valid=lanes.valid,
        )[lanes.valid]
        return {"value": value, "advantage": advantage, "return_": advantage + value}

    def _values_of(self, columns: Mapping[str, Array], edge: Array) -> tuple[Array, Array]:
        """Return the critic's values of rows' `obs` [N], and of `next_obs` of the rows `edge` [K], in one forward."""
        obs, next_obs = columns_to_obs("obs", columns), columns_to_obs("next_obs", columns)
        if isinstance(obs, dict):
            joined: Obs = {key: np.concatenate([obs[key], next_obs[key].take(edge, axis=0)]) for key in obs}
        else:
            joined = np.concatenate([obs, next_obs.take(edge, axis=0)])
        values = self._values(joined)
        return values[: len(values) - len(edge)], values[len(values) - len(edge) :]

    @property
    def _lambda(self) -> float:
        """Lambda of the returns: 1 is Monte Carlo returns, 0 one-step ones."""
        raise NotImplementedError

    def _values(self, obs: Obs) -> Array:
        """Return the values [N] float32 of observations, in units of reward."""
        raise NotImplementedError

    # ---- learning

    # Whether `grad` takes arrays.
    _learns_by_hand = False
    # Advantages are normalised, and returns counted, over whole batches.
    takes_whole_batches = True

    def _begin_train(self, batch: TransitionBatch, *, num_rows: float) -> None:
        """Begin to train on a batch that stands for so many env steps: its first `apply` counts them."""
        rows = self._progress.now.rows
        self._progress.next = Progress(rows + num_rows, begun=rows)

    def _one_update(self, batch: TransitionBatch, *, steps_per_row: int = 1) -> TransitionBatch:
        """Begin to train on a batch of a replay buffer, which schedules count as the env steps that it stands for."""
        learn, n_sample = self._cfg.learn, self._cfg.collect.n_sample
        # update_per_collect batches follow each n_sample rows.
        share = 1.0 if n_sample is None else n_sample / (learn.update_per_collect * learn.batch_size)
        self._begin_train(batch, num_rows=share * len(batch) * steps_per_row)
        return self._own_rows(batch)

    def _learned_rows(self, batch: TransitionBatch) -> TransitionBatch:
        """Return the rows that a batch is learned from as: of a team's, those of each agent."""
        return batch

    def _now(self, schedule: Schedule) -> float:
        """Return what a schedule says for the update under way."""
        return schedule(int(self._progress.next.begun))

    def _own_rows(self, minibatch: TransitionBatch) -> TransitionBatch:
        """Return a minibatch, or, of several learners, this one's rows, with what is computed of all of them."""
        if self._share.num_learners == 1:
            return minibatch
        if self._cfg.learn.get("adv_norm") is True and "advantage" in minibatch.columns:
            minibatch = minibatch.with_columns(normalised_advantage=normalise(minibatch["advantage"]))
        own, self._grad_weight = self.part_of(minibatch, self._share)
        return own

    def part_of(self, minibatch: TransitionBatch, share: Share) -> tuple[TransitionBatch, float]:
        """Return (the rows of one share of a minibatch, what their mean counts in that of all rows)."""
        return minibatch[share.of(len(minibatch))], share.weight(len(minibatch))

    def grad_weight(self) -> float:
        return self._grad_weight

    # What losses take of rows, beside observation and action.
    _loss_columns: tuple[str, ...] = ("return_",)

    @property
    def _action_column(self) -> str:
        """Name of the column that the loss takes of an action."""
        return "action"

    def _shuffled(self, batch: TransitionBatch, batch_size: int, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield the rows once, in random order, in minibatches of about `batch_size` that differ by at most one row.

        There are `len(batch) / batch_size`, rounded, so that no row is left out and no minibatch is much smaller than
        the others.
        """
        wanted = {self._action_column, *self._loss_columns}
        names = [name for name in batch.columns if name in wanted or name == "obs" or name.startswith("obs/")]
        # One gather for the epoch; its minibatches are slices of it.
        rows = batch.select(names).take(rng.permutation(len(batch)))
        if not self._learns_by_hand:
            rows = rows.to(self._device)
        parts = max(1, round(len(batch) / batch_size))
        ends = [len(batch) * part // parts for part in range(parts + 1)]
        for start, stop in itertools.pairwise(ends):
            yield self._own_rows(rows[start:stop])

    def apply(self) -> None:
        """Take one Adam step, at the learning rate that the schedule says, and count the rows of a batch begun."""
        self._optimizer.learning_rate = self._now(self._learning_rate)
        for each in self._moving().values():
            each.commit()
        self._optimizer.step()

    def _set_learning_rate(self, value: float) -> None:
        super()._set_learning_rate(value)
        self._learning_rate = constant(float(value))  # in place of the schedule's

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        return (self._optimizer,)

    def _moving(self) -> dict[str, Moving]:
        return {"progress": self._progress}

    def _saved(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer}


class OnPolicyActorCritic(OnPolicy):
    """Actor and critic that learn from the rows that they have just made, with generalised advantages.

    The model is a 'vac', or any with its methods `actor`, `critic` and `actor_critic`. Of a dict observation, the entry
    `action_mask` [R, A] says which discrete actions are legal, and the network sees the rest.
    """

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("actor", gives=("B P",)),
        ModelMethod("critic", gives=("B",)),
        ModelMethod("actor_critic", gives=("B P", "B")),
    )
    config: dict[str, Any] = dict(
        # How continuous actions are kept within the env's bounds: "clip", or "tanh" of what was drawn.
        action_bound="clip",
        learn=dict(
            # Weight of the value loss.
            value_weight=0.5,
            # Weight of the entropy bonus in the loss.
            entropy_weight=0.0,
        ),
        collect=dict(
            # Lambda of generalised advantage estimation: 1 is Monte Carlo returns, 0 one-step differences.
            gae_lambda=0.95,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.value_weight": FROM_0,
        "learn.entropy_weight": FINITE,
        "collect.gae_lambda": SHARE,
    }
    config_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"action_bound": ("clip", "tanh")}
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "nstep": (1, "it has no use with generalised advantages; set collect.gae_lambda"),
    }
    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
        "action_space": ("discrete", ("action_low", "action_high", "action_bound")),
    }
    action_spaces: tuple[str, ...] | None = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if cfg["random_collect_size"]:
            yield NoEffect(
                "random_collect_size",
                f"must be 0, got {cfg['random_collect_size']}: random actions have no log probability of the policy's, "
                "and it learns from its own actions alone; leave the key out",
            )

    model_name = "vac"

    def _build_model(self) -> nn.Module:
        model, default = self._cfg.model, self.default_model()[0]
        if model.get("type", default) == default:
            model.setdefault("action_space", self._cfg.action_space or "discrete")
        return super()._build_model()

    @cached_property
    def _family(self) -> ActionFamily:
        cfg = self._cfg
        shape = cfg.model.get("action_shape")
        if shape is None:
            raise ConfigError("policy.model.action_shape is not set: the policy must know how many actions there are.")
        self._warn_of_bounds()
        bounds: dict[str, Any] = dict(low=cfg.action_low, high=cfg.action_high, squash=cfg.action_bound == "tanh")
        if cfg.action_space == "hybrid":
            return Hybrid(hybrid_mask(shape, cfg.model.get("action_mask")), **bounds)
        return build_family(cfg.action_space or "discrete", shape, **bounds)

    def _warn_of_bounds(self) -> None:
        """Warn of bounds of actions that are discrete: the config was checked before the env said so."""
        if self._cfg.action_space not in ("continuous", "hybrid"):
            keys = ("action_low", "action_high", "action_bound")
            for path, message in self._no_effect(self._cfg, keys, "actions are discrete"):
                one_time_warning(f"policy.{path} {message}.")

    def _model_sizes(self) -> dict[str, int]:
        shape, kind = self._cfg.model.get("action_shape"), self._cfg.action_space or "discrete"
        if shape is None:
            return {}
        return {**super()._model_sizes(), "P": num_outputs(shape, action_space=kind)}

    def _forward(self, which: str) -> NetworkForward:
        """Return what computes the model's 'actor' or 'critic'."""
        towers = getattr(self._model, "towers", None)
        stack = None if towers is None else towers()[("actor", "critic").index(which)]
        return NetworkForward(getattr(self._model, which), stack, self._device)

    @cached_property
    def _critic(self) -> Callable[[Obs], Array]:
        return self._forward("critic").array

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        return ForwardActor(self._forward("actor"), OfFamily(self._family, is_greedy=not explores))

    @property
    def _lambda(self) -> float:
        return float(self._cfg.collect.gae_lambda)

    @property
    def _action_column(self) -> str:
        return self._family.column

    def _values(self, obs: Obs) -> Array:
        """Return the critic's values [N] float32, in units of reward."""
        return self._critic(split_mask(obs)[0]).reshape(-1).astype(np.float32, copy=False)

    # What losses take of rows, beside observation and action.
    _loss_columns: tuple[str, ...] = ("log_prob", "value", "advantage", "return_")

    def _advantage(self, rows: TransitionBatch) -> Any:
        """Return the advantages [B], of mean 0 and deviation 1 in the whole minibatch with learn.adv_norm=True."""
        if self._cfg.learn.adv_norm is not True:
            return rows["advantage"]
        of_whole = rows.columns.get("normalised_advantage")
        return normalise(rows["advantage"]) if of_whole is None else of_whole

    def _evaluate(self, rows: TransitionBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return (log probability of each row's action, entropy, value), all [B] and with gradients."""
        self._params.follow()
        obs, mask = split_mask(self._obs(rows))
        output, value = self._model.actor_critic(obs)
        log_prob, entropy = self._family.log_prob_and_entropy(allowed_logits(output, mask), rows[self._family.column])
        return log_prob, entropy, value

    has_log_prob: ClassVar[bool] = True

    def log_prob(self, obs: Any, action: Tensor, mask: Tensor | None) -> Tensor:
        """Return the log probabilities [N] of actions; one at a bound has the density there, drawn beyond it or not."""
        output = allowed_logits(self._model.actor(obs), mask)
        return self._family.log_prob_and_entropy(output, self._family.raw_of(action))[0]

    monitored: tuple[str, ...] = ("cur_lr", "total_loss", "policy_loss", "value_loss", "entropy")
