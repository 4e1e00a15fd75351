"""SAC with memory: losses, gradients and priorities against a slow walk over rows and steps; acting with memory."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.pipeline.process import training_process
from ding_like.policy.rows import SequenceRows, SequenceShape
from ding_like.policy.sac_recurrent import SACRecurrentPolicy
from ding_like.policy.sharing import Share
from tests.policy.continuous import CENTRE, GAMMA, HALF, HIGH, LOW, peek_noise

ALPHA, LANES, OBS, STEPS = 0.2, 3, 2, 4
MODEL = dict(obs_shape=OBS, action_shape=2, hidden_size=4, encoder_hidden_size_list=[5])
MODEL |= dict(actor_head_hidden_size=6, critic_head_hidden_size=6, activation="tanh")


def make_policy(*, is_double: bool = True, **changes: Any) -> SACRecurrentPolicy:
    """Return a small policy, in float64 with targets that differ from its networks."""
    torch.manual_seed(0)
    own = dict(model=MODEL, discount_factor=GAMMA, burnin_step=2, learn_unroll_len=STEPS)
    own |= dict(action_low=LOW.tolist(), action_high=HIGH.tolist(), learn=dict(target_theta=0.25))
    policy = SACRecurrentPolicy(
        deep_merge(deep_merge(to_plain(SACRecurrentPolicy.default_config()), own), changes),
    )
    for network in policy._networks().values() if is_double else ():
        for module, params in ((network.network, network.params), (network.target, network.target_params)):
            if module is not None:
                module.double()
                params.rebuild()
        if network.target is not None:
            network.target_params.data_vector.add_(0.3 * torch.randn_like(network.target_params.data_vector))
    return policy


def make_rollout(policy: SACRecurrentPolicy, *, steps: int = 30, seed: int = 0) -> Rollout:
    """Return a rollout of random steps, with states that no network gave."""
    rng, rollout = np.random.default_rng(seed), Rollout(LANES)
    states = {name: value.shape for name, value in policy.get_attribute("model").initial_state.items()}
    for _ in range(steps):
        ended = rng.random((2, LANES)) < 0.1
        rollout.append(
            {
                "obs": rng.normal(size=(LANES, OBS)).astype(np.float32),
                "next_obs": rng.normal(size=(LANES, OBS)).astype(np.float32),
                **{f"state/{name}": rng.normal(size=(LANES, *shape)) for name, shape in states.items()},
                "action": rng.uniform(LOW, HIGH, (LANES, 2)),
                "lane": np.arange(LANES),
                "reward": rng.normal(size=LANES).astype(np.float32),
                "terminated": ended[0],
                "truncated": ended[1] & ~ended[0],
            }
        )
    return rollout


def both_rows(policy: SACRecurrentPolicy, **kwargs: Any) -> tuple[TransitionBatch, TransitionBatch]:
    """Return (the policy's rows, the same rows with each step's own reward and end), floats in float64."""
    rollout = make_rollout(policy, **kwargs)
    shape = SequenceShape(policy._cfg.learn_unroll_len, policy._cfg.burnin_step)
    rows, raw = policy.segment(rollout)[0], SequenceRows(shape).segment(rollout)[0]
    assert len(rows) > 8 and not raw["mask"].all() and raw["terminated"].any() and raw["truncated"].any()
    return (
        rows.with_columns(**{k: v.astype(np.float64) for k, v in rows.columns.items() if v.dtype.kind == "f"}),
        raw,
    )


def unroll(run: Any, initial_state: Any, raw: Any, *, burn_in: int) -> list[Tensor]:
    """Return what a network gives of each observation of a row, step by step; burn-in is without a gradient."""
    state = {name: torch.tensor(raw[f"state/{name}"][None]).double() for name in initial_state}
    given = []
    for t in range(int(raw["num_steps"]) + 1):
        with torch.no_grad() if t < burn_in and not raw["mask"][0] else nullcontext():
            output, state = run(torch.tensor(np.float64(raw["obs"][t])).view(1, 1, -1), state)
        given.append(output[0])
    return given


def log_density(mean: Tensor, log_sigma: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return an action [1, A] and its log density, by torch's own Gaussian and the slope of tanh."""
    gaussian = torch.distributions.Normal(mean, log_sigma.clamp(-20, 2).exp())
    u = mean + gaussian.scale * noise
    return u.tanh(), (gaussian.log_prob(u) - torch.log(1 - u.tanh() ** 2)).sum()


def slow_losses(policy: SACRecurrentPolicy, raw: TransitionBatch, weight: Any) -> dict[str, Any]:
    """Go row by row and step by step; losses may be differentiated by the copies of the networks in `networks`."""
    cfg, model = policy._cfg, copy.deepcopy(policy.get_attribute("model"))
    target = copy.deepcopy(policy._critic.target)
    noise = peek_noise_of_rows(policy, len(raw))
    frozen = copy.deepcopy(model.critic)
    critic_loss, actor_loss, alpha_terms, priorities = 0.0, 0.0, [], []
    for number, row in enumerate(raw):
        last, burn_in = int(row["num_steps"]), cfg.burnin_step
        actors = unroll(model.actor, model.actor.memory.initial_state, row, burn_in=burn_in)
        own, theirs = (
            unroll(critic.memory, critic.memory.initial_state, row, burn_in=burn_in)
            for critic in (model.critic, target)
        )
        drawn = [log_density(*actors[t].chunk(2, dim=1), noise[number, t]) for t in range(last + 1)]
        errors = []
        for t in range(last):
            if not row["mask"][t]:
                continue
            end = min(t + cfg.nstep, last)
            y = sum(GAMMA ** (i - t) * float(row["reward"][i]) for i in range(t, end))
            if cfg.learn.ignore_done or not row["terminated"][end - 1]:
                action, log_prob = (part.detach() for part in drawn[end])
                soft = float(target(theirs[end], action).min().detach() - ALPHA * log_prob)
                y += GAMMA ** (end - t) * soft
            taken = torch.tensor((row["action"][t] - CENTRE) / HALF)[None]
            values = model.critic(own[t], taken)[:, 0]
            critic_loss = critic_loss + float(weight[number]) * ((values - y) ** 2 / 2).sum()
            action, log_prob = drawn[t]
            actor_loss = actor_loss + ALPHA * log_prob - frozen(own[t].detach(), action).min()
            alpha_terms.append(float(log_prob.detach()) - 2)  # the entropy aims at minus the two dimensions
            errors.append(float((values.detach() - y).abs().mean()))
        priorities.append(0.9 * max(errors) + 0.1 * float(np.mean(errors)))
    share = 1.0 / (len(raw) * cfg.learn_unroll_len)
    return {
        "critic": critic_loss * share,
        "actor": actor_loss * share,
        "alpha": -np.log(ALPHA) * sum(alpha_terms) * share,
        "priorities": priorities,
        "networks": {"critic": model.critic, "actor": model.actor},
    }


def peek_noise_of_rows(policy: SACRecurrentPolicy, rows: int) -> Tensor:
    """Return the noise [B, L + 1, A] that the next gradient draws."""
    return peek_noise(policy, rows, policy._cfg.burnin_step + policy._cfg.learn_unroll_len + 1, 2)


VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "n steps": dict(nstep=3),
    "ignore_done": dict(learn=dict(ignore_done=True)),
    "no burn-in": dict(burnin_step=0),
    "more burn-in than steps": dict(burnin_step=5, learn_unroll_len=2, nstep=2),
    "gru, one critic": dict(model=dict(cell_type="gru", twin_critic=False)),
    "norm_lstm": dict(model=dict(cell_type="norm_lstm")),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_an_update_equals_a_slow_walk_over_rows_and_steps(name: str) -> None:
    policy = make_policy(priority=True, priority_IS_weight=True, **VARIANTS[name])
    rows, raw = both_rows(policy)
    weight = np.linspace(0.1, 2.0, len(rows))
    slow = slow_losses(policy, raw, weight)

    info, priority = policy.grad(rows.with_columns(weight=weight))

    for network in ("critic", "actor"):
        assert float(info[f"{network}_loss"]) == pytest.approx(float(slow[network].detach()), rel=1e-5)
        wanted = torch.autograd.grad(slow[network], list(slow["networks"][network].parameters()), allow_unused=True)
        shapes = slow["networks"][network].parameters()
        flat = [torch.zeros_like(p) if grad is None else grad for grad, p in zip(wanted, shapes, strict=True)]
        found = policy._networks()[network].params.grad_vector
        torch.testing.assert_close(found, torch.cat([grad.flatten() for grad in flat]), rtol=1e-4, atol=1e-7)
    assert float(info["alpha_loss"]) == pytest.approx(slow["alpha"], rel=1e-5)
    np.testing.assert_allclose(priority, slow["priorities"], rtol=1e-5)


def test_what_stands_behind_the_end_of_an_episode_weighs_nothing() -> None:
    policy = make_policy(priority=True)
    rows = both_rows(policy)[0]
    beyond = np.arange(rows["mask"].shape[1]) >= rows["num_steps"][:, None]
    assert beyond.any()
    changed = {name: np.where(beyond, 7, rows[name]) for name in ("reward", "discount")}
    obs, action = rows["obs"].copy(), rows["action"].copy()
    obs[:, 1:][beyond], action[beyond] = 7.0, 7.0

    first, first_priority = policy.grad(rows)
    vectors = [vector.clone() for vector in policy.grad_vectors()]
    second, second_priority = policy.grad(rows.with_columns(obs=obs, action=action, **changed))

    assert {name: float(value.mean()) for name, value in first.items()} == {
        name: float(value.mean()) for name, value in second.items()
    }
    assert all(map(torch.equal, vectors, policy.grad_vectors()))
    assert np.array_equal(first_priority, second_priority)


def test_two_learners_with_half_of_the_rows_each_find_the_gradient_of_one() -> None:
    rows = both_rows(make_policy())[0][:12]
    alone, halves = make_policy(), [make_policy() for _ in range(2)]

    alone.grad(rows)
    for rank, policy in enumerate(halves):
        policy.set_share(Share(rank, 2))
        policy.grad(rows[6 * rank : 6 * rank + 6])

    for whole, *parts in zip(alone.grad_vectors(), *(policy.grad_vectors() for policy in halves), strict=True):
        torch.testing.assert_close(whole, (parts[0] + parts[1]) / 2)


def act(actor: Any, obs: Any, *, is_first: Any) -> dict[str, Any]:
    columns: dict[str, Any] = actor.act(obs, lanes=np.arange(len(obs)), is_first=is_first, rng=np.random.default_rng(0))
    return columns


def test_lanes_remember_their_own_episodes_and_rows_hold_the_state_of_actor_and_critics() -> None:
    policy = make_policy()
    model, actor = policy.get_attribute("model"), policy.collect_mode.actor
    obs = np.random.default_rng(0).normal(size=(4, 2, OBS))

    seen = [act(actor, each, is_first=np.array([t == 0, t in (0, 2)])) for t, each in enumerate(obs)]

    for lane, begin in ((0, 0), (1, 2)):
        state = {name: torch.tensor(value[None]).double() for name, value in model.initial_state.items()}
        with torch.no_grad():
            for each in obs[begin:3, lane]:
                state = model.act(torch.tensor(each).view(1, 1, -1), state)[1]
        for name, column in state.items():
            np.testing.assert_allclose(seen[3][f"state/{name}"][lane], column[0], rtol=1e-5, atol=1e-7)


def test_evaluation_takes_the_mean_of_what_the_actor_remembers() -> None:
    policy = make_policy()
    model = policy.get_attribute("model")
    obs = np.random.default_rng(0).normal(size=(3, 1, OBS))

    actor = policy.eval_mode.actor
    taken = [act(actor, each, is_first=np.array([t == 0])) for t, each in enumerate(obs)]

    state = {name: torch.tensor(value[None]).double() for name, value in model.actor.memory.initial_state.items()}
    with torch.no_grad():
        output, _ = model.actor(torch.tensor(obs).transpose(0, 1), state)
    np.testing.assert_allclose(taken[2]["action"][0], CENTRE + HALF * np.tanh(output[0, 2, :2].numpy()), rtol=1e-5)


def test_what_was_shown_before_is_what_training_learns_to_act_on() -> None:
    """Reward pushing the way that the first observation of an episode points, which the last one does not show."""
    learn = dict(learning_rate=1e-2, alpha=0.05, auto_alpha=False)
    policy = make_policy(is_double=False, model=dict(hidden_size=16), burnin_step=0, learn_unroll_len=2, learn=learn)
    state = {f"state/{name}": value for name, value in policy.get_attribute("model").initial_state.items()}

    def rows(seed: int, number: int = 32) -> TransitionBatch:
        rng = np.random.default_rng(seed)
        obs = np.zeros((number, 3, OBS), np.float32)
        obs[:, 0, 0] = rng.choice([-1.0, 1.0], number)
        action = rng.uniform(LOW, HIGH, (number, 2, 2))
        reward = np.zeros((number, 2), np.float32)
        reward[:, 1] = obs[:, 0, 0] * (action[:, 1, 0] - CENTRE[0]) / HALF[0]
        terminated, discount = np.zeros((number, 2), bool), np.full((number, 2), GAMMA, np.float32)
        terminated[:, 1] = True
        columns = dict(obs=obs, action=action, reward=reward, terminated=terminated, discount=discount)
        columns |= dict(mask=np.ones((number, 2), bool), num_steps=np.full(number, 2))
        return TransitionBatch({**columns, **{name: np.tile(each, (number, 1)) for name, each in state.items()}})

    with training_process():
        for seed in range(250):
            policy.grad(rows(seed))
            policy.apply()

    shown = rows(1000)["obs"]
    for t in range(2):
        pushes = act(policy.eval_mode.actor, shown[:, t], is_first=np.full(32, t == 0))["action"][:, 0]
    assert (np.sign(shown[:, 0, 0]) * (pushes - CENTRE[0]) / HALF[0] > 0.5).mean() > 0.9
