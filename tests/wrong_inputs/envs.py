"""Envs: ids, extras, wrappers, and env classes of one's own with a fault in them."""

# ruff: noqa: E501 - a wrong input a line reads best

from __future__ import annotations

from tests.wrong_inputs.cases import SERIAL, Case, key, lines

MY_ENV = """\
import gymnasium
import numpy as np


class MyEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size=8):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(3, np.float32), 1.0, self.time >= self.size, False, {}
"""
MINE = 'main_config["env"].pop("env_id")\ncreate_config["env"] = dict(type="my_envs:MyEnv")\n'


def own(name: str, old: str, new: str, *says: str) -> Case:
    """Return the case of an env class of one's own that has `new` in place of `old`."""
    assert old in MY_ENV
    wrong = {"my_envs.py": MY_ENV.replace(old, new, 1)}
    return Case(name, SERIAL, says, SERIAL, config=MINE, files=wrong, fixed_files={"my_envs.py": MY_ENV})


def without(package: str, extra: str, config: str, *says: str, name: str = "") -> Case:
    """Return the case of an extra that is not installed."""
    line = f'pip install "ding-like[{extra}]"'
    return Case(
        name or f"{extra} is not installed", SERIAL, (*says, line), line, config=config, missing=(package,),
        fix_installs=True,
    )  # fmt: skip


def env_line(env_id: str) -> str:
    return f'main_config["env"]["env_id"] = "{env_id}"\n'


IDS = (
    key("an id misspelt", "env.env_id=CartPoll-v1", "env.env_id=CartPole-v1", "CartPoll-v1", "CartPole-v1"),
    key("an id without a version", "env.env_id=CartPol", "env.env_id=CartPole-v1", "CartPol", "CartPole-v1"),
    key("a version that is not", "env.env_id=CartPole-v9", "env.env_id=CartPole-v1", "CartPole-v9", "CartPole-v1"),
    key("no id", "env.env_id=None", "env.env_id=CartPole-v1", "env.env_id   is not set", "expected a gymnasium id"),
    key("an argument that the env does not take", "env.kwargs.size=8", "env.kwargs.sutton_barto_reward=True", "cannot be made with env.kwargs {'size': 8}", "unexpected keyword argument 'size'", "It takes: sutton_barto_reward, render_mode"),
    key("a module of ids that is not there", "env.env_id=my_module_x:MyEnv-v0", "env.env_id=CartPole-v1", "module 'my_module_x' cannot be imported", "python looked in"),
    without("ale_py", "atari", env_line("ALE/Pong-v5"), "ale_py"),
    without("Box2D", "box2d", env_line("LunarLander-v3"), "Box2D"),
    without("mujoco", "mujoco", env_line("Hopper-v5"), "mujoco"),
    without("minigrid", "minigrid", env_line("MiniGrid-Empty-8x8-v0"), "minigrid"),
    without("envpool", "envpool", 'main_config["env"]["manager"] = dict(type="envpool")\n', "envpool"),
    without("pettingzoo", "pettingzoo", 'main_config["env"]["env_id"] = "classic/tictactoe-v3"\ncreate_config["env"]["type"] = "petting_zoo"\n', "pettingzoo"),
    without("PIL", "viz", 'main_config["env"]["wrappers"] = [dict(type="record_gif", folder="films")]\nmain_config["env"]["render_mode"] = "rgb_array"\n', "pillow", name="pillow is not installed"),
)  # fmt: skip

WRAPPERS = (
    lines("wrappers as one text", 'main_config["env"]["wrappers"] = "obs_norm"\n', 'main_config["env"]["wrappers"] = ["obs_norm"]\n', "env.wrappers", "list", "obs_norm"),
    key("wrappers typed without quotes", "env.wrappers=[{'type': 'obs_norm'}]", "\"env.wrappers=[{'type': 'obs_norm'}]\"", "'obs_norm}]' is neither", "into quotes", "\"env.wrappers=[{'type': 'obs_norm'}]\""),
    key("a wrapper's path without quotes", "env.wrappers=[{type:my_module:MyWrapper}]", "\"env.wrappers=[{'type': 'obs_norm'}]\"", "env.wrappers", "expected list, got str '[{type:my_module:MyWrapper}]'"),
    key("an unknown wrapper", "\"env.wrappers=[{'type': 'obs_nrm'}]\"", "\"env.wrappers=[{'type': 'obs_norm'}]\"", "unknown wrapper 'obs_nrm'", "did you mean 'obs_norm'"),
    key("a wrapper without a type", "\"env.wrappers=[{'clip': 5}]\"", "\"env.wrappers=[{'type': 'obs_norm', 'clip': 5}]\"", "env.wrappers", "type"),
    key("a wrapper's argument misspelt", "\"env.wrappers=[{'type': 'obs_norm', 'clp': 5}]\"", "\"env.wrappers=[{'type': 'obs_norm', 'clip': 5}]\"", "unexpected keyword argument 'clp'", "clip: 'float'"),
    key("a wrapper twice", "env.wrappers=[clip_reward,clip_reward]", "env.wrappers=[clip_reward]", "env.wrappers", "'clip_reward'", "twice in a row", "leave one out"),
    key("a wrapper that does not fit the env", "\"env.wrappers=[{'type': 'rescale_action'}]\"", "\"env.wrappers=[{'type': 'act_scale'}]\"", "rescale_action", "Box", "leave it out"),
    lines("a class in place of a wrapper's name", 'import gymnasium\n\nmain_config["env"]["wrappers"] = [gymnasium.wrappers.TimeLimit]\n', 'main_config["env"]["wrappers"] = [dict(type="TimeLimit", max_episode_steps=20)]\n', "env.wrappers", "TimeLimit"),
    lines("a number for a wrapper", 'main_config["env"]["wrappers"] = [3]\n', 'main_config["env"]["wrappers"] = []\n', "env.wrappers", "a wrapper's name or a dict with its 'type', got 3"),
)  # fmt: skip

OWN = (
    Case("a module of one's own that is not there", SERIAL, ("my_envs", "module:Class"), SERIAL, config=MINE, fixed_files={"my_envs.py": MY_ENV}),
    Case("a class of one's own that is not there", SERIAL, ("no class 'MyEnv'", "MyEnvs"), SERIAL, config=MINE, files={"my_envs.py": MY_ENV.replace("MyEnv", "MyEnvs")}, fixed_files={"my_envs.py": MY_ENV}),
    Case("a module of one's own that imports what is not there", SERIAL, ("my_envs", "numpyy"), SERIAL, config=MINE, files={"my_envs.py": MY_ENV.replace("import numpy", "import numpyy")}, fixed_files={"my_envs.py": MY_ENV}),
    Case("a module of one's own with an error in it", SERIAL, ("my_envs.py", "NameError"), SERIAL, config=MINE, files={"my_envs.py": MY_ENV + "\nsize = sizes\n"}, fixed_files={"my_envs.py": MY_ENV}),
    Case("a module of one's own that is no Python", SERIAL, ("my_envs.py, line 21", "invalid syntax"), SERIAL, config=MINE, files={"my_envs.py": MY_ENV + "\ndef (:\n"}, fixed_files={"my_envs.py": MY_ENV}),
    Case("an argument that a class of one's own does not take", f"{SERIAL} env.kwargs.sise=9", ("env.kwargs {'sise': 9} do not fit my_envs:MyEnv", "it takes (size=8)"), f"{SERIAL} env.kwargs.size=9", config=MINE, files={"my_envs.py": MY_ENV}),
    own("a constructor that raises", "self.size = size", "self.size = sizes", "MyEnv", "NameError", "sizes", "my_envs.py"),
    own("reset that raises", "self.time = 0", "self.time = times", "NameError", "times", "my_envs.py", "check-env"),
    own("reset without info", "return np.zeros(3, np.float32), {}\n", "return np.zeros(3, np.float32)\n", "reset", "(obs, info)"),
    own("reset without seed", "self, *, seed=None, options=None", "self", "reset() got an unexpected keyword argument 'seed'", "ding check-env my_envs:MyEnv"),
    own("step that raises", "self.time += 1", "self.time += one", "NameError", "one", "my_envs.py"),
    own("step with four values", ">= self.size, False, {}", ">= self.size, {}", "step() (obs, reward, terminated, truncated, info)", "got 4"),
    own("no action space", "    action_space = gymnasium.spaces.Discrete(2)\n", "", "action_space of MyEnv is not set", "self.action_space ="),
    own("no observation space", "    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)\n", "", "observation_space of MyEnv is not set", "self.observation_space ="),
    own("a number in place of a space", "gymnasium.spaces.Discrete(2)", "2", "action_space of MyEnv is 2", "self.action_space ="),
    own("observations of another shape", "np.zeros(3, np.float32), 1.0", "np.zeros(4, np.float32), 1.0", "step() has shape (4,), its observation space says (3,)", "ding check-env my_envs:MyEnv"),
    own("observations that are not numbers", "np.zeros(3, np.float32), 1.0", "np.full(3, np.nan, np.float32), 1.0", "the observation of env 0 holds a NaN", "ding check-env my_envs:MyEnv"),
    own("a reward that is no number", "1.0, self.time", '"1", self.time', "a reward is str '1'", "return float(reward)"),
    own("a reward that is a word", "1.0, self.time", '"good", self.time', "a reward is str 'good'", "return float(reward)"),
    own("a space of texts", "Box(-1, 1, (3,), np.float32)", "Text(3)", "observation space Text does not fit", "encode_text"),
    own("a space of several parts", "gymnasium.spaces.Box(-1, 1, (3,), np.float32)", "gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)])", "observation space Tuple does not fit", "FlattenObservation"),
    Case("check-env of a class with a fault", "ding check-env my_envs:MyEnv --steps 50", ("fault    step: it returned 4 values", "5 values: obs, reward", "fix"), "ding check-env my_envs:MyEnv --steps 50", files={"my_envs.py": MY_ENV.replace(">= self.size, False, {}", ">= self.size, {}")}, fixed_files={"my_envs.py": MY_ENV}, shows="no fault"),
)  # fmt: skip
