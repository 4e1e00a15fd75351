"""Behavioural cloning: each loss equals a slow walk over rows and actions, actors do what is most likely."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ding_like.config import compile_config, deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.model.vac import BC, VAC
from ding_like.policy.bc import BCPolicy

ROWS, OBS = 12, 3
LOW, HIGH = np.float32([-2.0, 0.0]), np.float32([2.0, 1.0])
SHAPES: dict[str, Any] = {"one": 4, "several": [3, 2], "box": 2}
BOX = dict(action_space="continuous", action_low=LOW.tolist(), action_high=HIGH.tolist())


def make(kind: str, *, seed: int = 0, **changes: Any) -> BCPolicy:
    torch.manual_seed(seed)
    model = dict(obs_shape=OBS, action_shape=SHAPES[kind], encoder_hidden_size_list=[8], head_layer_num=0)
    cfg = deep_merge(to_plain(BCPolicy.default_config()), dict(model=model, **(BOX if kind == "box" else {})))
    return BCPolicy(deep_merge(cfg, changes))


def rows_of(kind: str, *, seed: int = 0, masked: bool = False) -> TransitionBatch:
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(ROWS, OBS)).astype(np.float32)
    columns: dict[str, Any] = {"obs": obs}
    if kind == "box":
        columns["action"] = rng.uniform(LOW, HIGH, (ROWS, 2)).astype(np.float32)
    else:
        sizes = [SHAPES[kind]] if kind == "one" else SHAPES[kind]
        chosen = np.stack([rng.integers(size, size=ROWS) for size in sizes], axis=1)
        columns["action"] = chosen[:, 0] if kind == "one" else chosen
        if masked:
            legal = rng.random((ROWS, sum(sizes))) < 0.5
            starts = np.cumsum([0, *sizes[:-1]])
            np.put_along_axis(legal, chosen + starts, True, axis=1)
            columns = {"obs/board": obs, "obs/action_mask": legal.astype(np.int8), "action": columns["action"]}
    return TransitionBatch(columns)


def log_softmax(values: list[float]) -> list[float]:
    total = math.log(sum(math.exp(value) for value in values))
    return [value - total for value in values]


def slow_cross_entropy(logits: list[float], chosen: int, legal: list[int], smooth: float) -> float:
    """Return the cross entropy of one choice with its target spread over the legal actions."""
    log_probs = dict(zip(legal, log_softmax([logits[action] for action in legal]), strict=True))
    target = {action: smooth / len(legal) + (1 - smooth) * (action == chosen) for action in legal}
    return -sum(target[action] * log_probs[action] for action in legal)


def slow_loss(policy: BCPolicy, batch: TransitionBatch, kind: str, *, smooth: float = 0.0) -> float:
    """Go row by row and number by number."""
    losses = []
    for row in batch:
        obs = row.get("obs/board", row.get("obs"))
        obs = obs["board"] if isinstance(obs, dict) else obs
        output = policy._model.actor(torch.tensor(np.array(obs))[None])[0].tolist()
        if kind == "box":
            ends = zip(row["action"], LOW, HIGH, strict=True)
            inside = [(a - (low + high) / 2) / ((high - low) / 2) for a, low, high in ends]
            pairs = list(zip(output[:2], output[2:], inside, strict=True))
            loss_type = policy.cfg.loss_type
            if loss_type == "nll_loss":
                parts = [
                    0.5 * ((u - mu) / math.exp(log)) ** 2 + log + 0.5 * math.log(2 * math.pi) for mu, log, u in pairs
                ]
                losses.append(sum(parts))
            else:
                errors = [mu - u for mu, _, u in pairs]
                losses.append(sum(abs(e) if loss_type == "l1_loss" else e * e for e in errors) / len(errors))
            continue
        sizes = [4] if kind == "one" else [3, 2]
        mask = row["obs"]["action_mask"] if isinstance(row.get("obs"), dict) else np.ones(sum(sizes))
        start, total = 0, 0.0
        for size, chosen in zip(sizes, np.atleast_1d(row["action"]), strict=True):
            legal = [action for action in range(size) if mask[start + action]]
            total += slow_cross_entropy(output[start : start + size], int(chosen), legal, smooth)
            start += size
        losses.append(total)
    return sum(losses) / len(losses)


def loss_of(policy: BCPolicy, batch: TransitionBatch) -> tuple[float, dict[str, Any]]:
    info, priority = policy.learn_mode.grad(batch)
    assert priority is None
    return float(info["total_loss"]), info


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("smooth", [0.0, 0.3, True])
@pytest.mark.parametrize("kind", ["one", "several"])
def test_the_loss_of_discrete_actions_is_a_cross_entropy_over_legal_ones(kind: str, smooth: Any, masked: bool) -> None:
    policy, batch = make(kind, learn=dict(ce_label_smooth=smooth)), rows_of(kind, masked=masked)

    expected = slow_loss(policy, batch, kind, smooth=0.1 if smooth is True else smooth)

    assert loss_of(policy, batch)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss_type", ["mse_loss", "l1_loss", "nll_loss"])
def test_the_loss_of_continuous_actions_counts_in_units_of_their_range(loss_type: str) -> None:
    policy, batch = make("box", loss_type=loss_type), rows_of("box")

    assert loss_of(policy, batch)[0] == pytest.approx(slow_loss(policy, batch, "box"), rel=1e-5)


@pytest.mark.parametrize(("kind", "changes"), [("one", {}), ("box", dict(loss_type="nll_loss")), ("box", {})])
def test_the_gradient_is_the_slope_of_the_loss(kind: str, changes: dict[str, Any]) -> None:
    policy, batch = make(kind, **changes), rows_of(kind)
    policy._model.double()
    policy._params.rebuild()
    loss_of(policy, batch)
    grad: Tensor = policy._params.grad_vector.clone()
    direction = torch.randn_like(grad)
    ends = []
    for step in (1e-5, -1e-5):
        policy._params.data_vector.add_(step * direction)
        ends.append(loss_of(policy, batch)[0])
        policy._params.data_vector.sub_(step * direction)

    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(float(grad @ direction), rel=1e-4)


def test_agreement_with_the_expert_is_reported() -> None:
    several, box = make("several"), make("box")
    batch, continuous = rows_of("several"), rows_of("box")

    own = several.eval_mode.actor.act(
        batch["obs"], lanes=np.arange(ROWS), is_first=np.ones(ROWS, bool), rng=np.random.default_rng(0)
    )["action"]
    share = np.mean([list(mine) == list(theirs) for mine, theirs in zip(own, batch["action"], strict=True)])
    acted = box.eval_mode.actor.act(
        continuous["obs"], lanes=np.arange(ROWS), is_first=np.ones(ROWS, bool), rng=np.random.default_rng(0)
    )["action"]

    assert float(loss_of(several, batch)[1]["accuracy"]) == pytest.approx(share)
    error = float(loss_of(box, continuous)[1]["action_error"])
    assert error == pytest.approx(np.abs(acted - continuous["action"]).mean(), rel=1e-5)


@pytest.mark.parametrize("mode", ["collect_mode", "eval_mode"])
def test_the_actor_takes_the_mean_within_the_bounds_and_the_best_legal_action(mode: str) -> None:
    obs = np.random.default_rng(0).normal(size=(ROWS, OBS)).astype(np.float32) * 9
    given: dict[str, Any] = dict(lanes=np.arange(ROWS), is_first=np.ones(ROWS, bool), rng=np.random.default_rng(0))
    box, one = make("box"), make("one")
    box._model.actor_head.mu.weight.data.mul_(20)
    mask = np.ones((ROWS, 4), np.int8)
    mask[:, 1] = 0

    action = getattr(box, mode).actor.act(obs, **given)["action"]
    chosen = getattr(one, mode).actor.act({"board": obs, "action_mask": mask}, **given)["action"]

    mean = box._model.actor(torch.from_numpy(obs)).detach().numpy()[:, :2]
    centre, half = (LOW + HIGH) / 2, (HIGH - LOW) / 2
    assert np.allclose(action, np.clip(centre + half * mean, LOW, HIGH), atol=1e-5)
    assert (action == HIGH).any() and (action == LOW).any()
    logits = one._model.actor(torch.from_numpy(obs)).detach().numpy()
    logits[:, 1] = -np.inf
    assert (chosen == logits.argmax(axis=1)).all()


@pytest.mark.parametrize("kind", ["one", "several", "box"])
def test_it_learns_the_actions_of_rows_by_heart(kind: str) -> None:
    policy, batch = make(kind, learn=dict(learning_rate=0.02)), rows_of(kind)
    for _ in range(600):
        info = policy.learn_mode.grad(batch)[0]
        policy.learn_mode.apply()

    assert float(info.get("accuracy", 1.0)) == 1.0 and float(info.get("action_error", 0.0)) < 0.1


def test_weight_decay_of_the_optimizer_shrinks_the_weights() -> None:
    plain, decayed = make("one"), make("one", learn=dict(optimizer=dict(weight_decay=5.0)))
    for policy in (plain, decayed):
        for _ in range(200):
            policy.learn_mode.grad(rows_of("one"))
            policy.learn_mode.apply()

    assert decayed._params.data_vector.norm() < 0.5 * plain._params.data_vector.norm()


def test_only_the_gaussian_has_a_sigma_that_is_trained() -> None:
    assert "log_sigma" in dict(make("box")._model.actor_head.named_buffers())
    assert "log_sigma" in dict(make("box", loss_type="nll_loss")._model.actor_head.named_parameters())
    assert isinstance(make("box")._model, BC)


def test_any_model_with_an_actor_will_do() -> None:
    model = VAC(OBS, 4, encoder_hidden_size_list=[8])
    cfg = deep_merge(to_plain(BCPolicy.default_config()), dict(model=dict(obs_shape=OBS, action_shape=4)))
    policy, batch = BCPolicy(cfg, model), rows_of("one")

    assert loss_of(policy, batch)[0] == pytest.approx(slow_loss(policy, batch, "one"), rel=1e-5)


def test_rows_without_actions_of_the_expert_are_refused() -> None:
    with pytest.raises(SchemaError, match="no column 'action', the expert's actions"):
        make("one").learn_mode.grad(TransitionBatch({"obs": np.zeros((2, OBS), np.float32)}))


def compiled(**policy: Any) -> Any:
    main = dict(env=dict(env_id="CartPole-v1"), policy=policy)
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="bc"))
    return compile_config(main, create, save=False).policy


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(priority=True), "priority.*an expert's rows have none"),
        (dict(nstep=3), "nstep.*no effect.*actions, and no values"),
        (dict(random_collect_size=10), "random_collect_size.*rows come from a file"),
        (dict(learn=dict(ce_label_smooth=1.5)), "ce_label_smooth"),
        (dict(loss_type="huber"), "loss_type.*'mse_loss', 'l1_loss' or 'nll_loss'"),
        (dict(learn=dict(train_epoch=0)), "train_epoch"),
    ],
)
def test_settings_without_a_use_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compiled(**settings)


def test_keys_of_di_engine_are_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    cfg = compiled(continuous=True, loss_type="l1_loss", learn=dict(ce_label_smooth=True, weight_decay=1e-3))

    assert cfg.learn.ce_label_smooth is True and cfg.learn.optimizer.weight_decay == 1e-3
    assert "policy.continuous   the env says whether its actions are continuous" in caplog.text
