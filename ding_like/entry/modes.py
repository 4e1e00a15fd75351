"""Run what `ding -m MODE` asks for: one function a mode, which hands the options to its pipeline."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ding_like.entry.options import echo
from ding_like.errors import ConfigError


def _run_serial(options: dict[str, Any]) -> None:
    from ding_like.entry.serial_entry import serial_pipeline, serial_pipeline_onpolicy

    train = {"serial": serial_pipeline, "serial_onpolicy": serial_pipeline_onpolicy}[options["mode"]]
    train(
        _config_path(options),
        **_run_of(options),
        overrides=options["overrides"],
        load_path=_existing(options["load_path"]),
        learners=options["learners"],
    )


# Modes whose runs of several seeds are one experiment.
_OF_SEEDS = ("serial", "serial_onpolicy", "parallel", "ray", "seed", "ranks")


def run_several(options: dict[str, Any]) -> bool:
    """Run several seeds as one experiment, if the options name several; tell whether they do."""
    seeds, mode = options["seed"], options["mode"]
    if len(seeds) < 2:
        if options["jobs"] is not None:
            raise ConfigError(f"-j {options['jobs']} is of several seeds: -s 0..4 -j {max(options['jobs'], 1)}.")
        return False
    if mode == "eval":
        return False
    if mode not in _OF_SEEDS or options["module"] is not None or options["dry_run"]:
        what = "--dry-run" if options["dry_run"] else f"-M {options['module']}" if options["module"] else f"mode {mode}"
        raise ConfigError(f"{len(seeds)} seeds are given, but {what} is of one: give one -s.")
    from ding_like.comm.learner_group import in_environment

    if in_environment():
        raise ConfigError(
            f"torchrun has started the learners of one run, but {len(seeds)} seeds are given: give one -s."
        )
    from ding_like.entry.seeds import run_command

    _existing(options["load_path"])
    run_command(options, _config_path(options))
    return True


def resume(options: dict[str, Any]) -> None:
    folder = Path(options["resume"])
    if options["jobs"] is not None and not (folder / "experiment.json").is_file():
        raise ConfigError(f"-j is of experiments of several seeds; '{folder}' has no experiment.json.")
    from ding_like.report.runs import check_experiment

    check_experiment(folder)
    if options["dry_run"]:
        raise ConfigError("--dry-run is of new runs in mode ray, not of --resume.")
    if any(options[name] for name in ("overrides", "di_engine", "ignore_missing", "config", "env", "policy", "seed")):
        raise ConfigError("--resume takes the run's own config; start a new run with --load-path to change it.")
    limits: dict[str, Any] = {
        f"max_{name}": None if options[name] is None else int(options[name]) for name in ("env_step", "train_iter")
    }
    if (folder / "experiment.json").is_file():
        _resume_seeds(options, limits)
        return
    from ding_like.entry.resume import resume_pipeline

    resume_pipeline(
        str(folder),
        **limits,
        learners=options["learners"],
        workers=options["workers"],
        address=options["address"],
    )


def _resume_seeds(options: dict[str, Any], limits: dict[str, Any]) -> None:
    given = [name for name in ("learners", "workers", "address") if options[name] is not None]
    if given:
        raise ConfigError(
            f"--{given[0]} is of one run: resume a seed with it by its folder, ding --resume {options['resume']}/seed0 "
            f"--{given[0]} {options[given[0]]}."
        )
    from ding_like.entry.seeds import resume_seeds

    resume_seeds(options["resume"], options["jobs"], **limits)


def _run_eval(options: dict[str, Any]) -> None:
    from ding_like.entry.eval_entry import eval as evaluate
    from ding_like.entry.eval_entry import evaluation_file

    if options["load_path"] is None:
        raise ConfigError("mode eval needs a checkpoint: --load-path EXP/ckpt/ckpt_best.pth.tar.")
    path = _config_path(options)
    checkpoint = _existing(options["load_path"])
    for seed in _seeds(options):
        evaluate(
            path,
            seed=seed,
            load_path=checkpoint,
            overrides=options["overrides"],
            replay_path=options["replay_path"],
            out=evaluation_file(str(checkpoint), seed=seed),
        )


def _run_parallel(options: dict[str, Any]) -> None:
    from ding_like.entry.parallel_entry import parallel_pipeline

    parallel_pipeline(
        _config_path(options), **_run_of(options), overrides=options["overrides"], learners=options["learners"]
    )


def _run_ray(options: dict[str, Any]) -> None:
    from ding_like.entry.ray_entry import dry_run, ray_pipeline

    path = _config_path(options)
    asked: dict[str, Any] = {name: options[name] for name in ("overrides", "workers", "address")}
    if options["dry_run"]:
        lines, fits = dry_run(path, seed=_seeds(options)[0], exp_name=options["exp_name"], **asked)
        echo("\n".join(lines))
        sys.exit(0 if fits else 1)
    ray_pipeline(path, **_run_of(options), load_path=_existing(options["load_path"]), **asked)


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
        echo("\n".join(dry_run(path, seed=first, exp_name=options["exp_name"], overrides=overrides)))
        return
    seed_pipeline(path, **_run_of(options), load_path=_existing(options["load_path"]), overrides=overrides)


def _seed_sockets(options: dict[str, Any]) -> list[str]:
    """Return overrides that say what --host, --port and --key-file do: with any of them the run is over tcp."""
    given = {name: options[name] for name in ("host", "port", "key_file") if options[name] is not None}
    return [f"system.seed.{name}={value!r}" for name, value in ({"transport": "tcp", **given} if given else {}).items()]


def _run_ranks(options: dict[str, Any]) -> None:
    # Waits for the store are repeated, and libtorch would warn of each; it reads this when it is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from ding_like.entry.ranks_entry import ranks_pipeline

    asked: dict[str, Any] = {name: options[name] for name in ("overrides", "collect_ranks")}
    ranks_pipeline(_config_path(options), **_run_of(options), load_path=_existing(options["load_path"]), **asked)


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
    "ranks": _run_ranks,
    "dist": _run_dist,
    "eval": _run_eval,
}


def _seeds(options: dict[str, Any]) -> tuple[int, ...]:
    return options["seed"] or (0,)


def _run_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return what the run of a config is given: the seed, the limits and its folder."""
    from ding_like.entry.serial_entry import NO_LIMIT

    return {
        "seed": _seeds(options)[0],
        "max_env_step": _limit(options["env_step"], NO_LIMIT),
        "max_train_iter": _limit(options["train_iter"], NO_LIMIT),
        "exp_name": options["exp_name"],
    }


def _limit(value: float | None, default: int) -> int:
    return default if value is None else int(value)


def _existing(path: str | None) -> str | None:
    """Refuse a checkpoint that is not there before anything is built."""
    if path is not None and not Path(path).is_file():
        from ding_like.utils.checkpoint import load_state

        load_state(path)  # raises the error that names close files
    return path


def _config_path(options: dict[str, Any]) -> str:
    env, policy = options["env"], options["policy"]
    if options["config"] is not None:
        if (env, policy) != (None, None):
            raise ConfigError("-c FILE and -e ENV -p POLICY both name a config; give one.")
        return str(options["config"])
    if env is None or policy is None:
        raise ConfigError("no config given; use -c FILE, or -e ENV -p POLICY for a shipped one.")
    return str(_shipped_config(env, policy))


def _shipped_config(env: str, policy: str) -> Path:
    """Find `<env>_<policy>_config.py` among the configs that come with the package; it is found by name only."""
    shipped = shipped_configs()
    found = shipped.get(f"{env}_{policy}")
    if found is None:
        raise ConfigError(f"no shipped config for env '{env}' and policy '{policy}'; {_close_configs(env, policy)}")
    return found


def _close_configs(env: str, policy: str) -> str:
    """Return what to give in place of a name that no shipped config has."""
    names = sorted(shipped_configs())
    env = re.sub(r"-v\d+$", "", env.rpartition("/")[2].lower())  # as in CartPole-v1 and ALE/Pong-v5
    of_env = [name for name in names if name.startswith(f"{env}_")]
    wanted = f"{env}_{policy.lower()}"
    close = [wanted] if wanted in names else []
    if not of_env:
        close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.75)
    if close:
        return f"did you mean {' or '.join('-e {} -p {}'.format(*name.rsplit('_', 1)) for name in close)}?"
    of_policy = [name for name in names if name.endswith(f"_{policy.lower()}")]
    return f"there are: {', '.join(of_env or of_policy or difflib.get_close_matches(wanted, names, n=8, cutoff=0))}"


def shipped_configs() -> dict[str, Path]:
    """Return the configs that come with the package by name: `<env>_<policy>`."""
    import importlib.util

    spec = importlib.util.find_spec("dizoo")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    return {path.stem.removesuffix("_config"): path for folder in folders for path in folder.rglob("*_config.py")}


def close_match(word: str, words: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, words, n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
