"""What recurrent off-policy algorithms share: rows that are sequences, burn-in, the priorities of such rows.

A row (`policy/rows.py`) has `burnin_step` steps that only warm up recurrent state, `learn_unroll_len` that are learned
from, and the state that the actor had before the first of them (Kapturowski et al. 2019).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding_like.data.batch import map_obs
from ding_like.model.layers import ObsTensor
from ding_like.policy.base import Policy
from ding_like.policy.forward import RunSequence
from ding_like.policy.rows import SequenceReturns, SequenceShape
from ding_like.types import Config
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds

ETA = 0.9  # Kapturowski et al. 2019, section 2.3


class SequencePolicy(Policy):
    """Policy that learns off-policy from sequences, by networks with recurrent state."""

    config: dict[str, Any] = dict(
        random_collect_size=0,
        # First env steps of each row, which only warm up the recurrent state.
        burnin_step=20,
        # Env steps of each row that are learned from.
        learn_unroll_len=80,
        # Env steps of a row: burnin_step and learn_unroll_len together, as DI-engine writes it; None: their sum.
        unroll_len=None,
        collect=dict(unroll_len=None),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"burnin_step": FROM_0, "learn_unroll_len": FROM_1}
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "random_collect_size": (
            0,
            "random actions come without the recurrent state that rows begin with; let the policy's own be random at "
            "first (of values, with other.eps.start=1.0)",
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

    @cached_property
    def _shape(self) -> SequenceShape:
        return SequenceShape(int(self._cfg.learn_unroll_len), int(self._cfg.burnin_step))

    def row_maker(self) -> SequenceReturns:
        return SequenceReturns(self._shape, self._nstep, self._gamma)

    def _unroll(self, run: RunSequence, obs: ObsTensor, state: Mapping[str, Tensor], *, begins: Tensor) -> Tensor:
        """Return what a network gives of rows [B, L + 1, ...], with a gradient for steps that are learned from.

        `begins` [B] marks rows at an episode's begin, which learn from the steps that others burn in.
        """
        burn_in = self._shape.burn_in
        if not burn_in:
            return run(obs, state)[0]
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

    def _return_ends(self, num_steps: Tensor) -> Tensor:
        """Return with which step [B, L] the return of each step ends, in rows of so many steps [B]."""
        ends = torch.arange(self._nstep, self._nstep + self._shape.length, device=num_steps.device)
        return torch.minimum(ends, num_steps[:, None])


def priority_of_rows(error: Tensor, mask: Tensor) -> Tensor:
    """Return priorities [B] of absolute errors [B, L], of the steps that `mask` marks as learned from."""
    error = error * mask
    return ETA * error.amax(dim=1) + (1.0 - ETA) * error.sum(dim=1) / mask.sum(dim=1)
