"""Train with a coordinator, collectors and a learner in processes of their own on this machine."""

from __future__ import annotations

import pprint
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.keys import make_keys
from ding_like.config import compile_config, read_config
from ding_like.entry.enjoy import eval_mode_of
from ding_like.entry.serial_entry import NO_LIMIT
from ding_like.envs import EnvFactory, get_vec_env_setting
from ding_like.pipeline.parallel.children import Children
from ding_like.pipeline.parallel.coordinator_run import CoordinatorRun, build_core
from ding_like.pipeline.parallel.service import LockedService
from ding_like.pipeline.parallel.settings import SystemConfig, read_system
from ding_like.pipeline.report.pictures import write_pictures
from ding_like.pipeline.report.progress import Limits
from ding_like.pipeline.report.run_console import RunConsole
from ding_like.pipeline.report.summary import closing_lines, version_line
from ding_like.pipeline.serial import RunResult

# A config file, or its (main_config, create_config, system_config).
ParallelConfig = str | Path | tuple[Any, Any, Any]


def parallel_pipeline(
    input_cfg: ParallelConfig,
    seed: int = 0,
    enable_total_log: bool = False,
    disable_flask_log: bool = True,
    *,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
) -> RunResult:
    """Train with processes on this machine until a limit or `env.stop_value` is reached.

    A serial config runs as it is; a `system_config` says how many collectors there are and where data lie.
    `enable_total_log` and `disable_flask_log` are accepted for the seed's callers: workers log to files of their own.
    Raises ConfigError with every fault of the config at once, and TrainingError with the cause if a worker fails.
    """
    main, create, system_config, source = _read(input_cfg)
    cfg = compile_config(main, create, seed=seed, overrides=overrides, source=source, exp_name=exp_name)
    system = read_system(system_config, cfg)
    folder = Path(tempfile.mkdtemp(prefix="ding-keys-"))
    try:
        return _run(cfg, system, folder, seed=seed, max_train_iter=max_train_iter, max_env_step=max_env_step)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for data in (system.path_data, system.path_policy):
            shutil.rmtree(data, ignore_errors=True)
            if data.parent.name.startswith("ding-"):
                shutil.rmtree(data.parent, ignore_errors=True)


def _read(input_cfg: ParallelConfig) -> tuple[Any, Any, Any, str]:
    if isinstance(input_cfg, (str, Path)):
        file = read_config(input_cfg)
        return file.main_config, file.create_config, file.system_config, str(input_cfg)
    main, create, system = input_cfg
    return main, create, system, "the given config"


def _run(
    cfg: Any, system: SystemConfig, folder: Path, *, seed: int, max_train_iter: int, max_env_step: int
) -> RunResult:
    core, commander = build_core(cfg, system, seed=seed, max_env_step=max_env_step)
    service = LockedService(core)
    key_file = folder / "keys.json"
    keys = make_keys(key_file)
    limits = Limits(max_env_step, max_train_iter, cfg.env.stop_value)
    for data in (system.path_data, system.path_policy):
        data.mkdir(parents=True, exist_ok=True)
    server = CoordinatorServer(service, keys, host=system.coordinator["host"], port=int(system.coordinator["port"]))
    server.start()
    try:
        config = _write_config(cfg, system)
        common = ["--coordinator", server.url, "--key-file", str(key_file), "-c", str(config), "-s", str(seed)]
        opening = _opening(cfg, system, limits, server.url)
        run = CoordinatorRun(cfg, system, core, commander, service)
        with (
            Children(Path(cfg.exp_name) / "log" / "workers") as children,
            RunConsole(cfg.exp_name, limits, opening=opening) as console,
        ):
            children.start("learner", ["-m", "dist", "-M", "learner", *common, "--train-iter", str(max_train_iter)])
            for index in range(system.num_collectors):
                children.start(f"collector{index}", ["-m", "dist", "-M", "collector", *common])
            result = run.watch(console, check=children.check)
            _write_pictures(cfg, seed)
            console.close_summary(closing_lines(cfg.exp_name, mode="parallel"))
        return result
    finally:
        server.close()
        core.close()


def _write_config(cfg: Any, system: SystemConfig) -> Path:
    """Write the run's config with its system part: what workers on this machine are started with."""
    text = (Path(cfg.exp_name) / "total_config.py").read_text(encoding="utf-8")
    part = {
        "path_data": str(system.path_data.resolve()),
        "path_policy": str(system.path_policy.resolve()),
        "segment_rows": system.segment_rows,
        "publish_interval_s": system.publish_interval_s,
        "num_batches": system.num_batches,
        "communication_mode": "shared",
    }
    path = Path(cfg.exp_name) / "parallel_config.py"
    path.write_text(f"{text}\nsystem_config = {pprint.pformat(part)}\n", encoding="utf-8")
    return path


def _write_pictures(cfg: Any, seed: int) -> None:
    env_fn, _, env_cfgs = get_vec_env_setting(cfg.env, collect=False)
    mode = eval_mode_of(cfg, EnvFactory(env_cfgs[0], env_fn), None)
    write_pictures(cfg, SimpleNamespace(eval_mode=mode), seed=seed)


def _opening(cfg: Any, system: SystemConfig, limits: Limits, url: str) -> list[str]:
    workers = f"1 learner, {system.num_collectors} collectors of {cfg.env.collector_env_num} envs"
    return [
        version_line(),
        f"experiment  {cfg.exp_name}/",
        f"env         {cfg.env.get('env_id') or cfg.env.type}",
        f"policy      {cfg.policy.type}  seed {cfg.seed}",
        f"workers     {workers}; coordinator {url}; segments of {system.segment_rows} rows",
        f"until       {limits.describe()}",
    ]
