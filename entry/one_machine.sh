#!/bin/sh
# Train on this machine, and resume the run where it fails: a crash, a killed process, a full disk.
#
#   one_machine.sh CONFIG FOLDER [MODE]
#
# FOLDER is the run's, MODE serial (default), serial_onpolicy, parallel, ray, seed or ranks. A run that is interrupted, or
# that was started before, goes on from its newest checkpoint. DING_ARGS="-s 1 --workers 4": more arguments for the start.
# DING_TRIES: how often a run that fails is resumed (default: 3).
set -eu
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
config=$1 folder=$2 mode=${3:-serial} args=${DING_ARGS:-} tries=0 status=0
if [ -e "$folder" ]; then
    ding --resume "$folder" || status=$?
else
    ding -m "$mode" -c "$config" --exp-name "$folder" $args || status=$?
fi
# Ctrl-C (130) and SIGTERM (143) end it for good; kill -9 (137) and errors do not.
while [ $status -ne 0 ] && [ $status -ne 130 ] && [ $status -ne 143 ] && [ -e "$folder" ]; do
    tries=$((tries + 1))
    [ $tries -le "${DING_TRIES:-3}" ] || break
    echo "one_machine.sh: status $status, resuming $folder ($tries)" >&2
    status=0
    ding --resume "$folder" || status=$?
done
exit $status
