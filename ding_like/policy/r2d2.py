"""R2D2: recurrent Q-learning from replayed sequences (Kapturowski et al. 2019).

A row is a sequence of one lane (`policy/rows.py`): `burnin_step` steps that only warm up the recurrent state,
then `learn_unroll_len` that are learned from, and the state s that the actor had before the first of them. Online and
target network are unrolled from s over all of it, and for every step t that is learned from

    y_t   = h(R_t + gamma^k h^-1(Q'(o_{t+k}, argmax_a Q(o_{t+k}, a))))       second part only if not terminated
    delta_t = y_t - Q(o_t, a_t)                                              Q, Q' also of what is remembered at t
    loss  = mean over rows of weight * sum_t loss(delta_t) / learn_unroll_len
    p     = eta max_t |delta_t| + (1 - eta) mean_t |delta_t|                 the row's priority, eta = 0.9

R_t is the discounted sum of the next k rewards: `nstep`, or as many as the row still has. No gradient goes through
burn-in. h is that of Pohlen et al. 2018 (`rl_utils/value_family.py`).

DRQN (Hausknecht and Stone 2015) is its plain form: values on their own scale, one-step targets, no priorities, no
burn-in and a target network that is copied now and then. A row begins with the recurrent state that the actor had
there, where that paper begins with zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch, map_obs, split_mask
from ding_like.policy.forward import EpsilonGreedy, ForwardActor, RecurrentForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.rows import SequenceReturns, SequenceShape
from ding_like.policy.value_based import ValueBasedPolicy
from ding_like.rl_utils.value_family import RescaledValue, ScalarValue, ValueFamily, weighted_mean
from ding_like.types import Array, Config
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY

ETA = 0.9  # Kapturowski et al. 2019, section 2.3


@POLICY_REGISTRY.register("r2d2")
class R2D2Policy(ValueBasedPolicy):
    """Q-learning from sequences, with a recurrent network."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("run", "obs, state", ("B T A", "state")),
        ModelMethod("initial_state", None),
    )
    config: dict[str, Any] = dict(
        type="r2d2",
        priority=True,
        priority_IS_weight=True,
        discount_factor=0.997,
        nstep=5,
        # First env steps of each row, which only warm up the recurrent state.
        burnin_step=20,
        # Env steps of each row that are learned from.
        learn_unroll_len=80,
        # Env steps of a row: burnin_step and learn_unroll_len together, as DI-engine writes it; None: their sum.
        unroll_len=None,
        collect=dict(unroll_len=None),
        learn=dict(
            update_per_collect=1,
            learning_rate=1e-4,
            backend="autograd",
            # Learn values on the scale of h(Q), which brings large returns close together.
            value_rescale=True,
            target_update_freq=None,
            target_theta=0.001,
        ),
        # The buffer that draws by priority.
        other=dict(eps=dict(end=0.05), replay_buffer=dict(type="advanced")),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"burnin_step": FROM_0, "learn_unroll_len": FROM_1}
    config_unused: ClassVar[Mapping[str, str]] = {
        "learn.backend": "no gradient by hand is known for recurrent networks"
    }
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "random_collect_size": (
            0,
            "random actions come without the recurrent state that rows begin with; let the policy's own be random at "
            "first, with other.eps.start=1.0",
        )
    }
    rows_are_sequences = True

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        burn_in, steps = cfg["burnin_step"], cfg["learn_unroll_len"]
        if cfg["nstep"] > steps:
            yield "nstep", f"is {cfg['nstep']}, but returns end with the {steps} steps of learn_unroll_len: lower it"
        for path, length in (("unroll_len", cfg["unroll_len"]), ("collect.unroll_len", cfg["collect"]["unroll_len"])):
            if length is not None and length != burn_in + steps:
                yield path, f"is {length}, but burnin_step + learn_unroll_len is {burn_in + steps}: leave it out"

    @classmethod
    def env_steps_per_row(cls, cfg: Config) -> int:
        return int(cfg["learn_unroll_len"])

    model_name = "drqn"

    @cached_property
    def _family(self) -> ValueFamily[Tensor]:
        return (RescaledValue if self._cfg.learn.value_rescale else ScalarValue)(self._cfg.learn.loss)

    @cached_property
    def _shape(self) -> SequenceShape:
        return SequenceShape(int(self._cfg.learn_unroll_len), int(self._cfg.burnin_step))

    # ---- acting and rows

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        forward = RecurrentForward(self._model.run, self._model.initial_state, self._device)
        return ForwardActor(forward, EpsilonGreedy())

    def row_maker(self) -> SequenceReturns:
        return SequenceReturns(self._shape, self._nstep, self._gamma)

    # ---- learning

    def _fill(self, rows: TransitionBatch) -> tuple[Tensor, Tensor, Tensor, Array | None]:
        """Fill the gradient; return (loss, value and target of a step on average, priorities [B] if wanted)."""
        self._params.follow()
        obs, legal = split_mask(self._obs(rows))
        state, mask = self._obs(rows, "state"), rows["mask"]
        values = self._unroll(obs, state, begins=mask[:, 0])  # [B, L + 1, A]
        with torch.no_grad():
            target = self._targets(rows, values.detach(), self._target_model.run(obs, state)[0], legal)
        chosen = self._family.of_action(values[:, :-1], rows["action"])
        each = self._family.loss(chosen, target)  # [B, L]
        of_rows = (each.loss * mask).sum(dim=1) / self._shape.num_steps
        loss = self._params.backward(weighted_mean(of_rows, self._weight(rows)))
        share = mask / mask.sum()
        priority: Array | None = None
        if self._cfg.priority:
            error = each.priority * mask  # 0 where nothing is learned from
            mixed = ETA * error.amax(dim=1) + (1.0 - ETA) * error.sum(dim=1) / mask.sum(dim=1)
            priority = mixed.cpu().numpy()
        return loss, (chosen.detach() * share).sum(), (target * share).sum(), priority

    # Any: a tensor or a dict of them.
    def _unroll(self, obs: Any, state: Mapping[str, Tensor], *, begins: Tensor) -> Tensor:
        """Return the online network's values [B, L + 1, A], with a gradient for steps that are learned from.

        `begins` [B] marks rows at an episode's begin, which learn from the steps that others burn in.
        """
        run, burn_in = self._model.run, self._shape.burn_in
        if not burn_in:
            return cast(Tensor, run(obs, state)[0])
        warm_up = map_obs(lambda part: part[:, :burn_in], obs)
        with torch.no_grad():
            first, warm = run(warm_up, state)
        # Once more for the few rows that learn here too: a gradient through all rows would take several times longer.
        rows = begins.nonzero().squeeze(1)
        if len(rows):
            learned, behind = run(map_obs(lambda part: part[rows], warm_up), map_obs(lambda part: part[rows], state))
            first = first.index_copy(0, rows, learned)
            warm = {name: column.index_copy(0, rows, behind[name]) for name, column in warm.items()}
        rest, _ = run(map_obs(lambda part: part[:, burn_in:], obs), warm)
        return torch.cat([first, rest], dim=1)

    # Any: a mask of legal actions, or None.
    def _targets(self, rows: TransitionBatch, online: Tensor, target: Tensor, legal: Any) -> Tensor:
        """Return y [B, L] of both networks' values [B, L + 1, A]."""
        best = self._family.of_best(target, online if self._cfg.double else target, legal)
        following = torch.arange(self._nstep, self._nstep + self._shape.length, device=best.device)
        following = torch.minimum(following, rows["num_steps"][:, None])  # [B, L], with which step a return ends
        return self._family.backup(rows["reward"], best.gather(1, following), **self._following(rows))


@POLICY_REGISTRY.register("drqn")
class DRQNPolicy(R2D2Policy):
    """Q-learning from sequences drawn uniformly, with a recurrent network."""

    config: dict[str, Any] = dict(
        type="drqn",
        priority=False,
        priority_IS_weight=False,
        discount_factor=0.99,
        nstep=1,
        burnin_step=0,
        learn_unroll_len=10,
        learn=dict(value_rescale=False, learning_rate=1e-3, target_update_freq=100, target_theta=None),
        other=dict(replay_buffer=dict(type="naive")),
    )
