"""Every key of a config has a meaning, which `ding explain` and the page Settings show."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ding_like.config import compile_config, read_config, with_objects
from ding_like.config.explain import Setting, all_settings
from ding_like.config.schema import class_defaults
from ding_like.config.tree import leaves, literal, object_text
from ding_like.entry.cli import main
from ding_like.errors import ConfigError, DingError
from ding_like.policy import get_policy_cls

DOCS = Path(__file__).parents[2] / "docs"
_COUNTS = re.compile(r"(_s|_seconds|seconds|_freq|_iter|interval|_steps?|_after)$")
_UNITS = re.compile(r"second|update|step|episode|sample|batch|game|No effect|checkpoint", re.IGNORECASE)

settings = functools.cache(all_settings)


def named(setting: Setting) -> str:
    return f"{setting.part} {setting.type_name} {setting.path}: {setting.meaning!r}"


def run(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        main(line.split())
    except SystemExit as stop:
        assert stop.code in (0, 1)
    output = capsys.readouterr()
    return " ".join((output.out + output.err).split())


def test_every_key_has_a_comment_beside_its_default() -> None:
    assert len({setting.path for setting in settings()}) > 200
    assert [named(setting) for setting in settings() if len(setting.meaning.split()) < 3] == []


def test_meanings_of_times_and_counts_name_their_unit() -> None:
    counted = [each for each in settings() if _COUNTS.search(each.path) and not isinstance(each.default, bool)]

    assert len(counted) > 100
    assert [named(setting) for setting in counted if not _UNITS.search(setting.meaning)] == []


@pytest.mark.parametrize("policy", ["dqn", "ppo", "sac", "rainbow"])
def test_explain_prints_the_defaults_of_a_policy(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    defaults = class_defaults(get_policy_cls({"type": policy}))
    main(["explain", "-p", policy])
    shown = dict(re.findall(r"^policy\.(\S+) = (.*)$", capsys.readouterr().out, re.MULTILINE))

    sections = ("type", "import_names", "model", "eval", "other")  # no keys with defaults of their own
    expected = {path: literal(value) for path, value in leaves(defaults) if path not in sections}
    assert {path: text for path, text in shown.items() if path not in sections} == expected


def test_explain_takes_the_end_of_a_path_or_a_section_and_names_who_has_its_keys(capsys) -> None:
    line = run("explain log_show_after_iter", capsys)
    assert line.startswith("policy.learn.learner.hook.log_show_after_iter = 100 Updates between two")
    assert "(int: 1 or more)" in line

    line = run("explain policy.learn.schedule", capsys)

    assert "policy.learn.schedule.env_steps = None" in line and "policy.learn.schedule.lr_end = 0.0" in line
    assert "Of policy a2c, coma, happo, impala" in line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("explain log_show_after_itr", "Did you mean policy.learn.learner.hook.log_show_after_iter?"),
        ("explain learn.batchsize", "Did you mean policy.learn.batch_size"),
        (
            "explain learn.clip_ratio -p dqn",
            "policy 'dqn' has no key 'learn.clip_ratio', which is of happo, ippo, ippo_recurrent, mappo",
        ),
        ("explain batch_size -p dqnn", "did you mean 'dqn'"),
        ("explain system.seed.credit", "docs/seed.md"),
        ("explain", "Usage: ding explain"),
    ],
)
def test_explain_answers_what_it_does_not_find(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in run(line, capsys)


def test_explain_reads_the_comments_of_a_policy_of_your_own(in_tmp, monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(str(in_tmp))
    Path("explained_policy.py").write_text(
        "from ding_like.policy import DQNPolicy\n\n\n"
        "class Mine(DQNPolicy):\n"
        "    config = dict(\n"
        "        # Share of the entropy in\n"
        "        # a target.\n"
        "        munchausen=0.9,\n"
        "        nstep=7,\n"
        "    )\n"
    )

    shown = run("explain munchausen -p explained_policy:Mine", capsys)
    assert "= 0.9 Share of the entropy in a target. (float)" in shown
    assert "policy.nstep = 7 Steps of reward" in run("explain policy.nstep -p explained_policy:Mine", capsys)


def test_the_page_has_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from settings_tables import tables  # type: ignore[import-not-found]

    rows = [line for line in tables().splitlines() if line.startswith("| `")]

    assert {re.split(r"`", row)[1] for row in rows} == {setting.path for setting in settings()}
    assert len(rows) == len({setting.path for setting in settings()})
    assert "<!-- tables of settings -->" in (DOCS / "settings.md").read_text()


CREATE: dict[str, Any] = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "dqn"}}


def _main(activation: object) -> dict[str, Any]:
    model = {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [8, 8], "activation": activation}
    return {"env": {"env_id": "CartPole-v1"}, "policy": {"model": model}}


class OwnLayer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def test_an_object_is_a_text_that_makes_it_again() -> None:
    for value, text in [
        (nn.Tanh(), "import:torch.nn.Tanh()"),
        (nn.Tanh, "import:torch.nn.Tanh"),
        (nn.LeakyReLU(0.2), "import:torch.nn.LeakyReLU(negative_slope=0.2)"),
        (OwnLayer(), "import:tests.config.test_explain.OwnLayer()"),
        (torch.nn.functional.relu, "import:torch.nn.functional.relu"),
    ]:
        made = with_objects({"a": [object_text(value)]})["a"][0]

        assert object_text(value) == text
        assert made is value if "(" not in text else repr(made) == repr(value)


@pytest.mark.parametrize("value", [nn.Tanh(), nn.Tanh, "tanh"])
def test_the_network_has_the_layer_that_the_config_says(value: object, tmp_path: Path) -> None:
    cfg = compile_config(_main(value), CREATE, exp_name=str(tmp_path / "run"))
    file = read_config(tmp_path / "run" / "total_config.py")
    again = compile_config(file.main_config, file.create_config, save=False, renew_dir=False)

    policy = get_policy_cls(again.policy)(again.policy.copy())

    assert again == cfg
    kinds = {type(module) for module in policy.get_attribute("model").modules()}
    assert nn.Tanh in kinds and nn.ReLU not in kinds


def test_an_object_that_cannot_be_made_again_is_one_error() -> None:
    for value, said in [
        (object(), "expected numbers, text, lists and dicts, which can be saved; got object"),
        (lambda x: x, "has no import path"),
        (nn.PReLU(), "PReLU has weights, which a config cannot hold"),
        (nn.Sequential(nn.Tanh(), nn.ReLU()), "cannot be saved"),
    ]:
        with pytest.raises(ConfigError, match=r"policy\.model\.activation") as caught:
            compile_config(_main(value), CREATE, save=False)

        assert said in str(caught.value)
    main = {"env": {"env_id": "CartPole-v1"}, "policy": {"learn": {"learning_rate": nn.Tanh()}}}
    with pytest.raises(ConfigError, match="only policy.model takes classes and layers"):
        compile_config(main, CREATE, save=False)


def test_a_text_that_names_nothing_is_an_error() -> None:
    for text in ["import:torch.nn.Tahn()", "import:Tanh", "import:torch.nn.Tanh(", "import:no_such.A"]:
        with pytest.raises(ConfigError, match="cannot be made"):
            with_objects({"activation": text})


def test_a_text_that_names_no_layer_is_refused_and_not_called() -> None:
    for text in [
        "import:os.getenv(key='HOME')",
        "import:os.system",
        "import:subprocess.Popen",
        "import:torch.load(f='model.pth')",
        "import:torch.nn.functional.relu(input=1)",
    ]:
        with pytest.raises(ConfigError, match="is no layer of torch"):
            with_objects({"activation": text})
        with pytest.raises(ConfigError, match=r"(?s)policy\.model\.activation.*is no layer of torch"):
            compile_config(_main(text), CREATE, save=False)


def test_a_text_that_names_nothing_is_told_when_the_config_is_compiled() -> None:
    with pytest.raises(ConfigError, match=r"(?s)policy\.model\.activation.*cannot be made"):
        compile_config(_main("import:torch.nn.Tahn()"), CREATE, save=False)


def test_a_class_of_the_config_file_itself_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a_config.py"
    path.write_text(
        "from torch import nn\nclass Own(nn.Tanh):\n    pass\n"
        f"main_config = {{'env': {{'env_id': 'CartPole-v1'}}, 'policy': {{'model': {{'activation': Own}}}}}}\n"
        f"create_config = {CREATE!r}\n"
    )
    file = read_config(path)

    with pytest.raises(ConfigError, match="'Own' is defined in the config file itself"):
        compile_config(file.main_config, file.create_config, save=False)


def _error(type_: str, modules: list[str], **env: Any) -> str:
    create = dict(env=dict(type=type_, import_names=modules), policy=dict(type="dqn"))
    with pytest.raises(ConfigError) as raised:
        compile_config(dict(env=env), create, save=False)
    return str(raised.value)


def test_a_near_id_is_named_from_the_type_or_the_module() -> None:
    for type_, module, stem in [
        ("blackjack", "dizoo.blackjack.envs.blackjack_env", "Blackjack-v"),
        ("mountain_car_continuous", "dizoo.mcc.envs.mcc_env", "MountainCarContinuous-v"),
        ("some_name", "dizoo.pusher.envs.pusher", "Pusher-v"),
    ]:
        said = _error(type_, [module])

        assert "create_config.env=dict(type='gymnasium')" in said
        assert f"env.env_id='{stem}" in said


def test_an_id_that_the_config_gives_is_named_as_it_stands() -> None:
    assert "env.env_id='Acrobot-v1'" in _error("x", ["dizoo.blackjack.envs.blackjack_env"], env_id="Acrobot-v1")


def test_without_a_near_id_it_is_said_how_other_packages_are_named() -> None:
    said = _error("gfootball", ["dizoo.gfootball.envs.gfootball_env"])

    assert "gymnasium has no id like it" in said
    assert "env.env_id='its_module:ItsId-v0'" in said


def test_other_faults_of_an_env_get_no_such_hint() -> None:
    for type_, modules in [
        ("blackjack", ["my_own_module"]),
        ("blackjack", []),
        ("pendulums", ["dizoo.classic_control.pendulum.envs"]),
    ]:
        assert "dizoo has no such env" not in _error(type_, modules)


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
