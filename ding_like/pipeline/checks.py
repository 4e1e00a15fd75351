"""Checks of what runs with workers in other processes cannot do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ding_like.config import FrozenConfig
from ding_like.config.report import Fault
from ding_like.errors import ConfigError
from ding_like.policy import Policy, get_policy_cls
from ding_like.reward_model import reward_model_section
from ding_like.types import Config, SampleUnit
from ding_like.utils.log import one_time_warning
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.replay_buffer.presets import check_sample_unit, get_buffer_cls


def is_game(cfg: FrozenConfig) -> bool:
    """Tell whether the env of a compiled config is played by several players."""
    return bool(cfg.env.manager.type == "game")


def has_league(cfg: FrozenConfig) -> bool:
    """Tell whether a compiled config names a league. Raises ConfigError for one without games."""
    league = cfg.policy.other.get("league")
    if not league or "type" not in league:
        return False
    if not is_game(cfg):
        raise ConfigError("a league needs games: set create_config.env_manager=dict(type='game').")
    return True


def faults_of_workers(
    cfg: FrozenConfig, *, mode: str, collect: Config, gradient_workers: int, section: str = "system.ray.collect"
) -> Iterator[Fault]:
    """Yield what a compiled config asks for that workers elsewhere cannot do.

    `collect` says how many `workers` collect, and by its `comm` "sync" that they share what is collected at a time; it
    was read from `section`.
    """
    collectors = int(collect["workers"])
    policy = cfg.policy
    if policy.other.get("league") and has_league(cfg):
        yield Fault(
            "policy.other.league",
            f"chooses opponents by the games that one process plays, which mode {mode} has no place for: run it with "
            "`ding -m serial_onpolicy` or `ding -m serial`",
        )
    if gradient_workers > 1 and callable(getattr(get_policy_cls(policy), "_forward_learn", None)):
        yield Fault(
            "policy.type",
            f"'{policy.type}' learns in DI-engine's style (_forward_learn), which gives no gradients to send: give it "
            "grad() and apply(), or set system.ray.grad.workers=1",
        )
    if gradient_workers > 1:
        yield from _faults_of_apart(cfg)
    if collectors and not policy.on_policy:
        try:
            check_buffer(policy, pipeline=f"mode {mode} with collectors", offered=("row",))
        except ConfigError as error:
            path = "policy.other.replay_buffer.type"
            yield Fault(path, str(error).removeprefix(f"{path} "))
    wanted = int(policy.collect.get("n_sample") or policy.collect.get("n_episode") or 0)
    if collect["comm"] == "sync" and 0 < wanted < collectors:
        name = "n_sample" if policy.collect.get("n_sample") else "n_episode"
        yield Fault(f"policy.collect.{name}", f"is {wanted}, fewer than the {collectors} collectors that share it")
    elif collectors and wanted:
        yield from _faults_of_episodes(cfg, mode=mode, collect=collect, section=section)


def _faults_of_apart(cfg: FrozenConfig) -> Iterator[Fault]:
    """Yield what a learner does to its batches that gradient workers, each with rows of its own, do not."""
    where = "which gradient workers do not do with theirs: set system.ray.grad.workers=1"
    if (model := reward_model_section(cfg)) is not None:
        text = f"is '{model.type}', which learns from each batch of the learner and gives it other rewards"
        yield Fault("reward_model.type", f"{text}, {where}")
    if getattr(get_policy_cls(cfg.policy), "expert_rows", None) not in (None, Policy.expert_rows):
        yield Fault("policy.type", f"is '{cfg.policy.type}', an expert's rows join each batch of the learner, {where}")


def _faults_of_episodes(cfg: Any, *, mode: str, collect: Mapping[str, Any], section: str) -> Iterator[Fault]:
    """Yield what whole episodes cannot be collected by."""
    policy, lanes, workers = cfg.policy.collect, int(cfg.env.collector_env_num), int(collect["workers"])
    unit = "rows" if policy.get("n_sample") else "episodes"
    if plays_episodes(cfg.policy) != (unit == "episodes"):
        text = f"is '{policy.collector.type}', whose collector does not collect {unit}, but mode {mode} shares "
        fix = "set it to 'sample'" if unit == "rows" else "set it to 'episode', with get_train_sample=True"
        yield Fault("policy.collect.collector.type", f"{text}{'n_sample' if unit == 'rows' else 'n_episode'}: {fix}")
        return
    if unit == "rows":
        return
    episodes, is_sync = int(policy.n_episode), collect["comm"] == "sync"
    if episodes < lanes:
        text = (
            f"is {episodes}, fewer than the {lanes} envs of a collector, each of which plays one: raise it, or lower "
        )
        yield Fault("policy.collect.n_episode", f"{text}env.collector_env_num")
    elif is_sync and episodes < lanes * workers:
        one_time_warning(
            f"policy.collect.n_episode is {episodes}, but each of the {lanes} envs of {workers} collectors plays one "
            f"at least: a round has {lanes * workers}. Lower env.collector_env_num or the number of collectors."
        )
    if 0 < collect["segment_rows"] < lanes:
        text = f"is {collect['segment_rows']} (of n_episode: episodes), fewer than the {lanes} envs of a collector"
        yield Fault(f"{section}.segment_rows", f"{text}, each of which plays one: raise it, or omit it")
    fractions = [name for name in ("fraction_samples", "fraction_workers") if collect[name] < 1]
    if is_sync and len(fractions) == 2 and workers > 1:
        text = f"is {collect[fractions[0]]}, but policy.collect.n_episode collects whole episodes, which are never cut"
        yield Fault(f"{section}.{fractions[0]}", f"{text}: leave both fractions out, or give n_sample")


def check_buffer(
    policy_cfg: FrozenConfig,  # the `policy` section of a config
    *,
    pipeline: str = "mode serial",
    offered: tuple[SampleUnit, ...] = ("row", "window", "episode"),
    holds_rows: bool = True,
) -> None:
    """Raise ConfigError unless the config's buffer samples what its policy learns from.

    `offered` are the units of which the pipeline can fill a buffer, with the rows themselves if it `holds_rows`.
    """
    name = policy_cfg.get("type", "")
    # A policy of another style than ours says nothing: it gets rows.
    unit: SampleUnit = getattr(get_policy_cls(policy_cfg), "sample_unit", "row") if name else "row"
    buffer = policy_cfg.other.replay_buffer
    check_sample_unit(buffer, unit, policy=name, pipeline=pipeline, offered=offered, holds_rows=holds_rows)
    if get_buffer_cls({"type": "naive", **buffer}).unit == "episode" and not plays_episodes(policy_cfg):
        raise ConfigError(
            f"policy.other.replay_buffer.type is '{buffer.type}', which keeps whole episodes, but collector "
            f"'{policy_cfg.collect.collector.type}' cuts them. Set create_config.collector.type to 'episode', with "
            "policy.collect.collector.get_train_sample=True."
        )


def plays_episodes(policy_cfg: FrozenConfig) -> bool:
    """Tell whether a config's collector plays whole episodes, and so is asked for a number of them."""
    collector = policy_cfg.collect.collector
    cls = SERIAL_COLLECTOR_REGISTRY.get(collector.type, collector.get("import_names") or ())
    return bool(getattr(cls, "unit", "rows") == "episodes")


def steps_per_row(policy_cfg: FrozenConfig) -> int:
    """Return the env steps of one row of a policy: more than 1 where rows are sequences."""
    cls = get_policy_cls(policy_cfg) if policy_cfg.get("type") else Policy
    # A policy of DI-engine's style may be any class.
    return int(getattr(cls, "env_steps_per_row", Policy.env_steps_per_row)(policy_cfg))


def warmup_steps(policy_cfg: FrozenConfig) -> int:
    """Return the env steps at whose begin collectors act at random: those of `random_collect_size` rows."""
    return int(policy_cfg.random_collect_size) * steps_per_row(policy_cfg)


def required(cfg: Config, *names: str, of: str) -> None:
    """Raise ConfigError that names the keys which the config of a part lacks."""
    if missing := [name for name in names if cfg.get(name) is None]:
        raise ConfigError(
            f"the config of {of} has no {', '.join(repr(name) for name in missing)}; it needs {', '.join(names)}."
        )
