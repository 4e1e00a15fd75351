import numpy as np
import pytest

from ding_like.errors import ConfigError
from ding_like.rl_utils.exploration import ActionRange


def test_what_lies_outside_is_cut_to_the_bounds_exactly():
    # Thirds: centre + half is not exactly the bound in float32.
    low, high = [-1 / 3, 0.1], [0.7, 1 / 3]
    reach = ActionRange(low, high)

    scaled = reach.to_env(np.array([[-5.0, -1.0], [5.0, 1.0]], np.float32))

    np.testing.assert_array_equal(scaled, np.array([low, high], np.float32))


@pytest.mark.parametrize(("low", "high"), [([-np.inf], [1.0]), (-1.0, np.nan), ([1.0], [1.0])])
def test_bounds_that_are_no_range_are_refused(low, high):
    with pytest.raises(ConfigError, match="action_low"):
        ActionRange(low, high)


def test_halves_of_the_unit_range_lie_halfway_to_the_bounds():
    # -1 to 1 and 0 to 4: nothing here is near enough to a bound to be cut.
    scaled = ActionRange([-1.0, 0.0], [1.0, 4.0]).to_env(np.array([[-0.5, -0.5], [0.25, 0.5]], np.float32))

    np.testing.assert_array_equal(scaled, [[-0.5, 1.0], [0.25, 3.0]])
