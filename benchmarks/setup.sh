#!/usr/bin/env bash
# Make the peers' virtual environment in $BENCH_VENVS (by default ~/.cache/ding_bench); again only if this file changed.
set -euo pipefail
folder=${BENCH_VENVS:-$HOME/.cache/ding_bench}/peers
here=$(cd "$(dirname "$0")" && pwd)
cmp -s "$0" "$folder/ready" && exit 0
[ -d "$folder" ] || python3 -m venv "$folder"
"$folder/bin/pip" install -q -c "$here/../constraints.txt" \
  torch numpy 'gymnasium[classic-control]' 'stable-baselines3>=2.9' 'sb3-contrib>=2.9' 'tianshou>=2.0.1' 'cpprb>=11'
cp "$0" "$folder/ready"
