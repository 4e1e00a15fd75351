#!/usr/bin/env bash
# Make the peers' virtual environments in $BENCH_VENVS (by default ~/.cache/ding_bench), each again only if what is in
# it has changed here. One name as argument makes that one alone.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

make_venv() {
  local name=$1 folder=${BENCH_VENVS:-$HOME/.cache/ding_bench}/$1
  shift
  [ -z "$only" ] || [ "$only" = "$name" ] || return 0
  [ "$(cat "$folder/ready" 2>/dev/null)" != "$*" ] || return 0
  [ -d "$folder" ] || python3 -m venv "$folder"
  "$folder/bin/pip" install -q -c "$here/../constraints.txt" "$@"
  echo "$*" > "$folder/ready"
}

only=${1:-}
# ale-py and opencv are what SB3's Atari wrapper asks for, mujoco and imageio what gymnasium's MuJoCo envs do. The last line is what this package itself needs, so that its
# weight updater can stand beside TorchRL's in one process.
make_venv peers \
  torch numpy 'gymnasium[classic-control]' 'stable-baselines3>=2.9' 'sb3-contrib>=2.9' 'tianshou>=2.0.1' 'cpprb>=11' \
  'torchrl==0.14.1' 'tensordict>=0.14,<0.15' \
  'ale-py>=0.12.1' opencv-python-headless 'mujoco>=3.17,<4' imageio \
  easydict tensorboardX flask requests rich click waitress safetensors threadpoolctl
# RLlib wants a gymnasium of its own.
make_venv rllib torch 'ray[rllib]==2.60.0' 'gymnasium[classic-control]'
# The imitation package is pinned to an older gymnasium and SB3.
make_venv imitation torch 'imitation==1.0.1' 'gymnasium[classic-control]==0.29.1' 'stable-baselines3==2.2.1' 'numpy<2'
# d3rlpy is pinned to an older gymnasium.
make_venv d3rlpy torch 'd3rlpy==2.8.1' 'mujoco>=3.17,<4' imageio safetensors
