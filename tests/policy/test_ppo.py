"""PPO: rows and advantages along lanes, the loss, minibatches, acting, state."""

import itertools
import math

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError
from ding_like.model.vac import PG
from ding_like.policy import create_policy
from ding_like.policy.a2c import A2CPolicy, PGPolicy
from ding_like.policy.ppo import PPOOffPolicy, PPOPolicy
from ding_like.worker.collector.loop import RolloutLoop
from tests.contracts.policy_cases import CASES, make
from tests.contracts.policy_cases import rows_of as contract_rows
from tests.policy.differences import assert_finite_differences
from tests.policy.on_policy import (
    KINDS,
    SMALL,
    act,
    make_batch,
    make_policy,
    make_rollout,
    play_bandit,
    slow_loss,
    train,
)
from tests.worker.scripted_manager import CountingActor, ScriptedManager

BACKENDS = ["auto", "autograd"]


# ---- rows


class Knower(nn.Module):
    """Value the scripted manager's observations by a formula, and remember what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.asked: list[list[float]] = []

    @staticmethod
    def value_of(lane, episode, step) -> float:
        return math.sin(3 * lane + 5 * episode + 7 * step)

    def actor(self, x):
        if self.training:  # and not asked by the policy what it gives
            raise AssertionError("nothing acts here")
        return torch.zeros(len(x), 3)

    def actor_critic(self, x):
        return self.actor(x), self.critic(x)

    def critic(self, x):
        if self.training:
            self.asked += x.tolist()
        return torch.tensor([self.value_of(*row) for row in x.tolist()])


def slow_advantages(history, manager, *, gamma, lam, ignore_done=False):
    """Walk every episode backwards, each stretch that was collected on its own."""
    stretches = {}
    for lane, episode, step in history:
        stretches.setdefault((lane, episode), []).append(step)
    result = {}
    for (lane, episode), steps in stretches.items():
        lengths = manager._lengths[lane]
        running = 0.0
        for step in reversed(steps):
            done = step + 1 == lengths[episode % len(lengths)]
            terminated = done and episode % 2 == 0 and not ignore_done
            bootstrap = 0.0 if terminated else Knower.value_of(lane, episode, step + 1)
            delta = manager.reward_of(lane, episode, step) + gamma * bootstrap - Knower.value_of(lane, episode, step)
            running = delta + (0.0 if done else gamma * lam * running)
            result[lane, episode, step] = running
    return result


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=4),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_advantages_equal_a_slow_walk_and_no_row_is_lost(lengths, delay, ignore_done, seed):
    rng, model = np.random.default_rng(seed), Knower()
    manager = ScriptedManager(lengths, delay=delay, seed=seed)
    policy = make_policy(
        network=model, discount_factor=0.9, learn=dict(ignore_done=ignore_done), collect=dict(gae_lambda=0.7)
    )
    loop = RolloutLoop(manager, CountingActor(), rng=rng)
    for _ in range(4):
        begin = len(manager.history)
        for _ in range(int(rng.integers(1, 9))):
            loop.step({})
        if not len(loop.rollout):
            continue
        expected_rows, model.asked = loop.num_ready(policy.num_ready), []

        batch = loop.take(policy.segment)

        expected = slow_advantages(manager.history[begin:], manager, gamma=0.9, lam=0.7, ignore_done=ignore_done)
        got = {tuple(int(v) for v in row["obs"]): row for row in batch}
        assert got.keys() == expected.keys()
        assert len(batch) == expected_rows == len(expected)
        for key, row in got.items():
            assert float(row["value"]) == pytest.approx(Knower.value_of(*key), abs=1e-6)
            assert float(row["advantage"]) == pytest.approx(expected[key], rel=1e-6, abs=1e-5)
            assert float(row["return_"]) == pytest.approx(float(row["advantage"]) + float(row["value"]), rel=1e-6)
        assert len(model.asked) == len({tuple(row) for row in model.asked}), "an observation was judged twice"
        assert not len(loop.rollout), "on-policy rows are used once"


def test_gamma_may_stand_where_di_engine_has_it():
    assert make_policy(discount_factor=0.9)._gamma == 0.9
    assert make_policy(discount_factor=0.9, collect=dict(discount_factor=0.8))._gamma == 0.8


# ---- the loss


LEARN = {
    "plain": dict(),
    "dual": dict(adv_norm=False, entropy_weight=0.1, dual_clip=1.5),
    "value_clip": dict(adv_norm="batch", value_clip=0.3, value_weight=0.7),
    "kl": dict(kl_beta=0.4, entropy_weight=0.1),
    "value_norm": dict(value_norm=True, value_clip=0.3),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("kind", "learn"),
    [
        *(("one", each) for each in LEARN),
        ("several", "dual"),
        ("clipped", "value_clip"),
        ("squashed", "dual"),
        ("clipped", "kl"),
    ],
)
def test_loss_equals_a_slow_walk_over_rows(kind, learn, backend):
    policy = make_policy(learn=dict(backend=backend, **LEARN[learn]), **KINDS[kind])
    batch = make_batch(policy)
    policy._returns.now.update(np.array([0.0, 4.0]))
    with torch.no_grad():  # another policy than the one that acted, so that ratios leave the clip range
        policy._params.data_vector.add_(0.3 * torch.randn_like(policy._params.data_vector))

    info, priority = policy.grad(batch)

    assert 0 < float(info["clip_fraction"]) < 1
    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, batch), rel=1e-5, abs=1e-6)
    assert priority is None


@pytest.mark.parametrize(
    ("name", "share", "value_norm"),
    [("ppo", True, True), ("ppo", False, False), ("ppo several", True, False), ("ppo box", True, True)],
)
def test_both_backends_have_one_gradient(name, share, value_norm):
    learn = dict(value_norm=value_norm, entropy_weight=0.1, dual_clip=1.5, value_clip=0.1, kl_beta=0.3)
    model = dict(share_encoder=share)
    policies = [make(CASES[name], learn=dict(learn, backend=backend), model=model) for backend in BACKENDS]
    assert [policy._learns_by_hand for policy in policies] == [True, False]
    batch = contract_rows(CASES[name], policies[0], masked=name != "ppo box")
    noise = np.random.default_rng(0).normal(scale=0.3, size=len(batch)).astype(np.float32)
    batch = batch.with_columns(log_prob=batch["log_prob"] + noise)  # ratios on both sides of the clip

    for policy in policies:
        policy.grad(next(iter(policy.minibatches(batch, np.random.default_rng(0)))))

    vectors = [policy.grad_vectors()[0] for policy in policies]
    torch.testing.assert_close(vectors[0], vectors[1], rtol=1e-3, atol=1e-5)
    assert vectors[0].any()


def test_networks_that_numpy_does_not_know_learn_by_autograd():
    policy = make_policy(model=dict(activation="gelu"))

    info, _ = policy.grad(make_batch(policy))

    assert policy._by_hand is None
    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, make_batch(policy)), rel=1e-5)


def test_a_mask_beside_one_entry_leaves_that_entry():
    mask, one, two = np.ones(2), np.zeros(3), np.zeros(4)

    obs, none = split_mask(one)
    assert obs is one and none is None
    assert split_mask({"action_mask": mask, "a": one})[0] is one
    assert split_mask({"action_mask": mask, "a": one, "b": two})[0].keys() == {"a", "b"}
    assert split_mask({"action_mask": mask, "a": one})[1] is mask


# ---- minibatches


def rows_of(minibatch):
    return [tuple(row) for row in np.asarray(minibatch["obs"]).tolist()]


@given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 3), st.sampled_from(BACKENDS))
@settings(max_examples=40)
def test_every_epoch_has_every_row_once_in_minibatches_of_about_equal_size(rows, size, epochs, backend):
    policy = make_policy(learn=dict(epoch_per_collect=epochs, batch_size=size, backend=backend))
    batch = make_batch(policy, rows)

    minibatches = list(policy.minibatches(batch, np.random.default_rng(0)))

    per_epoch = max(1, round(rows / size))
    sizes = [len(minibatch) for minibatch in minibatches]
    assert len(minibatches) == epochs * per_epoch
    assert max(sizes) - min(sizes) <= 1
    whole = {row: i for i, row in enumerate(rows_of(batch))}
    for minibatch in minibatches[:per_epoch]:
        source = [whole[row] for row in rows_of(minibatch)]
        for name, column in minibatch.columns.items():
            np.testing.assert_array_equal(np.asarray(column), batch[name][source])
    for epoch in range(epochs):
        seen = [row for part in minibatches[epoch * per_epoch : (epoch + 1) * per_epoch] for row in rows_of(part)]
        assert sorted(seen) == sorted(rows_of(batch))


@pytest.mark.parametrize("cls", [PPOPolicy, A2CPolicy])
def test_rows_are_shuffled_by_the_generator_given_anew_in_each_epoch(cls):
    def order(seed):
        policy = make_policy(cls, learn=dict(batch_size=16))
        batch = make_batch(policy, 64).with_columns(return_=np.arange(64, dtype=np.float32))  # tells the rows apart
        parts = policy.minibatches(batch, np.random.default_rng(seed))
        return np.concatenate([np.asarray(part["return_"]) for part in parts]).astype(int).tolist()

    first = order(0)

    assert first == order(0) != order(1)
    neighbours = sum(abs(one - after) == 1 for one, after in itertools.pairwise(first[:64]))
    assert neighbours < 16, "about two are expected by chance, 63 in the order of collection"
    assert all(sorted(first[start : start + 64]) == list(range(64)) for start in range(0, len(first), 64))
    assert cls is A2CPolicy or (len(first) == 640 and first[:64] != first[64:128])


def test_epochs_end_once_the_policy_has_moved_by_the_target_kl():
    learn = dict(epoch_per_collect=20, batch_size=8, learning_rate=0.05)
    free, stopped = make_policy(learn=learn), make_policy(learn=dict(**learn, target_kl=0.1))
    batch = make_batch(free)

    infos, every = train(stopped, batch), train(free, batch)

    assert len(every) == 60
    assert 3 <= len(infos) < 60
    epochs = np.array([info["approx_kl"] for info in infos]).reshape(-1, 3).mean(axis=1)
    assert epochs[-1] > 0.1
    assert (epochs[:-1] <= 0.1).all()
    assert infos == every[: len(infos)], "until then nothing is different"


def test_advantages_are_normalised_once_for_the_batch_if_so_asked():
    policy = make_policy(learn=dict(adv_norm="batch", epoch_per_collect=1, batch_size=8))
    batch = make_batch(policy)

    parts = [part["advantage"] for part in policy.minibatches(batch, np.random.default_rng(0))]

    together = np.concatenate(parts)
    assert (together.mean(), together.std()) == (pytest.approx(0, abs=1e-6), pytest.approx(1, abs=1e-5))
    assert abs(parts[0].mean()) > 1e-3


def test_advantages_are_recomputed_before_each_epoch_if_so_asked():
    policy = make_policy(recompute_adv=True, learn=dict(epoch_per_collect=2, batch_size=100, learning_rate=0.01))
    rollout = make_rollout(policy)
    batch, _ = policy.segment(rollout)
    seen = []
    for minibatch in policy.minibatches(batch, np.random.default_rng(0)):
        seen.append(dict(zip(rows_of(minibatch), minibatch["advantage"].tolist(), strict=True)))
        policy.grad(minibatch)
        policy.apply()
        if len(seen) == 1:
            anew, _ = policy.segment(rollout)

    assert seen[0] == dict(zip(rows_of(batch), batch["advantage"].tolist(), strict=True))
    assert seen[1] == pytest.approx(dict(zip(rows_of(anew), anew["advantage"].tolist(), strict=True)), abs=1e-6)
    assert seen[0] != seen[1]


def test_learning_rate_and_clip_range_follow_the_rows_trained_on():
    schedule = dict(env_steps=48, lr_end=0.0, clip_end=0.1)
    policy = make_policy(learn=dict(learning_rate=1e-3, clip_ratio=0.2, schedule=schedule, epoch_per_collect=1))

    infos = [train(policy, make_batch(policy))[0] for _ in range(4)]

    assert [info["cur_lr"] for info in infos] == pytest.approx([1e-3, 5e-4, 0.0, 0.0])
    assert [info["clip_ratio"] for info in infos] == pytest.approx([0.2, 0.15, 0.1, 0.1])


# ---- value normalisation


def test_the_critic_counts_in_deviations_of_the_returns():
    policy = make_policy(learn=dict(value_norm=True, epoch_per_collect=1))
    batch = make_batch(policy).with_columns(return_=np.linspace(-50, 50, 24).astype(np.float32))
    obs = batch["obs"]
    before = policy._values(obs)

    list(policy.minibatches(batch, np.random.default_rng(0)))
    policy.apply()  # no gradient has been filled: weights stay, statistics move

    np.testing.assert_allclose(policy._values(obs), before * batch["return_"].std(), rtol=1e-5)


# ---- acting


@pytest.mark.parametrize("kind", KINDS)
def test_acting_equals_the_network_in_torch(kind):
    policy = make_policy(**KINDS[kind])
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)

    columns = act(policy, obs)

    output = policy.get_attribute("model").actor(torch.from_numpy(obs))
    log_prob, _ = policy._family.log_prob_and_entropy(output, torch.from_numpy(columns[policy._family.column]))
    np.testing.assert_allclose(columns["log_prob"], log_prob.detach(), rtol=1e-4, atol=1e-5)
    assert "value" not in columns
    greedy = policy.eval_mode.actor.act(obs, lanes=np.arange(5), is_first=np.zeros(5, bool), rng=None)
    assert list(greedy) == ["action"]
    np.testing.assert_allclose(greedy["action"], policy._family.mode(output.detach().numpy()), rtol=1e-5, atol=1e-6)
    if kind in ("clipped", "squashed"):
        many = act(policy, np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32))
        assert (many["action"] >= [-2, 0]).all() and (many["action"] <= [2, 1]).all()
        assert np.abs(many["action_raw"]).max() > 1.5, "what was drawn is kept as it was"


def test_a_network_without_towers_acts_through_torch():
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def actor(self, x):
            return self.layer(x)[:, :3]

        def critic(self, x):
            return self.layer(x)[:, 3]

        def actor_critic(self, x):
            return self.actor(x), self.critic(x)

    policy = make_policy(network=Plain())
    batch, _ = policy.segment(make_rollout(policy))
    train(policy, batch)

    assert policy._by_hand is None
    assert set(batch["action"]) <= {0, 1, 2}


# ---- learning


@pytest.mark.parametrize("kind", ["one", "clipped"])
def test_it_learns_a_bandit(kind):
    learn = dict(learning_rate=0.01, batch_size=64, epoch_per_collect=4)

    rewards = play_bandit(make_policy(learn=learn, **KINDS[kind]), 25)

    assert rewards[-1] > 0.6 * rewards[0]
    assert rewards[-1] > rewards[0] + 0.4


# ---- state


def test_weights_alone_start_with_a_fresh_optimizer():
    trained, fresh = make_policy(), make_policy()
    train(trained, make_batch(trained))

    fresh.learn_mode.load_state_dict({"model": trained.get_attribute("model").state_dict()})

    assert torch.equal(fresh._params.data_vector, trained._params.data_vector)
    assert fresh._progress.now.rows == 0


# ---- off-policy


def test_off_policy_schedules_count_env_steps_not_rows():
    # 2 updates of 24 rows follow every 12 env steps: 48 rows stand for 12 steps.
    learn = dict(update_per_collect=2, batch_size=24, learning_rate=1.0, schedule=dict(env_steps=12, lr_end=0.0))
    policy = make_policy(PPOOffPolicy, learn=learn, collect=dict(n_sample=12))

    infos = [train(policy, make_batch(policy))[0] for _ in range(3)]

    assert [info["cur_lr"] for info in infos] == pytest.approx([1.0, 0.5, 0.0])


# ---- config


def test_a_policy_that_does_not_know_its_actions_says_so():
    cfg = to_plain(PPOPolicy.default_config())

    with pytest.raises(ConfigError, match=r"model.action_shape is not set"):
        create_policy(cfg, model=Knower())


# ---- through the pipeline


class Guess(gymnasium.Env):
    """Reward an action for being near the observation's first number; four steps an episode."""

    def __init__(self, action_space) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float64)
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._look(), {}

    def _look(self):
        self._obs = self.np_random.uniform(-1, 1, 3)
        return self._obs

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is no action of {self.action_space}"
        reward = -float(np.abs(np.asarray(action, float) - self._obs[0]).sum())
        self._steps += 1
        return self._look(), reward, False, self._steps == 4, {}


SPACES = {
    "discrete": gymnasium.spaces.Discrete(3, start=5),
    "several": gymnasium.spaces.MultiDiscrete([3, 2]),
    "bits": gymnasium.spaces.MultiBinary(3),
    "box": gymnasium.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32)),
    "unbounded": gymnasium.spaces.Box(-np.inf, np.inf, (2,)),
}


@pytest.mark.parametrize(
    ("policy", "name"), [*(("ppo", name) for name in SPACES), ("a2c", "box"), ("ppo_offpolicy", "several")]
)
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_every_action_space_trains_through_the_pipeline(policy, name):
    off = policy == "ppo_offpolicy"
    learn = dict(update_per_collect=1) if off else {}
    section = dict(model=SMALL, learn=dict(batch_size=16, **learn), collect=dict(n_sample=16), eval={})
    main = dict(exp_name="exp", env=dict(env_id="none", collector_env_num=4, evaluator_env_num=2), policy=section)
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=policy))
    setting = (lambda cfg: Guess(SPACES[name]), [{}] * 4, [{}] * 2)

    run = serial_pipeline if off else serial_pipeline_onpolicy
    trained = run((main, create), seed=0, env_setting=setting, max_env_step=48)

    assert trained.get_attribute("nonfinite_steps") == 0


@pytest.mark.usefixtures("in_tmp")
def test_tanh_needs_bounds_and_says_what_to_do():
    main = dict(
        exp_name="exp",
        env=dict(env_id="none", collector_env_num=1, evaluator_env_num=1),
        policy=dict(action_bound="tanh"),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="ppo"))
    setting = (lambda cfg: Guess(gymnasium.spaces.Box(-np.inf, np.inf, (2,))), [{}], [{}])

    with pytest.raises(ConfigError, match=r"needs actions with bounds.*action_bound='clip'"):
        serial_pipeline_onpolicy((main, create), seed=0, env_setting=setting)


@pytest.mark.parametrize(
    ("kind", "learn"), [("one", {}), ("clipped", dict(adv_norm=True, entropy_weight=0.1, value_weight=0.25))]
)
def test_the_loss_of_a2c_equals_a_slow_walk_over_rows(kind, learn):
    policy = make_policy(A2CPolicy, learn=learn, **KINDS[kind])
    batch = make_batch(policy)

    info, priority = policy.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, batch), rel=1e-5, abs=1e-6)
    assert priority is None


@pytest.mark.parametrize("cls", [A2CPolicy, PPOOffPolicy])
def test_all_rows_are_one_minibatch(cls):
    policy = make_policy(cls)
    batch = make_batch(policy)

    assert [part is batch for part in policy.minibatches(batch, np.random.default_rng(0))] == [True]


def test_learning_rate_follows_the_rows_trained_on():
    policy = make_policy(A2CPolicy, learn=dict(learning_rate=1e-3, schedule=dict(env_steps=48, lr_end=1e-4)))

    rates = [train(policy, make_batch(policy))[0]["cur_lr"] for _ in range(4)]

    assert rates == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])


def test_a2c_learns_a_bandit():
    rewards = play_bandit(make_policy(A2CPolicy, learn=dict(learning_rate=0.02, adv_norm=True, entropy_weight=0.0)), 60)

    assert rewards[-1] > 0.6 * rewards[0]


# ---- REINFORCE

GAMMA = 0.9


def make_pg(dtype: torch.dtype = torch.float32, **changes) -> PGPolicy:
    torch.manual_seed(0)
    cfg = to_plain(PGPolicy.default_config())
    cfg["model"] = dict(obs_shape=3, action_shape=3, encoder_hidden_size_list=[8, 8], activation="tanh")
    cfg = deep_merge(deep_merge(cfg, dict(discount_factor=GAMMA)), changes)
    space = cfg["action_space"] or "discrete"
    return PGPolicy(cfg, PG(**cfg["model"], action_space=space).to(dtype))


def slow_returns(policy, rows) -> list[float]:
    """Sum the rewards from each row to its episode's end, step by step; V follows where it did not terminate."""
    returns = []
    for row in rows:
        total, discount, here = 0.0, 1.0, row
        following = iter([other for other in rows if other["lane"] == row["lane"]])
        while next(following) is not row:
            pass
        while True:
            total += discount * float(here["reward"])
            discount *= GAMMA
            after = None if here["terminated"] or here["truncated"] else next(following, None)
            if after is None:
                break
            here = after
        if not here["terminated"]:
            with torch.no_grad():
                total += discount * float(policy.get_attribute("model").critic(torch.tensor(here["next_obs"])[None]))
        returns.append(total)
    return returns


def test_returns_equal_a_slow_sum_to_the_end_of_each_episode():
    policy = make_pg()
    batch, keep = policy.segment(make_rollout(policy, 12, 3))

    expected = slow_returns(policy, list(batch))

    assert {(bool(row["terminated"]), bool(row["truncated"])) for row in batch} == {(0, 0), (1, 0), (0, 1)}
    np.testing.assert_allclose(batch["return_"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch["advantage"], expected - batch["value"], rtol=1e-5, atol=1e-5)
    assert not keep.any()


def in_float64(batch: TransitionBatch) -> TransitionBatch:
    """Return rows whose advantage is exactly return less value."""
    exact = {name: batch[name].astype(np.float64) for name in ("return_", "value")}
    return batch.with_columns(**exact, advantage=exact["return_"] - exact["value"])


@pytest.mark.parametrize(("kind", "learn"), [("one", {}), ("clipped", dict(entropy_weight=0.1, value_weight=0.25))])
def test_the_loss_of_pg_equals_a_slow_walk_over_rows(kind, learn):
    policy = make_pg(torch.float64, learn=learn, **KINDS[kind])
    batch = in_float64(policy.segment(make_rollout(make_pg(**KINDS[kind]), 12, 3))[0])

    info, priority = policy.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, batch), rel=1e-6, abs=1e-6)
    assert priority is None


@pytest.mark.parametrize("kind", ["one", "clipped"])
def test_the_gradient_of_pg_equals_finite_differences(kind):
    policy = make_pg(torch.float64, learn=dict(entropy_weight=0.1), **KINDS[kind])
    batch = in_float64(policy.segment(make_rollout(make_pg(**KINDS[kind]), 12, 3))[0])
    policy.grad(batch)

    assert_finite_differences(policy._params, lambda: float(policy.grad(batch)[0]["total_loss"]))


def test_policy_and_baseline_share_no_layer():
    policy = make_pg()
    actor, critic = policy.get_attribute("model").towers()

    assert not {id(p) for p in actor.parameters()} & {id(p) for p in critic.parameters()}
    assert len(list(actor.parameters())) + len(list(critic.parameters())) == len(
        list(policy.get_attribute("model").parameters())
    )


def test_head_sizes_are_of_both_heads():
    model = PG(3, 4, encoder_hidden_size_list=[8], head_hidden_size=5, head_layer_num=2)

    for head, size in ((model.actor_head, 4), (model.critic_head, 1)):
        widths = [layer.out_features for layer in head.modules() if isinstance(layer, torch.nn.Linear)]
        assert widths == [5, 5, size]
