"""DAgger: an actor collects, an expert says what it would have done, and the actor learns that (Ross et al. 2011).

Behavioural cloning sees the observations of the expert alone: where the actor has drifted off, it has learned nothing.
Here the observations are the actor's. In each step of each env a collector takes the expert's action with probability
beta, else its own (algorithm 3.1), and the row is labelled with the expert's, `expert_action`, in either case. All rows
stay in the replay buffer, the aggregate of the paper; the loss is that of behavioural cloning (`policy/bc.py`).

beta falls from `other.beta.start` to `other.beta.end` with the env steps. The paper asks for a mean of beta that goes
to 0, and takes 1 in the first iteration and 0 later in its experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from ding_like.policy.bc import Imitation
from ding_like.rl_utils.exploration import get_epsilon_greedy_fn
from ding_like.types import Actor, Array, Config, Obs, State
from ding_like.utils.bounds import FROM_1, SHARE, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


class MixedActor:
    """Actor that takes an expert's action with probability `beta` of the setting, else the learner's.

    Rows have both: `action`, which the env got, and `expert_action`. Without an `expert` the learner acts alone, and
    rows have no label.
    """

    def __init__(self, learner: Actor, expert: Actor | None = None) -> None:
        self._learner, self.expert = learner, expert

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: float | Array
    ) -> dict[str, Array]:
        """Return `action` and `expert_action` [R, ...] for observations [R, O...] of the R `lanes`."""
        beta = setting.pop("beta", 0.0)
        own = self._learner.act(obs, lanes=lanes, is_first=is_first, rng=rng, **setting)["action"]
        if self.expert is None:
            return {"action": own}
        best = self.expert.act(obs, lanes=lanes, is_first=is_first, rng=rng)["action"].astype(own.dtype, copy=False)
        takes = (rng.random(len(lanes)) < beta).reshape(-1, *[1] * (own.ndim - 1))
        return {"action": np.where(takes, best, own), "expert_action": best}

    def reset(self, lanes: Array | None = None) -> None:
        """Forget the episodes of these lanes, or all."""
        self._learner.reset(lanes)
        if self.expert is not None:
            self.expert.reset(lanes)

    def state_dict(self) -> State:
        """Return what the expert remembers of the lanes' episodes."""
        return {} if self.expert is None else self.expert.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        if self.expert is not None:
            self.expert.load_state_dict(state)


@POLICY_REGISTRY.register("dagger")
class DAggerPolicy(Imitation):
    """Imitation of an expert that labels the rows which the policy collects."""

    config: dict[str, Any] = dict(
        type="dagger",
        learn=dict(
            update_per_collect=8,
        ),
        collect=dict(
            n_sample=64,
            # Folder of the expert's run, or a checkpoint in such a folder.
            model_path="",
        ),
        other=dict(
            beta=dict(
                # How the probability of the expert's action falls: "exp" or "linear".
                type="exp",
                # Probability of the expert's action at the first env step.
                start=1.0,
                # Probability of the expert's action in the end.
                end=0.0,
                # Env steps: the time constant of "exp", or where "linear" reaches `end`.
                decay=500,
            ),
            replay_buffer=dict(replay_buffer_size=100_000),
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "other.beta.start": SHARE,
        "other.beta.end": SHARE,
        "other.beta.decay": FROM_1,
    }
    config_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"other.beta.type": ("exp", "linear")}
    config_unused: ClassVar[Mapping[str, str]] = {
        "random_collect_size": "the expert labels the rows of actions that are chosen: with beta near 1 it acts first"
    }
    needs_expert = True
    _labels = "expert_action"

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if not cfg["collect"]["model_path"]:
            yield "collect.model_path", "is not set: give the folder of the expert's run, or a checkpoint in it"
        if cfg["other"]["beta"]["start"] < cfg["other"]["beta"]["end"]:
            yield "other.beta.start", "is less than beta.end: the expert would act ever more. Swap start and end"

    def _init_collect(self) -> None:
        self._mixed_actor = MixedActor(self._make_actor(explores=True))
        self._collect_actor = self._mixed_actor

    def use_expert(self, actor: Actor) -> None:
        """Let collectors act with an expert, whose actions label their rows."""
        self._mixed_actor.expert = actor

    def _init_command(self) -> None:
        beta = self._cfg.other.beta
        self._beta = get_epsilon_greedy_fn(beta.start, beta.end, beta.decay, beta.type)

    def _get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return beta for the env step in `info`."""
        return {"beta": self._beta(int(info["envstep"]))}
