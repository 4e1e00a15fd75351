"""A module that is run by `python -m` and lacks a package names it in one line, with the command that installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("dizoo.image_classification.digits", "sklearn", "imageclassification"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("dizoo.robotics.config.fetchreach_her_sac_config", "gymnasium_robotics", "robotics"),
                ("dizoo.multi_agent.config.simple_spread_qmix_config", "mpe2", "mpe"),
            )
        ),
    ],
)
def test_a_missing_package_is_one_line_with_the_command(module: str, package: str, extra: str, tmp_path: Path) -> None:
    missing = f"raise ModuleNotFoundError(\"No module named '{package}'\", name={package!r})\n"
    (tmp_path / f"{package}.py").write_text(missing)

    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=tmp_path,
        env={
            "PYTHONPATH": f"{tmp_path}:{ROOT}",
            "OMP_NUM_THREADS": "1",
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f'pip install "ding-like[{extra}]"' in done.stderr.splitlines()[-1]
