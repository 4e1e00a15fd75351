#!/bin/sh
# Train on several hosts over ssh: a Ray cluster with its head here, and one run on it.
#
#   ray_cluster.sh CONFIG PORT HOST...
#
# Every host has this folder under the same path, and `ding` and `ray` in the PATH of a login shell. MY_HOST is the address
# of this host for the others (default: the first of hostname -I). DING_ARGS="-s 1 --workers 16": arguments for the run.
# The cluster's token is made here; each node reads it from a private file. Nodes end with the run, and with this script.
set -eu
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
config=$1 port=$2 here=$(pwd) host=${MY_HOST:-$(hostname -I | cut -d' ' -f1)} args=${DING_ARGS:-} tries=0 pids=""
shift 2
umask 077
token=$here/ding-ray-$$.token
trap 'kill $pids 2> /dev/null || true; wait || true; rm -f "$token"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
python3 -c 'import secrets; print(secrets.token_hex(32))' > "$token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$token" RAY_worker_niceness=0
node="ray start --block --disable-usage-stats" # --block: the node ends with this process, and nothing else does
$node --head --include-dashboard=false --node-ip-address="$host" --port="$port" > ding-ray-head.txt 2>&1 &
pids=$!
for other in "$@"; do
    copy=$here/ding-ray-$$-$other.token
    ssh "$other" "umask 077 && cat > '$copy'" < "$token"
    # -tt: the node gets SIGHUP when this ssh ends; its token is deleted then.
    ssh -tt "$other" "trap \"rm -f '$copy'\" EXIT; trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM; cd '$here' \
        && export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH='$copy' RAY_worker_niceness=0 \
        && until $node --address='$host:$port'; do sleep 2; done" > "ding-ray-$other.txt" 2>&1 < /dev/null &
    pids="$pids $!"
done
# The run starts as soon as its workers fit on the nodes that have joined.
until ding -m ray -c "$config" --address "$host:$port" --dry-run $args > ding-ray-plan.txt 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt "${DING_TRIES:-30}" ] || { cat ding-ray-plan.txt >&2; exit 1; }
    sleep 2
done
ding -m ray -c "$config" --address "$host:$port" $args
