"""What goes into a checkpoint comes out equal, and each kind of bad file has its own error."""

from __future__ import annotations

import os
import sys
import zipfile
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor, nn

from ding_like.entry import eval as eval_checkpoint
from ding_like.errors import CheckpointError
from ding_like.model import DQN, VAC
from ding_like.model.qac import ContinuousQAC
from ding_like.policy import DQNPolicy
from ding_like.utils.checkpoint import (
    check_model_state,
    decode_state,
    encode_state,
    from_di_engine,
    load_state,
    renamed,
    save_state,
)
from ding_like.utils.seeding import make_rng, rng_state
from ding_like.worker import BaseLearner


def same(left: Any, right: Any) -> bool:
    """Return whether two trees are equal in types, dtypes, shapes and values, nan counting as itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, (np.ndarray, np.generic)):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return left == right or (left != left and right != right)


def round_trip(state: dict[Any, Any], folder: Path) -> dict[Any, Any]:
    save_state(folder / "state.pth.tar", state)
    return load_state(folder / "state.pth.tar")


numbers = st.none() | st.booleans() | st.integers(-(2**130), 2**130) | st.floats() | st.text() | st.binary()
arrays = hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
leaves = numbers | arrays | arrays.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0])
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(state=st.dictionaries(st.text(max_size=3), trees, max_size=3))
def test_any_state_comes_back_equal(state: dict[str, Any], tmp_path: Path) -> None:
    assert same(round_trip(state, tmp_path), state)


def test_value_comes_back_equal(tmp_path: Path) -> None:
    for value in [
        np.array(3.5),
        np.float64(3.5),
        np.bool_(True),
        np.zeros((0, 4), np.uint8),
        np.array([True, False]),
        np.array([2**63], np.uint64),
        np.arange(3, dtype=">i4"),
        np.array(["left", "right"]),
        torch.tensor([1.5], dtype=torch.bfloat16),
        torch.zeros(2, 0),
        (1, [2, (3,)]),
        b"",
        rng_state(make_rng(0, "x")),
        rng_state(np.random.Generator(np.random.MT19937(0))),
    ]:
        assert same(round_trip({"value": value}, tmp_path), {"value": value})


def test_views_of_arrays_come_back_equal(tmp_path: Path) -> None:
    for array in [np.arange(6).reshape(2, 3).T, np.arange(6)[::-2], np.broadcast_to(np.float32(1), (2, 3))]:
        assert same(round_trip({"value": array}, tmp_path)["value"], np.ascontiguousarray(array))


def test_loaded_array_may_be_written_to(tmp_path: Path) -> None:
    loaded = round_trip({"value": np.zeros(3)}, tmp_path)["value"]

    loaded[0] = 1

    assert loaded.tolist() == [1, 0, 0]


def test_sub_classes_become_plain(tmp_path: Path) -> None:
    point = namedtuple("point", "x y")
    state = {"cfg": EasyDict(a=1, b=EasyDict(c=[2])), "model": OrderedDict(w=1), "point": point(1, 2)}

    assert same(round_trip(state, tmp_path), {"cfg": {"a": 1, "b": {"c": [2]}}, "model": {"w": 1}, "point": (1, 2)})


def test_model_file_reads_with_torch_alone(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    save_state(tmp_path / "m.pth.tar", {"model": model.state_dict(), "last_iter": 7})

    loaded = torch.load(tmp_path / "m.pth.tar", weights_only=True)

    assert loaded["last_iter"] == 7
    model.load_state_dict(loaded["model"])


def test_view_of_a_large_tensor_is_saved_alone_and_parameters_without_their_graph(tmp_path: Path) -> None:
    save_state(tmp_path / "state", {"row": torch.zeros(1_000_000)[:5]})
    loaded = round_trip({"w": torch.nn.Parameter(torch.ones(2))}, tmp_path)["w"]

    assert (tmp_path / "state").stat().st_size < 10_000
    assert type(loaded) is torch.Tensor and not loaded.requires_grad


def test_value_that_cannot_be_saved_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    for value, fault in [
        ({1, 2}, r"state\.policy\.hooks\[1\] is a set, which a checkpoint cannot hold"),
        (np.array([object()]), r"state\.policy\.hooks\[1\] is an array of dtype object"),
        ({(1, 2): 3}, r"state\.policy\.hooks\[1\] has the key \(1, 2\) \(tuple\)"),
        ({"__kind__": 1}, r"state\.policy\.hooks\[1\] has the key '__kind__'"),
    ]:
        with pytest.raises(CheckpointError, match=fault):
            save_state(tmp_path / "state", {"policy": {"hooks": [0, value]}})
        assert os.listdir(tmp_path) == []


def test_encoding_leaves_its_input_alone() -> None:
    array = np.arange(3)
    state = {"list": [array]}

    decoded = decode_state(encode_state(state))

    assert state["list"][0] is array
    assert same(decoded, state)


def test_missing_file_is_answered_with_what_is_there(tmp_path: Path) -> None:
    for i in range(8):
        (tmp_path / f"iteration_{i}.pth.tar").touch()
    for name, said in (
        ("iteratio_1.pth.tar", r"model .*iteratio_1\.pth\.tar does not exist; did you mean iteration_1"),
        ("x", r"its folder has iteration_0.*iteration_4\.pth\.tar and 3 more"),
        ("no/x", "does not exist, nor does its folder"),
        ("", "is a folder; give a file in it"),
    ):
        with pytest.raises(CheckpointError, match=said):
            load_state(tmp_path / name, what="model")


def make_torn(path: Path, num_bytes: int) -> None:
    save_state(path, {"w": torch.zeros(1000)})
    path.write_bytes(path.read_bytes()[:num_bytes])


def make_flipped(path: Path) -> None:
    save_state(path, {"w": torch.zeros(1000)})
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


class Code:
    def __reduce__(self) -> tuple[Callable[[int], Any], tuple[int]]:
        return sys.exit, (3,)


def make_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda path: make_torn(path, 0), r"torn or damaged \(0 bytes\)"),
        (lambda path: make_torn(path, 3), r"torn or damaged \(3 bytes\)"),
        (lambda path: make_torn(path, 2000), r"torn or damaged \(2000 bytes\)"),
        (make_flipped, "torn or damaged"),
        (lambda path: path.write_text("hello"), r"not a file of torch.save \(it begins with b'hell'\)"),
        (lambda path: path.write_bytes(b"\x80\x04K\x01."), "is a bare pickle.* refused"),
        (lambda path: torch.save({"a": Code()}, path), "holds an object of sys.exit.* refused"),
        (lambda path: torch.save({"a": np.zeros(2)}, path), "holds an object of numpy.* refused"),
        (lambda path: torch.save([1, 2], path), "holds a list, not a dict"),
        (make_zip, "is a zip file, but torch cannot read it"),
    ],
    ids=["empty", "3 bytes", "cut", "bit flip", "text", "pickle", "code", "numpy", "list", "zip"],
)
def test_bad_file_gets_one_clear_line(make: Callable[[Path], Any], fault: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pth.tar"
    make(path)

    with pytest.raises(CheckpointError, match=fault) as caught:
        load_state(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_fault_of_a_model_state_is_in_one_error() -> None:
    expected = {"a": torch.zeros(2), "b": torch.zeros(2, 3), "c": torch.zeros(1), "e": torch.zeros(1)}
    got = {"a": torch.zeros(2), "b": torch.zeros(4, 3), "d": torch.zeros(1), "e": 1.0}

    with pytest.raises(CheckpointError) as caught:
        check_model_state(expected, got, path="m.pth.tar")
    with pytest.raises(CheckpointError, match=r"m\.pth\.tar holds a list where a model's state belongs"):
        check_model_state({}, [1], path="m.pth.tar")

    said = "missing c; unexpected d; of another shape b (4, 3) instead of (2, 3), e float instead of (1,)"
    assert said in str(caught.value)
    check_model_state(torch.nn.Linear(2, 3).state_dict(), torch.nn.Linear(2, 3).state_dict(), path="m.pth.tar")


@pytest.mark.parametrize(
    ("sizes", "prefix", "fix"),
    [
        ((6, 8, 2), "", "trained on an env with other observations or actions: use the config of the run"),
        ((4, 8, 3), "", "trained on an env with other observations or actions: use the config of the run"),
        ((4, 16, 2), "", "Give policy.model the values it was trained with"),
        ((4, 8, 2), "actor.", "It is of another policy or network: use the config of the run that saved it"),
    ],
    ids=["observations", "actions", "hidden", "policy"],
)
def test_the_fix_fits_the_part_of_the_model_that_differs(sizes: tuple[int, ...], prefix: str, fix: str) -> None:
    def state(n_in: int, n_hidden: int, n_out: int) -> dict[str, torch.Tensor]:
        return torch.nn.Sequential(torch.nn.Linear(n_in, n_hidden), torch.nn.Linear(n_hidden, n_out)).state_dict()

    got = {prefix + name: tensor for name, tensor in state(*sizes).items()}

    with pytest.raises(CheckpointError, match=fix):
        check_model_state(state(4, 8, 2), got, path="m.pth.tar")


def block(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers)


class TheirEncoder(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.init = nn.Linear(size, 8)
        self.main = block(8, 8, 6)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.main(torch.relu(self.init(x)))
        return features


class TheirDueling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.A = nn.Sequential(block(6, 6), nn.Sequential(nn.Linear(6, 3)))
        self.V = nn.Sequential(block(6, 6), nn.Sequential(nn.Linear(6, 1)))

    def forward(self, x: Tensor) -> Tensor:
        advantage, value = self.A(x), self.V(x)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


class TheirDiscrete(nn.Module):
    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.Q = nn.Sequential(block(6, *[6] * layers), nn.Sequential(nn.Linear(6, 3)))

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.Q(x)
        return values


class TheirDQN(nn.Module):
    def __init__(self, *, dueling: bool) -> None:
        super().__init__()
        self.encoder = TheirEncoder(4)
        self.head = TheirDueling() if dueling else TheirDiscrete()

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.head(self.encoder(x))
        return values


class TheirRegression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main, self.last = block(6, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.last(self.main(x)).squeeze(1)
        return value


class TheirGaussian(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log_sigma_param = nn.Parameter(torch.randn(1, 2))
        self.main, self.mu = block(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        mu = self.mu(self.main(x))
        return torch.cat([mu, self.log_sigma_param.expand_as(mu)], dim=1)


class TheirVAC(nn.Module):
    def __init__(self, *, continuous: bool = False, share: bool = True, layers: int = 1) -> None:
        super().__init__()
        if share:
            self.encoder = TheirEncoder(4)
            encoders = [self.encoder, self.encoder]
        else:
            self.actor_encoder, self.critic_encoder = encoders = [TheirEncoder(4), TheirEncoder(4)]
        self.critic_head = TheirRegression()
        self.actor_head = TheirGaussian() if continuous else TheirDiscrete(layers)
        self.actor = nn.ModuleList([encoders[0], self.actor_head])
        self.critic = nn.ModuleList([encoders[1], self.critic_head])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor[1](self.actor[0](x)), self.critic[1](self.critic[0](x))


HEADS: dict[str, Any] = dict(encoder_hidden_size_list=[8, 8, 6], actor_head_hidden_size=6, critic_head_hidden_size=6)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dueling", [True, False])
def test_a_dqn_that_came_over_gives_the_same_values(dueling: bool) -> None:
    theirs, ours = TheirDQN(dueling=dueling), DQN(4, 3, [8, 8, 6], dueling=dueling)
    obs = torch.randn(16, 4)

    ours.load_state_dict(renamed(theirs.state_dict(), ours.state_dict()))

    torch.testing.assert_close(ours.q(obs), theirs(obs))


@pytest.mark.parametrize("kind", ["discrete", "two_layers", "not_shared", "continuous"])
def test_a_vac_that_came_over_acts_and_judges_the_same(kind: str) -> None:
    layers = 2 if kind == "two_layers" else 1
    theirs = TheirVAC(continuous=kind == "continuous", share=kind != "not_shared", layers=layers)
    space: dict[str, Any] = {"action_space": "continuous"} if kind == "continuous" else {}
    actions = 2 if kind == "continuous" else 3
    ours = VAC(4, actions, share_encoder=kind != "not_shared", actor_head_layer_num=layers, **space, **HEADS)
    obs = torch.randn(16, 4)

    ours.load_state_dict(renamed(theirs.state_dict(), ours.state_dict()))

    logit, value = ours.actor_critic(obs)
    wanted_logit, wanted_value = theirs(obs)
    torch.testing.assert_close(logit, wanted_logit)
    torch.testing.assert_close(value, wanted_value)


def test_a_sigma_that_is_fixed_stays_as_the_config_says() -> None:
    theirs = TheirVAC(continuous=True).state_dict()
    theirs = {name: value for name, value in theirs.items() if "log_sigma" not in name}
    ours = VAC(4, 2, action_space="continuous", sigma_type="fixed", fixed_sigma_value=0.25, **HEADS)

    ours.load_state_dict(renamed(theirs, ours.state_dict()))

    assert ours.actor_head.log_sigma.exp().tolist() == [0.25, 0.25]


def their_checkpoint(path: Path, model: nn.Module, target: nn.Module | None = None) -> Path:
    """Write a checkpoint as DI-engine's learner does."""
    optimizer = torch.optim.Adam(model.parameters())
    targets = {} if target is None else {"target_model": target.state_dict()}
    state = {"model": model.state_dict(), **targets, "optimizer": optimizer.state_dict()}
    torch.save({**state, "last_iter": 7, "last_step": 900}, path)
    return path


def policy_cfg(**model: Any) -> EasyDict:
    cfg = DQNPolicy.default_config()
    cfg.model = EasyDict(obs_shape=4, action_shape=3, encoder_hidden_size_list=[8, 8, 6], **model)
    return cfg


def test_a_learner_goes_on_from_a_checkpoint_of_di_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    theirs, target = TheirDQN(dueling=True), TheirDQN(dueling=True)
    path = their_checkpoint(tmp_path / "iteration_7.pth.tar", theirs, target)
    policy = DQNPolicy(policy_cfg())
    obs = torch.randn(16, 4)

    learner = BaseLearner({"hook": {"load_ckpt_before_run": str(path)}}, policy.learn_mode)
    learner.call_hook("before_run")
    learner.close()

    torch.testing.assert_close(policy.get_attribute("model").q(obs), theirs(obs))
    torch.testing.assert_close(policy._target_model.q(obs), target(obs))
    assert (learner.train_iter, learner.collector_envstep) == (7, 900)


def test_a_checkpoint_of_another_network_names_what_is_missing_and_what_is_unexpected(tmp_path: Path) -> None:
    path = their_checkpoint(tmp_path / "best.pth.tar", TheirDQN(dueling=False))
    mode = DQNPolicy(policy_cfg(), enable_field=["eval"]).eval_mode

    with pytest.raises(CheckpointError, match=r"missing head\.value\.main\.0\..*unexpected head\.Q\.0\.0\."):
        mode.load_state_dict(from_di_engine(load_state(path), mode.state_dict))


def test_a_network_on_pictures_is_refused_with_the_reason() -> None:
    theirs = {"encoder.main.0.weight": torch.zeros(2, 1, 8, 8), "encoder.mid.weight": torch.zeros(2, 2)}

    with pytest.raises(CheckpointError, match="no activation"):
        from_di_engine({"model": theirs}, lambda: {"model": theirs})


def test_a_checkpoint_of_our_own_is_left_as_it_is() -> None:
    spaces = (("reparameterization", True), ("regression", False))
    continuous = [ContinuousQAC(4, 2, action_space=space, twin_critic=twin) for space, twin in spaces]
    for model in (DQN(4, 3), *continuous):
        state = {"model": model.state_dict(), "optimizer": {}, "networks": {}, "last_iter": 3}

        assert from_di_engine(state, dict) is state


class RewardIsAction(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.zeros(4, np.float32), float(action), self.time == 5, False, {}


def test_eval_takes_a_checkpoint_of_di_engine(tmp_path: Path) -> None:
    theirs = TheirDQN(dueling=True)
    with torch.no_grad():
        theirs.head.A[1][0].bias.copy_(torch.tensor([0.0, 0.0, 50.0]))  # always the third action
    path = their_checkpoint(tmp_path / "ckpt_best.pth.tar", theirs)
    main = dict(
        env=dict(n_evaluator_episode=1, evaluator_env_num=1),
        policy=dict(model=dict(encoder_hidden_size_list=[8, 8, 6])),
    )
    create = dict(env=dict(type=f"{__name__}:RewardIsAction"), policy=dict(type="dqn"))

    assert eval_checkpoint((main, create), load_path=str(path)) == 10
