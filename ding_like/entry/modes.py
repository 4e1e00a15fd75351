"""Run what `ding -m MODE` asks for: one function a mode, which hands the options to its pipeline."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ding_like.errors import ConfigError


def _run_serial(options: dict[str, Any]) -> None:
    from ding_like.comm.learner_group import in_environment
    from ding_like.entry.serial_entry import serial_pipeline, serial_pipeline_onpolicy

    train = {"serial": serial_pipeline, "serial_onpolicy": serial_pipeline_onpolicy}[options["mode"]]
    path = _config_path(options)
    seeds = _seeds(options)
    if len(seeds) > 1 and in_environment():
        raise ConfigError(
            f"torchrun has started the learners of one run, but {len(seeds)} seeds are given: give one -s."
        )
    for run in _runs(options, path):
        train(
            path,
            **run,
            overrides=options["overrides"],
            load_path=_existing(options["load_path"]),
            learners=options["learners"],
        )


def resume(options: dict[str, Any]) -> None:
    folder = Path(options["resume"])
    if not (folder / "total_config.py").is_file():
        raise ConfigError(f"'{folder}' is not an experiment folder: it has no total_config.py.")
    if options["dry_run"]:
        raise ConfigError("--dry-run is of new runs in mode ray, not of --resume.")
    if options["overrides"] or options["di_engine"]:
        raise ConfigError("--resume takes the run's own config; start a new run with --load-path to change it.")
    from ding_like.entry.resume import resume_pipeline

    env_step, train_iter = options["env_step"], options["train_iter"]
    resume_pipeline(
        str(folder),
        max_env_step=None if env_step is None else int(env_step),
        max_train_iter=None if train_iter is None else int(train_iter),
        learners=options["learners"],
        workers=options["workers"],
        address=options["address"],
    )


def _run_eval(options: dict[str, Any]) -> None:
    from ding_like.entry.eval_entry import eval as evaluate

    if options["load_path"] is None:
        raise ConfigError("mode eval needs a checkpoint: --load-path EXP/ckpt/ckpt_best.pth.tar.")
    path = _config_path(options)
    for seed in _seeds(options):
        value = evaluate(
            path,
            seed=seed,
            load_path=_existing(options["load_path"]),
            overrides=options["overrides"],
            replay_path=options["replay_path"],
        )
        click.echo(f"seed {seed}: mean return {value:.4g}")


def _run_parallel(options: dict[str, Any]) -> None:
    from ding_like.entry.parallel_entry import parallel_pipeline

    path = _config_path(options)
    for run in _runs(options, path):
        parallel_pipeline(path, **run, overrides=options["overrides"], learners=options["learners"])


def _run_ray(options: dict[str, Any]) -> None:
    from ding_like.entry.ray_entry import dry_run, ray_pipeline

    path = _config_path(options)
    asked: dict[str, Any] = {name: options[name] for name in ("overrides", "workers", "address")}
    if options["dry_run"]:
        lines, fits = dry_run(path, seed=_seeds(options)[0], exp_name=options["exp_name"], **asked)
        click.echo("\n".join(lines))
        sys.exit(0 if fits else 1)
    for run in _runs(options, path):
        ray_pipeline(path, **run, load_path=_existing(options["load_path"]), **asked)


def _run_seed(options: dict[str, Any]) -> None:
    from ding_like.entry.seed_entry import dry_run, seed_pipeline

    path = _config_path(options)
    first, overrides = _seeds(options)[0], [*options["overrides"], *_seed_sockets(options)]
    if options["module"] is not None:
        from ding_like.entry.seed_join import join_run

        where: dict[str, Any] = {name: options[name] for name in ("address", "key_file", "retry_s")}
        join_run(path, options["module"], seed=first, overrides=options["overrides"], **where)
        return
    if options["dry_run"]:
        click.echo("\n".join(dry_run(path, seed=first, exp_name=options["exp_name"], overrides=overrides)))
        return
    for run in _runs(options, path):
        seed_pipeline(path, **run, load_path=_existing(options["load_path"]), overrides=overrides)


def _seed_sockets(options: dict[str, Any]) -> list[str]:
    """Return overrides that say what --host, --port and --key-file do: with any of them the run is over tcp."""
    given = {name: options[name] for name in ("host", "port", "key_file") if options[name] is not None}
    return [f"system.seed.{name}={value!r}" for name, value in ({"transport": "tcp", **given} if given else {}).items()]


def _run_dist(options: dict[str, Any]) -> None:
    from ding_like.entry.coordinator_entry import launch_coordinator
    from ding_like.entry.dist_entry import launch_collector, launch_learner
    from ding_like.entry.serial_entry import NO_LIMIT

    module = options["module"]
    if module is None or (module != "coordinator" and options["coordinator"] is None):
        raise ConfigError(
            "mode dist needs to know what to be: -M coordinator, or for whom: -M collector --coordinator URL."
        )
    common: dict[str, Any] = dict(key_file=options["key_file"], seed=_seeds(options)[0], overrides=options["overrides"])
    max_train_iter = _limit(options["train_iter"], NO_LIMIT)
    if module == "coordinator":
        launch_coordinator(
            _config_path(options),
            **common,
            host=options["host"],
            port=options["port"],
            max_env_step=_limit(options["env_step"], NO_LIMIT),
            max_train_iter=max_train_iter,
            exp_name=options["exp_name"],
        )
        return
    common |= dict(coordinator=options["coordinator"], retry_s=options["retry_s"])
    if module == "collector":
        launch_collector(_config_path(options), **common)
    else:
        launch_learner(_config_path(options), **common, max_train_iter=max_train_iter)


RUNNERS = {
    "serial": _run_serial,
    "serial_onpolicy": _run_serial,
    "parallel": _run_parallel,
    "ray": _run_ray,
    "seed": _run_seed,
    "dist": _run_dist,
    "eval": _run_eval,
}


def _seeds(options: dict[str, Any]) -> tuple[int, ...]:
    return options["seed"] or (0,)


def _runs(options: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    """Yield what each run of a config is given, one for each seed: the seed, the limits and its folder."""
    from ding_like.entry.serial_entry import NO_LIMIT

    seeds = _seeds(options)
    for seed in seeds:
        yield {
            "seed": seed,
            "max_env_step": _limit(options["env_step"], NO_LIMIT),
            "max_train_iter": _limit(options["train_iter"], NO_LIMIT),
            "exp_name": _exp_name(path, options["exp_name"], seed) if len(seeds) > 1 else options["exp_name"],
        }


def _limit(value: float | None, default: int) -> int:
    return default if value is None else int(value)


def _existing(path: str | None) -> str | None:
    """Refuse a checkpoint that is not there before anything is built."""
    if path is not None and not Path(path).is_file():
        from ding_like.utils.checkpoint import load_state

        load_state(path)  # raises the error that names close files
    return path


def _exp_name(config: str, exp_name: str | None, seed: int) -> str:
    """Name the folder of one seed out of several."""
    from ding_like.config import read_config

    name = exp_name or read_config(config).main_config.get("exp_name", "default_experiment")
    return re.sub(r"_seed\d+$", "", name) + f"_seed{seed}"


def _config_path(options: dict[str, Any]) -> str:
    if options["config"] is not None:
        return str(options["config"])
    env, policy = options["env"], options["policy"]
    if env is None or policy is None:
        raise ConfigError("no config given; use -c FILE, or -e ENV -p POLICY for a shipped one.")
    return str(_shipped_config(env, policy))


def _shipped_config(env: str, policy: str) -> Path:
    """Find `<env>_<policy>_config.py` among the configs that come with the package; it is found by name only."""
    import importlib.util

    spec = importlib.util.find_spec("dizoo")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    shipped = {path.stem.removesuffix("_config"): path for folder in folders for path in folder.rglob("*_config.py")}
    found = shipped.get(f"{env}_{policy}")
    if found is None:
        raise ConfigError(
            f"no shipped config for env '{env}' and policy '{policy}'; there are: {', '.join(sorted(shipped))}."
        )
    return found


def close_match(word: str, words: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, words, n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
