"""What each of several learners has a share of, and what cannot be shared."""

from __future__ import annotations

from typing import Any

import pytest

from ding_like.config import FrozenConfig, compile_config
from ding_like.errors import ConfigError
from ding_like.pipeline.learners.shares import may_refuse, share_config, share_envs, share_of_batch
from ding_like.policy.sharing import Share
from tests.pipeline.test_serial import make_configs


def compiled(
    policy: str = "dqn", *, env: dict[str, Any] | None = None, learners: dict[str, Any] | None = None, **changes: Any
) -> FrozenConfig:
    main, create = make_configs()
    main["learners"] = learners or {}
    main["policy"] = {**(main["policy"] if policy == "dqn" else {"collect": dict(n_sample=64)}), **changes}
    main["env"].update(env or {})
    create["policy"]["type"] = policy
    return compile_config(main, create, save=False, renew_dir=False)


def test_each_learner_has_its_part_of_envs_rows_batches_and_buffer() -> None:
    own = share_config(compiled(), 2)

    assert own.env.collector_env_num == 2 and own.env.evaluator_env_num == 2
    assert (own.policy.collect.n_sample, own.policy.random_collect_size, own.policy.learn.batch_size) == (4, 20, 8)
    assert own.policy.other.replay_buffer.replay_buffer_size == 5000
    assert own.policy.learn.update_per_collect == 2 and share_of_batch(own, 2) == 8


def test_on_policy_minibatches_stay_whole() -> None:
    cfg = compiled("ppo", learn=dict(batch_size=17))

    own = share_config(cfg, 2)

    assert own.policy.learn.batch_size == 17 and own.policy.collect.n_sample == 32


def test_a_batch_of_whole_rows_is_drawn_in_parts_from_each_learners_buffer() -> None:
    cfg = compiled("ppo_offpolicy", learn=dict(batch_size=32))

    own = share_config(cfg, 4)

    assert own.policy.learn.batch_size == 32 and share_of_batch(own, 4) == 8


def test_all_that_cannot_be_shared_is_one_error_with_what_to_write() -> None:
    cfg = compiled(random_collect_size=41, learn=dict(batch_size=15), env=dict(collector_env_num=3))

    with pytest.raises(ConfigError) as caught:
        share_config(cfg, 2)

    text = str(caught.value)
    assert "3 problems in the config of 2 learners" in text
    assert "policy.learn.batch_size" in text and "is 15, which 2 learners cannot share equally: give 14" in text
    assert "policy.random_collect_size" in text and "env.collector_env_num" in text


def test_every_learner_needs_an_env() -> None:
    with pytest.raises(ConfigError, match="is 4, fewer than the 8 learners: give each at least one env"):
        share_config(compiled(), 8)


def test_a_timeout_that_means_nothing_is_refused() -> None:
    for timeout_s, bound in ((0.1, "least 2"), (1e300, "most 31536000")):
        with pytest.raises(ConfigError, match=rf"learners.timeout_s\s+is \S+, give at {bound}"):
            share_config(compiled(learners=dict(timeout_s=timeout_s)), 2)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    with pytest.raises(ConfigError, match=r"policy.cuda\s+is True, but torch finds no GPU"):
        share_config(compiled(cuda=True), 2)


def test_the_envs_of_a_learner_follow_those_of_the_one_before() -> None:
    setting = (lambda cfg: None, [0, 1, 2, 3], ["e"])

    assert share_envs(setting, Share(0, 2))[1:] == ([0, 1], ["e"])
    assert share_envs(setting, Share(1, 2))[1:] == ([2, 3], ["e"])
    with pytest.raises(ConfigError, match="4 envs to collect in cannot be shared equally by 3"):
        share_envs(setting, Share(0, 3))


def test_a_buffer_that_lets_go_of_rows_may_refuse() -> None:
    plain = compiled()
    used = compiled(other=dict(replay_buffer=dict(type="advanced", max_use=2)))
    prioritised = compiled(priority=True)

    assert [may_refuse(cfg) for cfg in (plain, used, prioritised)] == [False, True, False]
