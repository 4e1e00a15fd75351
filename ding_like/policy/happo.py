"""HAPPO (Kuba et al. 2022): agents of a team with an actor each, which learn one after the other.

The critic's values V are of the state, and the advantages A (generalised) of the team's reward. A batch is learned from
agent by agent, in an order i_1 ... i_N that is drawn anew for each. With r the ratio of agent i_m's probability of its
action to that when acting, and M the product of the ratios of those before it, as they are once these have learned:

    M^(1)    = A
    M^(m+1)  = r^(m) M^(m)                        of the rows in which agent i_m was alive
    loss_i   = mean(-min(r M, clip(r, 1 - c, 1 + c) M)) - entropy_weight * mean(entropy)          algorithm 4
    loss_V   = mean((V - R)^2)                    R = A + V when acting; last of all

Each agent has an optimizer of its own, and the critic too, so that an agent that has learned stays as it is while the
others do. An agent's loss is over the rows in which it was alive. Advantages are normalised over the batch, before they
are multiplied. Agents need not be alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ding_like.data.batch import ACTION_MASK, TransitionBatch, columns_to_obs, split_mask
from ding_like.data.team import AGENTS, ALIVE, STATE
from ding_like.model.flat_params import FlatParams
from ding_like.model.layers import ObsTensor
from ding_like.model.optimizer import FlatOptimizer
from ding_like.policy.by_agent import TeamPolicy
from ding_like.policy.forward import Columns, ForwardActor, NetworkForward, OfFamily
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.ppo import PPOPolicy
from ding_like.policy.sharing import Moving, Pending
from ding_like.rl_utils.distributions import ActionFamily, allowed_logits, build_family, mask_logits
from ding_like.rl_utils.policy_gradient import normalise, ppo_policy_loss, ppo_value_loss
from ding_like.types import Array, Info, Obs, Setting
from ding_like.utils.registries import POLICY_REGISTRY

_TURN = "turn/"  # a minibatch has a column of this and the number of its network: of an agent, N of the critic


class OwnActors:
    """`Forward` of a network for each agent, of what it sees."""

    initial_state: Mapping[str, Array] = {}

    def __init__(self, forwards: Sequence[NetworkForward]) -> None:
        self._forwards = list(forwards)

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        """Return (outputs [R, N, P], no state) of a team's observations."""
        assert isinstance(obs, dict), "a team's observation"
        return np.stack([own.array(obs[AGENTS][:, n]) for n, own in enumerate(self._forwards)], axis=1), {}

    def run_tensors(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what a call does, of tensors: agents are exported with it."""
        assert isinstance(obs, Mapping), "a team's observation"
        outputs = [own.run_tensors(obs[AGENTS][:, n], {})[0] for n, own in enumerate(self._forwards)]
        return torch.stack(outputs, dim=1), {}


class OwnChoices:
    """Choice of each agent from outputs [R, N, P] by its own distribution, and masks of N * A places."""

    def __init__(self, chooses: Sequence[OfFamily]) -> None:
        self._chooses = list(chooses)

    def __call__(self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting) -> Columns:
        """Return `action`, [R, N] or [R, N * A] of continuous ones, and the choice's other columns [R, N, ...]."""
        legal = None if mask is None else mask.reshape(*output.shape[:2], -1)
        each = [
            choose(output[:, n], None if legal is None else legal[:, n], rng, setting)
            for n, choose in enumerate(self._chooses)
        ]
        columns = {name: np.stack([own[name] for own in each], axis=1) for name in each[0]}
        return {**columns, "action": _in_a_row(columns["action"])}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        """Return the best actions as the env takes them."""
        legal = None if mask is None else mask.reshape(*output.shape[:2], -1)
        each = [
            choose.best(output[:, n], None if legal is None else legal[:, n]) for n, choose in enumerate(self._chooses)
        ]
        return torch.stack(each, dim=1).flatten(1)


def _in_a_row(action: Array) -> Array:
    return action.reshape(len(action), -1)


@POLICY_REGISTRY.register("happo")
class HAPPOPolicy(TeamPolicy, PPOPolicy):
    """Clipped policy gradients of a team's agents one after the other, for discrete or continuous actions."""

    # Of every agent's network, `actor(obs) -> [B, P]` is called; `values` takes states [B, S] and gives [B, 1].
    model_methods: tuple[ModelMethod, ...] = (ModelMethod("actors", None), ModelMethod("values", None))
    config: dict[str, Any] = dict(
        type="happo",
        learn=dict(
            # Epochs of each agent, and of the critic, over the rows of a collection.
            epoch_per_collect=5,
            batch_size=1024,
            learning_rate=5e-4,
            entropy_weight=0.01,
            # Normalise advantages to mean 0 and deviation 1: "batch" once for all agents, False not.
            adv_norm="batch",
            value_norm=True,
            grad_clip_value=10.0,
        ),
    )
    config_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"learn.adv_norm": ("batch", False)}
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "recompute_adv": (False, "the critic learns after all agents, once"),
        "learn.target_kl": (None, "how far an agent moves is in the factor of those after it"),
    }
    config_unused: ClassVar[Mapping[str, str]] = {
        "learn.backend": "the gradients of these networks are autograd's",
        "learn.value_weight": "the critic has an optimizer of its own",
    }
    splits_rows: ClassVar[bool] = False  # they are of one agent
    has_log_prob: ClassVar[bool] = False
    why_no_reward_model = PPOPolicy.why_no_reward_model  # it learns from the team's reward
    model_name = "happo"

    # ---- acting

    @cached_property
    def _families(self) -> list[ActionFamily]:
        """The distributions of each agent's actions."""
        cfg, team = self._cfg, self._team
        self._warn_of_bounds()
        kind, squash = cfg.action_space or "discrete", cfg.action_bound == "tanh"
        low, high = (
            np.reshape(cfg[key], (team.num_agents, -1)).tolist()
            if isinstance(cfg[key], Sequence)
            else [cfg[key]] * team.num_agents
            for key in ("action_low", "action_high")
        )
        return [
            build_family(kind, team.num_actions, low=low[n], high=high[n], squash=squash)
            for n in range(team.num_agents)
        ]

    @property
    def _action_column(self) -> str:
        return self._families[0].column

    @cached_property
    def _actors(self) -> list[NetworkForward]:
        stacks = [own.stack() if hasattr(own, "stack") else None for own in self._model.actors]
        pairs = zip(self._model.actors, stacks, strict=True)
        return [NetworkForward(own.actor, stack, self._device) for own, stack in pairs]

    @cached_property
    def _critic(self) -> Callable[[Obs], Array]:
        """What returns the values [R] of a team's observations."""
        values = NetworkForward(self._model.values, self._model.values, self._device)

        def of_state(obs: Obs) -> Array:
            assert isinstance(obs, dict), "a team's observation"
            return values.array(obs[STATE])

        return of_state

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        choices = OwnChoices([OfFamily(each, is_greedy=not explores) for each in self._families])
        return ForwardActor(OwnActors(self._actors), choices)

    # ---- learning

    def _init_optimizer(self) -> None:
        self._networks = [FlatParams(each) for each in (*self._model.actors, self._model.values)]
        self._each_optimizer = [FlatOptimizer.from_config(each, self._cfg.learn) for each in self._networks]
        self._turn: Pending[int] = Pending(0, int, int)  # number of the network that an update is of

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield those of every epoch of one agent after the other, in random order, and those of the critic."""
        learn, columns, agents = self._cfg.learn, batch.columns, self._team.num_agents
        self._begin_train(batch, num_rows=len(batch))
        factor = normalise(columns["advantage"]) if learn.adv_norm else columns["advantage"].copy()
        for agent in rng.permutation(agents).tolist():
            places = np.flatnonzero(columns[f"obs/{ALIVE}"][:, agent])
            rows = TransitionBatch(self._rows_of(columns, agent)).take(places).with_columns(advantage=factor[places])
            if len(rows):
                yield from self._epochs(rows, agent, rng)
                factor[places] *= np.exp(self._log_prob_now(rows, agent) - rows["log_prob"])
        state = {"obs": columns[f"obs/{STATE}"], **{name: columns[name] for name in ("value", "return_")}}
        yield from self._epochs(TransitionBatch(state), agents, rng)

    def _rows_of(self, columns: Mapping[str, Array], agent: int) -> dict[str, Array]:
        """Return an agent's columns of a team's rows."""
        rows = {"obs": columns[f"obs/{AGENTS}"][:, agent]}
        if (mask := columns.get(f"obs/{ACTION_MASK}")) is not None:
            own = mask.reshape(len(mask), self._team.num_agents, -1)[:, agent]
            rows = {"obs/seen": rows["obs"], f"obs/{ACTION_MASK}": own}
        return {**rows, **{name: columns[name][:, agent] for name in (self._action_column, "log_prob")}}

    def _epochs(self, rows: TransitionBatch, turn: int, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        marked = rows.with_columns(**{f"{_TURN}{turn}": np.zeros(len(rows), bool)})
        for _ in range(self._cfg.learn.epoch_per_collect):
            yield from self._shuffled(marked, self._cfg.learn.batch_size, rng)

    @cached_property
    def _loss_columns(self) -> tuple[str, ...]:  # type: ignore[override]  # of a class it is a constant
        turns = (f"{_TURN}{n}" for n in range(self._team.num_agents + 1))
        return ("log_prob", "value", "advantage", "return_", *turns)

    def _log_prob_now(self, rows: TransitionBatch, agent: int) -> Array:
        """Return the log probabilities [K] of an agent's actions, as it is by now."""
        obs, mask = split_mask(columns_to_obs("obs", rows.columns))
        output = self._actors[agent].array(obs)
        output = output if mask is None else mask_logits(output, mask)
        return self._families[agent].by_hand(output, rows[self._action_column]).log_prob

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of one agent's loss, or of the critic's, for one minibatch."""
        turn = int(next(name for name in batch.columns if name.startswith(_TURN)).removeprefix(_TURN))
        self._turn.next, self._params = turn, self._networks[turn]
        self._params.follow()
        rows = batch.to(self._device)
        if turn == self._team.num_agents:
            return self._critic_grad(rows), None
        learn, (obs, mask) = self._cfg.learn, split_mask(self._obs(rows))
        output = allowed_logits(self._model.actors[turn].actor(obs), mask)
        log_prob, entropies = self._families[turn].log_prob_and_entropy(output, rows[self._action_column])
        policy = ppo_policy_loss(
            log_prob,
            rows["log_prob"],
            rows["advantage"],
            clip_ratio=self._now(self._clip_ratio),
            dual_clip=learn.dual_clip,
            kl_beta=learn.kl_beta,
        )
        entropy = entropies.mean()
        loss = self._params.backward(policy.loss.sub(entropy, alpha=learn.entropy_weight))
        return {
            "cur_lr": self._now(self._learning_rate),
            "clip_ratio": self._now(self._clip_ratio),
            "total_loss": loss,
            "policy_loss": policy.loss.detach(),
            "entropy": entropy.detach(),
            "approx_kl": policy.approx_kl,
            "clip_fraction": policy.clip_fraction,
        }, None

    def _critic_grad(self, rows: TransitionBatch) -> Info:
        value = self._model.values(rows["obs"]).squeeze(1)
        loss = self._params.backward(ppo_value_loss(value, **self._value_targets(rows)))
        return {"cur_lr": self._now(self._learning_rate), "value_loss": loss}

    def apply(self) -> None:
        """Take one Adam step of the network that the gradient is of."""
        self._optimizer = self._each_optimizer[self._turn.next]
        super().apply()

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        return self._each_optimizer

    def _moving(self) -> dict[str, Moving]:
        return {**super()._moving(), "turn": self._turn}

    def _saved(self) -> dict[str, Any]:
        return {f"optimizer_{n}": each for n, each in enumerate(self._each_optimizer)}
