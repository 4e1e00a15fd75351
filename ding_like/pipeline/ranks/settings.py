"""Read `system_config['ranks']`: what a run of ranks is made of. docs/ranks.md says what each key does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated

from ding_like.comm.tensors import WireDtype
from ding_like.config import FrozenConfig
from ding_like.config.override import Override
from ding_like.config.report import Fault
from ding_like.config.system import FROM_0, FROM_1, SECONDS, Rule, check_mode, settings_of, without_effect
from ding_like.errors import RegistryError
from ding_like.pipeline.checks import faults_of_workers
from ding_like.types import Config
from ding_like.utils.registries import RANK_COLLECTOR_REGISTRY, WEIGHT_UPDATER_REGISTRY

PATH = "system.ranks"

_LAG = Rule("None for no limit, or 1 or more updates", lambda it: it >= 1)


@dataclass(frozen=True)
class RankSettings:
    """Section `ranks` of a `system_config`; times are in seconds.

    `timeout_s` is the longest wait for a rank's rows, `silent_s`, if it is shorter, that for its heartbeats and its
    answer to weights: less than the 30 s that torchrun gives rank 0 to save a point when another rank has ended.
    `segment_rows` and `max_policy_lag` are of `sync=False`.
    """

    collect_ranks: Annotated[int, FROM_1] = 2
    sync: bool = True
    segment_rows: Annotated[int, FROM_0] = 0
    max_policy_lag: Annotated[int | None, _LAG] = None
    timeout_s: Annotated[float, SECONDS] = 60.0
    silent_s: Annotated[float, SECONDS] = 20.0
    join_s: Annotated[float, SECONDS] = 120.0
    dtype: WireDtype = "exact"
    updater: Mapping[str, str] = field(default_factory=lambda: {"type": "distributed"})
    collector: Mapping[str, str] = field(default_factory=lambda: {"type": "rank"})

    @property
    def patience_s(self) -> float:
        """Seconds after which a silent rank is lost."""
        return min(self.silent_s, self.timeout_s)


def read_ranks(
    system: Config,
    cfg: FrozenConfig,
    *,
    collect_ranks: int | None = None,
    source: str = "the config",
    overrides: Mapping[str, Override] | None = None,
) -> RankSettings:
    """Return the settings of a `system_config` for a compiled config; `collect_ranks` stands in place of its own.

    Raises ConfigError with every fault of it.
    """
    values, faults = check_mode(RankSettings, system, "ranks", overrides)
    values["collect_ranks"] = values["collect_ranks"] if collect_ranks is None else collect_ranks
    collect = dict(
        workers=values["collect_ranks"], comm="sync" if values["sync"] else "async",
        segment_rows=values["segment_rows"], fraction_samples=1.0, fraction_workers=1.0,
    )  # fmt: skip
    faults += faults_of_workers(cfg, mode="ranks", collect=collect, gradient_workers=0, section=PATH)
    if cfg.policy.on_policy and not values["sync"]:
        text = f"is False, but '{cfg.policy.type}' learns only from rows of its newest weights: set it to True"
        faults.append(Fault(f"{PATH}.sync", text))
    if values["sync"]:
        why = "with sync=True all ranks share each round, with the newest weights"
        faults += without_effect(PATH, values, asdict(RankSettings()), [(("segment_rows", "max_policy_lag"), why)])
    for name, registry in (("updater", WEIGHT_UPDATER_REGISTRY), ("collector", RANK_COLLECTOR_REGISTRY)):
        try:
            registry.get(values[name]["type"])
        except RegistryError as error:
            faults.append(Fault(f"{PATH}.{name}.type", str(error)))
    return settings_of(RankSettings, values, faults, source=source, overrides=overrides)
