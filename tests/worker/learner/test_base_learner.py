from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding_like.data.batch import TransitionBatch
from ding_like.errors import CheckpointError, ConfigError, RegistryError
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.registries import LEARNER_REGISTRY
from ding_like.worker import BaseLearner, LearnerHook, create_learner
from tests.worker.learner.counting_policy import CountingPolicy, RecordingWriter

QUIET = {"log_show_after_iter": False, "save_ckpt_after_iter": False}


@pytest.fixture
def batch() -> TransitionBatch:
    return TransitionBatch({"reward": np.arange(4, dtype=np.float32)})


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    def build(
        policy: Any = None,
        *,
        hook: dict[str, Any] | None = None,
        cls: type[BaseLearner] = BaseLearner,
        train_iterations: int = 1000,
        **kwargs: Any,
    ) -> Any:
        kwargs.setdefault("tb_logger", RecordingWriter())
        cfg = {"hook": QUIET if hook is None else hook, "train_iterations": train_iterations}
        learner = cls(cfg, policy, exp_name=str(tmp_path / "exp"), **kwargs)
        request.addfinalizer(learner.close)
        return learner

    return build


class NoteHook(LearnerHook):
    """Write down the iteration at which it runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[int] = []

    def __call__(self, engine: Any) -> None:
        self.seen.append(engine.last_iter.val)


def test_defaults_are_the_seeds_and_a_check_of_finiteness() -> None:
    cfg = BaseLearner.default_config()

    assert cfg.train_iterations == int(1e9)
    assert cfg.dataloader.num_workers == 0
    assert (cfg.log_policy, cfg.is_multitask_pipeline, cfg.only_monitor_rank0) == (True, False, True)
    assert cfg.hook == {
        "load_ckpt_before_run": "",
        "log_show_after_iter": 100,
        "check_finite_after_iter": 100,
        "save_ckpt_after_iter": 10000,
        "save_ckpt_after_run": True,
    }
    assert cfg.cfg_type == "BaseLearnerDict"


def test_train_applies_each_minibatch_after_its_gradient(make: Any, batch: TransitionBatch) -> None:
    policy = CountingPolicy(minibatches=2)

    class Reducer:
        def reduce(self) -> None:
            policy.calls.append("reduce")

    make(policy.learn_mode, reducer=Reducer()).train(batch)

    assert policy.calls == ["grad", "reduce", "apply"] * 2


def test_train_returns_a_report_for_each_minibatch(make: Any, batch: TransitionBatch) -> None:
    policy = CountingPolicy(minibatches=2)
    learner = make(policy.learn_mode)

    infos = learner.train(batch)

    assert [float(info["loss"]) for info in infos] == [0.0, 1.0]
    assert policy.batches[0] is batch
    assert learner.last_iter.val == learner.train_iter == 2
    assert learner.learn_info == {"learner_step": 2, "priority_info": {}, "learner_done": False}


def test_policy_kwargs_reach_policies_of_both_styles(make: Any) -> None:
    seen: list[Any] = []

    class Ours(DQNPolicy):
        def grad(self, batch: Any, alpha: float = 0.0) -> Any:
            seen.append(alpha)
            return super().grad(batch)

    class DiEngines(DQNPolicy):
        def _forward_learn(self, data: Any, alpha: float = 0.0) -> Any:
            seen.append(alpha)
            return {"total_loss": 0.0}

    zeros = {"obs": np.zeros((8, 4), np.float32), "next_obs": np.zeros((8, 4), np.float32)}
    rows = TransitionBatch(
        {**zeros, "action": np.zeros(8, np.int64), "reward": np.zeros(8, np.float32), "terminated": np.zeros(8, bool),
         "truncated": np.zeros(8, bool), "discount": np.ones(8, np.float32)}
    )  # fmt: skip
    for alpha, cls in ((0.1, Ours), (0.2, DiEngines)):
        cfg = cls.default_config()
        cfg.model = EasyDict(obs_shape=4, action_shape=2)
        mode = cls(cfg).learn_mode
        make(mode).train(rows, policy_kwargs={"alpha": alpha})
        mode.forward(rows, alpha=alpha)

    assert seen == [0.1, 0.1, 0.2, 0.2]


def test_train_stacks_a_list_of_rows(make: Any) -> None:
    policy = CountingPolicy()

    make(policy.learn_mode).train([{"reward": 1.0}, {"reward": 2.0}])

    assert policy.batches[0]["reward"].tolist() == [1.0, 2.0]


def test_before_iter_runs_once_and_after_iter_once_per_minibatch(make: Any, batch: TransitionBatch) -> None:
    learner = make(CountingPolicy(minibatches=3).learn_mode)
    before, after = NoteHook("b", 1, position="before_iter"), NoteHook("a", 1, position="after_iter")
    learner.register_hook(before)
    learner.register_hook(after)

    learner.train(batch)

    assert (before.seen, after.seen) == ([0], [0, 1, 2])


def test_train_without_a_policy_says_what_to_do(make: Any, batch: TransitionBatch) -> None:
    with pytest.raises(ConfigError, match=r"learner\.policy = "):
        make().train(batch)


def test_policy_may_be_set_later(make: Any, batch: TransitionBatch) -> None:
    learner = make()

    learner.policy = CountingPolicy().learn_mode
    learner.train(batch)

    assert learner.train_iter == 1
    assert "a policy that counts" in Path(learner.exp_name, "log/learner/learner_logger.txt").read_text()


def test_envstep_stays_where_a_call_does_not_tell_it(make: Any, batch: TransitionBatch) -> None:
    learner = make(CountingPolicy().learn_mode)

    learner.train(batch, 80)
    learner.train(batch)

    assert learner.collector_envstep == 80


def test_priority_info_names_the_rows(make: Any) -> None:
    learner = make(CountingPolicy(priority=True).learn_mode)
    ids = np.array([7, 9])

    learner.train(TransitionBatch({"reward": np.zeros(2), "replay_buffer_idx": ids, "replay_unique_id": ids + 100}))

    assert learner.priority_info["priority"].tolist() == [1.0, 1.0]
    assert learner.priority_info["replay_buffer_idx"].tolist() == [7, 9]
    assert learner.priority_info["replay_unique_id"].tolist() == [107, 109]
    assert learner.learn_info["priority_info"] is learner.priority_info


def test_priority_info_is_of_the_last_call_only(make: Any, batch: TransitionBatch) -> None:
    policy = CountingPolicy(priority=True)
    learner = make(policy.learn_mode)
    learner.train(batch)

    policy.priority = False
    learner.train(batch)

    assert learner.priority_info == {}


def test_priorities_with_several_minibatches_are_refused(make: Any, batch: TransitionBatch) -> None:
    learner = make(CountingPolicy(minibatches=2, priority=True).learn_mode)

    with pytest.raises(ConfigError, match=r"priority=False"):
        learner.train(batch)


def test_log_buffer_sorts_values_by_prefix(make: Any, batch: TransitionBatch) -> None:
    extra = {"[scalars]q": {"min": 1.0}, "[histogram]a": [1, 2], "[odd]x": 3}
    learner = make(CountingPolicy(extra=extra).learn_mode)

    learner.train(batch)

    assert learner.log_buffer["scalars"] == {"q": {"min": 1.0}}
    assert learner.log_buffer["histogram"] == {"a": [1, 2]}
    assert set(learner.log_buffer["scalar"]) == {"loss", "lr", "[odd]x", "train_time"}


def test_log_buffer_frees_the_graph(make: Any, batch: TransitionBatch) -> None:
    weight = torch.ones(1, requires_grad=True)
    learner = make(CountingPolicy(extra={"loss": (weight * 2).sum()}).learn_mode)

    learner.train(batch)

    assert not learner.log_buffer["scalar"]["loss"].requires_grad


def test_log_show_writes_the_mean_of_the_last_ten_iterations(make: Any, batch: TransitionBatch) -> None:
    writer = RecordingWriter()
    learner = make(CountingPolicy().learn_mode, hook={"log_show_after_iter": 20}, tb_logger=writer)

    for step in range(21):
        learner.train(batch, 8 * step)

    assert [(source, env_step, train_iter) for source, _, env_step, train_iter in writer.lines] == [
        ("learner", 0, 0),
        ("learner", 160, 20),
    ]
    values = writer.lines[1][1]
    assert values["loss_avg"] == np.mean(range(11, 21))
    assert values["lr_avg"] == 0.5
    assert values["train_time_avg"] > 0


def test_what_a_hook_adds_to_the_log_buffer_is_averaged(make: Any, batch: TransitionBatch) -> None:
    class AddHook(LearnerHook):
        def __call__(self, engine: Any) -> None:
            engine.log_buffer["scalar"]["lr"] = 2.0

    writer = RecordingWriter()
    learner = make(CountingPolicy().learn_mode, hook={"log_show_after_iter": 1}, tb_logger=writer)
    learner.register_hook(AddHook("add", 1, position="after_iter"))

    learner.train(batch)

    assert writer.lines[0][1]["lr_avg"] == 2.0


def test_scalars_and_histograms_are_shown(make: Any, batch: TransitionBatch, tmp_path: Path) -> None:
    class Board(RecordingWriter):
        def add_scalar(self, tag: str, value: float, global_step: int) -> None:
            self.lines.append((tag, {"": value}, global_step, global_step))

        def add_histogram(self, *args: Any) -> None:
            self.histogram = args

    board = Board()
    policy = CountingPolicy(extra={"[scalars]q": {"min": 1.0}, "[histogram]a": [1, 2]})
    learner = make(policy.learn_mode, hook={"log_show_after_iter": 1}, tb_logger=board)

    learner.train(batch)

    assert ("learner_iter/q/min", {"": 1.0}, 0, 0) in board.lines
    assert board.histogram == ("a", [1, 2], 0)


def test_metrics_reach_the_sink_of_the_run(make: Any, batch: TransitionBatch, tmp_path: Path) -> None:
    sink = MetricsSink(tmp_path, tensorboard=False)
    learner = make(CountingPolicy().learn_mode, hook={"log_show_after_iter": 1}, tb_logger=sink)

    learner.train(batch, 8)
    sink.close()

    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (line["source"], line["env_step"], line["train_iter"], line["loss_avg"]) == ("learner", 8, 0, 0.0)


def test_without_a_tb_logger_the_learner_opens_its_own(make: Any, batch: TransitionBatch) -> None:
    learner = make(CountingPolicy().learn_mode, hook={"log_show_after_iter": 1}, tb_logger=None)

    learner.train(batch)

    assert list(Path(learner.exp_name, "log/learner/learner_tb_logger").iterdir())


def test_start_trains_so_many_iterations_on_top_of_those_it_loaded(make: Any, tmp_path: Path) -> None:
    """DI-engine's own test, by the learner's own loop."""
    save_state(tmp_path / "start.pth.tar", {"model": {"updates": 5}, "last_iter": 5, "last_step": 40})
    hook = {"save_ckpt_after_iter": 5, "load_ckpt_before_run": str(tmp_path / "start.pth.tar")}
    learner = make(cls=RandomDataLearner, hook=hook, train_iterations=10)
    learner.policy = CountingPolicy().learn_mode

    learner.start()

    assert learner.last_iter.val == 15
    names = {f"iteration_{number}.pth.tar" for number in (5, 10, 15)}
    assert {file.name for file in learner.ckpt_dir.iterdir()} == names


def test_start_counts_what_a_resumed_run_has_done(make: Any) -> None:
    policy = CountingPolicy()
    learner = make(policy.learn_mode, cls=RandomDataLearner, train_iterations=6)
    learner.last_iter.update(4)

    learner.start()

    assert (learner.train_iter, learner.num_asked) == (6, 2)
    assert [batch["reward"].tolist() for batch in policy.batches] == [[1.0] * 4, [2.0] * 4]


class RandomDataLearner(BaseLearner):
    """Bring data by a method of its own, as DI-engine's sub-classes do: a function for each row."""

    num_asked = 0

    def get_data(self, batch_size: int) -> Any:
        self.num_asked += 1
        return [lambda: {"reward": float(self.num_asked)} for _ in range(batch_size)]


def test_data_of_a_method_end_where_it_returns_none(make: Any, batch: TransitionBatch) -> None:
    class TwoBatches(BaseLearner):
        given = 0

        def get_data(self, batch_size: int) -> Any:
            self.given += 1
            return batch if self.given <= 2 else None

    policy = CountingPolicy()
    learner = make(policy.learn_mode, cls=TwoBatches)

    learner.start()

    assert policy.batches == [batch, batch]
    assert learner.learn_info["learner_done"]


def test_a_function_that_is_set_takes_the_place_of_a_method(make: Any, batch: TransitionBatch) -> None:
    policy = CountingPolicy()
    learner = make(policy.learn_mode, cls=RandomDataLearner, train_iterations=1)
    learner.get_data = lambda batch_size: lambda: batch

    learner.start()

    assert policy.batches == [batch]


def test_load_gives_the_policy_its_own_state_only(make: Any) -> None:
    source = make(CountingPolicy().learn_mode)
    source.last_iter.update(3)
    source.collector_envstep = 24
    source.save_checkpoint("x.pth.tar")
    policy = CountingPolicy()
    learner = make(policy.learn_mode, hook={"load_ckpt_before_run": str(source.ckpt_dir / "x.pth.tar")})

    learner.call_hook("before_run")

    assert policy.loaded_keys == {"model"}
    assert (learner.train_iter, learner.collector_envstep) == (3, 24)


def test_load_of_a_missing_file_is_one_clear_error(make: Any, tmp_path: Path) -> None:
    learner = make(CountingPolicy().learn_mode, hook={"load_ckpt_before_run": str(tmp_path / "none.pth.tar")})

    with pytest.raises(CheckpointError, match=r"none\.pth\.tar does not exist"):
        learner.call_hook("before_run")


def test_saved_counters_stand_beside_the_policys_state(make: Any, batch: TransitionBatch) -> None:
    learner = make(CountingPolicy().learn_mode)
    learner.train(batch, 16)

    learner.save_checkpoint("ckpt_best.pth.tar")

    state = load_state(learner.ckpt_dir / "ckpt_best.pth.tar")
    assert (int(state["model"]["updates"]), state["last_iter"], state["last_step"]) == (1, 1, 16)


def test_save_checkpoint_uses_the_hook_of_that_name(make: Any) -> None:
    class NameHook(LearnerHook):
        def __call__(self, engine: Any) -> None:
            names.append(engine.ckpt_name)

    names: list[Any] = []
    learner = make(CountingPolicy().learn_mode, hook={"save_ckpt_after_run": False})
    learner.register_hook(NameHook("save_ckpt_after_run", 20, position="after_run"))

    learner.save_checkpoint("best")
    learner.save_checkpoint()

    assert names == ["best", None]
    assert not learner.ckpt_dir.exists()


def test_save_checkpoint_works_where_the_hook_is_switched_off(make: Any) -> None:
    for setting in (False, 5):  # a named one does not wait for its turn either
        learner = make(CountingPolicy().learn_mode, hook={"save_ckpt_after_run": setting})
        learner.last_iter.update(3)

        learner.save_checkpoint(f"best_{setting}.pth.tar")

        assert (learner.ckpt_dir / f"best_{setting}.pth.tar").exists()


def test_a_name_is_good_for_one_checkpoint(make: Any) -> None:
    learner = make(CountingPolicy().learn_mode)

    learner.save_checkpoint("best.pth.tar")
    learner.call_hook("after_run")

    assert {file.name for file in learner.ckpt_dir.iterdir()} == {"best.pth.tar", "iteration_0.pth.tar"}


def test_only_the_first_learner_saves(make: Any) -> None:
    learner = make(CountingPolicy().learn_mode, dist_info=(1, 2))

    learner.save_checkpoint("best.pth.tar")

    assert not learner.ckpt_dir.exists()
    assert learner.monitor is None


def test_another_instance_has_a_folder_of_its_own(make: Any) -> None:
    learner = make(CountingPolicy().learn_mode, instance_name="critic")

    assert learner.ckpt_dir.name == "ckpt_critic"
    assert Path(learner.exp_name, "log/critic/critic_logger.txt").exists()


def test_several_learners_average_their_logs(
    make: Any, batch: TransitionBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other learner reports loss 4, lr 1.5 and train_time 0."""
    other = torch.tensor([4.0, 1.5, 0.0])
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: tensor.add_(other))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    writer = RecordingWriter()
    learner = make(CountingPolicy().learn_mode, hook={"log_show_after_iter": 1}, dist_info=(0, 2), tb_logger=writer)

    learner.train(batch)

    assert (writer.lines[0][1]["loss_avg"], writer.lines[0][1]["lr_avg"]) == (2.0, 1.0)


def test_several_learners_without_torch_distributed_are_refused(make: Any, batch: TransitionBatch) -> None:
    learner = make(CountingPolicy().learn_mode, dist_info=(0, 2))

    with pytest.raises(ConfigError, match="init_process_group"):
        learner.train(batch)


def test_resume_continues_counters_monitor_and_generator(make: Any, batch: TransitionBatch) -> None:
    def run(learner: BaseLearner, steps: int) -> None:
        for step in range(steps):
            learner.train(batch, 8 * step)

    hook = {"log_show_after_iter": 7}
    straight_writer, resumed_writer = RecordingWriter(), RecordingWriter()
    policy = CountingPolicy(extra={"lr": torch.tensor(0.1)})
    straight = make(policy.learn_mode, hook=hook, tb_logger=straight_writer)
    run(straight, 12)
    state, weights = straight.state_dict(), policy.state_dict()
    run(straight, 12)

    other = CountingPolicy(extra={"lr": torch.tensor(0.1)})
    other.load_state_dict(weights)
    resumed = make(other.learn_mode, hook=hook, tb_logger=resumed_writer, rng=np.random.default_rng(5))
    resumed.load_state_dict(state)
    run(resumed, 12)

    def without_times(line: Any) -> Any:
        return line[0], {k: v for k, v in line[1].items() if k != "train_time_avg"}, line[2], line[3]

    expected = [without_times(line) for line in straight_writer.lines if line[3] >= 12]
    assert [without_times(line) for line in resumed_writer.lines] == expected
    assert resumed.state_dict()["rng"] == straight.state_dict()["rng"]


def test_state_dict_survives_a_file(make: Any, batch: TransitionBatch, tmp_path: Path) -> None:
    learner = make(CountingPolicy().learn_mode)
    learner.train(batch, 8)

    save_state(tmp_path / "state", learner.state_dict())
    other = make(CountingPolicy().learn_mode)
    other.load_state_dict(load_state(tmp_path / "state"))

    assert (other.train_iter, other.collector_envstep) == (1, 8)
    assert other.monitor.averages() == learner.monitor.averages()


DiEngineMode = namedtuple("DiEngineMode", ["forward", "state_dict", "load_state_dict", "monitor_vars", "info"])


def test_a_di_engine_style_policy_trains_on_rows(make: Any, batch: TransitionBatch) -> None:
    """`forward(list of dicts)` does the whole update, and gives one result for each of its iterations."""

    def forward(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert [float(row["reward"]) for row in rows] == [0.0, 1.0, 2.0, 3.0]
        return [{"cur_lr": 0.1, "total_loss": 1.0}, {"cur_lr": 0.1, "total_loss": 3.0}]

    writer = RecordingWriter()
    mode = DiEngineMode(forward, dict, lambda state: None, lambda: ["total_loss"], lambda: "seed style")
    learner = make(mode, hook={"log_show_after_iter": 1}, tb_logger=writer)

    infos = learner.train(batch)

    assert [info["total_loss"] for info in infos] == [1.0, 3.0]
    assert learner.train_iter == 2
    assert writer.lines[-1][1]["total_loss_avg"] == 2.0


def test_a_di_engine_style_policy_gives_priorities(make: Any) -> None:
    mode = DiEngineMode(
        lambda rows: {"priority": [0.5, 0.25]}, dict, lambda state: None, lambda: [], lambda: "seed style"
    )
    learner = make(mode)

    learner.train([{"reward": 1.0, "replay_buffer_idx": 3}, {"reward": 2.0, "replay_buffer_idx": 4}])

    assert learner.priority_info["priority"] == [0.5, 0.25]
    assert learner.priority_info["replay_buffer_idx"].tolist() == [3, 4]


def test_a_di_engine_style_policy_is_handed_rows_that_do_not_stack_as_they_are(make: Any) -> None:
    seen: list[Any] = []
    mode = DiEngineMode(lambda rows: seen.append(rows) or {}, dict, lambda state: None, lambda: [], lambda: "style")
    rows = [{"obs": np.zeros(2), "name": "a", "done": False}, {"obs": np.zeros(3), "name": "b", "done": True}]

    make(mode).train(rows)

    assert [(row["name"], row["obs"].shape, row["done"]) for row in seen[0]] == [("a", (2,), False), ("b", (3,), True)]


def test_priorities_of_rows_that_do_not_stack_are_matched_too(make: Any) -> None:
    mode = DiEngineMode(lambda rows: {"priority": [0.5, 0.25]}, dict, lambda state: None, lambda: [], lambda: "style")
    learner = make(mode)
    ragged = [{"x": "a", "replay_unique_id": "buffer_3"}, {"x": ["b"], "replay_unique_id": "buffer_4"}]

    learner.train([{**row, "replay_buffer_idx": number} for number, row in enumerate(ragged)])

    assert learner.priority_info["replay_unique_id"] == ["buffer_3", "buffer_4"]
    assert learner.priority_info["replay_buffer_idx"] == [0, 1]


@LEARNER_REGISTRY.register("test_learner")
class OtherLearner(BaseLearner):
    pass


def test_create_learner_reads_type_and_the_seeds_aliases(tmp_path: Path) -> None:
    for cfg in (
        {"type": "test_learner"},
        {"learner_type": "test_learner"},
        {"learner": {"learner_type": "test_learner"}},
    ):
        learner = create_learner(cfg, exp_name=str(tmp_path))

        assert type(learner) is OtherLearner, cfg
        learner.close()


def test_create_learner_refuses_a_config_without_type_or_with_an_unknown_one() -> None:
    with pytest.raises(ConfigError, match="type='base'"):
        create_learner({})
    with pytest.raises(RegistryError, match="base"):
        create_learner({"type": "bass"})


def test_close_may_be_called_twice(make: Any) -> None:
    learner = make(CountingPolicy().learn_mode)

    learner.close()
    learner.close()
    learner.info("after the end")

    assert "after the end" not in Path(learner.exp_name, "log/learner/learner_logger.txt").read_text()
