#!/bin/sh
# Train as one Slurm job: the first task is the coordinator, the second the learner, all others are collectors.
#
#   sbatch --ntasks=6 --cpus-per-task=1 slurm.sh CONFIG [PORT]
#
# The folder that the job is submitted from is shared by its nodes, and `ding` is in the PATH. More arguments for all parts:
# DING_ARGS="-s 1". Output of each part: ding-<module>-<task>.txt.
set -eu
if [ $# -lt 1 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 2
fi
config=$1 port=${2:-$((20000 + ${SLURM_JOB_ID:-0} % 20000))} args=${DING_ARGS:-}
if [ -z "${SLURM_PROCID:-}" ]; then # the batch script itself: make keys, then start all tasks
    keys=$(pwd)/ding-keys-${SLURM_JOB_ID:-$$}.json
    trap 'rm -f "$keys" "${keys%.json}".*.json' EXIT
    ding keys --per-role "$keys" > /dev/null
    first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    DING_KEYS=$keys DING_HOST=$first srun --kill-on-bad-exit=1 "$0" "$config" "$port"
    exit
fi
key=$DING_KEYS
case $SLURM_PROCID in
    0) module=coordinator where="--host 0.0.0.0 --port $port" ;;
    1) module=learner where="--coordinator http://$DING_HOST:$port --retry-s 120" ;;
    *) module=collector where="--coordinator http://$DING_HOST:$port --retry-s 120" ;;
esac
if [ $module != coordinator ]; then key=${key%.json}.$module.json; fi # its own role's key alone
common="-c $config --key-file $key $args"
# shellcheck disable=SC2086
exec ding -m dist -M $module $common $where > "ding-$module-$SLURM_PROCID.txt" 2>&1
