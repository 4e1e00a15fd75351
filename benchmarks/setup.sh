#!/usr/bin/env bash
# Make the peers' virtual environment in $BENCH_VENVS (by default ~/.cache/ding_bench); again only if this file changed.
set -euo pipefail
folder=${BENCH_VENVS:-$HOME/.cache/ding_bench}/peers
here=$(cd "$(dirname "$0")" && pwd)
cmp -s "$0" "$folder/ready" && exit 0
[ -d "$folder" ] || python3 -m venv "$folder"
# The last line is what this package itself needs, so that its weight updater can stand beside TorchRL's in one process.
"$folder/bin/pip" install -q -c "$here/../constraints.txt" \
  torch numpy 'gymnasium[classic-control]' 'stable-baselines3>=2.9' 'sb3-contrib>=2.9' 'tianshou>=2.0.1' 'cpprb>=11' \
  'torchrl==0.14.1' 'tensordict>=0.14,<0.15' \
  easydict tensorboardX flask requests rich click waitress safetensors threadpoolctl
cp "$0" "$folder/ready"
