#!/bin/sh
# Train as ranks of torch.distributed: rank 0 learns, all others collect. No port of ours is opened, and no Ray runs.
#
#   torchrun.sh CONFIG RANKS            on this machine
#   srun --ntasks 5 torchrun.sh CONFIG  in a Slurm job: each task is a rank
#
# DING_ARGS="-s 1": more arguments for all ranks. MASTER_ADDR and MASTER_PORT: rank 0 of several machines, with
# NODES="--nnodes 2 --node-rank 1" on each.
set -eu
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
config=$1 args=${DING_ARGS:-} where=--standalone
[ -z "${SLURM_PROCID:-}" ] || exec ding -m ranks -c "$config" $args
[ -z "${MASTER_ADDR:-}" ] || where="--master-addr $MASTER_ADDR --master-port ${MASTER_PORT:-29500}"
exec torchrun $where ${NODES:-} --nproc-per-node "${2:-2}" -m ding_like.entry.cli -m ranks -c "$config" $args
