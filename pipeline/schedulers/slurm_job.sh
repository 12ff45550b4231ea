# Below this line the script is the same for every job. It starts Ray on all nodes, runs permcode on the first one until
# it ends for good, and puts the job back into the queue when its time is up. The run resumes from its checkpoint.
set -uo pipefail
unset RAY_ADDRESS
# Of this start alone: whatever an earlier one left behind is not mistaken for Ray's head.
port=$((20000 + (SLURM_JOB_ID * 16 + ${SLURM_RESTART_COUNT:-0}) % 10000))
meeting=$out.slurm-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}  # where the nodes find Ray's head
ray_folder=/tmp/permcode-$SLURM_JOB_ID
export python meeting gpus_per_node ray_folder
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

# Slurm sends SIGTERM to every process of a job that it ends. Everything but this shell is started with it blocked: Ray
# must live until the checkpoint is written, which the shell asks for. To be called with & or in a subshell.
start() {
    exec "$python" -m cluster.block_sigterm "$@"
}

# Print the address of this node that the other nodes reach.
own_address() {
    local address
    address=$(scontrol show node "$SLURMD_NODENAME" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
    address=$(getent ahostsv4 "$address" | awk '{ print $1; exit }')
    case $address in
        "" | 127.*) address=$(hostname -I | awk '{ print $1 }') ;;  # this node's own /etc/hosts names itself so
    esac
    echo "${address:-127.0.0.1}"
}

# Run Ray on this node, again when it ends, until the head's file is gone.
run_ray() {
    local head ray_pid=""
    while [ -e "$meeting/head" ]; do
        { read -r head && read -r RAY_AUTH_TOKEN; } < "$meeting/head" || true
        export RAY_AUTH_TOKEN
        start "$(dirname "$python")/ray" start --block --num-cpus="$SLURM_CPUS_ON_NODE" \
            --num-gpus="$gpus_per_node" --object-store-memory=500000000 "${@:---address=$head}" &
        ray_pid=$!
        while kill -0 "$ray_pid" 2> /dev/null && [ -e "$meeting/head" ]; do sleep 2; done
        [ -e "$meeting/head" ] && sleep 3
    done
    kill -INT "$ray_pid" 2> /dev/null  # Slurm would wait KillWait before it kills Ray's processes
    wait "$ray_pid"
}

# Run Ray on a node that joins: wait for the head's file first.
# shellcheck disable=SC2329 # srun calls it
join() {
    until [ -e "$meeting/head" ]; do sleep 1; done
    run_ray
}
export -f start run_ray join

# Start Ray's head and run permcode; set `code` to its exit status.
run_head() {
    local address recipe_file=$meeting/recipe.yaml
    address=$(own_address)
    RAY_AUTH_TOKEN=$("$python" -c 'import secrets; print(secrets.token_hex(32))')
    export RAY_AUTH_TOKEN RAY_ADDRESS=$address:$port
    (umask 077 && mkdir -p "$meeting") || exit 2
    printf '%s\n' "$recipe" > "$recipe_file"
    printf '%s\n' "$RAY_ADDRESS" "$RAY_AUTH_TOKEN" > "$meeting/head.new"
    mv "$meeting/head.new" "$meeting/head"
    (unset RAY_ADDRESS && run_ray --head --port="$port" --node-ip-address="$address" --temp-dir="$ray_folder") &
    ray_pids+=("$!")
    if [ -z "${SLURM_ARRAY_JOB_ID:-}" ] && [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
        local others=$((SLURM_JOB_NUM_NODES - 1))
        (unset RAY_ADDRESS && start srun --relative=1 --nodes="$others" --ntasks="$others" --ntasks-per-node=1 \
            --cpu-bind=none "$python" -m cluster.block_sigterm bash -c join) &
        ray_pids+=("$!")
    fi
    for _ in {1..90}; do
        (exec 3<> "/dev/tcp/$address/$port") 2> /dev/null && break
        sleep 2
    done
    start "$python" -m pipeline.cli "$command" --keep-alive --recipe "$recipe_file" --out "$out" &
    run_pid=$!
    [ -n "$ended_by" ] && kill -INT "$run_pid"
    wait_for_run
    rm -f "$meeting/head"
    for _ in {1..20}; do
        kill -0 "${ray_pids[@]}" 2> /dev/null || break
        sleep 1
    done
}

# `wait` also returns after a trap; then the run is still writing its checkpoint.
wait_for_run() {
    while :; do
        wait "$run_pid"
        code=$?
        kill -0 "$run_pid" 2> /dev/null || break
    done
    wait "$run_pid"
    code=$?
}

run_pid="" ended_by="" code=0 ray_pids=()
# shellcheck disable=SC2329 # the traps call it
stop_run() {
    ended_by=${ended_by:-$1}
    [ -n "$run_pid" ] && kill -INT "$run_pid"
}
trap 'stop_run time' USR1
trap 'stop_run scheduler' TERM

if [ "${SLURM_ARRAY_TASK_ID:-0}" = 0 ]; then
    run_head
else
    until [ -e "$meeting/head" ] || [ -n "$ended_by" ]; do sleep 1; done
    run_ray &
    run_pid=$!
    wait "$run_pid"
fi
if [ "$ended_by" = time ]; then
    echo "permcode: the time is up: job $SLURM_JOB_ID goes back into the queue and resumes there"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
[ "$ended_by" = scheduler ] && exit 143
[ "${SLURM_ARRAY_TASK_ID:-0}" = 0 ] && rm -rf "$meeting"
exit "$code"
