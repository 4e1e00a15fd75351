"""Without a remedy, policies take actions that a data set does not have, by values far above the truth."""

from __future__ import annotations

import pytest

from tests.learning.two_states import learn

pytestmark = pytest.mark.slow

# What the behaviour policy is worth of continuous actions, and the better one of its discrete actions.
OF_THE_DATA = {"box": -5.0, "discrete": -10.0}


@pytest.mark.parametrize("name", ["sac", "td3", "dqn", "qrdqn"])
def test_an_online_policy_takes_what_the_data_lack_and_overestimates_it(name: str) -> None:
    found = learn(name)

    assert found.truth < -20.0
    assert found.estimate > -5.0


@pytest.mark.parametrize("name", ["cql", "bcq", "td3_bc", "iql", "discrete_cql", "discrete_bcq"])
def test_an_offline_policy_takes_what_the_data_have_and_does_not_overestimate_it(name: str) -> None:
    found = learn(name)

    assert found.truth >= OF_THE_DATA["discrete" if "discrete" in name else "box"] - 1e-3
    assert found.estimate < found.truth + 1.0
