"""What algorithms share that learn from a data set: the mode that trains them, and the keys that name the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ding_like.policy.base import Policy
from ding_like.utils.bounds import FROM_1, Bounds


class FromData(Policy):
    """Policy that learns from steps which others have collected: `ding -m serial_offline`."""

    config: dict[str, Any] = dict(
        learn=dict(
            # Passes over the data set, where the run is given no number of updates; None: no limit.
            train_epoch=None,
            # Share of the data set's rows in each batch once the run goes on online (--then serial).
            data_share=0.5,
        ),
        collect=dict(
            # Data set: a column file of `ding collect`, an HDF5 file in D4RL's form, or minari:ID; None: the one that
            # an env of type 'd4rl' names.
            data_path=None,
            # Form of the data: a key of DI-engine's configs, see `without_effect`.
            data_type="",
        ),
    )
    without_effect: ClassVar[dict[str, str]] = {"collect.data_type": "the file itself shows its form"}
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.train_epoch": FROM_1, "learn.data_share": Bounds(0, 0.999)}
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {"collect.data_path": (str,)}
    run_mode = "serial_offline"
    # Whether the policy can go on with rows that it collects itself.
    goes_online: ClassVar[bool] = True
