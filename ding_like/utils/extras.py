"""Write the line that installs an extra of this package; every message that names one takes it from here."""

from __future__ import annotations

# As in setup.py. Names have no hyphen and no underscore: an old pip changes those on one side of the comparison only.
DISTRIBUTION = "ding-like"

# Modules that are imported only where they are needed -> the extra that brings each.
EXTRA_OF = {
    "Box2D": "box2d",
    "PIL": "viz",
    "ale_py": "atari",
    "cv2": "atari",
    "dm_control": "dmc",
    "envpool": "envpool",
    "gunicorn": "server",
    "gymnasium_robotics": "robotics",
    "lz4": "ray",
    "matplotlib": "viz",
    "minigrid": "minigrid",
    "mlflow": "mlflow",
    "mpe2": "mpe",
    "mujoco": "mujoco",
    "openskill": "league",
    "optuna": "tune",
    "pettingzoo": "pettingzoo",
    "pygame": "classic",
    "ray": "ray",
    "shimmy": "dmc",
    "wandb": "wandb",
    "sklearn": "imageclassification",
    "zmq": "seed",
}


def install_hint(error: BaseException) -> str:
    """Return "; install it with: ..." for the module that an ImportError, or what follows from one, lacks; else ""."""
    cause: BaseException | None = error
    while cause is not None:
        extra = EXTRA_OF.get((getattr(cause, "name", None) or "").partition(".")[0])
        if extra is not None:
            return f"; install it with: {pip_line(extra)}"
        cause = cause.__cause__ or cause.__context__
    return ""


def pip_line(extra: str, *, options: str = "") -> str:
    """Return what to type to install an extra; `options` are of pip, such as --force-reinstall."""
    return f'pip install {options + " " if options else ""}"{DISTRIBUTION}[{extra}]"'
