"""A collect worker gives a serial collector's rows, stops on a signal, and has parts that can be replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.channels import CollectRequest, Version, Weights
from ding_like.comm.tensors import encode_weights, flatten_state, unpack_rows
from ding_like.config import FrozenConfig, compile_config
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.checks import warmup_steps
from ding_like.pipeline.collect import random_collect, segment_of
from ding_like.pipeline.components import build_serial
from ding_like.pipeline.ray import CWorker
from ding_like.pipeline.scheme_parts import SchemeFactories, SegmentStorage
from tests.entry import test_di_engine_style as di_engine_style
from tests.pipeline.ray.collecting import (
    SHIPPED,
    TellingEnv,
    make_worker,
    shipped_config,
    small_config,
    telling_config,
)
from tests.pipeline.test_serial import make_configs

LEARNED = Version(1, 7)


@pytest.fixture
def factories(tmp_path: Path) -> SchemeFactories:
    return SchemeFactories.of(small_config(tmp_path), seed=3)


@pytest.fixture
def worker(factories: SchemeFactories) -> Iterator[CWorker]:
    made = make_worker(factories)
    yield made
    made.stop()


@pytest.fixture
def tellers(tmp_path: Path) -> Iterator[list[CWorker]]:
    """Return a list of workers that are stopped in the end; their envs are TellingEnvs."""
    made: list[CWorker] = []
    TellingEnv.num_steps = 0
    yield made
    TellingEnv.told = None
    for each in made:
        each.stop()


def columns_equal(rows: Any, expected: Any) -> None:
    assert list(rows) == list(expected)
    for name, column in expected.items():
        assert column.dtype == rows[name].dtype and np.array_equal(rows[name], column, equal_nan=True), name


# --- rows


def serial_rows(cfg: FrozenConfig, seed: int, *, turns: int) -> list[TransitionBatch]:
    """Return what a serial run's collector gives before anything is learned: random actions first, where there are."""
    parts = build_serial(cfg, seed=seed, with_buffer=not cfg.policy.on_policy)
    try:
        if cfg.policy.random_collect_size:
            random_collect(
                cfg.policy, parts.policy, parts.collector, parts.collector_env, parts.commander, parts.replay_buffer
            )
        collect = cfg.policy.collect
        wanted = collect.get("n_sample") or collect.get("n_episode")
        return [
            parts.collector.collect_rows(wanted, train_iter=7, policy_kwargs=parts.commander.step())
            for _ in range(turns)
        ]
    finally:
        parts.close()


QUICK = ("ppo", "r2d2", "tictactoe")


@pytest.mark.parametrize(
    "name", ["dqn", *(pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SHIPPED)]
)
def test_a_synchronous_worker_gives_the_rows_of_a_serial_collector_bit_for_bit(name: str, tmp_path: Path) -> None:
    cfg = small_config(tmp_path) if name == "dqn" else shipped_config(name, tmp_path)
    expected = serial_rows(cfg, 3, turns=3)
    factories = SchemeFactories.of(cfg, seed=3)
    worker = make_worker(factories)
    try:
        env_step = 0
        if cfg.policy.random_collect_size:
            env_step += worker.collect_data(order=CollectRequest(False, cfg.policy.random_collect_size, 0, None))[1][
                "EnvSteps"
            ]
        state = flatten_state(factories.actor().collect_mode.state_dict())
        worker.set_weights(Weights("policy", LEARNED, state))
        for turn in range(3):
            assert env_step >= warmup_steps(cfg.policy)
            rows, info = worker.collect_data(order=CollectRequest(False, worker.update_every, env_step, LEARNED))
            env_step += info["EnvSteps"]
            columns_equal(rows, expected[turn].columns)
            assert info["NumberSamples"] == len(expected[turn]) and info["Segment"].version == LEARNED
    finally:
        worker.stop()


def test_workers_play_apart_from_one_another(factories: SchemeFactories) -> None:
    seeds = [
        factories.lane_seed(worker, parent) + lane
        for parent in range(3)
        for worker in range(1, 40)
        for lane in range(4)
    ]
    assert len(set(seeds)) == len(seeds)
    assert factories.lane_seed(0, 0) == factories.lane_seed(1, 0) == 3

    starts, actions = [], []
    for index, parent in ((1, 0), (2, 0), (3, 0), (1, 1)):
        worker = make_worker(factories, index=index, parent=parent)
        starts.append(worker.obs)
        rows, _ = worker.collect_data(order=CollectRequest(False, 200, 0, None))  # at random
        actions.append(rows["action"])
        worker.stop()
    for other in range(4):
        for one in range(other):
            assert not torch.equal(starts[one], starts[other])
            assert not np.array_equal(actions[one], actions[other])


def test_the_generators_of_the_run_are_as_they_were_after_a_worker_is_made_in_its_process(
    factories: SchemeFactories,
) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)

    make_worker(factories).stop()

    assert torch.equal(torch.rand(3), expected)


def test_actions_are_random_until_the_run_has_had_its_start_steps(worker: CWorker) -> None:
    assert worker.algo.start_steps == 40

    at_random, _ = worker.collect_data(order=CollectRequest(False, 400, 39, None))
    greedy, info = worker.collect_data(order=CollectRequest(False, 40, 10**9, None))

    q = worker.actor.get_attribute("model")(torch.from_numpy(greedy["obs"]))["logit"].argmax(1).numpy()
    assert 0.3 < at_random["action"].mean() < 0.7
    assert (q == greedy["action"]).mean() > 0.7 and info["Segment"].stats["eps"] < 0.2


def test_a_frame_holds_the_rows_that_are_sent_without_compression(factories: SchemeFactories) -> None:
    plain, packed = make_worker(factories), make_worker(factories, compress_data_to_send=True)
    try:
        (rows, info), (frame, packed_info) = plain.collect_data(), packed.collect_data()
        columns_equal(unpack_rows(frame).columns, rows)
        assert isinstance(frame, bytes) and packed_info["NumberSamples"] == info["NumberSamples"] == 8
    finally:
        plain.stop()
        packed.stop()


def test_what_wrappers_observed_comes_with_the_rows_once(tmp_path: Path) -> None:
    main, create = make_configs(random_collect_size=0)
    main["env"]["wrappers"] = ["obs_norm"]
    cfg = compile_config({**main, "exp_name": str(tmp_path / "exp")}, create, seed=0, save=False)
    worker = make_worker(SchemeFactories.of(cfg, seed=0), compress_data_to_send=True)
    segments = [worker.collect_data()[1]["Segment"] for _ in range(2)]
    worker.stop()
    # Each observation once: the first of each episode, and one a step.
    first, second = (segment.observed["0.ObsNorm/count"] for segment in segments)
    assert first.shape == () and first >= 4 + segments[0].env_steps and second < first + 4


def test_rows_of_a_policy_in_di_engine_style_are_returned(tmp_path: Path) -> None:
    main = dict(
        exp_name=str(tmp_path / "exp"),
        env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=10),
        policy=dict(),
    )
    create = dict(
        env=dict(type="di_engine_style_line"), env_manager=dict(type="base"), policy=dict(type="di_engine_style_bandit")
    )
    di_engine_style.CALLS.update(dict.fromkeys(di_engine_style.CALLS, 0))
    cfg = compile_config(main, create, seed=0, save=False)
    worker = make_worker(SchemeFactories.of(cfg, seed=0))
    try:
        rows, info = worker.collect_data()
        segment = segment_of(rows, info)
        assert len(segment.batch) == info["NumberSamples"] == 20 == di_engine_style.CALLS["transitions"]
    finally:
        worker.stop()


def test_a_worker_says_how_it_fared(worker: CWorker) -> None:
    _, first = worker.collect_data()
    infos = [worker.collect_data()[1] for _ in range(60)]

    assert np.isnan(first["Episodes"]["TrainReward"])
    assert infos[-1]["Episodes"]["TrainReward"] == infos[-1]["Episodes"]["TrainLength"] > 5
    assert first["EnvSteps"] > first["NumberSamples"] == 8  # rows of three steps
    assert infos[0]["Time"]["DataCollection"] > 0
    assert worker.iter == 61 and worker.samples_collected == 61 * 8
    assert worker.obs.shape == (4, 4) and worker.rhs == {} and worker.done.shape == (4,)


def test_recurrent_state_is_seen_and_begins_anew_with_other_envs(tmp_path: Path) -> None:
    factories = SchemeFactories.of(shipped_config("r2d2", tmp_path), seed=0)
    worker = make_worker(factories)
    try:
        worker.collect_data(order=CollectRequest(False, 2, 10**6, None))
        before = worker.envs_train
        assert worker.rhs and any((state != 0).any() for state in worker.rhs.values())

        assert worker.replace_agent_component("TrainEnvironment", factories.train_envs)

        assert before.closed and not worker.envs_train.closed
        assert worker.done.all() and all(not len(state) or not state.any() for state in worker.rhs.values())
        assert worker.collect_data()[1]["NumberSamples"] == worker.update_every
    finally:
        worker.stop()


# --- stopping early


def teller(tellers: list[CWorker], folder: Path, *, fraction: float, num_envs: int = 1, n_sample: int = 20) -> CWorker:
    factories = SchemeFactories.of(telling_config(folder, num_envs=num_envs, n_sample=n_sample), seed=0)
    tellers.append(make_worker(factories, fraction_samples=fraction))
    return tellers[-1]


@pytest.mark.parametrize(
    ("told_at", "fraction", "num_envs", "taken"),
    [
        (0, 0.75, 1, 15),  # before the first step: the least that it takes
        (16, 0.75, 1, 16),  # told during step 16, which is its last
        (0, 0.75, 4, 16),  # four envs at a time
        (99, 0.75, 1, 20),  # never told
    ],
)
def test_a_collection_that_is_told_to_stop_ends_with_the_first_step_at_which_it_may(
    told_at: int, fraction: float, num_envs: int, taken: int, tmp_path: Path, tellers: list[CWorker]
) -> None:
    worker = teller(tellers, tmp_path, fraction=fraction, num_envs=num_envs)
    if told_at:
        TellingEnv.told = lambda step: worker.stop_collecting(4) if step == told_at else None
    else:
        worker.stop_collecting(4)

    rows, info = worker.collect_data(listen_to=[("sync", 4)])

    assert TellingEnv.num_steps == taken
    assert info["NumberSamples"] == info["EnvSteps"] == len(rows["obs"]) == taken
    assert rows["step"].reshape(-1, num_envs)[:, 0].tolist() == [step % 3 for step in range(taken // num_envs)]


def test_a_late_signal_does_not_stop_a_later_round_and_a_newer_one_stops_an_earlier(
    tmp_path: Path, tellers: list[CWorker]
) -> None:
    worker = teller(tellers, tmp_path, fraction=0.5)
    worker.stop_collecting(4)

    taken = [worker.collect_data(listen_to=[("sync", round_id)])[1]["NumberSamples"] for round_id in (5, 4, 3)]

    assert taken == [20, 10, 10]


def test_a_worker_hears_the_keywords_that_it_listens_to(tmp_path: Path, tellers: list[CWorker]) -> None:
    worker = teller(tellers, tmp_path, fraction=0.5)
    worker.stop_collecting(9, "worker_2")

    taken = [
        worker.collect_data(listen_to=listen_to)[1]["NumberSamples"]
        for listen_to in ([], ["sync"], ["sync", "worker_2"], [("worker_2", 9)], [("worker_2", 10)])
    ]

    assert taken == [20, 20, 10, 10, 20]


def test_a_signal_from_another_thread_stops_a_collection_under_way(tmp_path: Path, tellers: list[CWorker]) -> None:
    worker = teller(tellers, tmp_path, fraction=0.001, n_sample=1_000_000)
    is_under_way = threading.Event()
    TellingEnv.told = lambda step: is_under_way.set()
    taken: list[int] = []
    thread = threading.Thread(
        target=lambda: taken.append(worker.collect_data(listen_to=[("sync", 0)])[1]["NumberSamples"])
    )
    thread.start()
    assert is_under_way.wait(60.0)

    worker.stop_collecting(0)

    thread.join(60.0)
    assert not thread.is_alive() and 1_000 <= taken[0] < 1_000_000


# --- weights


def test_weights_are_versioned_and_older_ones_passed_over(worker: CWorker, factories: SchemeFactories) -> None:
    names = {update: factories.actor() for update in (0, 3, 5)}
    for update, policy in names.items():
        for parameter in policy.get_attribute("model").parameters():
            parameter.data.fill_(float(update))

    versions = []
    for update in (0, 5, 3):
        worker.set_weights({"version": update, "weights": names[update].collect_mode.state_dict()})
        versions.append(worker.actor_version)

    assert versions == [0, 5, 5]
    assert all((parameter == 5).all() for parameter in worker.actor.get_attribute("model").parameters())
    assert worker.collect_data()[1]["ActorVersion"] == {"DataCollection": 5}


def test_weights_come_as_a_publisher_sends_them(worker: CWorker, factories: SchemeFactories) -> None:
    state = flatten_state(factories.actor().collect_mode.state_dict())

    worker.set_weights(encode_weights(Weights("policy", Version(1, 4), state)))
    first = worker.actor_version
    worker.set_weights({"version": 6, "weights": state})

    assert (first, worker.actor_version) == (4, 6)


def test_weights_that_do_not_fit_are_refused_and_change_nothing(worker: CWorker, factories: SchemeFactories) -> None:
    state = flatten_state(factories.actor().collect_mode.state_dict())

    for change, said in (
        ({**state, "model/more": torch.zeros(2)}, "'model/more', which is not expected"),
        (dict(list(state.items())[1:]), "lack 'model/"),
        ({name: value.double() for name, value in state.items()}, "float64"),
        ({name: value[:1] for name, value in state.items()}, "of another model"),
    ):
        with pytest.raises(CommError, match=said):
            worker.set_weights(Weights("policy", LEARNED, change))
    no_weights: list[Any] = [{"version": 1}, {"VERSION": 0, "weights": {}}, 7, None, (1, 2, 3)]
    for given in no_weights:
        with pytest.raises(CommError, match="expected"):
            worker.set_weights(given)

    assert worker.actor_version == 0 and worker.collect_data()[1]["Segment"].version == (0, 0)


def test_of_weights_that_come_during_a_collection_the_newest_act_next_in_whatever_order_they_came(
    tmp_path: Path, tellers: list[CWorker]
) -> None:
    worker = teller(tellers, tmp_path, fraction=1.0)
    state, versions = worker.actor.collect_mode.state_dict(), {5: 7, 6: 3}
    TellingEnv.told = lambda step: (
        worker.set_weights({"version": versions[step], "weights": state}) if step in versions else None
    )

    rows, info = worker.collect_data()
    _, following = worker.collect_data()

    assert info["Segment"].version == (0, 0) and not rows["policy_version"].any()
    assert following["ActorVersion"] == {"DataCollection": 7} == {"DataCollection": worker.actor_version}


# --- what can be changed


def test_a_worker_without_envs_holds_parameters(factories: SchemeFactories) -> None:
    holder = CWorker(0, 0, factories.algo, factories.actor, factories.storage)

    holder.set_weights({"version": 3, "weights": factories.actor().collect_mode.state_dict()})

    assert holder.actor_version == 3 and holder.obs is None and holder.envs_train is None
    with pytest.raises(ConfigError, match="no train envs"):
        holder.collect_data()
    with pytest.raises(ConfigError, match="no test envs"):
        holder.evaluate()
    holder.stop()


def test_evaluations_are_greedy_repeatable_and_on_other_episodes_each_time(factories: SchemeFactories) -> None:
    returns = []
    for _ in range(2):
        worker = make_worker(factories, tests=True)
        worker.update_algorithm_parameter("num_test_episodes", 6)
        returns.append([worker.evaluate() for _ in range(3)])
        worker.stop()

    assert returns[0] == returns[1] and len(set(returns[0])) > 1


def test_collect_data_evaluates_before_the_updates_that_a_test_is_due_in(factories: SchemeFactories) -> None:
    worker = make_worker(factories, tests=True)
    assert (worker.algo.test_every, worker.updates_per_iter) == (50, 2)
    worker.update_algorithm_parameter("test_every", 5)

    tested = ["TestReward" in worker.collect_data()[1]["Episodes"] for _ in range(8)]
    worker.stop()

    # Updates 0, 1 | 2, 3 | 4, 5 | 6, 7 | 8, 9 | 10, 11 | 12, 13 | 14, 15
    assert tested == [True, False, True, False, False, True, False, True]


def test_parameters_of_the_algorithm_are_those_that_the_next_collection_goes_by(worker: CWorker) -> None:
    for name, value in dict(update_every=12, start_steps=0, gamma=0.5, num_mini_batch=3, mini_batch_size=9).items():
        assert worker.update_algorithm_parameter(name, value), name

    rows, info = worker.collect_data(order=CollectRequest(False, worker.update_every, 0, None))

    assert info["NumberSamples"] == worker.update_every == 12 and worker.updates_per_iter == 3
    assert set(np.round(rows["discount"], 6)) == {0.125}  # three steps on at 0.5
    assert rows["reward"].max() == 1.75
    assert worker.actor.get_attribute("batch_size") == 9


def test_the_storage_bounds_a_collection(worker: CWorker) -> None:
    assert worker.update_storage_parameter("max_size", 5)

    assert worker.collect_data()[1]["NumberSamples"] == 5


@pytest.mark.parametrize("name", ["Algorithm", "storage", "actor"])
def test_a_part_is_replaced_and_the_others_go_on_with_it(
    name: str, worker: CWorker, factories: SchemeFactories
) -> None:
    worker.set_weights({"version": 2, "weights": factories.actor().collect_mode.state_dict()})
    worker.collect_data()
    attribute = name.lower().replace("algorithm", "algo")
    given: list[tuple[object, ...]] = []
    before = getattr(worker, attribute)

    def make(*arguments: object) -> object:
        given.append(arguments)
        return getattr(factories, attribute)(*arguments)

    assert worker.replace_agent_component(name, make)

    expected = {"algo": (worker.actor,), "storage": (worker.actor, worker.algo), "actor": ()}[attribute]
    assert given == [(worker.device, *expected)]
    assert getattr(worker, attribute) is not before and not worker.envs_train.closed
    _, info = worker.collect_data()
    assert info["NumberSamples"] == 8 and info["ActorVersion"] == {"DataCollection": 2}
    assert info["EnvSteps"] > 0


def test_a_factory_that_raises_leaves_the_part_that_was_there(worker: CWorker) -> None:
    before = worker.envs_train

    with pytest.raises(RuntimeError, match="no envs today"):
        worker.replace_agent_component("envs_train", fail)

    assert worker.envs_train is before and worker.collect_data()[1]["NumberSamples"] == 8


def fail(*_: object) -> None:
    raise RuntimeError("no envs today")


def test_a_storage_of_ones_own_gets_the_segments(factories: SchemeFactories) -> None:
    class Counting(SegmentStorage):
        puts = 0

        def put(self, segment: Any) -> CollectRequest:
            Counting.puts += len(segment.batch)
            return super().put(segment)

    worker = CWorker(
        1, 0, factories.algo, factories.actor, lambda *_: Counting(), train_envs_factory=factories.train_envs
    )
    result = worker.collect_train_data(16)

    assert Counting.puts == worker.samples_collected == 16
    assert result.col_time > 0 and np.isnan(result.train_perf)
    assert len(worker.storage.take().batch) == 16
    with pytest.raises(ConfigError, match="holds no rows"):
        worker.storage.take()
    worker.stop()


# --- beginning and end


def test_a_device_or_fraction_that_means_nothing_is_refused(factories: SchemeFactories) -> None:
    for device in ("cuda:17", "meta", "no such device"):
        with pytest.raises(ConfigError, match=f"device is '{device}'"):
            make_worker(factories, device=device)
    for fraction in (0.0, -1.0, 1.1):
        with pytest.raises(ConfigError, match="fraction_samples"):
            make_worker(factories, fraction_samples=fraction)


def test_stop_closes_all_envs_and_may_be_called_again(factories: SchemeFactories) -> None:
    worker = make_worker(factories, tests=True)
    train, test = worker.envs_train, worker.envs_test

    worker.stop()
    worker.stop()

    assert train.closed and test.closed
    with pytest.raises(ConfigError, match="was stopped"):
        worker.collect_data()


def test_envs_are_closed_when_a_worker_cannot_be_made(factories: SchemeFactories) -> None:
    made: list[Any] = []

    def envs(*place: Any) -> Any:
        made.append(factories.train_envs(*place))
        return made[-1]

    with pytest.raises(RuntimeError, match="no envs today"):
        make_worker(factories, train_envs_factory=envs, test_envs_factory=fail)

    assert [each.closed for each in made] == [True]
