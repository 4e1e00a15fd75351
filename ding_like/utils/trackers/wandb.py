"""Tracker of Weights & Biases."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ding_like.types import Config
from ding_like.utils.registries import TRACKER_REGISTRY
from ding_like.utils.trackers.tracker import Report, Status, TrackedRun, TrackerRefusedError, numbers_of, values_of

if TYPE_CHECKING:
    from wandb import Run

_EXIT_CODES = {"finished": 0, "interrupted": 255, "failed": 1}  # 255: how wandb marks a run as killed


@TRACKER_REGISTRY.register("wandb")
class WandbTracker:
    """Tracker of wandb: curves over env steps, its config, its result, the learning curve and the video.

    Offline its files lie in the run's folder, and `wandb sync` sends them later.
    """

    config: ClassVar[dict[str, Any]] = dict(
        # Name of the project that the run belongs to.
        project="ding_like",
        # User or team that the project belongs to; None: your own.
        entity=None,
        # Name of the run; None: exp_name.
        name=None,
        # Name of a group of runs; None: no group.
        group=None,
        # Tags of the run, a list of words.
        tags=[],
        # "online", or "offline": written to the run's folder, to be sent later.
        mode="online",
        # Seconds that the run waits for the service at its start.
        init_timeout_s=60.0,
        # Seconds that the run waits at its end until everything is sent.
        finish_s=60.0,
        # Seconds between two batches of metrics.
        every_s=5.0,
    )
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {"entity": (str,), "name": (str,), "group": (str,)}
    package: ClassVar[str] = "wandb"
    extra: ClassVar[str] = "wandb"
    _run: Run  # of `begin`, which is called first

    @classmethod
    def check_config(cls, cfg: Config) -> Sequence[tuple[str, str]]:
        """Return (key, what is wrong) for every value that wandb cannot use."""
        if cfg["mode"] not in ("online", "offline"):
            return [("mode", f"is {cfg['mode']!r}; expected 'online' or 'offline'")]
        return []

    def __init__(self, settings: Config) -> None:
        self._settings = settings

    def begin(self, run: TrackedRun) -> str:
        import wandb
        from wandb.errors import AuthenticationError, UsageError

        cfg, run_id = self._settings, run.run_id or secrets.token_hex(4)
        wandb.setup(wandb.Settings(silent=True))  # its messages would go into the run's console
        try:
            self._run = wandb.init(
                project=cfg["project"],
                entity=cfg["entity"],
                name=cfg["name"] or run.name,
                group=cfg["group"],
                tags=list(cfg["tags"]),
                mode=cfg["mode"],
                id=run_id,
                resume="allow",
                dir=str(run.folder),
                config=dict(run.config),
                allow_val_change=True,
                settings=wandb.Settings(
                    silent=True,
                    console="off",
                    init_timeout=float(cfg["init_timeout_s"]),
                    finish_timeout=float(cfg["finish_s"]),
                ),
            )
        except (AuthenticationError, UsageError) as error:
            raise TrackerRefusedError(f"{error} (or set trackers.wandb.mode=offline)") from error
        self._run.define_metric("env_step")
        self._run.define_metric("*", step_metric="env_step")
        return run_id

    def describe(self) -> str:
        if self._settings["mode"] == "offline":
            return f"run {self._run.id}, offline; send it later with  wandb sync {Path(self._run.dir).parent}"
        return f"run {self._run.id}, {self._run.url}"

    def send(self, reports: Sequence[Report]) -> None:
        for report in reports:
            steps = {name: report[name] for name in ("env_step", "train_iter") if report[name] >= 0}
            self._run.log({**values_of(report), **steps})

    def finish(self, result: Config, files: Sequence[Path], *, status: Status) -> None:
        import wandb

        self._run.summary.update(numbers_of(result))
        for path in files:
            if path.suffix == ".png":
                self._run.log({path.stem: wandb.Image(str(path))})
            elif path.suffix == ".gif":
                self._run.log({path.stem: wandb.Video(str(path), format="gif")})
            else:
                self._run.save(str(path), base_path=str(path.parent), policy="now")
        self._run.finish(exit_code=_EXIT_CODES[status])
        wandb.teardown()  # the service process ends, too
