"""Configs: keys, types, values, numbers out of range, names of classes."""

# ruff: noqa: E501 - a wrong input a line reads best

from __future__ import annotations

from tests.wrong_inputs.cases import ONPOLICY, SERIAL, Case, key, lines

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
