#!/bin/sh
# Train on several hosts over ssh: a coordinator here, a learner and collectors there.
#
#   ssh.sh CONFIG PORT LEARNER_HOST COLLECTOR_HOST...
#
# Every host has this folder under the same path, and `ding` in the PATH of a login shell. MY_HOST is the name of this host
# for the others (default: hostname -f). DING_ARGS="-s 1": more arguments for all processes.
# Keys are made here. Each host gets a file with the key of its own role; workers end with the run, and with this script.
set -eu
[ $# -ge 4 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
config=$1 port=$2 here=$(pwd) host=${MY_HOST:-$(hostname -f)} args=${DING_ARGS:-} pids="" number=0
shift 2
keys=$here/ding-keys-$$.json
trap 'kill $pids 2> /dev/null || true; rm -f "$keys" "${keys%.json}".*.json' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
ding keys --per-role "$keys" > /dev/null
module=learner
for other in "$@"; do
    number=$((number + 1))
    key="$here/ding-key-$$-$number-$module.json" # not a name of a file here: the hosts may share this folder
    ssh "$other" "umask 077 && cat > '$key'" < "${keys%.json}.$module.json"
    # -tt: the worker gets SIGHUP when this ssh ends; its key file is deleted then.
    ssh -tt "$other" "trap \"rm -f '$key'\" EXIT; trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM; cd '$here' \
        && ding -m dist -M $module -c '$config' --coordinator 'http://$host:$port' --key-file '$key' --retry-s 120 $args" \
        > "ding-$module-$other.txt" 2>&1 < /dev/null &
    pids="$pids $!"
    module=collector
done
ding -m dist -M coordinator -c "$config" --host 0.0.0.0 --port "$port" --key-file "$keys" $args
