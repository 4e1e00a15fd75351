#!/bin/sh
# Train as one Slurm job: the first task is the coordinator, the second the learner, all others are collectors.
#
#   sbatch --ntasks=6 --cpus-per-task=1 slurm.sh CONFIG [PORT]
#
# The nodes share the folder that the job is submitted from, and `ding` is in the PATH. DING_ARGS="-s 1": more arguments for
# all tasks. Each task writes ding-MODULE-TASK.txt. Where no port may be opened: torchrun.sh, under srun.
set -eu
[ $# -ge 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
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
[ $module = coordinator ] || key=${key%.json}.$module.json # the key of its own role alone
exec ding -m dist -M $module -c "$config" --key-file "$key" $args $where > "ding-$module-$SLURM_PROCID.txt" 2>&1
