"""Policies that learn a team agent by agent: acting, targets, losses and shares against walks over agents and rows."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import compile_config, deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.errors import ConfigError
from ding_like.model import numpy_forward
from ding_like.policy import create_policy, get_policy_cls
from ding_like.policy.sharing import Share
from tests.policy.teams import ACTIONS, AGENTS, KINDS, LANES, SEEN, SHAPES, SMALL, STATE, Team, lives, make, view

MEMORY: dict[str, Any] = dict(
    encoder_hidden_size_list=[8], hidden_size=8, actor_head_layer_num=0, critic_head_layer_num=0
)
ON_POLICY = ["ippo", "mappo"]
ONE_MINIBATCH: dict[str, Any] = dict(epoch_per_collect=1, batch_size=10_000)


def played(policy: Any, *, seed: int = 0, steps: int = 24, masked: bool = False) -> TransitionBatch:
    """Return a policy's rows of the team, with targets."""
    return policy.segment(Team(seed, masked=masked).play(policy, steps))[0].own_memory()


def values_of(policy: Any, batch: TransitionBatch, row: int, agent: int, prefix: str = "obs") -> float:
    seen = view(batch, row, agent, prefix=prefix, with_state=policy.sees_state)
    with torch.no_grad():
        return float(policy.get_attribute("model").critic(seen)) * policy._returns.now.std


# ---- acting


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("name", ON_POLICY)
def test_each_agent_acts_by_the_one_network_on_what_it_sees(name: str, box: bool) -> None:
    policy = make(name, box=box)
    batch = played(policy, masked=not box)

    for row in range(len(batch)):
        for agent in range(AGENTS):
            output = policy.get_attribute("model").actor(view(batch, row, agent))
            if not box:
                legal = torch.from_numpy(batch["obs/action_mask"][row, agent]) != 0
                assert legal[batch["action"][row, agent]]
                output = output.masked_fill(~legal, -1e9)
            action = torch.as_tensor(batch["action_raw" if box else "action"][row, agent])[None]
            log_prob = policy._family.log_prob_and_entropy(output, action)[0].item()
            assert batch["log_prob"][row, agent] == pytest.approx(log_prob, abs=1e-5)
            if box:
                raw = batch["action_raw"][row, agent]
                own = np.clip([2 * raw[0], 0.5 + 0.5 * raw[1]], [-2, 0], [2, 1])
                np.testing.assert_allclose(batch["action"][row, 2 * agent : 2 * agent + 2], own, atol=1e-6)


def test_each_agent_explores_by_itself_with_its_lanes_epsilon() -> None:
    policy = make("idqn", model=dict(encoder_hidden_size_list=[8], head_layer_num=0))
    obs, rng = Team().obs, np.random.default_rng(0)
    given: dict[str, Any] = dict(lanes=np.arange(LANES), is_first=np.ones(LANES, bool), rng=rng)
    greedy = policy.eval_mode.actor.act(obs, **given)["action"]

    eps = np.array([0.0, 0.0, 1.0, 1.0])
    drawn = np.stack([policy.collect_mode.actor.act(obs, **given, eps=eps)["action"] for _ in range(200)])

    assert (drawn[:, :2] == greedy[:2]).all()
    counts = [np.bincount(drawn[:, lane, agent], minlength=ACTIONS) for lane in (2, 3) for agent in range(AGENTS)]
    assert (np.abs(np.array(counts) / 200 - 1 / ACTIONS) < 0.15).all()
    assert len(np.unique(drawn[:, 2], axis=0)) > 20, "agents of a lane draw alike"


# ---- targets


@pytest.mark.parametrize("ignore_done", [False, True])
@pytest.mark.parametrize("name", ON_POLICY)
def test_advantages_equal_a_walk_over_what_each_agent_lived_through(name: str, ignore_done: bool) -> None:
    learn = dict(ignore_done=ignore_done)
    policy = make(name, discount_factor=0.9, collect=dict(gae_lambda=0.7), learn=learn)
    batch = played(policy)

    ends = set()
    for life in lives(batch.columns):
        running, after = 0.0, 0.0
        for row in reversed(life.rows):
            value = values_of(policy, batch, row, life.agent)
            if row == life.rows[-1]:
                is_over = life.is_terminated and not ignore_done
                after = 0.0 if is_over else values_of(policy, batch, row, life.agent, "next_obs")
            running = batch["next_obs/rewards"][row, life.agent] + 0.9 * after - value + 0.9 * 0.7 * running
            assert batch["value"][row, life.agent] == pytest.approx(value, abs=1e-5)
            assert batch["advantage"][row, life.agent] == pytest.approx(running, abs=1e-4)
            assert batch["return_"][row, life.agent] == pytest.approx(running + value, abs=1e-4)
            after = value
        ends.add(life.end)
    assert ends == KINDS
    gone = batch["obs/alive"] == 0
    assert gone.any() and not batch["advantage"][gone].any() and not batch["return_"][gone].any()


# ---- losses


@torch.no_grad()
def slow_loss(policy: Any, batch: TransitionBatch) -> float:
    """Return the loss of the module's docstring, agent by agent and row by row."""
    learn, model = policy.cfg.learn, policy.get_attribute("model")
    pairs = [(row, agent) for row in range(len(batch)) for agent in range(AGENTS) if batch["obs/alive"][row, agent]]
    advantage = np.array([batch["advantage"][pair] for pair in pairs], np.float64)
    if learn.adv_norm:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    returns = np.array([batch["return_"][pair] for pair in pairs], np.float64)
    unit = policy._returns.next.std if learn.value_norm else 1.0
    if learn.value_norm:
        assert unit == pytest.approx(returns.std(), rel=0.05), "agents that are gone do not count"
    total = 0.0
    for (row, agent), own in zip(pairs, advantage, strict=True):
        output = model.actor(view(batch, row, agent))
        if "obs/action_mask" in batch.columns:
            output = output.masked_fill(torch.from_numpy(batch["obs/action_mask"][row, agent] == 0), -1e9)
        action = torch.as_tensor(batch[policy._family.column][row, agent])[None]
        log_prob, entropy = (float(each) for each in policy._family.log_prob_and_entropy(output, action))
        ratio = np.exp(log_prob - batch["log_prob"][row, agent])
        value = float(model.critic(view(batch, row, agent, with_state=policy.sees_state)))
        total -= min(ratio * own, np.clip(ratio, 1 - learn.clip_ratio, 1 + learn.clip_ratio) * own)
        total += learn.value_weight * (value - batch["return_"][row, agent] / unit) ** 2
        total -= learn.entropy_weight * entropy
    return total / len(pairs)


def stepped(policy: Any, batch: TransitionBatch) -> None:
    """Take a few updates, so that ratios are not 1."""
    for minibatch in islice(policy.minibatches(batch, np.random.default_rng(0)), 6):
        policy.grad(minibatch)
        policy.apply()


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("kind", ["masked", "box"])
@pytest.mark.parametrize("name", ON_POLICY)
def test_the_loss_equals_a_walk_over_agents_and_rows(name: str, kind: str, backend: str) -> None:
    learn = dict(ONE_MINIBATCH, epoch_per_collect=8, entropy_weight=0.05, backend=backend, learning_rate=0.01)
    policy = make(name, box=kind == "box", learn=learn)
    batch = played(policy, masked=kind == "masked")
    assert (batch["obs/alive"] == 0).any()
    stepped(policy, batch)

    (minibatch,) = islice(policy.minibatches(batch, np.random.default_rng(1)), 1)
    info, _ = policy.grad(minibatch)

    assert len(minibatch) == np.count_nonzero(batch["obs/alive"])
    assert 0 < float(info["clip_fraction"]) < 1
    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, batch), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ON_POLICY)
def test_both_backends_have_one_gradient(name: str) -> None:
    one, other = make(name), make(name, learn=dict(backend="autograd"))
    assert one._by_hand is not None and other._by_hand is None
    batch = played(one, masked=True)

    for policy in (one, other):
        policy.grad(next(policy.minibatches(batch, np.random.default_rng(0))))

    (ours,), (wanted,) = one.grad_vectors(), other.grad_vectors()
    assert wanted.abs().max() > 1e-3
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [*ON_POLICY, "ippo_recurrent", "mappo_recurrent"])
def test_what_is_said_of_agents_that_are_gone_changes_nothing(name: str) -> None:
    settings = dict(model=MEMORY) if "recurrent" in name else {}
    one, other = make(name, **settings), make(name, **settings)
    batch = played(one)
    gone, lies = batch["obs/alive"] == 0, {}
    for column in ("obs/agents", "value", "advantage", "return_", "log_prob", "next_obs/rewards"):
        lies[column] = batch[column].copy()
        lies[column][gone] = 1e6

    for policy, rows in ((one, batch), (other, batch.with_columns(**lies))):
        stepped(policy, rows)

    for wanted, ours in zip(one.grad_vectors(), other.grad_vectors(), strict=True):
        assert torch.equal(wanted, ours)


def test_advantages_are_normalised_once_over_the_rows_of_those_alive() -> None:
    policy = make("ippo", learn=dict(adv_norm="batch", epoch_per_collect=2))
    batch = played(policy)

    minibatches = list(policy.minibatches(batch, np.random.default_rng(0)))

    per_epoch = len(minibatches) // 2
    for part in (minibatches[:per_epoch], minibatches[per_epoch:]):
        advantage = np.concatenate([minibatch["advantage"] for minibatch in part])
        assert len(advantage) == np.count_nonzero(batch["obs/alive"])
        assert advantage.mean() == pytest.approx(0, abs=1e-6) and advantage.std() == pytest.approx(1, rel=1e-4)


def test_targets_are_computed_anew_for_each_agent() -> None:
    policy = make("mappo", recompute_adv=True, learn=dict(ONE_MINIBATCH, epoch_per_collect=3, learning_rate=0.01))
    batch = played(policy)

    minibatches = policy.minibatches(batch, np.random.default_rng(0))
    policy.grad(next(minibatches))
    policy.apply()
    second = next(minibatches)

    anew = policy.with_returns(batch)
    alive = batch["obs/alive"] != 0
    assert np.abs(anew["advantage"] - batch["advantage"]).max() > 1e-3
    np.testing.assert_array_equal(np.sort(second["advantage"]), np.sort(anew["advantage"][alive]))


def test_schedules_count_env_steps_and_not_agents() -> None:
    policy = make("ippo", learn=dict(epoch_per_collect=1, schedule=dict(env_steps=192, lr_end=0.0)))
    batch = played(policy)  # 96 steps of the team

    for _ in range(2):
        for minibatch in policy.minibatches(batch, np.random.default_rng(0)):
            rate = policy.grad(minibatch)[0]["cur_lr"]
            policy.apply()

    assert rate == pytest.approx(1.5e-4)


@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_numpy_gives_the_gradient_by_what_the_networks_see(name: str) -> None:
    policy = make(name)
    model = policy.get_attribute("model")
    size = AGENTS + SEEN + (STATE if policy.sees_state else 0)
    seen = torch.from_numpy(np.random.default_rng(0).normal(size=(5, size)).astype(np.float32)).requires_grad_()
    output, value = model.actor_critic(seen)
    weights = torch.arange(1.0, 5 * (ACTIONS + 1) + 1).reshape(5, ACTIONS + 1)
    (torch.cat([output, value[:, None]], dim=1) * weights).sum().backward()

    run = numpy_forward(model)
    assert run is not None and seen.grad is not None
    given = run(seen.detach().numpy())

    np.testing.assert_allclose(given, torch.cat([output, value[:, None]], dim=1).detach(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run.back(weights.numpy()), seen.grad, rtol=1e-3, atol=1e-5)


# ---- memory


class Recall:
    """Team whose agents each see a cue, and are paid a step later for the action that it names."""

    def __init__(self, seed: int, *, leaves: bool) -> None:
        self.rng, self.leaves = np.random.default_rng(seed), leaves

    def play(self, policy: Any, turns: int) -> tuple[TransitionBatch, float]:
        """Return rows of so many episodes of each lane, and what agents were paid in the mean."""
        log, paid = Rollout(LANES), []
        for turn in range(turns):
            cue = self.rng.integers(0, ACTIONS, (LANES, AGENTS))
            shown = np.zeros((LANES, AGENTS, SEEN), np.float32)
            shown[..., :ACTIONS] = np.eye(ACTIONS)[cue]
            alive = np.ones((LANES, AGENTS), np.int8)
            for step in (0, 1):
                obs = {"agents": shown * (step == 0), "state": np.zeros((LANES, STATE), np.float32), "alive": alive}
                obs |= {"ended": 1 - alive, "rewards": np.zeros((LANES, AGENTS), np.float32)}
                first = np.full(LANES, step == 0)
                given: dict[str, Any] = dict(lanes=np.arange(LANES), is_first=first, rng=self.rng)
                columns = policy.collect_mode.actor.act(obs, **given)
                rewards = (columns["action"] == cue).astype(np.float32) * alive * step
                paid += rewards[alive != 0].tolist() if step else []
                after = alive.copy()
                after[:, 0] &= int(not (self.leaves and step == 0))  # the first agent leaves before it is paid
                after &= int(step == 0)
                follows = {**obs, "agents": shown * 0, "alive": after, "ended": 1 - after, "rewards": rewards}
                ends = dict(terminated=np.full(LANES, step == 1), truncated=np.zeros(LANES, bool))
                where = dict(lane=np.arange(LANES), episode_id=np.arange(LANES) + LANES * turn)
                own = {f"{k}/{n}": v for k, each in (("obs", obs), ("next_obs", follows)) for n, v in each.items()}
                log.append({**own, **columns, **ends, **where, "reward": rewards.sum(axis=1)})
                alive = after
        return policy.segment(log)[0].own_memory(), float(np.mean(paid))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "leaves"), [("ippo_recurrent", False), ("mappo_recurrent", True), ("ippo", True)])
def test_memory_learns_what_agents_saw_a_step_ago(name: str, leaves: bool) -> None:
    learn: dict[str, Any] = dict(batch_size=96, epoch_per_collect=4, learning_rate=0.01, value_norm=True)
    policy = make(name, model=MEMORY if "recurrent" in name else SMALL, learn=learn)
    team = Recall(0, leaves=leaves)

    for number in range(25):
        batch, paid = team.play(policy, 10)
        for minibatch in policy.minibatches(batch, np.random.default_rng(number)):
            policy.grad(minibatch)
            policy.apply()

    assert paid > 0.9 if "recurrent" in name else paid < 0.5, "without memory it is a guess"


@torch.no_grad()
@pytest.mark.parametrize(("name", "box"), [("ippo_recurrent", False), ("mappo_recurrent", True)])
def test_each_agent_remembers_its_own_views_from_the_episodes_start(name: str, box: bool) -> None:
    policy = make(name, box=box, model=MEMORY, collect=dict(gae_lambda=0.7))
    batch = played(policy)
    model, ends = policy.get_attribute("model"), set()

    for life in lives(batch.columns):
        state = {key: torch.zeros(1, 8) for key in ("h", "c")}
        steps = []
        for row in life.rows:
            own = view(batch, row, life.agent, with_state=policy.sees_state)[:, None]
            for key, column in state.items():
                np.testing.assert_allclose(batch[f"state/{key}"][row, life.agent], column[0], atol=1e-6)
            output, value, state = model.actor_critic(own, state)
            after = view(batch, row, life.agent, prefix="next_obs", with_state=policy.sees_state)[:, None]
            steps.append((row, value.item(), model.critic(after, state)[0].item()))
            action = torch.as_tensor(batch[policy._family.column][row, life.agent])[None]
            log_prob = policy._family.log_prob_and_entropy(output[0], action)[0].item()
            assert batch["log_prob"][row, life.agent] == pytest.approx(log_prob, abs=1e-5)
        running = 0.0
        for row, value, following in reversed(steps):
            if row == life.rows[-1] and life.is_terminated:
                following = 0.0
            reward = batch["next_obs/rewards"][row, life.agent]
            running = reward + 0.99 * following - value + 0.99 * 0.7 * running
            assert batch["advantage"][row, life.agent] == pytest.approx(running, abs=1e-4)
        ends.add(life.end)
    assert ends == KINDS


@pytest.mark.parametrize("name", ["ippo_recurrent", "mappo_recurrent"])
def test_before_an_update_every_ratio_is_one_and_sequences_end_with_their_agent(name: str) -> None:
    policy = make(name, model=MEMORY, learn=dict(seq_len=5, **ONE_MINIBATCH))
    batch = played(policy)
    (minibatch,) = policy.minibatches(batch, np.random.default_rng(0))

    info, _ = policy.grad(minibatch)

    assert len(minibatch) == np.count_nonzero(batch["obs/alive"])
    assert abs(float(info["approx_kl"])) < 1e-10
    assert sum(-(-len(life.rows) // 5) for life in lives(batch.columns)) == minibatch["sequence"].max() + 1


# ---- a team of one


def test_a_team_of_one_learns_what_ppo_does() -> None:
    shapes = {"agents": [1, SEEN], "alive": 1, "ended": 1, "rewards": 1, "state": STATE}
    learn = dict(epoch_per_collect=3, batch_size=16, value_norm=True)
    team, alone = (
        create_policy(
            deep_merge(
                to_plain(get_policy_cls(dict(type=kind)).default_config()),
                dict(type=kind, learn=learn, model={**SMALL, "obs_shape": shape, "action_shape": actions}),
            )
        )
        for kind, shape, actions in (
            ("ippo", shapes, [ACTIONS]),
            # The number of the only agent is a constant 1 beside what it sees.
            ("ppo", SEEN + 1, ACTIONS),
        )
    )
    alone.get_attribute("model").load_state_dict(team.get_attribute("model").state_dict())

    for turn in range(3):
        rng = np.random.default_rng(turn)
        logs, draws = [Rollout(LANES), Rollout(LANES)], [np.random.default_rng(turn) for _ in range(2)]
        for _ in range(12):
            seen, after = rng.normal(size=(2, LANES, SEEN)).astype(np.float32)
            reward, ended = rng.normal(size=LANES).astype(np.float32), rng.random((2, LANES)) < 0.1
            ends = dict(terminated=ended[0], truncated=ended[1] & ~ended[0], lane=np.arange(LANES), reward=reward)
            given: list[dict[str, Any]] = [{}, {}]
            for prefix, what in (("obs", seen), ("next_obs", after)):
                one = np.ones((LANES, 1), np.float32)
                over = (ended.any(axis=0) if prefix == "next_obs" else np.zeros(LANES, bool))[:, None]
                given[0] |= {
                    f"{prefix}/agents": what[:, None],
                    f"{prefix}/state": np.zeros((LANES, STATE), np.float32),
                    f"{prefix}/alive": np.ones((LANES, 1), np.int8) - (over & ended[0][:, None]).astype(np.int8),
                    f"{prefix}/ended": (over & ended[0][:, None]).astype(np.int8),
                    f"{prefix}/rewards": reward[:, None],
                }
                given[1][prefix] = np.concatenate([what, one], axis=1)
            for policy, log, columns, draw in zip((team, alone), logs, given, draws, strict=True):
                obs = {key[4:]: each for key, each in columns.items() if key.startswith("obs/")} or columns["obs"]
                where: dict[str, Any] = dict(lanes=np.arange(LANES), is_first=np.ones(LANES, bool), rng=draw)
                log.append({**columns, **ends, **policy.collect_mode.actor.act(obs, **where)})
        batches = [policy.segment(log)[0].own_memory() for policy, log in zip((team, alone), logs, strict=True)]
        for name in ("action", "log_prob", "value", "advantage", "return_"):
            np.testing.assert_array_equal(batches[0][name][:, 0], batches[1][name], err_msg=name)
        ours, theirs = (
            policy.minibatches(batch, np.random.default_rng(9))
            for policy, batch in zip((team, alone), batches, strict=True)
        )
        for own, wanted in zip(ours, theirs, strict=True):
            assert team.grad(own)[0]["total_loss"] == alone.grad(wanted)[0]["total_loss"]
            team.apply()
            alone.apply()

    assert torch.equal(team.grad_vectors()[0], alone.grad_vectors()[0])


# ---- independent DQN


@pytest.mark.parametrize("double", [True, False])
def test_the_loss_of_idqn_equals_a_walk_over_agents_and_rows(double: bool) -> None:
    model = dict(encoder_hidden_size_list=[8], head_layer_num=0)
    policy = make("idqn", model=model, double=double, discount_factor=0.9)
    batch = policy.segment(Team(masked=True).play(policy, 24, eps=0.5))[0].own_memory()
    stepped(policy, batch)
    (minibatch,) = policy.minibatches(batch, np.random.default_rng(0))
    info, priority = policy.grad(minibatch)

    online, target, losses, ends = policy.get_attribute("model"), policy._target_model, [], set()
    with torch.no_grad():
        for life in lives(batch.columns):
            for row in life.rows:
                y = float(batch["next_obs/rewards"][row, life.agent])
                if not (row == life.rows[-1] and life.is_terminated):
                    # One that is cut by itself shows no mask any more: its last one stands in.
                    is_gone = batch["next_obs/alive"][row, life.agent] == 0
                    legal = batch[f"{'obs' if is_gone else 'next_obs'}/action_mask"][row, life.agent]
                    following = view(batch, row, life.agent, prefix="next_obs")
                    judge = (online if double else target).q(following)[0]
                    best = max(np.flatnonzero(legal), key=lambda action: float(judge[action]))
                    y += 0.9 * float(target.q(following)[0, best])
                chosen = online.q(view(batch, row, life.agent))[0, batch["action"][row, life.agent]]
                losses.append((float(chosen) - y) ** 2)
            ends.add(life.end)
    assert ends == KINDS and priority is None and len(losses) == len(minibatch) == np.count_nonzero(batch["obs/alive"])
    assert float(info["total_loss"]) == pytest.approx(np.mean(losses), rel=1e-4)


def test_learners_of_idqn_share_the_rows_of_those_alive() -> None:
    model = dict(encoder_hidden_size_list=[8], head_layer_num=0)
    alone, *pair = (make("idqn", model=model) for _ in range(3))
    batch = alone.segment(Team().play(alone, 9, eps=0.5))[0].own_memory()
    for rank, policy in enumerate(pair):
        policy.set_share(Share(rank, 2))

    for policy in (alone, *pair):
        policy.grad(next(policy.minibatches(batch, np.random.default_rng(0))))

    mean = sum(policy.grad_weight() * policy.grad_vectors()[0] for policy in pair)
    torch.testing.assert_close(mean, alone.grad_vectors()[0], rtol=1e-5, atol=1e-7)


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "model", "message"),
    [
        ("ippo", dict(obs_shape=4), "'ippo' learns from a team: .* got obs_shape 4. .*'joint_petting_zoo'"),
        ("idqn", dict(obs_shape={"board": 4}), "'idqn' learns from a team"),
        ("mappo", dict(action_shape=[3, 3, 2]), "equally many actions of each of 3 agents"),
        ("happo", dict(action_shape=7), "equally many actions of each of 3 agents"),
        ("mappo", dict(share_encoder=True), "share_encoder"),
    ],
)
def test_what_does_not_fit_a_team_is_refused(name: str, model: Any, message: str) -> None:
    section: Any = to_plain(get_policy_cls(dict(type=name)).default_config())
    section["model"] = {"obs_shape": SHAPES, "action_shape": [ACTIONS] * AGENTS, **model}

    with pytest.raises(ConfigError, match=message):
        create_policy({**section, "type": name})


@pytest.mark.parametrize(("name", "warns"), [("mappo", False), ("happo", True)])
def test_a_minibatch_may_have_more_rows_than_the_team_where_it_is_of_all_agents(
    name: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    policy = dict(learn=dict(batch_size=128), collect=dict(n_sample=64))
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=name))

    compile_config(dict(env=dict(env_id="CartPole-v1"), policy=policy), create, save=False)

    assert ("a mini-batch holds at most the 64 rows" in caplog.text) == warns


def test_agents_that_share_a_network_have_one_range_of_actions() -> None:
    with pytest.raises(ConfigError, match=r"share a network, and so their bounds: .*RescaleAction"):
        make("ippo", box=True, action_low=[-2.0, 0.0, -2.0, 0.0, -1.0, 0.0])
    assert make("ippo", box=True, action_low=-1.0, action_high=1.0)._family is not None


def test_rows_of_agents_are_given_no_other_rewards() -> None:
    assert "its own rewards" in str(make("mappo").why_no_reward_model())
    assert make("happo", model={}).why_no_reward_model() is None


# ---- HAPPO

ACTORS: dict[str, Any] = dict(encoder_hidden_size_list=[8], critic_hidden_size_list=[8], head_layer_num=0)


def of_turn(minibatch: TransitionBatch) -> int:
    return int(next(name for name in minibatch.columns if name.startswith("turn/"))[5:])


@torch.no_grad()
def log_prob_of(policy: Any, batch: TransitionBatch, row: int, agent: int) -> tuple[float, float]:
    """Return (log probability, entropy) of an agent's action in a row, by its own network."""
    output = policy.get_attribute("model").actors[agent].actor(torch.from_numpy(batch["obs/agents"][row, agent])[None])
    if "obs/action_mask" in batch.columns:
        output = output.masked_fill(torch.from_numpy(batch["obs/action_mask"][row, agent] == 0), -1e9)
    action = torch.as_tensor(batch[policy._action_column][row, agent])[None]
    log_prob, entropy = policy._families[agent].log_prob_and_entropy(output, action)
    return float(log_prob), float(entropy)


@pytest.mark.parametrize("kind", ["masked", "box"])
def test_agents_of_happo_learn_in_turn_from_the_advantage_times_the_ratios_of_those_before(kind: str) -> None:
    learn = dict(epoch_per_collect=2, batch_size=10_000, learning_rate=0.02, entropy_weight=0.05, value_norm=False)
    policy = make("happo", box=kind == "box", model=ACTORS, learn=learn)
    batch = played(policy, masked=kind == "masked")
    advantage = batch["advantage"].astype(np.float64)
    factor = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    order, before = [], {name: value.clone() for name, value in policy.get_attribute("model").state_dict().items()}

    for number, minibatch in enumerate(policy.minibatches(batch, np.random.default_rng(2))):
        turn = of_turn(minibatch)
        if number % 2 == 0:  # the first of this network's epochs
            if order:  # the one before has learned
                for row in np.flatnonzero(batch["obs/alive"][:, order[-1]]):
                    now = log_prob_of(policy, batch, row, order[-1])[0]
                    factor[row] *= np.exp(now - batch["log_prob"][row, order[-1]])
            order.append(turn)
        info, _ = policy.grad(minibatch)
        if turn < AGENTS:
            rows = np.flatnonzero(batch["obs/alive"][:, turn])
            wanted = 0.0
            for row in rows:
                log_prob, entropy = log_prob_of(policy, batch, row, turn)
                ratio = np.exp(log_prob - batch["log_prob"][row, turn])
                wanted -= min(ratio * factor[row], np.clip(ratio, 0.8, 1.2) * factor[row]) + 0.05 * entropy
            assert float(info["total_loss"]) == pytest.approx(wanted / len(rows), rel=1e-4, abs=1e-5)
        else:
            with torch.no_grad():
                values = policy.get_attribute("model").values(torch.from_numpy(batch["obs/state"]))[:, 0].numpy()
            assert float(info["value_loss"]) == pytest.approx(np.square(values - batch["return_"]).mean(), rel=1e-4)
        others = {n: each.data_vector.clone() for n, each in enumerate(policy._networks) if n != turn}
        policy.apply()
        assert all(torch.equal(policy._networks[n].data_vector, vector) for n, vector in others.items())

    assert sorted(order[:-1]) == list(range(AGENTS)) and order[-1] == AGENTS and order[:-1] != list(range(AGENTS))
    after = policy.get_attribute("model").state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before if "weight" in name)


def test_the_critic_of_happo_values_the_state_and_the_teams_rewards() -> None:
    policy = make(
        "happo", model=ACTORS, discount_factor=0.9, collect=dict(gae_lambda=0.7), learn=dict(value_norm=False)
    )
    batch = played(policy)
    with torch.no_grad():
        value, following = (
            policy.get_attribute("model").values(torch.from_numpy(batch[f"{name}/state"]))[:, 0].numpy()
            for name in ("obs", "next_obs")
        )

    for lane in range(LANES):
        running = 0.0
        for row in reversed(np.flatnonzero(batch["lane"] == lane)):
            after = 0.0 if batch["terminated"][row] else following[row]
            is_over = batch["terminated"][row] or batch["truncated"][row]
            running = batch["reward"][row] + 0.9 * after - value[row] + (0.0 if is_over else 0.9 * 0.7 * running)
            assert batch["advantage"][row] == pytest.approx(running, abs=1e-4)
    assert batch["terminated"].any() and batch["truncated"].any()


def test_agents_of_happo_may_have_bounds_of_their_own() -> None:
    low, high = [-2.0, 0.0, -1.0, -1.0, 0.0, 0.0], [2.0, 1.0, 1.0, 1.0, 5.0, 9.0]
    policy = make("happo", box=True, model=ACTORS, action_low=low, action_high=high)
    batch = played(policy)

    raw = batch["action_raw"].reshape(len(batch), -1)
    centre, half = np.add(low, high) / 2, np.subtract(high, low) / 2
    np.testing.assert_allclose(batch["action"], np.clip(centre + half * raw, low, high), atol=1e-5)


def test_an_agent_of_happo_that_was_never_there_has_no_turn() -> None:
    policy = make("happo", model=ACTORS)
    batch = played(policy)
    alive = batch["obs/alive"].copy()
    alive[:, 1] = 0

    turns = {
        of_turn(each)
        for each in policy.minibatches(batch.with_columns(**{"obs/alive": alive}), np.random.default_rng(0))
    }

    assert turns == {0, 2, AGENTS}
