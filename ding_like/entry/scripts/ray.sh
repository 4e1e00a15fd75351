#!/bin/sh
# Train on several hosts over ssh: a Ray cluster with its head here, and a run on it.
#
#   ray.sh CONFIG PORT HOST...
#
# Every host has this folder under the same path, with CONFIG in it, and `ding` and `ray` in the PATH of a login shell.
# MY_HOST is the name or address by which they reach this host (default: the first of hostname -I). More arguments for
# the run: DING_ARGS="-s 1 --workers 16". The cluster's token is made here; each host gets it in a file that only you can
# read, for as long as its node runs. Nodes end when the run does, and with this script.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
fi
config=$1 port=$2
shift 2
here=$(pwd) args=${DING_ARGS:-}
host=${MY_HOST:-$(hostname -I | cut -d' ' -f1)}
umask 077
token=$here/ding-ray-$$.token
pids=""
stop() {
    for pid in $pids; do kill "$pid" 2> /dev/null || true; done
    for pid in $pids; do wait "$pid" 2> /dev/null || true; done
    rm -f "$token"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
python3 -c 'import secrets; print(secrets.token_hex(32))' > "$token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$token" RAY_worker_niceness=0

# --block: the node ends with this process, and nothing else does. `ray stop` would end all of Ray on the host.
ray start --head --block --disable-usage-stats --include-dashboard=false --node-ip-address="$host" --port="$port" \
    > "ding-ray-head.txt" 2>&1 &
pids="$pids $!"
number=0
for other in "$@"; do
    number=$((number + 1))
    copy="$here/ding-ray-$$-$number.token"
    ssh "$other" "umask 077 && cat > '$copy'" < "$token"
    # -tt: the node gets SIGHUP when this ssh ends. Its token goes as soon as it has ended, however it did.
    ssh -tt "$other" "trap \"rm -f '$copy'\" EXIT; trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM; \
        cd '$here' && export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH='$copy' RAY_worker_niceness=0 && \
        until ray start --block --disable-usage-stats --address='$host:$port'; do sleep 2; done" \
        > "ding-ray-$other.txt" 2>&1 < /dev/null &
    pids="$pids $!"
done

# The run starts as soon as its workers fit on the nodes that have joined.
tries=0
# shellcheck disable=SC2086
until ding -m ray -c "$config" --address "$host:$port" --dry-run $args > ding-ray-plan.txt 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -ge "${DING_TRIES:-30}" ]; then
        cat ding-ray-plan.txt >&2
        exit 1
    fi
    sleep 2
done
# shellcheck disable=SC2086
ding -m ray -c "$config" --address "$host:$port" $args
