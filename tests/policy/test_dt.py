"""Decision transformer: windows, loss and acting against slow versions, causality, an exact resume, what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ding_like
from ding_like.agent.checkpoints import CheckpointChoice
from ding_like.agent.export import export
from ding_like.config import compile_config
from ding_like.data.demonstrations import Demonstrations
from ding_like.data.rollout import Rollout
from ding_like.entry import resume_pipeline, serial_pipeline_offline
from ding_like.errors import ConfigError, SchemaError
from ding_like.model.dt import CausalBlock, DecisionTransformer
from ding_like.pipeline.data_set import DataSet
from ding_like.policy.dt import ContextActor, DTPolicy
from ding_like.policy.rows import ContextRows
from ding_like.policy.sharing import Share
from ding_like.serve.served import Blueprint, ServedPolicy
from ding_like.types import Array
from tests.contracts.policy_cases import CASES, assert_equal_states, make, rows_of
from tests.experts import demonstrate

LENGTHS = (7, 1, 4, 12)
CONTEXT = 5


def episodes(kind: str = "dt", *, seed: int = 0) -> dict[str, Array]:
    """Return the steps of episodes, one after another, of a case's observations and actions."""
    rng, total = np.random.default_rng(seed), sum(LENGTHS)
    case = CASES[kind]
    assert case.space is not None
    case.space.seed(seed)
    ends = np.cumsum(LENGTHS) - 1
    obs = rng.normal(size=(total, 3)).astype(np.float32)
    return {
        "obs": obs,
        "next_obs": rng.normal(size=(total, 3)).astype(np.float32),
        "action": np.stack([np.asarray(case.space.sample()) for _ in range(total)]),
        "reward": rng.normal(size=total).astype(np.float32),
        "terminated": np.isin(np.arange(total), ends),
        "truncated": np.zeros(total, bool),
        "lane": np.zeros(total, np.int64),
        "episode_id": np.repeat(np.arange(len(LENGTHS)), LENGTHS),
        "step": np.concatenate([np.arange(length) for length in LENGTHS]),
    }


def windows_slowly(columns: dict[str, Array], length: int) -> list[list[tuple[int, float]]]:
    """Return (row, return to go) of each step of each window."""
    found = []
    for first in range(len(columns["reward"])):
        window, row = [], first
        while len(window) < length and row < len(columns["reward"]):
            if columns["episode_id"][row] != columns["episode_id"][first]:
                break
            left = [
                float(reward)
                for other, reward in enumerate(columns["reward"])
                if other >= row and columns["episode_id"][other] == columns["episode_id"][first]
            ]
            window.append((row, sum(left)))
            row += 1
        found.append(window)
    return found


def policy_of(kind: str = "dt", *, drop_p: float = 0.0, **changes: Any) -> DTPolicy:
    policy = make(CASES[kind], model=dict(drop_p=drop_p), context_len=CONTEXT, **changes)
    assert isinstance(policy, DTPolicy)
    spread(policy)
    return policy


def spread(policy: DTPolicy) -> None:
    """Give a network weights of such a size that all that it is given matters."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy._model.parameters():
            parameter.normal_(std=0.4)


# ---- rows


def test_windows_begin_at_every_step_and_hold_returns_to_go_of_whole_episodes() -> None:
    columns = episodes()
    rollout = Rollout(1)
    rollout.append(columns)

    rows, keep = ContextRows(CONTEXT).segment(rollout)

    wanted = windows_slowly(columns, CONTEXT)
    assert len(rows) == len(wanted) == sum(LENGTHS) and keep.tolist() == [0]
    for number, window in enumerate(wanted):
        row = {name: column[number] for name, column in rows.columns.items()}
        size = len(window)
        assert row["mask"].tolist() == [True] * size + [False] * (CONTEXT - size)
        at = [each for each, _ in window]
        for name in ("obs", "action", "step"):
            assert np.array_equal(row[name][:size], columns[name][at]) and not row[name][size:].any()
        np.testing.assert_allclose(row["return_to_go"][:size], [left for _, left in window], rtol=1e-5, atol=1e-5)


def test_episodes_of_several_lanes_are_kept_apart_and_open_ones_wait() -> None:
    rng, rollout = np.random.default_rng(0), Rollout(2)
    rewards: dict[int, list[float]] = {0: [], 1: []}
    for step in range(6):
        reward = rng.normal(size=2).astype(np.float32)
        rollout.append(
            {
                "obs": np.array([[step], [10 + step]], np.float32),
                "action": np.zeros(2, np.int64),
                "reward": reward,
                "terminated": np.array([step == 3, False]),
                "truncated": np.array([False, step == 1]),
                "lane": np.arange(2),
            }
        )
        for lane in (0, 1):
            rewards[lane].append(float(reward[lane]))
    maker = ContextRows(3)

    rows, keep = maker.segment(rollout)

    assert rows["obs"][:, 0, 0].tolist() == [0, 1, 2, 3, 10, 11] and keep.tolist() == [2, 4]
    assert maker.num_ready(np.array([4, 2, 2, 4]), np.array([True, True, False, False])) == len(rows)
    returns = [sum(rewards[0][step:4]) for step in range(4)] + [sum(rewards[1][step:2]) for step in range(2)]
    np.testing.assert_allclose(rows["return_to_go"][:, 0], returns, rtol=1e-6)


def test_a_data_set_gathers_windows_as_it_draws_them_and_has_each_once() -> None:
    columns = episodes()
    del columns["terminated"], columns["truncated"]
    columns["terminated"] = columns["truncated"] = np.zeros(sum(LENGTHS), bool)  # cut: the file's end is an end
    columns["terminated"][np.cumsum(LENGTHS)[:-1] - 1] = True
    policy = policy_of()
    rows = policy.data_rows(Demonstrations(columns).rollout())
    data = DataSet(rows, 6, np.random.default_rng(0), source="file")

    drawn = [data.draw() for _ in range(len(rows) // 6)]

    assert len(rows) == sum(LENGTHS) and all(len(column) == len(rows) for column in rows.columns.values())
    first = np.concatenate([batch["obs"][:, 0] for batch in drawn])
    assert np.array_equal(np.unique(first, axis=0), np.unique(columns["obs"], axis=0)) and data.epoch == 1


def test_observations_are_scaled_and_the_highest_return_of_the_data_is_the_target() -> None:
    columns, policy = episodes(), policy_of(rtg_target=None)

    policy.data_rows(Demonstrations(columns).rollout())

    model = policy._model
    np.testing.assert_allclose(model.feature_mean, columns["obs"].mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.feature_std, columns["obs"].std(axis=0), rtol=1e-4)
    returns = np.bincount(columns["episode_id"], weights=columns["reward"])
    assert policy._first_return_to_go() == pytest.approx(returns.max(), rel=1e-5)
    other = policy_of(rtg_target=None)
    other.eval_mode.load_state_dict(policy.eval_mode.state_dict())
    assert other._first_return_to_go() == policy._first_return_to_go()


# ---- the network


def model_of(*, continuous: bool = False) -> DecisionTransformer:
    torch.manual_seed(0)
    model = DecisionTransformer(3, 2, 2, 8, 2, 0.0, continuous=continuous)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.mark.parametrize("continuous", [False, True])
def test_what_comes_later_changes_nothing_and_all_that_came_before_does(continuous: bool) -> None:
    model, steps = model_of(continuous=continuous), 4
    obs, left = torch.randn(1, steps, 3), torch.randn(1, steps)
    action = torch.rand(1, steps, 2) if continuous else torch.randint(2, (1, steps))
    time = torch.arange(steps)[None]
    given: dict[str, Tensor] = {"obs": obs, "action": action, "return_to_go": left, "step": time}
    before = model.actor(**given)

    for name, column in given.items():
        for at in range(steps):
            changed = column.clone()
            changed[0, at] = 1 - changed[0, at] if name == "action" else changed[0, at] + 3
            moved = (model.actor(**{**given, name: changed}) - before).abs().amax(dim=(0, 2)) > 1e-6
            first = at + 1 if name == "action" else at
            assert moved.tolist() == [step >= first for step in range(steps)], (name, at)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [(dict(h_dim=9, n_heads=2), "n_heads"), (dict(drop_p=1.0), "drop_p"), (dict(n_blocks=0), "n_blocks")],
)
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DecisionTransformer(3, 2, **sizes)


def block_slowly(block: CausalBlock, tokens: Tensor) -> Tensor:
    """Return a block's [S, W] of one sequence [S, W], token by token and head by head."""
    wide = block.query_key_value(block.norm(tokens))
    query, key, value = (part.chunk(block.num_heads, dim=1) for part in wide.chunk(3, dim=1))
    found = []
    for place, token in enumerate(tokens):
        mixed = []
        for q, k, v in zip(query, key, value, strict=True):
            likeness = k[: place + 1] @ q[place] / q.shape[1] ** 0.5
            mixed.append(torch.softmax(likeness, dim=0) @ v[: place + 1])
        token = token + block.out(torch.cat(mixed))
        found.append(token + block.mlp(token))
    return torch.stack(found)


def test_actions_are_read_behind_the_observations_from_all_blocks() -> None:
    model, steps = model_of(continuous=True), 3
    obs, action, left = torch.randn(1, steps, 3), torch.rand(1, steps, 2), torch.randn(1, steps)
    time = torch.arange(steps)[None]
    parts = model.of_return(left[..., None]), model.of_obs(obs), model.of_action(action)
    tokens = model.tokens(torch.stack([part[0] + model.of_step(time)[0] for part in parts], dim=1).flatten(0, 1))
    for block in model.blocks:
        assert isinstance(block, CausalBlock)
        tokens = block_slowly(block, tokens)

    torch.testing.assert_close(model.actor(obs, action, left, time)[0], model.head(tokens[1::3]).tanh())


def test_attention_is_dropped_out_while_it_is_trained() -> None:
    block = CausalBlock(8, 2, 0.0)
    block.drop_p = 0.5  # of the attention alone
    tokens = torch.randn(2, 6, 8)
    assert not torch.equal(block(tokens), block(tokens))
    block.eval()
    assert torch.equal(block(tokens), block(tokens))


def test_the_number_of_a_step_is_embedded_small_beside_what_it_is_added_to() -> None:
    model = DecisionTransformer(3, 2, continuous=True)
    of_step = model.of_step.weight.square().mean()
    for part, size in ((model.of_return, 1), (model.of_obs, 3), (model.of_action, 2)):
        assert part(torch.randn(1000, size)).square().mean() > 100 * of_step


# ---- the loss


def loss_slowly(policy: DTPolicy, rows: Any) -> Tensor:
    """Return the loss step by step, each window without its padding."""
    losses = []
    scale = policy.cfg.rtg_scale
    low, high = (torch.tensor(policy.cfg[name] or [0.0]) for name in ("action_low", "action_high"))
    for number in range(len(rows)):
        size = int(rows["mask"][number].sum())
        window = {name: torch.as_tensor(rows[name][number : number + 1, :size]) for name in rows.columns}
        action = window["action"]
        if policy._is_continuous:
            action = 2 * (action - low) / (high - low) - 1
        for step in range(size):
            seen = {name: window[name][:, : step + 1] for name in ("obs", "step")}
            output = policy._model.actor(
                **seen, action=action[:, : step + 1], return_to_go=window["return_to_go"][:, : step + 1] / scale
            )[0, step]
            if policy._is_continuous:
                losses.append(((output - action[0, step]) ** 2).mean())
            else:
                losses.append(-torch.log_softmax(output, dim=0)[action[0, step]])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("kind", ["dt", "dt box"])
def test_loss_and_gradient_are_those_of_a_loop_over_steps(kind: str) -> None:
    policy = policy_of(kind)
    rollout = Rollout(1)
    rollout.append(episodes(kind))
    rows = policy.segment(rollout)[0].take(np.arange(0, sum(LENGTHS), 3))

    info, _ = policy.grad(rows)

    loss = loss_slowly(policy, rows)
    wanted = torch.autograd.grad(loss, list(policy._model.parameters()))
    torch.testing.assert_close(info["total_loss"], loss.detach(), rtol=1e-5, atol=1e-6)
    found = policy._params.grad_vector
    torch.testing.assert_close(found, torch.cat([each.flatten() for each in wanted]), rtol=1e-4, atol=1e-6)


def test_an_action_mask_leaves_legal_actions_alone() -> None:
    policy, case = policy_of(), CASES["dt"]
    rows = rows_of(case, policy, masked=True)

    info, _ = policy.grad(rows)

    steps = rows["mask"]
    columns = {name: torch.as_tensor(rows[name]) for name in ("action", "return_to_go", "step")}
    output = policy._outputs({**columns, "obs": torch.as_tensor(rows["obs/board"])})
    illegal = torch.as_tensor(rows["obs/action_mask"] == 0) & torch.as_tensor(steps)[:, :, None]
    log_prob = torch.log_softmax(output.masked_fill(illegal, -1e9), dim=2)
    chosen = log_prob.gather(2, columns["action"].unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(info["total_loss"], -chosen[torch.as_tensor(steps)].mean().detach())


def test_dropout_follows_from_the_state_and_leaves_the_generator_of_torch() -> None:
    policy = policy_of(drop_p=0.5)
    rows = rows_of(CASES["dt"], policy)
    before = torch.get_rng_state()

    first = policy.grad(rows)[0]["total_loss"].clone()

    assert torch.equal(torch.get_rng_state(), before) and not policy._model.training
    assert torch.equal(policy.grad(rows)[0]["total_loss"], first)
    state = policy.grad_state()
    policy.apply()
    assert not torch.equal(policy.grad(rows)[0]["total_loss"], first)
    other = policy_of(drop_p=0.5)
    other.load_grad_state(state)
    assert torch.equal(other.grad(rows)[0]["total_loss"], first)


def test_the_learning_rate_grows_to_its_full_value() -> None:
    policy = policy_of(warmup_steps=4, learn=dict(learning_rate=0.01))
    rows, rates = rows_of(CASES["dt"], policy), []
    for _ in range(6):
        rates.append(policy.grad(rows)[0]["cur_lr"])
        policy.apply()

    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01])
    assert policy._optimizer.learning_rate == 0.01


# ---- acting


@pytest.mark.parametrize("kind", ["dt", "dt box"])
def test_acting_is_a_pass_over_the_last_steps_of_the_lane_with_what_is_left_of_the_target(kind: str) -> None:
    policy, rng = policy_of(kind), np.random.default_rng(0)
    actor = policy.eval_mode.actor
    assert isinstance(actor, ContextActor)
    history: dict[int, list[tuple[Array, Array, float]]] = {0: [], 1: []}
    left, first = {0: 3.0, 1: 3.0}, np.ones(2, bool)
    for step in range(3 * CONTEXT):
        obs = rng.normal(size=(2, 3)).astype(np.float32)
        order = np.array([1, 0]) if step % 2 else np.array([0, 1])  # lanes come in any order
        columns = actor.act(obs[order], lanes=order, is_first=first[order], rng=rng)
        action = columns["action"][order]  # its own inverse
        for lane in (0, 1):
            if first[lane]:
                history[lane], left[lane] = [], 3.0
            history[lane].append((obs[lane], action[lane], left[lane]))
            seen = history[lane][-CONTEXT:]
            given = {
                "obs": torch.as_tensor(np.stack([each[0] for each in seen]))[None],
                "action": torch.as_tensor(np.stack([each[1] for each in seen]))[None],
                "return_to_go": torch.tensor([[each[2] for each in seen]]),
                "step": torch.arange(len(history[lane]))[None, -CONTEXT:],
            }
            with torch.no_grad():
                output = policy._outputs(given)[0, -1]
            if kind == "dt":
                assert action[lane] == int(output.argmax())
            else:
                np.testing.assert_allclose(action[lane], output.numpy() * [2.0, 0.5] + [0.0, 0.5], rtol=1e-4, atol=1e-5)
        reward = rng.normal(size=2).astype(np.float32)
        actor.observe(np.arange(2), reward)
        left = {lane: left[lane] - float(reward[lane]) for lane in left}
        first = np.array([step == 7, False])


def test_another_target_and_another_reward_change_what_is_done() -> None:
    obs = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)

    def played(target: float, reward: float) -> Array:
        actor, rng = policy_of("dt box", rtg_target=target).eval_mode.actor, np.random.default_rng(0)
        assert isinstance(actor, ContextActor)
        actions = []
        for first in (True, False):
            actions.append(actor.act(obs, lanes=np.arange(20), is_first=np.full(20, first), rng=rng)["action"])
            actor.observe(np.arange(20), np.full(20, reward, np.float32))
        return np.stack(actions)

    before = played(3.0, 1.0)
    assert not np.array_equal(played(-3.0, 1.0)[0], before[0])
    assert np.array_equal(played(3.0, -1.0)[0], before[0]) and not np.array_equal(played(3.0, -1.0)[1], before[1])


def test_an_actor_goes_on_from_its_state_and_misses_a_reward_that_it_was_not_given() -> None:
    rng, policy = np.random.default_rng(0), policy_of("dt box")
    actor, lanes = policy.eval_mode.actor, np.arange(2)
    assert isinstance(actor, ContextActor)

    def step(acting: Any, number: int) -> Array:
        obs = np.random.default_rng(number).normal(size=(2, 3)).astype(np.float32)
        action: Array = acting.act(obs, lanes=lanes, is_first=np.full(2, number == 0), rng=rng)["action"]
        return action

    for number in range(CONTEXT + 2):
        step(actor, number)
        actor.observe(lanes, np.ones(2, np.float32))
    other = policy_of("dt box").eval_mode.actor
    other.load_state_dict(actor.state_dict())
    assert np.array_equal(step(other, 99), step(actor, 99))
    fresh = policy_of("dt box").eval_mode.actor
    other.load_state_dict(fresh.state_dict())
    assert np.array_equal(step(other, 0), step(fresh, 0))
    with pytest.raises(SchemaError, match=r"needs the reward of each action.*agent.act\(obs, reward=...\)"):
        step(actor, 100)
    step(actor, 0)  # an episode begins


# ---- runs


def configs(**settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    own: dict[str, Any] = dict(
        rtg_target=100,
        rtg_scale=100,
        context_len=CONTEXT,
        warmup_steps=5,
        model=dict(n_blocks=1, h_dim=8, drop_p=0.2),
        learn=dict(batch_size=32, train_epoch=2),
        collect=dict(data_path="data.safetensors"),
        eval=dict(evaluator=dict(eval_freq=5)),
    )
    env = dict(env_id="CartPole-v1", evaluator_env_num=2, n_evaluator_episode=2, max_episode_steps=20)
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dt"))
    return dict(exp_name="run", env=env, policy={**own, **settings}), create


@pytest.fixture
def data(in_tmp: Path) -> None:
    rng = np.random.default_rng(0)
    demonstrate(lambda obs: int(rng.integers(2)), "CartPole-v1", episodes=10).save("data.safetensors")


@pytest.mark.usefixtures("data", "no_pictures")
def test_a_resumed_run_ends_as_an_uninterrupted_one() -> None:
    whole = serial_pipeline_offline(configs(), seed=0, max_iter=12)
    serial_pipeline_offline(configs(), seed=0, max_iter=7, exp_name="part")

    resumed = resume_pipeline("part", max_train_iter=12)

    assert_equal_states(whole.learn_mode.state_dict(), resumed.learn_mode.state_dict())


@pytest.mark.usefixtures("data", "no_pictures")
def test_an_agent_acts_with_rewards_and_a_server_and_an_export_refuse_it() -> None:
    serial_pipeline_offline(configs(), seed=0, max_iter=3)
    agent, obs = ding_like.load("run", which="last"), np.zeros((2, 4), np.float32)

    for reward in (None, 1.0, 1.0):
        assert agent.act(obs[0], reward=reward) in (0, 1)
    with pytest.raises(SchemaError, match="needs the reward"):
        agent.act(obs[0])
    agent.reset()
    agent.act(obs)
    assert len(agent.act(obs, reward=[1.0, 2.0])) == 2
    with pytest.raises(SchemaError, match="one number for each of 2 rows"):
        agent.act(obs, reward=1.0)
    with pytest.raises(ConfigError, match="acts by the reward of each step"):
        ServedPolicy(Blueprint("run"), CheckpointChoice("run", "newest"))
    with pytest.raises(ConfigError, match="cannot be exported: it acts by the reward of each step"):
        export("run", to="torchscript")


@pytest.mark.usefixtures("data")
def test_a_model_for_other_actions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy.model.continuous is True, but the actions are discrete"):
        serial_pipeline_offline(configs(model=dict(continuous=True)), seed=0, max_iter=1)


# ---- DI-engine's form


def test_a_config_in_the_form_of_di_engine_is_read_as_ours() -> None:
    own = dict(rtg_target=6000, rtg_scale=500, max_eval_ep_len=1000, context_len=10, warmup_steps=77)
    moved = dict(batch_size=32, learning_rate=2e-4, wt_decay=1e-3, clip_grad_norm_p=0.25, weight_decay=0.1)
    copies = dict(stop_value=3000, evaluator_env_num=2, env_name="Pendulum-v1", state_mean=None, state_std=None)
    model = dict(state_dim=3, act_dim=1, n_blocks=2, h_dim=16, context_len=10, n_heads=2, drop_p=0.2, continuous=True)
    rest = dict(model=model, collect=dict(data_type="d4rl_trajectory", unroll_len=1), cuda=False)
    main = dict(
        exp_name="run",
        env=dict(env_id="Pendulum-v1", evaluator_env_num=2, n_evaluator_episode=2, stop_value=3000),
        dataset=dict(env_type="mujoco", rtg_scale=500, context_len=10, data_dir_prefix="d4rl/hopper.pkl"),
        policy=dict(**own, **moved, **copies, **rest),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dt"))

    cfg = compile_config(main, create, save=False)

    assert {name: cfg.policy[name] for name in own} == own
    learn = cfg.policy.learn
    assert (learn.batch_size, learn.learning_rate, learn.grad_clip_norm) == (32, 2e-4, 0.25)
    assert learn.optimizer.weight_decay == 1e-3 and "dataset" not in cfg
    assert (cfg.policy.model.obs_shape, cfg.policy.model.action_shape, cfg.policy.model.h_dim) == (3, 1, 16)
    with pytest.raises(ConfigError, match=r"policy.model.context_len +unknown key of model"):
        compile_config({**main, "policy": {**main["policy"], "context_len": 9}}, create, save=False, builds_model=True)


def test_several_learners_are_refused() -> None:
    with pytest.raises(ConfigError, match="policy 'dt' learns from the mean over the steps .* --learners 1"):
        make(CASES["dt"]).set_share(Share(0, 2))
