from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.errors import ConfigError
from ding_like.pipeline.envs import fit_policy_config
from ding_like.policy import Policy
from ding_like.utils.registries import POLICY_REGISTRY

VECTOR = spaces.Box(-1.0, 1.0, (3,))


@POLICY_REGISTRY.register("takes_all")
class TakesAll(Policy):
    """Declare every action space."""

    action_spaces = ("Discrete", "Box", "MultiDiscrete", "MultiBinary")


def fit(space, /, *, observation_space=VECTOR, **cfg):
    manager = SimpleNamespace(observation_space=observation_space, action_space=space)
    return fit_policy_config({"type": "takes_all", **cfg}, manager)


def test_action_space_fills_shape_and_kind():
    for space, shape, kind in [
        (spaces.Discrete(4), 4, "discrete"),
        (spaces.MultiDiscrete([3, 5]), [3, 5], "discrete"),
        (spaces.MultiBinary(3), [2, 2, 2], "discrete"),
        (spaces.Box(-2.0, 2.0, (2,)), 2, "continuous"),
    ]:
        cfg = fit(space)

        assert cfg["model"]["action_shape"] == shape
        assert cfg["action_space"] == kind


def test_observation_space_fills_the_shape():
    for space, shape in [
        (VECTOR, 3),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), [4, 84, 84]),
        (spaces.Box(-1.0, 1.0, (2, 3)), [2, 3]),
        (spaces.MultiBinary(4), 4),
        (spaces.Discrete(5), {"one_hot": [5]}),
        (spaces.MultiDiscrete([2, 3]), {"one_hot": [2, 3]}),
        (spaces.Dict({"a": VECTOR, "b/c": spaces.Discrete(2)}), {"a": 3, "b/c": {"one_hot": [2]}}),
        (spaces.Dict({"a": VECTOR}), {"a": 3}),
        (spaces.Dict({"a": VECTOR, "action_mask": spaces.MultiBinary(2)}), 3),
        (spaces.Dict({"a": VECTOR, "b": VECTOR, "action_mask": spaces.MultiBinary(2)}), {"a": 3, "b": 3}),
    ]:
        assert fit(spaces.Discrete(2), observation_space=space)["model"]["obs_shape"] == shape


def test_bounds_of_a_box_come_one_per_dimension():
    cfg = fit(spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32)))

    assert (cfg["action_low"], cfg["action_high"]) == ([-2.0, 0.0], [2.0, 0.5])


def test_discrete_actions_get_no_bounds():
    assert fit(spaces.Discrete(2)).get("action_low") is None


def test_config_bounds_what_the_env_leaves_open():
    open_above = spaces.Box(np.array([-1.0, -1.0], np.float32), np.array([1.0, np.inf], np.float32))

    assert fit(open_above, action_high=[1.0, 5])["action_high"] == [1.0, 5.0]
    assert fit(spaces.Box(-np.inf, np.inf, (2,)), action_low=-3)["action_low"] == [-3.0, -3.0]


def test_a_config_that_contradicts_the_env_is_refused():
    for cfg, message in [
        (dict(action_low=-2.0), r"policy.action_low is -2.0, the env has \[-1.0, -1.0\]"),
        (dict(action_high=[1.0, 1.0, 1.0]), r"policy.action_high is \[1.0, 1.0, 1.0\]; expected one number, or 2"),
        (dict(action_space="discrete"), "policy.action_space is discrete, the env has continuous"),
        (dict(model=dict(action_shape=3)), "policy.model.action_shape is 3, the env has 2"),
        (dict(model=dict(obs_shape=[3, 1])), r"policy.model.obs_shape is \[3, 1\], the env has 3"),
    ]:
        with pytest.raises(ConfigError, match=message):
            fit(spaces.Box(-1.0, 1.0, (2,)), **cfg)


def test_a_config_that_agrees_with_the_env_is_taken():
    cfg = fit(spaces.Box(-0.4, 0.4, (2,)), action_low=-0.4, action_space="continuous", model=dict(action_shape=2))

    assert cfg["action_low"] == pytest.approx([-0.4, -0.4])


@pytest.mark.parametrize(
    "space", [spaces.Box(-1.0, 1.0, (2, 3)), spaces.Box(0, 9, (2,), np.int64), spaces.MultiBinary([2, 2])], ids=str
)
def test_actions_that_are_not_one_vector_of_numbers_are_refused_with_a_way_out(space):
    with pytest.raises(ConfigError, match=r"TransformAction"):
        fit(space)


def test_an_observation_space_that_no_model_takes_is_refused_with_a_way_out():
    with pytest.raises(ConfigError, match=r"Tuple.*FlattenObservation"):
        fit(spaces.Discrete(2), observation_space=spaces.Tuple([VECTOR]))


def test_an_action_space_that_the_policy_does_not_take_is_refused_and_others_named():
    with pytest.raises(ConfigError, match=r"policy 'dqn' takes Discrete actions .*MultiBinary\(3\).*takes_all"):
        fit(spaces.MultiBinary(3), type="dqn")


def test_a_policy_takes_discrete_actions_unless_it_says_otherwise():
    assert Policy.action_spaces == ("Discrete",)


def test_a_class_that_declares_nothing_takes_every_space():
    @POLICY_REGISTRY.register("declares_nothing")
    class DeclaresNothing:
        """Policy that is written without the base class."""

    assert fit(spaces.MultiBinary(3), type="declares_nothing")["action_space"] == "discrete"


def test_dict_observations_that_a_config_cannot_describe_are_refused():
    for space, message in [
        (spaces.Dict({"items": VECTOR}), "'items', a name that a config keeps"),
        (spaces.Dict({"one_hot": VECTOR}), "'one_hot', a name that a config keeps"),
        (spaces.Dict({"action_mask": spaces.MultiBinary(2)}), "nothing but an action mask"),
    ]:
        with pytest.raises(ConfigError, match=message):
            fit(spaces.Discrete(2), observation_space=space)


def test_a_mask_that_does_not_fit_the_actions_is_refused_with_a_way_out():
    for actions in [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.Box(-1.0, 1.0, (2,))]:
        observed = spaces.Dict({"a": VECTOR, "action_mask": spaces.MultiBinary(2)})

        with pytest.raises(ConfigError, match="action_mask.*FilterObservation"):
            fit(actions, observation_space=observed)


def test_a_config_may_write_a_shape_as_a_list():
    cfg = fit(spaces.MultiDiscrete([3]), model=dict(action_shape=3, obs_shape=[3]))

    assert (cfg["model"]["action_shape"], cfg["model"]["obs_shape"]) == ([3], 3)


@pytest.mark.parametrize("with_mask", [False, True])
def test_a_number_without_an_axis_stands_only_beside_others(with_mask):
    number = spaces.Box(-1.0, 1.0, ())
    mask = {"action_mask": spaces.MultiBinary(2)} if with_mask else {}
    alone = spaces.Dict({"x": number, **mask}) if with_mask else number

    with pytest.raises(ConfigError, match=r"Box.*FlattenObservation"):
        fit(spaces.Discrete(2), observation_space=alone)

    beside = spaces.Dict({"x": number, "y": VECTOR, **mask})
    assert fit(spaces.Discrete(2), observation_space=beside)["model"]["obs_shape"] == {"x": [], "y": 3}
