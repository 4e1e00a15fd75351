"""All wrong inputs, by sections."""

# ruff: noqa: E501 - a wrong input a line reads best

from __future__ import annotations

from collections.abc import Mapping

from tests.wrong_inputs.cases import MY_CONFIG, ONPOLICY, SERIAL, Case, key, lines

# --- configs: keys, types, values, numbers out of range, names of classes

PPO = """\
main_config["policy"] = dict(learn=dict(batch_size=8, epoch_per_collect=1), collect=dict(n_sample=16))
create_config["policy"] = dict(type="ppo")
"""
SAC = """\
main_config["env"]["env_id"] = "Pendulum-v1"
create_config["policy"] = dict(type="sac")
"""

KEYS = (
    lines("a key misspelt", 'main_config["policy"]["learn"]["batchsize"] = 16\n', 'main_config["policy"]["learn"]["batch_size"] = 16\n', "policy.learn.batchsize", "unknown key", "did you mean 'batch_size'", "(line 10)"),
    lines("a key in another section", 'main_config["policy"]["batch_size"] = 16\n', 'main_config["policy"]["learn"]["batch_size"] = 16\n', "policy.batch_size", "did you mean 'policy.learn.batch_size'"),
    key("a section misspelt", "policy.lern.batch_size=16", "policy.learn.batch_size=16", "policy.lern", "did you mean 'learn'"),
    key("a key of the top misspelt", "polisy.learn.batch_size=16", "policy.learn.batch_size=16", "polisy", "did you mean 'policy'"),
    key("a key of the env misspelt", "env.collector_env_nums=1", "env.collector_env_num=1", "collector_env_nums", "did you mean 'collector_env_num'"),
    key("SB3's name of the learning rate", "policy.learn.lr=3e-4", "policy.learn.learning_rate=3e-4", "policy.learn.lr", "did you mean 'policy.learn.learning_rate'"),
    key("a key of another mode", "system.ray.grad.workers=2", "", "of modes ray and seed", "ding -m ray ... --workers 4"),
    key("RLlib's name of the collecting workers", "system.ray.num_workers=4", "--workers 4 --dry-run", "system.ray.num_workers", "give --workers 4", base="ding -m ray -c my_config.py"),
    key("a key below main_config", "main_config.policy.learn.batch_size=16", "policy.learn.batch_size=16", "main_config", "write policy.learn.batch_size=16"),
    key("a key with slashes", "policy/learn/batch_size=16", "policy.learn.batch_size=16", "has slashes", "policy.learn.batch_size=16"),
    key("a policy's name for its section", "policy=dqn", "policy.type=dqn", "expected a section", "did you mean policy.type=dqn (or -p dqn)?"),
    key("an optimizer's name for its section", "policy.learn.optimizer=adam", "policy.learn.optimizer.type=adam", "expected a section", "did you mean policy.learn.optimizer.type=adam?"),
    lines("a word of JSON", 'main_config["policy"]["priority"] = false\n', 'main_config["policy"]["priority"] = False\n', "line 10", "'false' is not defined", "write False"),
    lines("a config that reads the command line", 'import argparse\n\nargparse.ArgumentParser().parse_args()\n', "", "line 12", "a config is data", "KEY=VALUE"),
    lines("hindsight as a section of the policy", 'main_config["policy"]["her"] = dict(k=4)\n', "", "policy.her", "policy.other.replay_buffer.type=her"),
    lines("a config that contains itself", 'main_config["policy"]["me"] = main_config\n', "", "policy.me is a section or list that contains itself"),
    key("a key that nothing is like", "policy.learn.zzz=1", "policy.learn.batch_size=16", "policy.learn.zzz", "unknown key", "batch_size"),
    lines("three faults at once", 'main_config["policy"].update(nstep="3", gama=0.9)\nmain_config["policy"]["collect"]["n_episode"] = 2\n', 'main_config["policy"].update(nstep=3, discount_factor=0.9)\n', "3 problems in my_config.py", "expected int, got str '3'", "gama", "n_sample and n_episode are both set; give one"),
    key("a section given as a number", "policy.learn=3", "policy.learn.batch_size=3", "policy.learn", "expected a section", "int 3"),
    key("part of a number", "policy.learn.batch_size=16.5", "policy.learn.batch_size=16", "expected int, got float 16.5"),
    key("a text for a number", "policy.learn.learning_rate=fast", "policy.learn.learning_rate=0.001", "expected float", "got str 'fast'"),
    key("a list for a number", "policy.learn.learning_rate=[0.001]", "policy.learn.learning_rate=0.001", "expected float", "got list"),
    key("a bool for a number", "policy.learn.update_per_collect=True", "policy.learn.update_per_collect=1", "expected int, got bool True"),
    key("None for a number", "policy.learn.batch_size=None", "policy.learn.batch_size=16", "expected int, got None"),
    key("a number for a text", "policy.learn.loss=1", "policy.learn.loss=mse", "policy.learn.loss", "mse"),
    key("an unknown loss", "policy.learn.loss=hubber", "policy.learn.loss=huber", "policy.learn.loss", "'hubber'", "huber"),
    key("an unknown optimizer", "policy.learn.optimizer.type=adamm", "policy.learn.optimizer.type=adam", "optimizer.type", "adamm", "adam"),
    key("an unknown kind of epsilon", "policy.other.eps.type=linar", "policy.other.eps.type=linear", "eps.type", "linar", "linear"),
    key("an unknown key of the model", "policy.model.kernel_size=[3]", "", "policy.model.kernel_size", "unknown key", "encoder_kernel_size"),
    key("a misspelt key of the model", "policy.model.duelling=True", "policy.model.dueling=True", "policy.model.duelling", "did you mean 'dueling'"),
    key("hidden_size for a list of sizes", "policy.model.hidden_size=64", "policy.model.encoder_hidden_size_list=[64,64]", "policy.model.hidden_size", "encoder_hidden_size_list"),
    key("one size for a list of sizes", "policy.model.encoder_hidden_size_list=64", "policy.model.encoder_hidden_size_list=[64]", "policy.model.encoder_hidden_size_list", "list"),
    key("an unknown model", "policy.model.type=dqnn", "policy.model.type=dqn", "dqnn", "did you mean 'dqn'"),
    lines("a function of the config file in the model", 'def swish(x):\n    return x\n\n\nmain_config["policy"]["model"] = dict(activation=swish)\n', 'import torch\n\nmain_config["policy"]["model"] = dict(activation=torch.nn.SiLU())\n', "policy.model.activation", "swish", "module"),
    lines("an object in the config", 'main_config["policy"]["learn"]["loss"] = object()\n', 'main_config["policy"]["learn"]["loss"] = "huber"\n', "policy.learn.loss", "object"),
    lines("a key that is no text", 'main_config["policy"]["learn"][1] = 2\n', "", "a key must be a non-empty str, got int 1"),
    key("an empty name of the experiment", "exp_name=", "exp_name=other", "exp_name", "is empty", "the run's folder"),
    lines("an experiment's name that is a number", "main_config['exp_name'] = 1\n", "main_config['exp_name'] = 'other'\n", "exp_name", "expected str, got int 1"),
)  # fmt: skip

NUMBERS = (
    key("n_sample=0", "policy.collect.n_sample=0", "policy.collect.n_sample=8", "policy.collect.n_sample", "is 0", "from 1 to 1e+07"),
    key("n_sample below 0", "policy.collect.n_sample=-8", "policy.collect.n_sample=8", "policy.collect.n_sample", "is -8", "from 1 to 1e+07"),
    key("n_episode=0", "policy.collect.n_episode=0 policy.collect.n_sample=None", "policy.collect.n_episode=2 policy.collect.n_sample=None create.collector.type=episode policy.collect.collector.get_train_sample=True", "policy.collect.n_episode", "is 0", "from 1 to 1e+07"),
    key("learning rate below 0", "policy.learn.learning_rate=-1", "policy.learn.learning_rate=0.001", "policy.learn.learning_rate", "is -1.0", "above 0"),
    key("learning rate 0", "policy.learn.learning_rate=0", "policy.learn.learning_rate=0.001", "policy.learn.learning_rate", "is 0.0", "above 0"),
    key("learning rate nan", "policy.learn.learning_rate=nan", "policy.learn.learning_rate=0.001", "policy.learn.learning_rate", "nan", "above 0"),
    key("learning rate infinite", "policy.learn.learning_rate=inf", "policy.learn.learning_rate=0.001", "policy.learn.learning_rate", "inf", "above 0"),
    key("discount factor above 1", "policy.discount_factor=1.7", "policy.discount_factor=0.97", "policy.discount_factor", "is 1.7", "from 0 to 1"),
    key("discount factor below 0", "policy.discount_factor=-0.1", "policy.discount_factor=0.97", "policy.discount_factor", "is -0.1", "from 0 to 1"),
    key("update_per_collect=0", "policy.learn.update_per_collect=0", "policy.learn.update_per_collect=1", "policy.learn.update_per_collect", "is 0", "from 1 to"),
    key("batch_size=0", "policy.learn.batch_size=0", "policy.learn.batch_size=8", "policy.learn.batch_size", "is 0", "1 or more"),
    key("nstep of more steps than the run", "policy.nstep=5000 --env-step 1000", "policy.nstep=5 --env-step 16", "policy.nstep", "5,000", "1,000 env steps", "1 to 1,000"),
    key("an update_per_collect without an end", "policy.learn.update_per_collect=1000000000", "policy.learn.update_per_collect=1", "policy.learn.update_per_collect", "1000000000", "from 1 to 1e+06"),
    key("nstep=0", "policy.nstep=0", "policy.nstep=1", "policy.nstep", "is 0", "1 or more"),
    key("target_update_freq=0", "policy.learn.target_update_freq=0", "policy.learn.target_update_freq=100", "target_update_freq", "is 0", "1 or more"),
    key("eps above 1", "policy.other.eps.start=1.5", "policy.other.eps.start=1.0", "policy.other.eps.start", "is 1.5", "from 0 to 1"),
    key("eps below 0", "policy.other.eps.end=-0.1", "policy.other.eps.end=0.1", "policy.other.eps.end", "is -0.1", "from 0 to 1"),
    key("eps without decay", "policy.other.eps.decay=0", "policy.other.eps.decay=1000", "policy.other.eps.decay", "is 0", "1 or more"),
    key("a buffer smaller than a batch", "policy.other.replay_buffer.replay_buffer_size=4", "policy.other.replay_buffer.replay_buffer_size=8", "policy.other.replay_buffer.replay_buffer_size", "is 4", "policy.learn.batch_size", "8"),
    key("a buffer larger than memory", "policy.other.replay_buffer.replay_buffer_size=1000000000000", "policy.other.replay_buffer.replay_buffer_size=100", "policy.other.replay_buffer.replay_buffer_size is 1,000,000,000,000", "GiB are available: give", "or fewer"),
    key("layers larger than memory", "policy.model.encoder_hidden_size_list=[10000000,10000000]", "policy.model.encoder_hidden_size_list=[64,64]", "policy.model.encoder_hidden_size_list", "GiB are available", "smaller widths"),
    key("a layer that cannot be allocated", "policy.model.head_hidden_size=1000000000000", "policy.model.head_hidden_size=64", "does not fit into memory", "give smaller sizes; the largest is policy.model.head_hidden_size=1000000000000"),
    key("a buffer of no rows", "policy.other.replay_buffer.replay_buffer_size=0", "policy.other.replay_buffer.replay_buffer_size=100", "policy.other.replay_buffer.replay_buffer_size", "is 0", "1 or more"),
    key("fewer than no random steps", "policy.random_collect_size=-1", "policy.random_collect_size=0", "policy.random_collect_size", "is -1", "0 or more"),
    key("a gradient norm below 0", "policy.learn.grad_clip_norm=-1", "policy.learn.grad_clip_norm=1", "policy.learn.grad_clip_norm", "is -1", "above 0"),
    key("no collecting env", "env.collector_env_num=0", "env.collector_env_num=1", "env.collector_env_num", "is 0", "from 1 to 1e+06"),
    key("no evaluating env", "env.evaluator_env_num=0", "env.evaluator_env_num=1", "env.evaluator_env_num", "is 0", "from 1 to 1e+06"),
    key("no evaluation episode", "env.n_evaluator_episode=0", "env.n_evaluator_episode=1", "env.n_evaluator_episode", "is 0", "from 1 to 1e+06"),
    key("fewer evaluation episodes than envs", "env.evaluator_env_num=3 env.n_evaluator_episode=2", "env.evaluator_env_num=3 env.n_evaluator_episode=3", "2 episodes for evaluator_env_num=3 envs", "at least one episode an env"),
    key("eval_freq=0", "policy.eval.evaluator.eval_freq=0", "policy.eval.evaluator.eval_freq=10", "eval_freq", "is 0", "1 or more"),
    key("checkpoints every 0 updates", "policy.learn.learner.hook.save_ckpt_after_iter=-1", "policy.learn.learner.hook.save_ckpt_after_iter=10", "save_ckpt_after_iter", "is -1", "or more"),
    key("points every -1 s", "resume.save_every_s=-1", "resume.save_every_s=60", "resume.save_every_s", "is -1", "or more"),
    key("keep no points", "resume.keep=0", "resume.keep=1", "resume.keep", "is 0", "1 or more"),
    key("a time limit of 0 s", "env.manager.step_timeout_s=0", "env.manager.step_timeout_s=60", "step_timeout_s", "is 0", "above 0"),
    key("an episode of no steps", "env.max_episode_steps=0", "env.max_episode_steps=20", "env.max_episode_steps", "is 0", "1 or more"),
    key("a stop value nan", "env.stop_value=nan", "env.stop_value=475", "env.stop_value", "nan"),
    key("a clip ratio below 0", "policy.learn.clip_ratio=-0.2", "policy.learn.clip_ratio=0.2", "policy.learn.clip_ratio", "is -0.2", "above 0", config=PPO, base=ONPOLICY),
    key("gae_lambda above 1", "policy.collect.gae_lambda=2", "policy.collect.gae_lambda=0.95", "policy.collect.gae_lambda", "is 2.0", "from 0 to 1", config=PPO, base=ONPOLICY),
    key("an epoch_per_collect without an end", "policy.learn.epoch_per_collect=1000000000", "policy.learn.epoch_per_collect=1", "policy.learn.epoch_per_collect", "1000000000", "from 1 to 1e+06", config=PPO, base=ONPOLICY),
    key("no epoch", "policy.learn.epoch_per_collect=0", "policy.learn.epoch_per_collect=1", "policy.learn.epoch_per_collect", "is 0", "from 1 to", config=PPO, base=ONPOLICY),
    key("a target that moves by more than itself", "policy.learn.target_theta=1.5", "policy.learn.target_theta=0.005 policy.random_collect_size=8", "policy.learn.target_theta", "is 1.5", "1", config=SAC),
    key("priorities to the power -1", "policy.other.replay_buffer.alpha=-1", "policy.other.replay_buffer.alpha=0.6", "policy.other.replay_buffer.alpha", "is -1", "0 or more", config='create_config["replay_buffer"] = dict(type="advanced")\n'),
    key("a seed below 0 in the config", "seed=-1", "seed=1", "seed", "is -1", "0 or more"),
    key("fewer than no collecting workers", "system.ray.collect.workers=-1", "system.ray.collect.workers=1 --dry-run", "system.ray.collect.workers", "is -1", "0 or more", base="ding -m ray -c my_config.py"),
    key("a port that there is not", "system.seed.port=70000", "system.seed.port=7000 system.seed.transport=tcp --dry-run", "system.seed.port", "70000", "65535", base="ding -m seed -c my_config.py"),
)  # fmt: skip

CLASSES = (
    key("an unknown policy", "create.policy.type=dqnn", "create.policy.type=dqn", "unknown policy 'dqnn'", "did you mean", "'dqn'"),
    key("an unknown env type", "create.env.type=gymnasum", "create.env.type=gymnasium", "gymnasum", "did you mean 'gymnasium'"),
    key("a policy of one's own that is not imported", "create.policy.type=my_policy_x", "create.policy.type=dqn", "unknown policy 'my_policy_x'", "import_names"),
    key("an env of one's own that is not imported", "create.env.type=my_env_x", "create.env.type=gymnasium", "my_env_x", "import_names", "module:Class"),
    key("an unknown env manager", "env.manager.type=subproces", "env.manager.type=subprocess", "  env.manager.type", "did you mean 'subprocess'", "(override env.manager.type=subproces)"),
    lines("an env of dizoo without its module", 'create_config["env"] = dict(type="cartpole")\n', 'create_config["env"] = dict(type="cartpole", import_names=["dizoo.classic_control.cartpole.envs.cartpole_env"])\n', "import_names=['dizoo.classic_control.cartpole.envs.cartpole_env']"),
    key("an unknown buffer", "create.replay_buffer.type=naiv", "create.replay_buffer.type=naive", "naiv", "did you mean 'naive'"),
    key("an unknown collector", "create.collector.type=sampel", "create.collector.type=sample", "sampel", "did you mean 'sample'"),
    lines("an unknown section of create_config", 'create_config["polcy"] = dict(type="dqn")\n', "", "create_config.polcy", "unknown section", "did you mean 'policy'"),
    lines("a name in place of dict(type=...)", 'create_config["policy"] = "dqn"\n', 'create_config["policy"] = dict(type="dqn")\n', "create_config.policy", "expected dict(type=...)", "str 'dqn'"),
    lines("no policy is named", 'del create_config["policy"]\n', 'create_config["policy"] = dict(type="dqn")\n', "create_config.policy.type", "is missing", "policy=dict(type='...')"),
    lines("no env is named", 'del create_config["env"]\n', 'create_config["env"] = dict(type="gymnasium")\n', "create_config.env.type", "is missing", "env=dict(type='...')"),
    lines("create_config is main_config", "create_config = main_config\n", "", "create_config", "main_config", "dict(type="),
    lines("import_names of a module that is not there", 'create_config["policy"]["import_names"] = ["my_polcy"]\n', 'create_config["policy"]["import_names"] = []\n', "import_names", "my_polcy"),
    Case("an on-policy policy in mode serial", SERIAL, ("policy 'ppo' is on-policy", "ding -m serial_onpolicy"), ONPOLICY, config=PPO),
    Case("an off-policy policy in mode serial_onpolicy", ONPOLICY, ("policy 'dqn' is off-policy", "ding -m serial"), SERIAL),
    key("continuous actions for DQN", "env.env_id=Pendulum-v1", "env.env_id=Pendulum-v1 create.policy.type=sac policy.random_collect_size=8", "dqn", "Box", "sac"),
    key("choices for SAC", "env.env_id=CartPole-v1", "env.env_id=Pendulum-v1 policy.random_collect_size=8", "sac", "Discrete", "dqn", config=SAC),
    key("a GPU where there is none", "policy.cuda=True", "policy.cuda=False", "policy.cuda", "no GPU", "False"),
    key("priorities' weights without priorities", "policy.priority_IS_weight=True", "policy.priority_IS_weight=True policy.priority=True", "priority_IS_weight", "needs priority=True"),
)  # fmt: skip

# --- config files: missing, torn, no Python, in another encoding, without what is needed


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

# --- command lines: modes, options, sub-commands

CKPT = "my_exp/ckpt/ckpt_best.pth.tar"
EVAL = "ding -m eval -c my_config.py"

START = (
    Case("no mode", "ding -c my_config.py", ("no mode given", "ding -m serial -c CONFIG"), SERIAL),
    Case("a mode misspelt", "ding -m seriall -c my_config.py", ("unknown mode 'seriall'", "Did you mean 'serial'?"), SERIAL),
    Case("no config", "ding -m serial", ("no config given", "-c FILE", "-e ENV -p POLICY"), SERIAL),
    Case("an env without a policy", "ding -m serial -e cartpole", ("no config given", "-e ENV -p POLICY"), "ding -m serial -e cartpole -p dqn env.evaluator_env_num=1 env.n_evaluator_episode=1"),
    Case("no such shipped config", "ding -m serial -e cartpole -p dqnn", ("no shipped config", "cartpole_dqn"), "ding -m serial -e cartpole -p dqn env.evaluator_env_num=1 env.n_evaluator_episode=1"),
    Case("an option misspelt", f"{SERIAL} --envstep 100", ("No such option", "--env-step"), f"{SERIAL} --env-step 100", status=2),
    Case("an option without its value", f"{SERIAL} --env-step", ("--env-step", "requires an argument"), f"{SERIAL} --env-step 100", status=2),
    Case("a command that is not", "ding train -c my_config.py", ("'train' is neither a sub-command", "KEY=VALUE"), SERIAL),
    Case("a key without a value", f"{SERIAL} policy.learn.batch_size", ("'policy.learn.batch_size' is neither", "KEY=VALUE"), f"{SERIAL} policy.learn.batch_size=16"),
    Case("a key with an empty part", f"{SERIAL} policy..batch_size=16", ("policy..batch_size=16", "is not an override", "path.to.key=value"), f"{SERIAL} policy.learn.batch_size=16"),
    Case("an option for a key", f"{SERIAL} --policy.learn.batch_size=16", ("No such option", "policy.learn.batch_size"), f"{SERIAL} policy.learn.batch_size=16", status=2),
    Case("env steps below 0", f"{SERIAL} --env-step -5", ("--env-step", "-5", "1 or more"), f"{SERIAL} --env-step 20"),
    Case("no env step", f"{SERIAL} --env-step 0", ("--env-step", "0", "1 or more"), f"{SERIAL} --env-step 20"),
    Case("env steps nan", f"{SERIAL} --env-step nan", ("--env-step", "nan", "1 or more"), f"{SERIAL} --env-step 20"),
    Case("env steps that are no number", f"{SERIAL} --env-step many", ("--env-step", "many"), f"{SERIAL} --env-step 20", status=2),
    Case("updates below 0", f"{SERIAL} --train-iter -1", ("--train-iter", "-1", "1 or more"), f"{SERIAL} --train-iter 2"),
    Case("a seed below 0", f"{SERIAL} -s -1", ("-1", "0 or more"), f"{SERIAL} -s 1"),
    Case("a seed that is no number", f"{SERIAL} -s x", ("-s x", "whole number", "0..4"), f"{SERIAL} -s 1"),
    Case("no learners", f"{SERIAL} --learners 0", ("--learners", "0", "1 or more"), f"{SERIAL} --learners 1"),
    Case("workers outside of mode ray", f"{SERIAL} --workers 2", ("--workers is of mode ray, not of mode serial",), SERIAL),
    Case("a dry run of an evaluation", "ding -m eval -c my_config.py --dry-run", ("--dry-run is of modes serial,", "not of mode eval"), f"{SERIAL} --dry-run"),
    Case("-M of another mode", "ding -m dist -M actor -c my_config.py", ("-M actor is not of mode dist", "coordinator, collector, learner"), SERIAL),
    Case("learners of mode ray", "ding -m ray -c my_config.py --learners 2", ("not of mode ray: system.ray.grad.workers=N", "system.ray.grad.workers"), "ding -m ray -c my_config.py system.ray.grad.workers=2 --dry-run"),
    Case("nothing to be in mode dist", "ding -m dist -c my_config.py", ("mode dist needs to know what to be", "-M coordinator"), "ding -m dist --help"),
    Case("a collector without a coordinator", "ding -m dist -M collector -c my_config.py", ("--coordinator URL",), "ding -m dist --help"),
    Case("a coordinator's address without http://", "ding -m dist -M collector -c my_config.py --coordinator localhost:7311 --retry-s 1", ("localhost:7311", "http://localhost:7311"), "ding -m dist --help"),
    Case("a port that is not", "ding -m dist -M coordinator -c my_config.py --port 99999", ("--port is 99999", "from 0 to 65535"), "ding -m dist --help"),
    Case("half of what joins a run of mode seed", "ding -m seed -M actor -c my_config.py", ("to join a run give both", "--address HOST:PORT"), "ding -m seed -c my_config.py --dry-run"),
    Case("a key file that is not there", "ding -m dist -M coordinator -c my_config.py --key-file nothing.json", ("nothing.json", "ding keys"), "ding keys nothing.json"),
    Case("a file for a folder", f"{SERIAL} --exp-name notes.txt", ("'notes.txt' is a file here", "give another name"), f"{SERIAL} --exp-name other", files={"notes.txt": "my notes\n"}),
    Case("no registry of that name", "ding -q polisy", ("no registry 'polisy'", "Did you mean 'policy'?"), "ding -q policy", shows="dqn"),
)  # fmt: skip

AFTER = (
    Case("eval without a checkpoint", EVAL, ("mode eval needs a checkpoint", "--load-path"), f"{EVAL} --load-path {CKPT}", needs_run=True, shows="mean return"),
    Case("eval of a checkpoint that is not there", f"{EVAL} --load-path my_exp/ckpt/ckpt_bst.pth.tar", ("ckpt_bst.pth.tar", "ckpt_best.pth.tar"), f"{EVAL} --load-path {CKPT}", needs_run=True, shows="mean return"),
    Case("eval of a file that is no checkpoint", f"{EVAL} --load-path notes.txt", ("notes.txt is not a file of torch.save", "ckpt/ckpt_best.pth.tar"), f"{EVAL} --load-path {CKPT}", needs_run=True, files={"notes.txt": "my notes\n"}),
    Case("eval of a torn checkpoint", f"{EVAL} --load-path torn.pth.tar", ("torn.pth.tar is torn or damaged", "copy it again, or take an older one"), f"{EVAL} --load-path {CKPT}", needs_run=True, files={"torn.pth.tar": b"PK\x03\x04 torn"}),
    Case("eval of another network's checkpoint", f"{EVAL} --load-path {CKPT} policy.model.encoder_hidden_size_list=[16]", ("the checkpoint was saved by another model", "Give policy.model the values it was trained with"), f"{EVAL} --load-path {CKPT}", needs_run=True),
    Case("eval of a folder", f"{EVAL} --load-path my_exp", ("my_exp is a folder", "give a file in it, such as my_exp/ckpt/ckpt_best.pth.tar"), f"{EVAL} --load-path {CKPT}", needs_run=True),
    Case("start from another env's checkpoint", f"{SERIAL} --load-path {CKPT} env.env_id=Acrobot-v1", ("of another shape", "trained on an env with other observations or actions"), f"{SERIAL} --load-path {CKPT}", needs_run=True),
    Case("plot of nothing", "ding plot", ("Missing argument", "EXP"), "ding plot my_exp", status=2, needs_run=True),
    Case("plot of a folder that is not there", "ding plot my_ex", ("no experiment folder 'my_ex'", "There are: my_exp"), "ding plot my_exp", needs_run=True),
    Case("plot of a file", "ding plot my_config.py", ("no experiment folder 'my_config.py'", "There are: my_exp"), "ding plot my_exp", needs_run=True),
    Case("plot of a folder without a run", "ding plot empty", ("'empty' holds no metrics.jsonl", "There are: my_exp"), "ding plot my_exp", needs_run=True, files={"empty/notes.txt": ""}),
    Case("plot into a format that is not", "ding plot my_exp --out curve.doc", (".doc", ".png"), "ding plot my_exp --out curve.png", needs_run=True),
    Case("enjoy of nothing", "ding enjoy my_ex", ("'my_ex' is not an experiment folder",), "ding enjoy my_exp", needs_run=True),
    Case("enjoy of a checkpoint that is not there", "ding enjoy my_exp --ckpt bst", ("no checkpoint 'bst'", "--ckpt takes"), "ding enjoy my_exp --ckpt best", needs_run=True),
    Case("export into the other kind of file", "ding export my_exp --to torchscript -o x.onnx", ("suffix of onnx", "-o x.pt"), "ding export my_exp --to torchscript -o x.pt", needs_run=True),
    Case("enjoy of no episode", "ding enjoy my_exp -n 0", ("'0' is not a whole number from 1",), "ding enjoy my_exp -n 1", status=2, needs_run=True),
    Case("serve of nothing", "ding serve my_ex", ("no folder 'my_ex'", "give the folder of a run"), "ding serve --help"),
    Case("serve on a port that is not", "ding serve my_exp --port 99999", ("99999", "65535"), "ding serve --help", status=2, needs_run=True),
    Case("serve to the world without a token", "ding serve my_exp --host 0.0.0.0", ("0.0.0.0", "--token-file"), "ding serve --help", needs_run=True),
    Case("serve of a checkpoint that is not there", "ding serve my_exp --checkpoint bst", ("no checkpoint 'bst'", "--checkpoint takes best"), "ding serve --help", needs_run=True),
    Case("resume of nothing", "ding --resume my_ex", ("'my_ex' is not an experiment folder",), SERIAL),
    Case("resume with another setting", "ding --resume my_exp policy.learn.batch_size=16", ("--resume takes the run's own config", "--load-path"), f"{SERIAL} --load-path {CKPT} policy.learn.batch_size=16 --exp-name other", needs_run=True),
    Case("resume with workers of mode ray", "ding --resume my_exp --workers 2", ("my_exp is a run of mode serial", "--workers"), "ding --resume my_exp --env-step 40", needs_run=True),
    Case("check-env of an id that is not", "ding check-env CartPoll-v1", ("CartPoll-v1", "CartPole-v1"), "ding check-env CartPole-v1 --steps 50", shows="no fault"),
    Case("check-env of a type that is not", "ding check-env cartpoll_x", ("cartpoll_x", "module:Class"), "ding check-env CartPole-v1 --steps 50", shows="no fault"),
    Case("check-env with an argument without value", "ding check-env CartPole-v1 render", ("'render' is not an argument of the env", "KEY=VALUE"), "ding check-env CartPole-v1 render_mode=rgb_array --steps 50", shows="no fault"),
    Case("check-env with an argument that the env does not take", "ding check-env CartPole-v1 size=8", ("cannot be made with env.kwargs {'size': 8}", "unexpected keyword argument 'size'"), "ding check-env CartPole-v1 --steps 50", shows="no fault"),
    Case("keys over keys", "ding keys my_keys.json", ("'my_keys.json' is there already", "another name"), "ding keys other_keys.json", files={"my_keys.json": "{}"}),
    Case("clients without --curve", "ding keys new_keys.json --client w1", ("--client and --remove are about CURVE keys", "add --curve"), "ding keys new_keys.json --curve --client w1"),
)  # fmt: skip

# --- several seeds, comparisons and reports

DRY = "ding -m ray -c my_config.py --dry-run"

SEEDS = (
    Case("a range of seeds backwards", f"{SERIAL} -s 4..0", ("-s 4..0 is an empty range", "Did you mean 0..4?"), f"{SERIAL} -s 0..0"),
    Case("a range without its end", f"{SERIAL} -s 0..", ("-s 0.. names no seeds", "0..4"), f"{SERIAL} -s 0..0"),
    Case("a seed twice", f"{SERIAL} -s 0..1 -s 1", ("seed 1 is given 2 times", "once"), f"{SERIAL} -s 0"),
    Case("too many seeds", f"{SERIAL} -s 0..99999", ("100,000 seeds", "at most 10,000"), f"{SERIAL} -s 0"),
    Case("jobs for one seed", f"{SERIAL} -s 0 -j 2", ("-j 2 is of several seeds", "-s 0..4 -j 2"), f"{SERIAL} -s 0"),
    Case("no jobs", f"{SERIAL} -s 0..1 -j 0", ("--jobs is 0", "1 or more"), f"{SERIAL} -s 0"),
    Case("several seeds in a dry run", f"{DRY} -s 0..2", ("3 seeds are given", "--dry-run is of one", "give one -s"), f"{DRY} -s 0"),
    Case("jobs of a mode with processes of its own", "ding -m ray -c my_config.py -s 0..1 -j 2", ("-j 2 is of modes serial", "Leave -j out"), DRY),
    Case("jobs for a run that is resumed", "ding --resume my_exp -j 2", ("-j is of experiments of several seeds",), "ding --resume my_exp", needs_run=True),
)  # fmt: skip

COMPARISONS = (
    Case("compare one", "ding compare my_exp", ("only 'my_exp' to compare", "ding compare A B"), "ding plot my_exp", needs_run=True),
    Case("compare with a folder that is not there", "ding compare my_exp my_ex", ("no experiment folder 'my_ex'", "my_exp"), "ding plot my_exp", needs_run=True),
    Case("compare into a format that is not", "ding compare my_exp other --out c.pdf", ("as .png, not as 'c.pdf'", "--out c.png"), "ding plot my_exp", needs_run=True),
    Case("report of a folder that is not there", "ding report my_ex", ("no experiment folder 'my_ex'", "my_exp"), "ding report my_exp", needs_run=True),
    Case("report of a folder without a run", "ding report empty", ("'empty' holds no metrics.jsonl",), "ding report my_exp", needs_run=True, files={"empty/notes.txt": ""}),
    Case("report as another kind of file", "ding report my_exp -o r.pdf", (".html file, not 'r.pdf'", "--out r.html"), "ding report my_exp -o r.html", needs_run=True),
    Case("report of two", "ding report my_exp my_exp", ("unexpected extra argument",), "ding report my_exp", needs_run=True, status=2),
)  # fmt: skip

# --- envs: ids, extras, wrappers, and env classes of one's own with a fault in them

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

# --- calls from Python: pipelines with wrong objects, policies and models of one's own

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
WITH_MY_POLICY = 'create_config["policy"] = dict(type="my_dqn_w", import_names=["my_policy_w"])\n'

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

OWN_PARTS = (
    Case("a model of one's own with a key that it does not take", f"{SERIAL} policy.model.type=my_models:MyModel policy.model.widht=8", ("policy.model.widht", "width"), SERIAL, files={"my_models.py": MODEL}),
    Case("a policy of one's own that is not registered", SERIAL, ("my_dqn_w", "register"), SERIAL, config=WITH_MY_POLICY, files={"my_policy_w.py": POLICY.replace('@POLICY_REGISTRY.register("my_dqn_w")\n', "")}, fixed_files={"my_policy_w.py": POLICY}),
    Case("a policy of one's own whose base is not there", SERIAL, ("my_policy_w", "DQNPolicyy"), SERIAL, config=WITH_MY_POLICY, files={"my_policy_w.py": POLICY.replace("DQNPolicy", "DQNPolicyy")}, fixed_files={"my_policy_w.py": POLICY}),
    Case("a policy of one's own with an error in it", SERIAL, ("my_policy_w.py", "NameError", "gamma"), SERIAL, config=WITH_MY_POLICY, files={"my_policy_w.py": POLICY + "\n    def _init_learn(self):\n        super()._init_learn()\n        self._rate = gamma\n"}, fixed_files={"my_policy_w.py": POLICY}),
    Case("a policy of one's own without apply", SERIAL, ("(MyPolicy) has no grad() and no apply()", "docs/own_algorithm.md"), SERIAL, config=WITH_MY_POLICY.replace("my_dqn_w", "my_bare_w"), files={"my_policy_w.py": "from ding_like.policy import Policy\nfrom ding_like.utils.registries import POLICY_REGISTRY\n\n\n@POLICY_REGISTRY.register(\"my_bare_w\")\nclass MyPolicy(Policy):\n    config = dict(type=\"my_bare_w\")\n\n    def default_model(self):\n        return \"dqn\", []\n"}, fixed_files={"my_policy_w.py": POLICY.replace("my_dqn_w", "my_bare_w")}),
)  # fmt: skip

# --- use of what was trained: load, export, train

LOAD = 'import ding_like\n\nagent = ding_like.load("my_exp")\n'
ACT = "import numpy as np\n\nprint(agent.act(np.zeros(4, np.float32)))\n"
TRAIN = 'import ding_like\n\nding_like.train("dqn", "CartPole-v1", env_step=20, exp_name="two_lines")\n'

USE = (
    Case("load of a folder that is not there", 'import ding_like\n\nding_like.load("my_ex")\n', ("no folder 'my_ex'", "give the folder of a run"), LOAD + ACT, needs_run=True),
    Case("an observation of another shape", LOAD + ACT.replace("zeros(4", "zeros(5"), ("shape (5,)", "expected shape (4,)"), LOAD + ACT, needs_run=True),
    Case("export of a folder that is not there", "ding export my_ex --to torchscript", ("no folder 'my_ex'", "give the folder of a run"), "ding export my_exp --to torchscript", needs_run=True),
    Case("export to a format that is not", "ding export my_exp --to tensorflow", ("tensorflow", "torchscript", "onnx"), "ding export my_exp --to torchscript", needs_run=True, status=2),
    Case("train with a policy that is not", TRAIN.replace('"dqn"', '"dqnn"'), ("unknown policy 'dqnn'", "did you mean 'dqn'"), TRAIN),
    Case("train in an env that is not", TRAIN.replace("CartPole-v1", "CartPoll-v1"), ("CartPoll-v1", "CartPole-v1"), TRAIN),
    Case("train for less than no steps", TRAIN.replace("env_step=20", "env_step=-5"), ("env_step is -5", "a number from 1"), TRAIN),
    Case("train with a setting misspelt", TRAIN.replace("env_step=20", 'env_step=20, policy=dict(learn=dict(batchsize=8))'), ("policy.learn.batchsize", "did you mean 'batch_size'"), TRAIN),
)  # fmt: skip

# --- studies, trackers and metrics of envs

TUNE = "ding tune -c my_config.py --env-step 20"
RIGHT = "ding tune --help"

STUDIES = (
    Case("a study of nothing", TUNE, ("a study needs something to vary", "--param policy.learn.learning_rate=log:1e-5..1e-2"), RIGHT),
    Case("a study without a budget", "ding tune -c my_config.py --param policy.nstep=int:1..3", ("--env-step N", "--train-iter N"), RIGHT),
    Case("a study of an unknown key", f"{TUNE} --param policy.learn.learning_rat=log:1e-4..1e-2", ("policy.learn.learning_rat", "did you mean 'learning_rate'"), RIGHT),
    Case("a range of a key that takes none", f"{TUNE} --param policy.nstep=0.5..1.5", ("policy.nstep", "expected int"), RIGHT),
    Case("a range out of bounds", f"{TUNE} --param policy.learn.learning_rate=float:-1..1", ("policy.learn.learning_rate", "above 0"), RIGHT),
    Case("a range that is none", f"{TUNE} --param policy.nstep=1", ("'1' is no range", "int:LOW..HIGH"), RIGHT),
    Case("a range of an unknown kind", f"{TUNE} --param policy.nstep=integer:1..5", ("unknown kind of range 'integer'", "int:LOW..HIGH"), RIGHT),
    Case("a range upside down", f"{TUNE} --param policy.nstep=int:5..1", ("give the smaller number first",), RIGHT),
    Case("a key both set and varied", f"{TUNE} --param policy.nstep=int:1..3 policy.nstep=2", ("policy.nstep", "both set and varied"), RIGHT),
    Case("no trials", f"{TUNE} --param policy.nstep=int:1..3 --trials 0", ("--trials is 0", "from 1"), RIGHT),
    Case("no study to go on with", "ding tune --resume my_exp", ("'my_exp' is no folder of a study", "study.json"), RIGHT),
)  # fmt: skip

TRACKERS = (
    Case("an unknown tracker", f"{SERIAL} trackers.wanb.project=x", ("trackers.wanb", "wandb"), SERIAL),
    Case("an unknown key of a tracker", f"{SERIAL} trackers.wandb.projct=x", ("trackers.wandb.projct", "did you mean 'project'"), SERIAL),
    Case("a mode that a tracker does not have", f"{SERIAL} trackers.wandb.mode=off", ("trackers.wandb.mode", "'online' or 'offline'"), SERIAL),
    Case("a tracker that is no section", f"{SERIAL} trackers.wandb=True", ("trackers.wandb", "expected"), SERIAL),
    Case("a metric that every report has", f"{SERIAL} \"env.metrics=['reward_mean']\"", ("'reward_mean', which every report has already",), SERIAL),
    Case("a metric that a run has not", "ding plot my_exp --metric is_sucess", ("no metric 'is_sucess'", "reward_mean"), "ding plot my_exp --metric reward_max", needs_run=True),
)  # fmt: skip

SECTIONS: Mapping[str, tuple[Case, ...]] = {
    "Keys and values of a config": KEYS,
    "Numbers out of range": NUMBERS,
    "Names of policies, envs and other classes": CLASSES,
    "Config files": FILES,
    "The command line": START,
    "Commands for what a run left": AFTER,
    "Several seeds": SEEDS,
    "Comparisons and reports": COMPARISONS,
    "Ids of envs, and packages that are not installed": IDS,
    "Wrappers": WRAPPERS,
    "An env of one's own": OWN,
    "Calls from Python": CALLS,
    "A policy or a model of one's own": OWN_PARTS,
    "Use of what was trained": USE,
    "Studies": STUDIES,
    "Trackers, and metrics of an env": TRACKERS,
}
CASES = [case for section in SECTIONS.values() for case in section]
