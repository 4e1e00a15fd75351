"""Calls from Python: pipelines with wrong objects, policies and models of one's own."""

# ruff: noqa: E501 - a wrong input a line reads best

from __future__ import annotations

from tests.wrong_inputs.cases import SERIAL, Case

IMPORT = "from ding_like.entry import serial_pipeline\nfrom my_config import create_config, main_config\n\n"
CALL = "serial_pipeline((main_config, create_config), max_env_step=16)\n"


def call(name: str, wrong: str, right: str, *says: str, files: dict[str, str] | None = None, more: str = "") -> Case:
    """Return the case of one call, after the imports."""
    return Case(name, IMPORT + more + wrong + "\n", says, IMPORT + more + right + "\n", files=files or {})


PIPELINE = "serial_pipeline((main_config, create_config), max_env_step=16"

MODEL = """\
import torch


class MyModel(torch.nn.Module):
    def __init__(self, obs_shape, action_shape, width=16):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(obs_shape, width), torch.nn.ReLU(), torch.nn.Linear(width, action_shape))

    def forward(self, obs):
        return {"logit": self.layers(obs)}
"""
POLICY = """\
from ding_like.policy import DQNPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("my_dqn_w")
class MyPolicy(DQNPolicy):
    config = dict(type="my_dqn_w")
"""
MINE = 'create_config["policy"] = dict(type="my_dqn_w", import_names=["my_policy_w"])\n'

CALLS = (
    call("a number for a config", "serial_pipeline(3, max_env_step=16)", CALL.strip(), "config", "int 3"),
    call("main_config alone", "serial_pipeline(main_config, max_env_step=16)", CALL.strip(), "(main_config, create_config)"),
    call("three configs", "serial_pipeline((main_config, create_config, {}), max_env_step=16)", CALL.strip(), "(main_config, create_config)"),
    call("the configs the other way round", "serial_pipeline((create_config, main_config), max_env_step=16)", CALL.strip(), "create_config has the keys of a main_config", "main_config comes first"),
    call("a seed that is a text", f'{PIPELINE}, seed="0")', f"{PIPELINE}, seed=0)", "seed is '0'", "give a whole number"),
    call("a seed below 0 from Python", f"{PIPELINE}, seed=-1)", f"{PIPELINE}, seed=1)", "seed", "-1", "0 or more"),
    call("env steps below 0 from Python", "serial_pipeline((main_config, create_config), max_env_step=-5)", CALL.strip(), "max_env_step", "-5", "a number from 1"),
    call("env steps that are a text", 'serial_pipeline((main_config, create_config), max_env_step="16")', CALL.strip(), "max_env_step is the text '16'", "a number from 1 without a fraction, such as max_env_step="),
    call("no updates from Python", "serial_pipeline((main_config, create_config), max_train_iter=0)", "serial_pipeline((main_config, create_config), max_train_iter=2)", "max_train_iter", "0", "a number from 1"),
    call("overrides as one text", f'{PIPELINE}, overrides="policy.nstep=2")', f'{PIPELINE}, overrides=["policy.nstep=2"])', "overrides", "['policy.nstep=2']"),
    call("a model that is a class", f"{PIPELINE}, model=torch.nn.Linear)", f"{PIPELINE}, model=DQN(4, 2))", "expected a torch.nn.Module", "give an instance of it: Linear(...)", more="import torch\n\nfrom ding_like.model import DQN\n\n"),
    call("a model without the methods of its policy", f"{PIPELINE}, model=torch.nn.Linear(4, 2))", f"{PIPELINE}, model=DQN(4, 2))", "its model Linear does not have", "q(obs) -> [B, A]", "docs/own_model.md", more="import torch\n\nfrom ding_like.model import DQN\n\n"),
    call("an env in place of env_setting", f'{PIPELINE}, env_setting=gymnasium.make("CartPole-v1"))', f'{PIPELINE}, env_setting=(lambda cfg: gymnasium.make("CartPole-v1"), [{{}}] * 2, [{{}}]))', "env_setting is TimeLimit", "as in env_setting=(lambda cfg: MyEnv()", more="import gymnasium\n\n"),
    call("a policy of a name that is not", "create_policy({'type': 'dqnn'})", "get_policy_cls({'type': 'dqn'})", "unknown policy 'dqnn'", "'dqn'", more="from ding_like.policy import create_policy, get_policy_cls\n\n"),
    call("a file that is no experiment", "resume_pipeline('nothing')", CALL.strip(), "nothing to resume in nothing/ckpt/resume", "--load-path", more="from ding_like.entry import resume_pipeline\n\n"),
)  # fmt: skip

OWN = (
    Case("a model of one's own with a key that it does not take", f"{SERIAL} policy.model.type=my_models:MyModel policy.model.widht=8", ("policy.model.widht", "width"), SERIAL, files={"my_models.py": MODEL}),
    Case("a policy of one's own that is not registered", SERIAL, ("my_dqn_w", "register"), SERIAL, config=MINE, files={"my_policy_w.py": POLICY.replace('@POLICY_REGISTRY.register("my_dqn_w")\n', "")}, fixed_files={"my_policy_w.py": POLICY}),
    Case("a policy of one's own whose base is not there", SERIAL, ("my_policy_w", "DQNPolicyy"), SERIAL, config=MINE, files={"my_policy_w.py": POLICY.replace("DQNPolicy", "DQNPolicyy")}, fixed_files={"my_policy_w.py": POLICY}),
    Case("a policy of one's own with an error in it", SERIAL, ("my_policy_w.py", "NameError", "gamma"), SERIAL, config=MINE, files={"my_policy_w.py": POLICY + "\n    def _init_learn(self):\n        super()._init_learn()\n        self._rate = gamma\n"}, fixed_files={"my_policy_w.py": POLICY}),
    Case("a policy of one's own without apply", SERIAL, ("(MyPolicy) has no grad() and no apply()", "docs/own_algorithm.md"), SERIAL, config=MINE.replace("my_dqn_w", "my_bare_w"), files={"my_policy_w.py": "from ding_like.policy import Policy\nfrom ding_like.utils.registries import POLICY_REGISTRY\n\n\n@POLICY_REGISTRY.register(\"my_bare_w\")\nclass MyPolicy(Policy):\n    config = dict(type=\"my_bare_w\")\n\n    def default_model(self):\n        return \"dqn\", []\n"}, fixed_files={"my_policy_w.py": POLICY.replace("my_dqn_w", "my_bare_w")}),
)  # fmt: skip
