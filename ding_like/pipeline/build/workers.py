"""Say what a run with workers in other processes cannot do, whatever brings them to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ding_like.config.report import Fault
from ding_like.errors import ConfigError
from ding_like.pipeline.sample_unit import check_buffer, plays_episodes
from ding_like.pipeline.self_play import has_league
from ding_like.policy import get_policy_cls
from ding_like.utils.log import one_time_warning


def faults_of_sections(system: Mapping[str, Any], *, mode: str, section: str) -> Iterator[Fault]:
    """Yield the parts of a `system_config` that another mode reads; `mode` reads `section` alone."""
    for key in system:
        if key != section:
            yield Fault(f"system.{key}", f"is not of mode {mode}, which reads system.{section} alone: leave it out")


def faults_of_workers(
    cfg: Any, *, mode: str, collect: Mapping[str, Any], gradient_workers: int, section: str = "system.ray.collect"
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
