"""What each of several learners has a share of, and what cannot be shared."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.tensors import pack, pack_batch, unpack, unpack_batch
from ding_like.config import FrozenConfig, compile_config, read_config
from ding_like.data.batch import SequenceBatch, TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.learners.synced import LearnerAggregator, may_refuse, share_config, share_envs, share_of_batch
from ding_like.policy.sharing import Share
from ding_like.utils.seeding import make_rng
from tests.contracts.policy_cases import GRAD_CASES, batches_of, make
from tests.pipeline.learners.two_learners import HEAD, SEED, furthest, learner_of, new_policy
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


ROOT = Path(__file__).parents[3]
WINDOWS = HEAD.format(
    env="CartPole-v1",
    name="window_dqn",
    imports=', import_names=["tests.pipeline.learners.window_policy"]',
    policy="model=dict(encoder_hidden_size_list=[16]), learn=dict(batch_size=8), collect=dict(n_sample=8)",
)


def test_rows_of_policies_of_each_family_travel() -> None:
    for name in ("dqn prioritised", "ppo", "sac", "qmix", "r2d2", "ppo_recurrent", "impala"):
        case = GRAD_CASES[name]
        (batch,) = islice(batches_of(case, make(case)), 1)

        back, header = unpack_batch(pack_batch(batch, {"rng": {"state": 2**100}}))

        assert isinstance(back, TransitionBatch) and header == {"rng": {"state": 2**100}}
        assert back.columns.keys() == batch.columns.keys()
        for column, wanted in batch.columns.items():
            assert back[column].dtype == wanted.dtype, (name, column)
            np.testing.assert_array_equal(back[column], wanted)


def windows(number: int, size: int = 8, steps: int = 3) -> SequenceBatch:
    rng = np.random.default_rng(number)
    columns = {
        "obs": rng.standard_normal((size, steps, 4)).astype(np.float32),
        "action": rng.integers(0, 2, (size, steps)),
        "reward": rng.standard_normal((size, steps)).astype(np.float32),
        "next_obs": rng.standard_normal((size, steps, 4)).astype(np.float32),
        "terminated": rng.random((size, steps)) < 0.2,
    }
    return SequenceBatch(columns, {"prev_state": rng.random((size, 5))}, {"weight": rng.random(size)})


def test_windows_travel_with_their_state_and_weights() -> None:
    batch = windows(0)

    back, _ = unpack_batch(pack_batch(batch, {}))

    assert isinstance(back, SequenceBatch) and back.num_steps == 3
    for ours, wanted in ((back.columns, batch.columns), (back.initial, batch.initial)):
        assert ours.keys() == wanted.keys()
        assert all(np.array_equal(ours[name], wanted[name]) for name in wanted)
    np.testing.assert_array_equal(back["weight"], batch["weight"])


def test_rows_of_objects_and_foreign_bytes_are_refused() -> None:
    with pytest.raises(CommError, match="column 'name' has dtype"):
        pack({"name": np.array(["a", None], object)}, {})
    with pytest.raises(CommError, match="hold no columns"):
        unpack(b"12345678 no safetensors")


@pytest.mark.slow
def test_two_learners_of_windows_equal_one(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path = in_tmp
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "windows.py"
    path.write_text(WINDOWS)
    file = read_config(path)
    buffer: dict[str, Any] = {"replay_buffer": {"type": "sequence"}}
    cfg = compile_config(file.main_config, {**file.create_config, **buffer}, seed=SEED, save=False)
    one, first = new_policy(cfg), new_policy(cfg)
    rng = make_rng(SEED, "learner")
    aggregator = LearnerAggregator({"main": cfg, "seed": SEED, "num_learners": 2, "config_file": path})
    aggregator.start(first, rng=rng)
    single = learner_of(cfg, one, tmp_path, instance_name="single")
    learner = learner_of(cfg, first, tmp_path, instance_name="first", reducer=aggregator.reducer, dist_info=(0, 2))
    try:
        for number in range(20):
            single.train(windows(number))
            share = aggregator.share(windows(number), train_iter=learner.train_iter)
            assert len(share) == 4
            learner.train(share)
        with pytest.raises(ConfigError, match="several learners cannot share a list"):
            aggregator.share([{"obs": 1}], train_iter=20)
        with pytest.raises(ConfigError, match="a batch of 7 rows cannot be shared equally by 2"):
            aggregator.share(windows(0, size=7), train_iter=20)
    finally:
        for each in (aggregator, learner, single):
            each.close()

    assert furthest(one.learn_mode.state_dict(), new_policy(cfg).learn_mode.state_dict()) > 0.01, "it learned"
    assert furthest(one.learn_mode.state_dict(), first.learn_mode.state_dict()) <= 1e-6
