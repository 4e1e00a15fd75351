"""Classes and layers in a model's settings are saved by import path, and made again when the model is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ding_like.config import compile_config, read_config, with_objects
from ding_like.config.tree import object_text
from ding_like.errors import ConfigError
from ding_like.policy import get_policy_cls

CREATE: dict[str, Any] = {
    "env": {"type": "gymnasium"},
    "env_manager": {"type": "base"},
    "policy": {"type": "dqn"},
}


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
        (OwnLayer(), "import:tests.config.test_objects.OwnLayer()"),
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


def test_an_object_elsewhere_is_an_error() -> None:
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
