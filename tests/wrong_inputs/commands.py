"""Command lines: modes, options, sub-commands."""

# ruff: noqa: E501 - a wrong input a line reads best

from __future__ import annotations

from tests.wrong_inputs.cases import SERIAL, Case

CKPT = "my_exp/ckpt/ckpt_best.pth.tar"
EVAL = "ding -m eval -c my_config.py"

START = (
    Case("no mode", "ding -c my_config.py", ("no mode given", "ding -m serial -c CONFIG"), SERIAL),
    Case("a mode misspelt", "ding -m seriall -c my_config.py", ("unknown mode 'seriall'", "Did you mean 'serial'?"), SERIAL),
    Case("a mode of DI-engine that is not here", "ding -m serial_gail -c my_config.py", ("'serial_gail' does not exist here yet", "serial"), SERIAL),
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
