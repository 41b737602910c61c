# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What is known of suites and would fail a run in CI otherwise: tests/lib/known, one line each,
#     NAME | WHAT | UNTIL | PATTERN | REASON
# NAME: a suite, or a shell pattern of names. WHAT: `unstable` (passes the second time), `skip`
# (cannot run here: PATTERN is what it says), `reboot` (its guest was booted twice: PATTERN is why,
# as guests.sh has it), `left` (PATTERN is what it leaves behind). UNTIL: the last day, YYYY-MM-DD.
# An entry whose day is over is a failure, and so is one that cannot be read. Outside CI all of this
# is shown and fails nothing.
known_file=${KNOWN:-$root/tests/lib/known}
known_names=() known_whats=() known_patterns=() known_faults=()

trimmed() { # WORD: without its spaces, in $word
    word=${1#"${1%%[![:space:]]*}"}
    word=${word%"${word##*[![:space:]]}"}
}
in_ci() { [ "${CI:-}" = true ]; }

# read_known SUITE…: the list, checked. TODAY is another day for the harness's own test.
read_known() {
    local line name what until pattern reason word suite today=${TODAY:-$(date +%F)} at=0
    while IFS= read -r line; do
        at=$((at + 1))
        [[ $line =~ ^[[:space:]]*(#|$) ]] && continue
        IFS='|' read -r name what until pattern reason <<<"$line"
        trimmed "$name" && name=$word
        trimmed "$what" && what=$word
        trimmed "$until" && until=$word
        trimmed "$pattern" && pattern=$word
        trimmed "$reason" && reason=$word
        if ! [[ $what =~ ^(unstable|skip|reboot|left)$ && $until =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}$ \
            && -n $pattern && -n $reason ]]; then
            known_faults+=("line $at is not NAME | WHAT | UNTIL | PATTERN | REASON: $line")
        elif [[ $today > $until ]]; then
            known_faults+=("expired on $until: $name $what ($reason)")
        else
            local there=''
            # shellcheck disable=SC2053 # A pattern.
            for suite; do [[ $suite == $name ]] && there=1 && break; done
            [ -n "$there" ] || known_faults+=("line $at: there is no suite $name")
            known_names+=("$name") known_whats+=("$what") known_patterns+=("$pattern")
        fi
    done <"$known_file"
}

# known SUITE WHAT TEXT: this is on the list.
known() {
    local i
    for i in "${!known_names[@]}"; do
        # shellcheck disable=SC2053 # Patterns.
        [[ $1 == ${known_names[i]} && $2 == "${known_whats[i]}" && $3 == ${known_patterns[i]} ]] &&
            return
    done
    return 1
}
