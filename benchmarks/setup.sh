#!/usr/bin/env bash
# Make the peers' virtual environment, once, in $BENCH_VENVS (by default ~/.cache/ding_bench).
set -euo pipefail
folder=${BENCH_VENVS:-$HOME/.cache/ding_bench}/peers
here=$(cd "$(dirname "$0")" && pwd)
[ -f "$folder/ready" ] && exit 0
python3 -m venv "$folder"
"$folder/bin/pip" install -q -c "$here/../constraints.txt" torch numpy 'gymnasium[classic-control]' 'stable-baselines3>=2.9'
touch "$folder/ready"
