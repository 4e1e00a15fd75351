"""Tell the serial pipeline with which settings to collect next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.errors import ConfigError
from ding_like.utils.configurable import Configurable


class BaseSerialCommander(Configurable):
    """Ask the policy for collect settings (`eps`, say), given what learner and collector know."""

    def __init__(
        self,
        cfg: Mapping[str, Any],
        learner: Any,  # these parts satisfy protocols of the level above; only two attributes are read
        collector: Any,
        evaluator: Any,
        replay_buffer: Any,
        policy: Any = None,  # the command mode of a policy; may be set later
    ) -> None:
        self._cfg = cfg
        self._learner = learner
        self._collector = collector
        self._evaluator = evaluator
        self._replay_buffer = replay_buffer
        self._policy = policy

    def step(self) -> dict[str, Any]:
        """Return the settings of the next `collect`, from the learner's `learn_info` and the collector's `envstep`."""
        info = {**self._learner.learn_info, "envstep": self._collector.envstep}
        setting: dict[str, Any] = self.policy.get_setting_collect(info)
        return setting

    @property
    def policy(self) -> Any:
        """Return the command mode. Raises ConfigError before there is one."""
        if self._policy is None:
            raise ConfigError("the commander has no policy; set commander.policy = policy.command_mode first.")
        return self._policy

    @policy.setter
    def policy(self, policy: Any) -> None:
        self._policy = policy
