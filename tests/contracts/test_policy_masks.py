"""Masks: every policy with discrete actions obeys them, greedy, drawn and at random, and learns under them."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding_like.data.batch import TransitionBatch
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import EnvError
from ding_like.policy import get_policy_cls
from ding_like.policy.di_engine_view import RandomActor
from ding_like.rl_utils.td import legal_value
from ding_like.utils.registries import ENV_REGISTRY
from tests.contracts.policy_cases import (
    ACTIONS,
    AGENTS,
    MASKED,
    act,
    by_family,
    draw_obs,
    forbidden,
    make,
    rows_of,
    shipped_policies,
    sizes_of,
    train,
)

ROWS = 3000
# How the choices of several agents may lie in a mask.
FORMS = {"in a row": lambda mask: mask, "by agent": lambda mask: mask.reshape(len(mask), AGENTS, ACTIONS)}
TEAMS = [name for name, case in MASKED.items() if sizes_of(case) == [ACTIONS] * AGENTS]


def masked_obs(name: str, form: str, *, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Return observations with masks in a form, and the masks in a row."""
    obs = draw_obs(MASKED[name], ROWS, np.random.default_rng(seed), masked=True)
    mask = obs["action_mask"]
    return {**obs, "action_mask": FORMS[form](mask)}, mask


# Each kind of space, beside the families.
SUITE = ("discrete_sac", "ppo several", "ppo bits", "ppo team")


def test_every_registered_policy_with_discrete_actions_has_a_case() -> None:
    covered = {(case.policy, type(case.space).__name__) for case in MASKED.values()}
    for policy in shipped_policies():
        kinds = set(get_policy_cls({"type": policy}).action_spaces or ()) - {"Box", "HybridSpace"}
        assert not kinds or any(name == policy and kind in kinds for name, kind in covered), policy


@pytest.mark.parametrize("name", by_family(MASKED, SUITE))
def test_no_forbidden_action_is_taken(name: str) -> None:
    policy = make(MASKED[name])
    for form in FORMS if name in TEAMS else ["in a row"]:
        obs, mask = masked_obs(name, form)
        for eps in (None, 0.0, 0.5, 1.0, np.linspace(0, 1, ROWS)):
            mode = policy.eval_mode if eps is None else policy.collect_mode

            action = act(mode.actor, obs, ROWS, **({} if eps is None else {"eps": eps}))["action"]

            assert action.shape[0] == ROWS and forbidden(MASKED[name], action, mask) == 0, (form, eps)
            chosen = np.unique(action.reshape(ROWS, -1), axis=0)
            # Masks differ, so all choices come up.
            assert len(chosen) == math.prod(sizes_of(MASKED[name])), (form, eps)


def test_no_forbidden_action_is_drawn_at_random() -> None:
    for name in ("dqn", "ppo several", "ppo bits", "qmix"):
        case = MASKED[name]
        for form in FORMS if name in TEAMS else ["in a row"]:
            obs, mask = masked_obs(name, form)

            action = act(RandomActor(case.space), obs, ROWS)["action"]

            assert action.shape == (ROWS, *case.space.shape) and forbidden(case, action, mask) == 0, (name, form)
            assert len(np.unique(action.reshape(ROWS, -1), axis=0)) == math.prod(sizes_of(case)), (name, form)


def test_the_row_functions_obey_the_mask_too() -> None:
    for name, case in MASKED.items():
        policy = make(case)
        obs = draw_obs(case, 50, np.random.default_rng(0), masked=True)
        rows = {i: {key: value[i] for key, value in obs.items()} for i in range(50)}

        for forward in (policy.collect_mode.forward, policy.eval_mode.forward):
            answer = forward(rows)
            action = np.stack([answer[i]["action"] for i in range(50)])
            assert forbidden(case, action, obs["action_mask"]) == 0, name


def test_a_mask_that_allows_nothing_is_an_error() -> None:
    for case in MASKED.values():
        policy = make(case)
        obs = draw_obs(case, 4, np.random.default_rng(0), masked=True)
        obs["action_mask"][2, : sizes_of(case)[0]] = 0

        for actor in (policy.collect_mode.actor, policy.eval_mode.actor, RandomActor(case.space)):
            with pytest.raises(EnvError, match=r"no action in rows \[2\]"):
                act(actor, obs, 4)


VALUES = by_family(
    ("dqn", "dqn autograd", "iqn", "iqn autograd", "fqf", "fqf autograd", "qmix"), ("dqn autograd", "iqn")
)


def poison(policy: Any, choice: int) -> None:
    """Make the value of one choice enormous, for every agent and in both networks."""
    with torch.no_grad():
        for network in (policy.get_attribute("model"), policy._target_model):
            network = getattr(network, "values", network)  # FQF's
            head = network.head if isinstance(network.head, torch.nn.Linear) else network.head.main[-1]
            head.bias[choice] += 1e6


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", VALUES)
def test_targets_never_use_a_forbidden_value(name: str, double: bool) -> None:
    policy = make(MASKED[name], double=double)
    batch = rows_of(MASKED[name], policy, masked=True)
    mask = batch["next_obs/action_mask"].reshape(len(batch), -1, ACTIONS).copy()
    mask[:, :, 1], mask[:, :, 2] = 0, 1
    batch = batch.with_columns(**{"next_obs/action_mask": mask.reshape(len(batch), -1)})
    poison(policy, 1)

    target = np.asarray(policy.learn_mode.grad(batch)[0]["target_q_value"])

    assert np.abs(target).max() < 1e4
    allowed = {"next_obs/action_mask": np.ones_like(batch["next_obs/action_mask"])}
    assert np.abs(np.asarray(policy.learn_mode.grad(batch.with_columns(**allowed))[0]["target_q_value"])).max() > 1e4


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", VALUES)
def test_where_nothing_is_allowed_next_nothing_follows(name: str, double: bool) -> None:
    policy = make(MASKED[name], double=double)
    batch = rows_of(MASKED[name], policy, masked=True)
    nothing = np.zeros_like(batch["next_obs/action_mask"])
    going_on = np.zeros(len(batch), bool)
    batch = batch.with_columns(terminated=going_on, **{"next_obs/action_mask": nothing})

    target = np.asarray(policy.learn_mode.grad(batch)[0]["target_q_value"])

    assert np.isfinite(target).all() and np.abs(target).max() < 100
    if name.startswith("dqn"):
        assert np.array_equal(target, batch["reward"])
    elif name != "qmix":  # a mean of quantiles, which are equal
        np.testing.assert_allclose(target, batch["reward"], rtol=1e-6)


def test_a_legal_value_of_minus_infinity_beats_a_forbidden_one() -> None:
    values = torch.tensor([[5.0, -torch.inf, 7.0]])

    assert legal_value(values, values, torch.tensor([[0, 1, 0]])).item() == -torch.inf


_ON_POLICY = ("ppo", "ppo_offpolicy", "a2c", "pg", "ppg", "ppg_offpolicy")
ON_POLICY = [name for name, case in MASKED.items() if case.policy in _ON_POLICY]


RATIO = [name for name in ON_POLICY if MASKED[name].policy not in ("a2c", "pg")]


@pytest.mark.parametrize("name", by_family(RATIO, ("ppo bits",)))
def test_log_probabilities_of_learning_are_those_of_acting(name: str) -> None:
    policy = make(MASKED[name])
    batch = rows_of(MASKED[name], policy, masked=True)

    assert abs(float(train(policy, [batch])[0]["approx_kl"])) < 1e-6


def _forbid_first(batch: TransitionBatch) -> tuple[TransitionBatch, np.ndarray]:
    """Return rows in which the first choice is forbidden, with a legal action in its place."""
    mask = batch["obs/action_mask"].copy()
    action = batch["action"].copy()
    mask[:, 0], mask[:, 1] = 0, 1
    first = action if action.ndim == 1 else action[:, 0]
    first[first == 0] = 1
    return batch.with_columns(action=action, **{"obs/action_mask": mask}), mask


@pytest.mark.parametrize("name", by_family(ON_POLICY, ("ppo bits", "a2c", "pg")))
def test_losses_have_no_gradient_by_a_forbidden_logit(name: str) -> None:
    policy = make(MASKED[name], learn=dict(entropy_weight=0.1))
    batch, _ = _forbid_first(rows_of(MASKED[name], policy, masked=True))

    minibatch = next(iter(policy.learn_mode.minibatches(batch, np.random.default_rng(0))))
    policy.learn_mode.grad(minibatch)

    gradient = policy.get_attribute("model").actor_head.main[-1].bias.grad
    assert gradient[0] == 0.0 and gradient[1:].abs().max() > 0


@pytest.mark.parametrize("name", TEAMS)
def test_both_forms_of_a_team_mask_give_the_same_gradient(name: str) -> None:
    case, vectors = MASKED[name], []
    for form in FORMS.values():
        policy = make(case)
        batch = rows_of(case, policy, masked=True)
        masks = {f"{prefix}/action_mask": form(batch[f"{prefix}/action_mask"]) for prefix in ("obs", "next_obs")}
        batch = batch.with_columns(**masks)
        policy.learn_mode.grad(next(iter(policy.learn_mode.minibatches(batch, np.random.default_rng(0)))))
        vectors.append(policy.grad_vectors()[0].clone())

    assert torch.equal(*vectors) and vectors[0].any()


class MaskedEnv(gymnasium.Env):
    """Env that forbids some choices of each action at every step and counts those that are made nonetheless."""

    made = 0
    forbidden = 0

    def __init__(self, cfg: Any = None) -> None:
        self.action_space = spaces.MultiDiscrete([ACTIONS] * AGENTS) if cfg["is_team"] else spaces.Discrete(ACTIONS)
        self._agents = AGENTS if cfg["is_team"] else 1
        shape = (AGENTS, ACTIONS) if cfg["by_agent"] else (self._agents * ACTIONS,)
        parts = {"agents": spaces.Box(-9, 9, (AGENTS, 3), np.float32), "state": spaces.Box(-9, 9, (5,), np.float32)}
        self.observation_space = spaces.Dict({**parts, "action_mask": spaces.MultiBinary(shape)})

    def _obs(self) -> Any:
        space, random = self.observation_space, self.np_random
        self._mask = random.random((self._agents, ACTIONS)) < 0.4
        self._mask[np.arange(self._agents), random.integers(0, ACTIONS, self._agents)] = True
        obs = {name: random.normal(size=space[name].shape).astype(np.float32) for name in ("agents", "state")}
        return {**obs, "action_mask": self._mask.astype(np.int8).reshape(space["action_mask"].shape)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        cls = type(self)
        cls.made += 1
        cls.forbidden += int((~self._mask[np.arange(self._agents), np.atleast_1d(action)]).any())
        return self._obs(), 0.0, bool(self.np_random.random() < 0.1), False, {}


@pytest.fixture
def counted() -> type[MaskedEnv]:
    ENV_REGISTRY.register("masked_env_of_the_contract")(MaskedEnv)
    MaskedEnv.made = MaskedEnv.forbidden = 0
    return MaskedEnv


@pytest.mark.parametrize(
    ("policy", "is_team", "by_agent"),
    [
        *(("dqn", False, False), ("ppo", True, True)),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (("r2d2", False, False), ("a2c", False, False), ("qmix", True, False), ("qmix", True, True))
        ),
    ],
)
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_run_makes_no_forbidden_move(policy: str, is_team: bool, by_agent: bool, counted: type[MaskedEnv]) -> None:
    learn: dict[str, Any] = dict(batch_size=16)
    section: dict[str, Any] = dict(
        learn=learn, collect=dict(n_sample=20), eval=dict(evaluator=dict(eval_freq=10)), random_collect_size=40
    )
    if policy in ("ppo", "a2c", "r2d2"):
        del section["random_collect_size"]
    if policy == "r2d2":
        section |= dict(burnin_step=2, learn_unroll_len=4, nstep=2)
    main = dict(
        exp_name="exp",
        env=dict(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=2, is_team=is_team, by_agent=by_agent),
        policy=section,
    )
    create = dict(env=dict(type="masked_env_of_the_contract"), env_manager=dict(type="base"), policy=dict(type=policy))
    pipeline = serial_pipeline_onpolicy if policy in ("ppo", "a2c") else serial_pipeline

    pipeline((main, create), seed=0, max_env_step=160)

    assert counted.made > 200 and counted.forbidden == 0
