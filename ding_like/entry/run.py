"""Folder of a run: its result, its agent, its picture, and how to resume it."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import tempfile
from pathlib import Path
from typing import Any

from ding_like.agent.loaded import Agent, load
from ding_like.entry.plan import checked_limit
from ding_like.entry.results import plot
from ding_like.entry.resume import resume_pipeline
from ding_like.errors import ConfigError
from ding_like.pipeline.record import RunResult
from ding_like.report.experiment import check_experiment


class Picture:
    """Picture of curves, which a notebook shows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = path.read_bytes()

    def _repr_png_(self) -> bytes | None:
        return self._data if self._data.startswith(b"\x89PNG") else None

    def _repr_svg_(self) -> str | None:
        return None if self._repr_png_() is not None else self._data.decode()

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file of the same kind; return its path."""
        target = Path(path)
        if target.suffix != self.path.suffix:
            raise ConfigError(f"the picture is a {self.path.suffix} file, got '{target}': give that ending.")
        target.write_bytes(self._data)
        return target

    def __repr__(self) -> str:
        return f"Picture('{self.path}')"


class Run:
    """Run in a folder; a notebook shows its result and curve."""

    def __init__(self, folder: str | Path) -> None:
        """Raise ConfigError for a folder without a run."""
        self.folder = Path(folder)
        self._agent: tuple[tuple[int, int], Agent] | None = None
        check_experiment(self.folder)

    @property
    def is_finished(self) -> bool:
        """Whether the run is over."""
        return (self.folder / "result.json").is_file()

    @property
    def result(self) -> RunResult:
        """Result of the run. Raises ConfigError while it is not over."""
        if not self.is_finished:
            raise ConfigError(
                f"the run in '{self.folder}' has no result.json: it was interrupted or still runs. resume() goes on "
                "with an interrupted one."
            )
        found = json.loads((self.folder / "result.json").read_text(encoding="utf-8"))
        names = {field.name for field in dataclasses.fields(RunResult)}
        return RunResult(**{name: value for name, value in found.items() if name in names})

    @property
    def agent(self) -> Agent:
        """Agent of the best checkpoint, or of the last one before there is an evaluation."""
        which = "best" if (self.folder / "ckpt/ckpt_best.pth.tar").is_file() else "last"
        if which == "last":
            return load(self.folder, which="last")
        stat = (self.folder / "ckpt/ckpt_best.pth.tar").stat()
        stamp = stat.st_ino, stat.st_mtime_ns
        if self._agent is None or self._agent[0] != stamp:
            self._agent = stamp, load(self.folder)
        return self._agent[1]

    def plot(self, out: str | Path | None = None) -> Picture:
        """Draw the learning curve, by default to `curve.png` of the folder; return the picture."""
        return Picture(plot([self.folder], out))

    def resume(self, *, env_step: float | None = None, train_iter: float | None = None) -> Run:
        """Resume from the newest saved point, by default to the limits that the run was started with; return the run.

        With a higher `env_step` a run that is over is resumed too. Raises CheckpointError if there is no saved point.
        """
        resume_pipeline(
            str(self.folder),
            max_env_step=None if env_step is None else checked_limit("env_step", env_step),
            max_train_iter=None if train_iter is None else checked_limit("train_iter", train_iter),
        )
        return self

    def __repr__(self) -> str:
        if not self.is_finished:
            return f"Run('{self.folder}', not finished)"
        result = self.result
        return f"Run('{self.folder}', {result.env_step:,} env steps, return {result.eval_value:.4g})"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [("folder", f"{self.folder}/")]
        if self.is_finished:
            result = self.result
            best = "" if result.best_eval is None else f", best {result.best_eval:.4g}"
            rows += [
                (
                    "return",
                    f"{result.eval_value:.4g} of the last model over {len(result.eval_value_raw)} episodes{best}",
                ),
                ("took", f"{result.env_step:,} env steps, {result.train_iter:,} updates, {result.duration_s:.1f} s"),
            ]
        else:
            rows.append(("state", "not finished"))
        cells = "".join(f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows)
        return f"<table>{cells}</table>{self._curve()}"

    def _curve(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            try:
                data = plot([self.folder], Path(folder) / "curve.svg").read_bytes()
            except ConfigError:
                return ""  # no returns yet
        return f'<img src="data:image/svg+xml;base64,{base64.b64encode(data).decode()}">'
