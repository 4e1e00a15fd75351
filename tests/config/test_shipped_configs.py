"""Every config in dizoo is in order and runs again from what it saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding_like.config import compile_config, read_config
from ding_like.errors import DingError

DIZOO = Path(__file__).parents[2] / "dizoo"
ROOMS = sorted({path.relative_to(DIZOO).parts[0] for path in DIZOO.rglob("config/*_config.py")})


@pytest.mark.parametrize("room", ROOMS)
def test_shipped_configs_compile_and_so_does_what_they_saved(room: str, caplog: pytest.LogCaptureFixture) -> None:
    wrong: dict[str, object] = {}
    for path in sorted((DIZOO / room).rglob("config/*_config.py")):
        caplog.clear()
        try:
            file = read_config(path)
            cfg = compile_config(file.main_config, file.create_config, source=str(path))
            saved = read_config(Path(cfg.exp_name) / "total_config.py")
            again = compile_config(saved.main_config, saved.create_config, renew_dir=False, save=False)
        except DingError as error:
            wrong[path.stem] = error
            continue
        if again != cfg or caplog.records:
            wrong[path.stem] = caplog.messages or "the saved config is another"

    assert not wrong


def test_there_are_shipped_configs() -> None:
    assert len(ROOMS) > 5
