# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# A suite's verdict, and the suites that run on this machine.

# now: milliseconds of the clock, in $ms; no program is started for it.
now() { ms=$((${EPOCHREALTIME/[.,]/} / 1000)); }
# phase SUITE PHASE COUNT MILLISECONDS: one line of phases.tsv.
phase() { printf '%s\t%s\t%s\t%s\n' "$@" >>"$logs/phases.tsv"; }
# spent NAME COMMAND…: a step that is no suite; its time, and processor time, by phase.
spent() {
    local name=$1 ms began status TIMEFORMAT='%3U %3S' user sys
    shift
    now && began=$ms
    { time "$@" 2>&9; } 9>&2 2>"$logs/.spent"
    status=$?
    now && phase "$name" build 1 $((ms - began))
    read -r user sys < <(tail -n 1 "$logs/.spent")
    phase "$name" cpu 1 $((10#${user/./} + 10#${sys/./}))
    return $status
}
# time_left: seconds until the run must end, in $left_s; a large number without a DEADLINE.
time_left() {
    left_s=1000000
    [ -z "$deadline" ] || left_s=$((started + deadline - margin - SECONDS))
}
too_late() { time_left; ((left_s <= 0)); }
late="not run: the run's time was up"

count() { local n; n=$(grep -c "$@" 2>/dev/null); echo "${n:-0}"; }

# judge: what the lists say of a verdict. Reads and sets the caller's variables.
judge() {
    local thing unlisted=''
    if [ "$verdict" = 'NOT RUN' ] && [ -z "$fatal" ] && ! known "$name" skip "$reason"; then
        if in_ci; then
            verdict=FAIL skipped=0
            reason="skipped, and this is not in tests/lib/known: $reason"
        else
            reason="NOT LISTED: $reason"
        fi
    fi
    [[ $verdict = PASS || $verdict = UNSTABLE ]] || return
    if [ "$verdict" = UNSTABLE ] && ! known "$name" unstable "$reason"; then
        if in_ci; then verdict=FAIL; fi
        reason="UNSTABLE, NOT LISTED: $reason"
    fi
    if [ -e "$logs/$name.reboot" ] && ! known "$name" reboot "$(cat "$logs/$name.reboot")"; then
        if in_ci; then verdict=FAIL; fi
        reason="BOOTED TWICE, NOT LISTED: $(cat "$logs/$name.reboot")${reason:+; $reason}"
    fi
    [ -s "$logs/$name.left" ] || return
    while IFS= read -r thing; do
        known "$name" left "$thing" || unlisted+="${unlisted:+, }$thing"
    done <"$logs/$name.left"
    if [ -n "$unlisted" ]; then
        if in_ci; then verdict=FAIL; fi
        reason="LEFT BEHIND, NOT LISTED: ${unlisted:0:300}${reason:+; $reason}"
    fi
}

# result KIND NAME STATUS SECONDS [REASON]: one line of the results file, and of progress; the end
# of the log when it failed.
result() {
    local kind=$1 name=$2 status=$3 seconds=$4 reason=${5:-} log=$logs/$2.log
    local passed failed skipped=0 verdict
    touch "$log"
    if [ "$kind" = unit ]; then
        read -r passed failed skipped < <(awk '/^test result:/ { p += $4; f += $6; s += $8 }
            END { print p + 0, f + 0, s + 0 }' "$log")
    else
        passed=$(count '^ok - ' "$log") failed=$(count '^not ok\b' "$log")
    fi
    case $status in
        0) verdict=PASS ;;
        77)
            verdict='NOT RUN' passed=0 failed=0 skipped=1
            reason=${reason:-$(sed -n 's/^# skip: *//p' "$log" | tail -1)}
            ;;
        same) verdict=SAME passed=0 failed=0 reason='unchanged since a green run' ;;
        *) verdict=FAIL reason=${reason:-exit status $status} ;;
    esac
    if [ "$verdict" = PASS ] && [ "$failed" != 0 ]; then
        verdict=FAIL reason="'not ok' was printed but the exit status is 0"
    elif [ "$verdict" = PASS ] && [ "$passed" = 0 ]; then
        verdict=FAIL reason='no check was made'
    fi
    if [ "$name" = "${second:-}" ]; then
        reason="${reason:+$reason; }the first time ($first_end): $(first_words)"
        [ "$verdict" = PASS ] && verdict=UNSTABLE
    fi
    judge
    # A test that fails without a word about its checks is one check.
    [ "$verdict" = FAIL ] && [ "$failed" = 0 ] && failed=1
    [ "$verdict" != PASS ] || stamp "$name"
    {
        flock 8
        printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$kind" "$name" "$verdict" "$seconds" \
            "$passed" "$failed" "$skipped" "$reason" >>"$results"
        [ "$verdict" != PASS ] || [ -z "${KEEP:-}" ] || tail -n 1 "$results" >>"$KEEP"
        printf '[%s/%s] %-7s %-5s %s (%s s, %s checks)%s\n' "$(wc -l <"$results")" "$total" \
            "$verdict" "$kind" "$name" "$seconds" $((passed + failed)) "${reason:+: $reason}"
        if [ "$verdict" = FAIL ]; then tail -n "${TAIL:-40}" "$log" | sed 's/^/    | /'; fi
    } 8>>"$logs/lock"
}
# What a suite that is run once more said the first time. How that ended is in $first_end: a suite
# that hangs, or whose guest died, may have said nothing that is wrong.
first_words() {
    { grep '^not ok\b' "$logs/$name.first.log" || tail -n 1 "$logs/$name.first.log"; } |
        head -1 | tr '\t' ' ' | cut -c1-200
}

# A suite whose header names its inputs (lines `# inputs: PATH…`, of this repository) is not run again
# while they are what they were at its last green run, unless it is asked for by name.
inputs_of() { # TEST: their hash; nothing for a suite without
    local paths
    read -ra paths <<<"$(sed -n '1,20s/^# inputs: *//p' "$1" | paste -sd' ')"
    [ ${#paths[@]} -gt 0 ] || return
    find "$1" "${paths[@]}" -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum |
        cut -d' ' -f1
}
unchanged() { # NAME TEST
    local hash
    [ ${#patterns[@]} -eq 0 ] || return
    hash=$(inputs_of "$2")
    [ -n "$hash" ] && [ "$(cat "$stamps/$1" 2>/dev/null)" = "$hash" ]
}
stamp() { # NAME: this suite is green
    local test=${host_file[$1]:-} hash
    [ -n "$test" ] || return 0
    hash=$(inputs_of "$test")
    [ -z "$hash" ] || { mkdir -p "$stamps" && echo "$hash" >"$stamps/$1"; }
}

# contained NAME SECONDS COMMAND…: its status, its output in the log, what it left in NAME.left.
contained() {
    local name=$1 seconds=$2
    shift 2
    "$root/tests/lib/contained" --timeout "$seconds" --left "$logs/$name.left" \
        --used "$logs/.$name.used" -- "$@" </dev/null >"$logs/$name.log" 2>&1
}
# used NAME: what contained counted, as its phase.
used() {
    local ms
    read -r ms 2>/dev/null <"$logs/.$1.used" && phase "$1" cpu 1 "$ms"
    rm -f "$logs/.$1.used"
}

declare -A host_file=()
run_host() { # TEST
    local test=$1 begin=$SECONDS name limit status why='' ms began left_s
    name=$(basename "$test") name=${name%.*}
    host_file[$name]=$test
    if [ -n "$fatal" ]; then result host "$name" 77 0 "$fatal"; return; fi
    if unchanged "$name" "$test"; then result host "$name" same 0; return; fi
    if too_late; then result host "$name" 124 0 "$late"; return; fi
    limit=$(value "$(header "$test" host)" timeout 120)
    if ((left_s < limit)); then limit=$left_s why="the run's time was up"; fi
    now && began=$ms
    contained "$name" "$limit" "$test"
    status=$?
    now && phase "$name" host 1 $((ms - began))
    used "$name"
    [ $status = 124 ] && why="not done after $limit s${why:+: $why}" || why=''
    result host "$name" $status $((SECONDS - begin)) "$why"
}
# compile_units: the programs of the unit tests, of all crates at once: for one crate alone Cargo
# may choose other features of what is shared, and compiles that again. Lines of folder and program.
compile_units() {
    local which=() crate
    if [ ${#unit[@]} = "$(crates | wc -l)" ] && [ ${#unit[@]} -gt 0 ]; then
        which=(--workspace)
    else
        for crate in "${unit[@]}"; do which+=(-p "$crate"); done
    fi
    [ ${#which[@]} -gt 0 ] || return 0
    cargo test "${unit_words[@]}" "${which[@]}" --lib --bins --tests --no-run \
        --message-format=json-render-diagnostics >"$logs/.cargo" &&
        sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"executable":"\([^"]*\)".*|\1\t\2|p' \
            "$logs/.cargo" | grep -P '/deps/[^/]*$' >"$logs/.units"
}
run_unit() { # CRATE: its programs, each in the crate's folder, as `cargo test` does it
    local name=unit-$1 begin=$SECONDS status ms began left_s why='' folder
    local -a command=(cargo test "${unit_words[@]}" -p "$1" --no-fail-fast) programs=()
    if too_late; then result unit "$name" 124 0 "$late"; return; fi
    folder=$(dirname "$(grep -l "^name = \"$1\"" crates/*/Cargo.toml)")
    mapfile -t programs < <(
        awk -F'\t' -v f="$root/$folder" '$1 == f { print $2 }' "$logs/.units" 2>/dev/null
    )
    # What does not compile says so in the log of its own suite.
    [ ${#programs[@]} = 0 ] || command=("$root/tests/lib/programs" "$root/$folder" "${programs[@]}")
    now && began=$ms
    contained "$name" "$((left_s < 3600 ? left_s : 3600))" "${command[@]}"
    status=$?
    now && phase "$name" unit 1 $((ms - began))
    used "$name"
    [ $status = 124 ] && why="not done after $((SECONDS - begin)) s"
    result unit "$name" $status $((SECONDS - begin)) "$why"
}
