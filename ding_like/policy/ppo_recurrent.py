"""PPO with memory: the loss of `policy/ppo.py`, of a network with recurrent layers.

The actor keeps recurrent state by lane, and rows hold the state before each step. They stay single steps: advantages
are PPO's, of values that the critic computes from that state. To learn, each epoch's rows are cut into sequences of up
to `seq_len` steps of one episode, the network runs over each from the stored state before its first step, and a
minibatch is whole sequences:

    rows of a lane   |0 1 2 3 4 end|5 6 7          seq_len=3
    sequences        |0 1 2|  |3 4|  |5 6 7|       run from state/h and state/c of rows 0, 3 and 5

The stored state is that of the policy that acted, a few updates old within the epochs (Kapturowski et al. 2019 look at
what that does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from torch import Tensor

from ding_like.data.batch import TransitionBatch, columns_to_obs, map_obs, split_mask
from ding_like.policy.forward import ForwardActor, OfFamily, RecurrentForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.onpolicy import OnPolicyActorCritic
from ding_like.policy.ppo import PPOPolicy
from ding_like.policy.rows import STATE, SequenceShape, Windows, episode_ends, windows_of
from ding_like.policy.sharing import Share
from ding_like.rl_utils.distributions import allowed_logits
from ding_like.types import Array, Obs
from ding_like.utils.bounds import FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("ppo_recurrent")
class PPORecurrentPolicy(PPOPolicy):
    """PPO with a recurrent model.

    The model is a 'recurrent_vac', or any with its `initial_state` and methods.
    """

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("actor", "obs, state", ("B T P", "state")),
        ModelMethod("critic", "obs, state", ("B T", "state")),
        ModelMethod("actor_critic", "obs, state", ("B T P", "B T", "state")),
        ModelMethod("initial_state", None),
    )
    config: dict[str, Any] = dict(
        type="ppo_recurrent",
        learn=dict(
            # Most env steps that gradients go back in time.
            seq_len=32,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.seq_len": FROM_1}
    action_spaces = OnPolicyActorCritic.action_spaces
    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "the gradient of a recurrent network is autograd's"}

    model_name = "recurrent_vac"
    has_log_prob: ClassVar[bool] = False  # they depend on the state before an observation

    # ---- acting

    def _remembering(self, which: str) -> RecurrentForward:
        """Return what computes the model's 'actor' or 'critic', and the state behind it."""
        return RecurrentForward(getattr(self._model, which), self._model.initial_state, self._device)

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        return ForwardActor(self._remembering("actor"), OfFamily(self._family, is_greedy=not explores))

    # ---- rows

    @cached_property
    def _recurrent_critic(self) -> RecurrentForward:
        return self._remembering("critic")

    def _values_of(self, columns: Mapping[str, Array], edge: Array) -> tuple[Array, Array]:
        """Return the values of rows' `obs` [N] and of `next_obs` of the rows `edge` [K].

        A row is judged from the state before it, what comes after it from the state behind it.
        """
        state = {name: columns[STATE + name] for name in self._model.initial_state}
        value, behind = self._recurrent_critic(_seen(columns, "obs"), state)
        unit = np.float32(self._returns.now.std if self._cfg.learn.value_norm else 1.0)
        if not len(edge):
            return value * unit, value[:0]
        columns = {name: column[edge] for name, column in columns.items() if name.startswith("next_obs")}
        next_value, _ = self._recurrent_critic(
            _seen(columns, "next_obs"), {name: column[edge] for name, column in behind.items()}
        )
        return value * unit, next_value * unit

    # ---- learning

    def _shuffled(self, batch: TransitionBatch, batch_size: int, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield the rows once, in minibatches of whole sequences, in random order, of about `batch_size` steps.

        Rows are in order of time within a sequence; their columns `sequence` and `time` say which it is and where.
        """
        windows = self._windows(batch.columns)
        wanted = {self._family.column, *self._loss_columns}
        rows = batch.select(
            name for name in batch.columns if name in wanted or name == "obs" or name.startswith(("obs/", STATE))
        )
        order = rng.permutation(len(windows.row))
        length = windows.valid[order].sum(axis=1)
        parts = max(1, round(len(batch) / batch_size))
        # A sequence goes to the part that its middle step lies in.
        part = (2 * length.cumsum() - length) * parts // (2 * length.sum())
        for number in range(parts):
            chosen = order[part == number]
            if len(chosen):
                sequence, time = windows.valid[chosen].nonzero()
                minibatch = rows.take(windows.row[chosen][sequence, time])
                yield self._own_rows(minibatch.with_columns(sequence=sequence, time=time))

    def _windows(self, columns: Mapping[str, Array]) -> Windows:
        """Return which rows make up the sequences of a batch."""
        lane = columns["lane"]
        shape = SequenceShape(self._cfg.learn.seq_len)
        return windows_of(lane, episode_ends(columns), shape, num_lanes=int(lane.max()) + 1, closes=True)[0]

    def part_of(self, minibatch: TransitionBatch, share: Share) -> tuple[TransitionBatch, float]:
        """Return (the sequences of one share of a minibatch, what their steps count among those of all)."""
        sequence = minibatch["sequence"]
        num_sequences = int(sequence[-1]) + 1
        own = share.of(num_sequences)
        first, stop = np.searchsorted(sequence, (own.start, own.stop))
        rows = minibatch[first:stop]
        is_shared = num_sequences >= share.num_learners
        weight = len(rows) / len(minibatch) if is_shared else share.weight(num_sequences)
        return rows.with_columns(sequence=rows["sequence"] - own.start), weight

    def _evaluate(self, rows: TransitionBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return (log probability of each row's action, entropy, value), all [B] and with gradients."""
        self._params.follow()
        sequence, time = rows["sequence"], rows["time"]
        is_first = time == 0
        state = {name: rows[STATE + name][is_first] for name in self._model.initial_state}
        num_sequences = len(next(iter(state.values())))
        obs, mask = split_mask(self._obs(rows))
        shape = num_sequences, self._cfg.learn.seq_len
        padded = map_obs(lambda part: part.new_zeros((*shape, *part.shape[1:])).index_put((sequence, time), part), obs)
        outputs, values, _ = self._model.actor_critic(padded, state)
        output, value = allowed_logits(outputs[sequence, time], mask), values[sequence, time]
        log_prob, entropy = self._family.log_prob_and_entropy(output, rows[self._family.column])
        return log_prob, entropy, value


def _seen(columns: Mapping[str, Array], prefix: str) -> Obs:
    """Return rows' observations as the network takes them."""
    return cast(Obs, split_mask(columns_to_obs(prefix, columns))[0])
