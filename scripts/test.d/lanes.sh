# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What runs at the same time. A suite of this machine says in its header what it bears:
#   nothing   it measures shares of this machine, or what it finds there: alone, before all others
#   --beside  it measures nothing: beside guests, but not beside another such suite, for what one
#             of them makes (mounts, loop devices, a reservd) could be taken for the other's
#   --free    it touches nothing but files of its own: beside everything
# So there is one lane for the suites --beside, and as many as JOBS for the rest: unit suites, the
# suites --free, the guests. When the first lane has nothing more to do it is one more of those.

# The first use of a kernel says what it downloads, so do it before output goes to logs. So does
# the first guest of a clone, for the emulator and what is compiled for the guest.
first_guests() {
    local kernel hash
    group_guests "${guest[@]}" >"$groups"
    while IFS= read -r kernel; do
        "$root/vm/fetch" "$kernel" >/dev/null
    done < <(cut -f2 "$groups" | sed -n 's/.*--kernel \([a-z]*\).*/\1/p; t; s/.*/full/p' | sort -u)
    hash=$(cat "$root"/vm/* | sha256sum)
    [ "$(cat "$stamps/booted" 2>/dev/null)" != "$hash" ] || return 0
    if "$root/vm/run" --timeout 300 -- true; then
        mkdir -p "$stamps" && echo "$hash" >"$stamps/booted"
    else
        say 'a first guest did not boot; the tests will say more'
    fi
}

# lane_jobs: lines of seconds, kind and what: the unit suites, so that who has broken one sees it
# soon, then what takes longest, so that the lanes end at about the same time.
lane_jobs() {
    local crate test
    for crate in "${unit[@]}"; do printf '99999\tunit\t%s\n' "$crate"; done
    {
        for test in "${host[@]}"; do
            [[ $(header "$test" host) == *--free* ]] || continue
            printf '%s\thost\t%s\n' "$(value "$(header "$test" host)" about 20)" "$test"
        done
        [ ${#guest[@]} = 0 ] || awk -F'\t' '
            $1 in of { next } { of[$1] = 1; print $4 "\tguests\t" $1 }' "$groups"
    } | sort -s -k1,1rn
}
run_lanes() {
    local test
    shared_lanes &
    for test in "${host[@]}"; do
        [[ $(header "$test" host) != *--beside* ]] || run_host "$test"
    done
    touch "$logs/.beside-done"
    wait
}
# Whether one more may begin. Reads run_lanes' file and shared_lanes' variable.
a_lane_is_free() {
    local lanes=$jobs
    [ ! -e "$logs/.beside-done" ] || lanes=$((jobs + 1))
    ((running < lanes))
}
shared_lanes() {
    local running=0 kind what options members
    while IFS=$'\t' read -r _ kind what; do
        until a_lane_is_free; do
            wait -n
            running=$((running - 1))
        done
        case $kind in
            unit) run_unit "$what" & ;;
            host) run_host "$what" & ;;
            guests)
                options=$(awk -F'\t' -v g="$what" '$1 == g { print $2; exit }' "$groups")
                mapfile -t members < <(awk -F'\t' -v g="$what" '$1 == g { print $3 }' "$groups")
                run_group "${options%%#*}" "${members[@]}" &
                ;;
        esac
        running=$((running + 1))
    done < <(lane_jobs)
    wait
}
