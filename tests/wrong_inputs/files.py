"""Config files: missing, torn, no Python, in another encoding, without what is needed."""

# ruff: noqa: E501 - a wrong input a line reads best

from __future__ import annotations

from tests.wrong_inputs.cases import MY_CONFIG, SERIAL, Case


def file(name: str, text: str | bytes, *says: str) -> Case:
    """Return the case of a config file as a whole."""
    return Case(name, SERIAL, says, SERIAL, files={"my_config.py": text}, fixed_files={"my_config.py": MY_CONFIG})


FILES = (
    Case("a config that is not there", "ding -m serial -c my_cofig.py", ("there is no config file 'my_cofig.py'", "did you mean my_config.py"), SERIAL),
    Case("a folder for a config", "ding -m serial -c configs", ("configs is a folder", "my_config.py"), "ding -m serial -c configs/my_config.py", files={"configs/my_config.py": MY_CONFIG}),
    Case("a config that is not Python", "ding -m serial -c my_config.yaml", (".py", "my_config.yaml"), SERIAL, files={"my_config.yaml": "policy: dqn\n"}),
    Case("a saved model for a config", "ding -m serial -c model.pth", (".py", "model.pth"), SERIAL, files={"model.pth": b"PK\x03\x04"}),
    file("a config with a bracket too few", MY_CONFIG.replace("dict(type=\"dqn\"))", "dict(type=\"dqn\")"), "my_config.py, line 9", "'(' was never closed"),
    file("a config in another encoding", MY_CONFIG.replace("my_exp", "größe").encode("latin-1"), "my_config.py", "utf-8"),
    file("a config of zero bytes", b"\x00" * 64, "my_config.py", "null bytes"),
    file("an empty config", "", "my_config.py defines no main_config", "main_config = dict(...)"),
    file("a config without create_config", MY_CONFIG.partition("create_config")[0], "my_config.py defines no create_config", "create_config = dict(env=dict(type='gymnasium'), policy=dict(type='dqn'))"),
    file("a config with other names", MY_CONFIG.replace("main_config", "config"), "defines no main_config", "is it 'config'? Add `main_config = config`"),
    file("a main_config that is a list", "main_config = []\n" + MY_CONFIG.partition("\n)\n")[2], "main_config must be a dict", "list"),
    file("a name that is not defined in the config", MY_CONFIG + "main_config['seed'] = sed\n", "my_config.py, line 10", "NameError", "sed"),
    file("an import that is not there in the config", "import my_settings_x\n" + MY_CONFIG, "my_config.py, line 1", "my_settings_x"),
    file("a config that ends Python", "import sys\n" + MY_CONFIG + "sys.exit(3)\n", "my_config.py, line 11", "SystemExit"),
)  # fmt: skip
