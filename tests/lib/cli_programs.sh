# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# `reserv run` and `tag` with a real driver (cli_programs full|stock): programs are where they were put, with what they start, and
# the machine is as it was after `down`. Everything is in places of its own.
set -u
RESERV=${RESERV:-target/release/reserv}
RESERV=$(realpath "$RESERV") || exit 1
# shellcheck source=tests/lib/tap.sh
. tests/lib/tap.sh
driver=$1
[ "$(id -u)" = 0 ] || skip "needs root"
scratch=$(mktemp -d /dev/shm/reserv-cli.XXXXXX)
export RESERV_MOUNT=$scratch/reserv RESERV_RUN=$scratch/run RESERV_CONFIG=$scratch/none.toml
export RESERV_CGROUP=reserv-cli-test-$$
unset RESERV_DRIVER
pids=()
clean() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    [ -S "$RESERV_RUN/control.sock" ] && "$RESERV" down
    rm -rf "$scratch"
}
trap clean EXIT

contains "up with the $driver driver" "$("$RESERV" up --driver "$driver" 2>&1)" "Reserv is up"
[ "$tap_failed" = 0 ] || tap_end
# A resource that is busy for a moment tells what it told last, and nothing before it has told once.
for _ in $(seq 300); do
    said=$("$RESERV" status)
    grep -q '\.state late$' <<<"$said" || break
    sleep 0.1
done
contains "status names it" "$said" "cpu.driver $driver"
if [ "$driver" = stock ]; then
    refuse "what it cannot do is refused" "$RESERV" mk rr --class rr 2>/dev/null
    contains "… with a reason" "$("$RESERV" mk rr --class rr 2>&1)" "the stock driver has no class rr"
    refuse "… and nothing is made" "$RESERV" stat rr 2>/dev/null
    for words in "set cpu policy=eevdf" "set cpu quantum=4ms" "set q0 class=edf" "up --personality eclipse" "up --personality qlinux"; do
        # shellcheck disable=SC2086
        contains "refused here: $words" "$("$RESERV" $words 2>&1)" "driver"
    done
    contains "… and nothing has changed" "$("$RESERV" status)" "cpu.personality default"
    contains "compare says what it needs" "$("$RESERV" compare 2>&1)" "needs the full driver"
    check "fixed shares need no policy of their own" "$RESERV" mk fixed --share =50%
    equal "… and are kept" "$(cat "$RESERV_MOUNT/cpu/fixed/share")" "=50% 0"
    # Half of it, or less where several of this machine's programs want the CPU outside.
    check "… of what is left by who wants outside" [ "$(sed -n 's/^weight_share_ppm //p' "$RESERV_MOUNT/cpu/fixed/stat")" -le 500000 ]
    check "… and go" "$RESERV" rm fixed
else
    check "every class can be had" "$RESERV" mk rr --class rr
    check "… and changed" "$RESERV" set rr class=fifo
    check "doctor knows its own scheduler" "$RESERV" doctor
fi
check "a tree" "$RESERV" mk --sched web
check "… with a queue" "$RESERV" mk web/site1 --cap 150%

members() { cat "$RESERV_MOUNT/cpu/$1/members"; }
# The program, its child and its grandchild, all of which report when they are there.
mkfifo "$scratch/there"
"$RESERV" run --cpu web/site1 -- sh -c 'sh -c "echo \$PPID \$\$ >'"$scratch/there"'; exec sleep 600" & wait' &
pids+=($!)
read -r -t 60 parent child <>"$scratch/there"
pids+=("$child")
equal "run becomes the program: same process" "$parent" "${pids[0]}"
contains "the program is a member" "$(members web/site1)" "pid $parent"
contains "… and so is what it started" "$(members web/site1)" "pid $child"
printf '[cpu.nodes.q0]\nkind = "queue"\n' >"$scratch/without.toml"
without=$("$RESERV" up --config "$scratch/without.toml" 2>&1)
contains "a configuration without a queue that has members is refused, with the queue's name" "$without" "cpu/web/site1"
contains "… and with what can be done" "$without" "--flush"
equal "its default list" "$(cat "$RESERV_MOUNT/proc/$parent/default")" "$RESERV_MOUNT/cpu/web/site1"
equal "its child's default list" "$(cat "$RESERV_MOUNT/proc/$child/default")" "$RESERV_MOUNT/cpu/web/site1"
before=$(cat "/proc/$$/cgroup")

# A fixed piece of work, which says itself how much CPU time it took (what `reserv` itself used
# before is not in the reservation).
before_ns=$("$RESERV" stat web/site1 | sed -n 's/^service_ns //p')
used=$("$RESERV" run --cpu web/site1 -- sh -c 'times; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; times' |
    awk -F'[ms ]+' '{ t[NR] = ($1 * 60 + $2 + $3 * 60 + $4) * 1e9 } END { printf "%.0f", t[3] - t[1] }')
served=$("$RESERV" stat web/site1 | sed -n 's/^service_ns //p')
# The times are rounded to ticks of 10 ms.
check "what a program used ($used ns) is counted ($((served - before_ns)) ns)" [ $((served - before_ns + 20000000)) -ge "$used" ]
check "… and it was something" [ "$used" -gt 0 ]
check "… in the parent too" [ "$("$RESERV" stat web | sed -n 's/^service_ns //p')" -ge "$served" ]

sleep 600 &
pids+=($!)
other=$!
check "tag moves a process that runs" "$RESERV" tag web/site1 "$other"
contains "… it is a member" "$(members web/site1)" "pid $other"
"$RESERV" mk b
check "… and on" "$RESERV" tag b "$other"
contains "… it is a member there" "$(members b)" "pid $other"
refuse "… and no longer here" grep -q "pid $other" "$RESERV_MOUNT/cpu/web/site1/members"
refuse "rm of a queue with members" "$RESERV" rm b 2>/dev/null
check "rm --flush" "$RESERV" rm --flush b
check "the process lives" kill -0 "$other"
equal "this shell was left alone" "$(cat "/proc/$$/cgroup")" "$before"

check "down" "$RESERV" down
check "what was reserved lives on" kill -0 "$child"
refuse "… in no cgroup of ours" grep -q "$RESERV_CGROUP" "/proc/$child/cgroup" "/proc/$other/cgroup"
refuse "no cgroup is left" sh -c "find /sys/fs/cgroup -maxdepth 3 -name '$RESERV_CGROUP*' | grep -q ."
[ "$driver" = stock ] || equal "no scheduler is left" "$(cat /sys/kernel/sched_ext/state)" disabled
refuse "no mount is left" grep -q " $RESERV_MOUNT " /proc/mounts
tap_end
