#!/bin/sh
# Train on several hosts over ssh: a coordinator here, a learner and collectors there.
#
#   ssh.sh CONFIG PORT LEARNER_HOST COLLECTOR_HOST...
#
# Every host has this folder under the same path, with CONFIG in it, and `ding` in the PATH of a login shell. MY_HOST is the
# name by which they reach this host (default: hostname -f). More arguments for all parts: DING_ARGS="-s 1".
# Keys are made here. Each host gets a file with the key of its own role alone, for as long as its worker runs; workers end
# when the run does, and with this script.
set -eu
if [ $# -lt 4 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
fi
config=$1 port=$2
shift 2
here=$(pwd) host=${MY_HOST:-$(hostname -f)} args=${DING_ARGS:-}
keys=$here/ding-keys-$$.json
pids="" number=0
stop() {
    for pid in $pids; do kill "$pid" 2> /dev/null || true; done
    rm -f "$keys" "${keys%.json}".*.json
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
ding keys --per-role "$keys" > /dev/null

join() { # host, module
    number=$((number + 1))
    # A name that none of the files here has: the folder may be the same one, shared by the hosts.
    key="$here/ding-key-$$-$number-$2.json"
    ssh "$1" "umask 077 && cat > '$key'" < "${keys%.json}.$2.json"
    # -tt: the worker gets SIGHUP when this ssh ends. The key file goes as soon as the worker has ended, however it did.
    ssh -tt "$1" "trap \"rm -f '$key'\" EXIT; trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM; cd '$here' && \
        ding -m dist -M $2 -c '$config' --coordinator 'http://$host:$port' --key-file '$key' --retry-s 120 $args" \
        > "ding-$2-$1.txt" 2>&1 < /dev/null &
    pids="$pids $!"
}

module=learner
for other in "$@"; do
    join "$other" $module
    module=collector
done
# shellcheck disable=SC2086
ding -m dist -M coordinator -c "$config" --host 0.0.0.0 --port "$port" --key-file "$keys" $args
