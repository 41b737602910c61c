# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The suites that run in the guest: which share a boot, and the other end of tests/lib/batch.

# The guest's time limits do not depend on what else this machine does. A suite's SECONDS
# (--timeout) are what it may take on an idle machine, so: what is over is
#   - an emulator that has used twice as many seconds of processor time (for each of its threads),
#   - one that for SECONDS has printed nothing, has used less than a twentieth of a processor, and
#     has waited for one less than half of the time: what others keep from it is no hang; who hangs
#     waits for it too, at each tick,
#   - as the last resort, one that ran ten times as long by the clock.
# limit SECONDS: a new span begins. over: it is over, and why.
limit() {
    limit_s=$1 cpu_began=$cpu wall_began=$SECONDS
    checked=$SECONDS
    spoke
}
spoke() { quiet_since=$SECONDS quiet_cpu=$cpu quiet_waited=$waited; } # the silence begins anew
emulator_cpu() { # its milliseconds of processor time, in $cpu, and those it waited, in $waited
    local pid stat file ns
    [ -s "$pid_file" ] || return
    read -r pid <"$pid_file"
    read -r stat 2>/dev/null <"/proc/$pid/stat" || return
    read -ra stat <<<"${stat##*) }"
    cpu=$(((stat[11] + stat[12]) * 1000 / ticks)) waited=0
    for file in "/proc/$pid/task/"*/schedstat; do
        { read -r _ ns _ <"$file"; } 2>/dev/null && waited=$((waited + ns / 1000000))
    done
}
# runnable: a thread of it waits for a processor now; the kernel counts that only when it has one.
runnable() {
    local pid
    { read -r pid <"$pid_file" && grep -q '^State:.R' "/proc/$pid/task/"*/status; } 2>/dev/null
}
over() {
    local left_s
    ((SECONDS - checked >= 2)) || return
    checked=$SECONDS
    emulator_cpu
    if too_late; then
        why="the run's time was up"
    elif ((cpu - cpu_began > limit_s * 2000 * threads)); then
        why="$(((cpu - cpu_began) / 1000)) s of processor time used"
    elif ((SECONDS - wall_began > limit_s * 10)); then
        why="not even by the clock, ten times as long as it may take"
    elif ((SECONDS - quiet_since >= limit_s)); then
        if ((cpu - quiet_cpu < (SECONDS - quiet_since) * 50)) &&
            ((waited - quiet_waited < (SECONDS - quiet_since) * 500)) && ! runnable; then
            why="it hangs: for $((SECONDS - quiet_since)) s it has printed nothing and done nothing"
        fi
        spoke
    fi
    [ -n "$why" ]
}

# One line from the guest, between ::start and ::end of $current: a mark of a phase, or of what was
# left; all else is the test's. Reads and sets run_group's variables.
line_of() { # LINE
    local ms
    case $1 in
        '# phase up begin') now && up_began=$ms ;;
        '# phase up end') now && up_ms=$((up_ms + ms - up_began)) up_count=$((up_count + 1)) ;;
        '# phase down begin') now && down_began=$ms ;;
        '# phase down end') now && down_ms=$((down_ms + ms - down_began)) ;;
        "::left $current "*)
            printf '%s\n' "${1#"::left $current "}" >>"$logs/$current.left"
            printf '# left: %s\n' "${1#"::left $current "}" >>"$logs/$current.log"
            return
            ;;
    esac
    printf '%s\n' "$1" >>"$logs/$current.log"
}
# The phases of the suite that has just ended. body: all but starting and stopping the product. cpu:
# of the emulator since the suite before, so with the boot where it was the first.
phases_of() { # NAME
    local ms
    now
    emulator_cpu
    phase "$1" up $up_count $up_ms
    phase "$1" down 1 $down_ms
    phase "$1" body 1 $((ms - began_ms - up_ms - down_ms))
    phase "$1" cpu 1 $((cpu - cpu_told))
    cpu_told=$cpu
    ended_ms=$ms ended=$1
}

# of_int3 STDERR-OF-VM-RUN: the end of the console, which is indented there, names the breakpoint.
of_int3() { grep -q '^  | .*int3' "$1"; }
# reboot_reason STDERR-OF-VM-RUN WHY: why a guest is booted again, in one line. WHY: what ended it
# from here. Else the first of vm/run's words that is no warning.
reboot_reason() {
    local old='' text=$2
    if [ -z "$text" ] && of_int3 "$1"; then
        # The warning of vm/run: the fault is that of these emulators.
        grep -q '^vm/run: WARNING: .*older than 8\.1' "$1" && old=', QEMU older than 8.1'
        text="int3 in the kernel's oops$old"
    fi
    [ -n "$text" ] || text=$(sed -n '/^vm\/run: WARNING/d; s/^vm\/run: //p' "$1" | head -1)
    echo "${text:-without a word}"
}

# One boot after another until every test of the group has run.
run_group() { # OPTIONS TEST…
    local options=$1 current='' line partial name out pid began verb rest status boot=0 ran test
    local why threads=1 pid_file ticks cpu cpu_told limit_s cpu_began wall_began checked
    local quiet_since quiet_cpu quiet_waited waited
    local ms boot_began began_ms up_began up_ms up_count down_began down_ms ended ended_ms left_s
    local -A file=() again=()
    shift
    ticks=$(getconf CLK_TCK)
    [[ $options == *--icount* ]] || threads=$(value "$options" smp 1)
    local -a todo=() boot_options
    for test; do
        name=$(basename "$test") name=${name%.*}
        file[$name]=$test
        todo+=("$name")
    done
    while [ ${#todo[@]} -gt 0 ]; do
        if too_late; then
            for name in "${todo[@]}"; do result guest "$name" 124 0 "$late"; done
            return
        fi
        boot=$((boot + 1)) ran=0 current='' began=$SECONDS why='' partial='' ended=''
        cpu=0 waited=0 cpu_told=0
        local err="$logs/.boot-${todo[0]}-$boot"
        pid_file=$err.pid
        rm -f "$pid_file"
        local -a batch=()
        for name in "${todo[@]}"; do batch+=("${file[$name]}"); done
        read -ra boot_options <<<"$options"
        now && boot_began=$ms
        exec {out}< <(VM_PID_FILE=$pid_file exec "$root/vm/run" "${boot_options[@]}" --timeout 0 \
            -- "$root/tests/lib/batch" "${batch[@]}" 2>"$err")
        pid=$!
        limit 120
        while :; do
            if over; then
                kill "$pid" 2>/dev/null
                break
            fi
            line=''
            IFS= read -r -t 2 -u "$out" line
            status=$?
            # Above 128: nothing, or a line without its end, within 2 s.
            if ((status > 128)); then
                [ -z "$line" ] || spoke
                partial+=$line
                continue
            fi
            ((status > 0)) && break
            line=$partial$line partial='' && spoke
            read -r verb name rest <<<"$line"
            case $verb in
                ::start)
                    emulator_cpu
                    now && began_ms=$ms
                    if [ -z "$ended" ]; then
                        phase "$name" boot 1 $((ms - boot_began))
                    else
                        phase "$ended" put_back 1 $((ms - ended_ms))
                    fi
                    current=$name began=$SECONDS up_ms=0 up_count=0 down_ms=0
                    rm -f "$logs/$name.left"
                    limit "$(value "$(header "${file[$name]}" guest)" timeout 120)"
                    ;;
                ::end)
                    phases_of "$name"
                    result guest "$name" "$rest" $((SECONDS - began))
                    ran=$((ran + 1)) current='' todo=("${todo[@]:1}")
                    limit 60
                    ;;
                ::dirty) echo "        after $name ($rest) the next test gets a new guest" ;;
                *) [ -z "$current" ] || line_of "$line" ;;
            esac
        done
        exec {out}<&-
        wait "$pid" 2>/dev/null
        if [ -n "$ended" ]; then now && phase "$ended" put_back 1 $((ms - ended_ms)); fi
        # The guest ended in the middle of a test, or before the first.
        if [ -n "$current" ] || { [ $ran = 0 ] && [ ${#todo[@]} -gt 0 ]; }; then
            name=${current:-${todo[0]}}
            cat "$err" >>"$logs/$name.log"
            [ -z "$current" ] || phases_of "$name"
            # The emulator's own fault, once a test: it mishandles a breakpoint while the kernel
            # patches its code (int3 in the oops). Likewise a guest that did not come up at all.
            # Whether the run bears it is the list's (tests/lib/known), by the reason.
            if [ -z "${again[$name]:-}" ] && ! too_late &&
                { [ -z "$current" ] || { [ -z "$why" ] && of_int3 "$err"; }; }; then
                again[$name]=1
                verb=$([ -z "$current" ] && echo 'did not boot' || echo 'died')
                verb+=": $(reboot_reason "$err" "$why")"
                echo "$verb" >"$logs/$name.reboot"
                echo "        the guest $verb, at $name: once more in a new one"
                rm -f "$err"
                continue
            fi
            if [ -z "$why" ]; then
                why=$([ -n "$current" ] && echo 'the guest died' || echo 'the guest did not boot')
                result guest "$name" 125 $((SECONDS - began)) "$why"
            else
                why="not done after $((SECONDS - began)) s: $why"
                result guest "$name" 124 $((SECONDS - began)) "$why"
            fi
            todo=("${todo[@]:1}")
        fi
        rm -f "$err" "$pid_file"
    done
}

# Tests with equal options (but for what is of each test alone) go together, the long ones first: a
# boot costs 6 s of a processor, and the first `up` in it 5 s, of which later ones cost a tenth.
# Not more to a boot than what takes boot_most seconds, so that the lanes end together.
boot_most=450
boot_options() {
    local usual='--kernel full' # To say so is no other option, unless VM_KERNEL names another.
    [ -z "${VM_KERNEL:-}" ] || usual='--kernel none'
    header "$1" guest |
        sed "s/--timeout[ =][0-9]*//; s/--about[ =][0-9]*//; s/$usual//; s/  */ /g; s/^ //; s/ \$//"
}
group_guests() { # TEST…: lines of group, options, test, and seconds of the group
    local test options tab=$'\t'
    for test; do
        options=$(boot_options "$test")
        [[ $options == *--alone* ]] && options="${options/--alone/} #$test"
        printf '%s\t%s\t%s\n' "$options" "$(value "$(header "$test" guest)" about 20)" "$test"
    done | sort -s -t "$tab" -k1,1 -k2,2rn | awk -F'\t' -v most=$boot_most '
        NR == 1 || $1 != last || sum + $2 > most { last = $1; sum = 0; group++ }
        { sum += $2; sums[group] = sum; lines[group] = lines[group] $1 "\t" $3 "\n" }
        END {
            for (g = 1; g <= group; g++) {
                k = split(lines[g], of, "\n")
                for (i = 1; i < k; i++) print g "\t" of[i] "\t" sums[g]
            }
        }'
}
