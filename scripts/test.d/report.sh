# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The end of a run: the suites, where the time went, what failed, and the count.

# The phases of each suite beside its result. Seconds; `cpu`: of processor time; `up`: of so many
# starts of the product.
table() {
    printf '%-5s %-26s %-8s %7s %7s %6s  %-44s %s\n' \
        kind suite result seconds cpu checks phases reason
    awk -F'\t' '
        FILENAME ~ /phases.tsv$/ { n[$1, $2] += $3; t[$1, $2] += $4; next }
        function of(p) { return t[$2, p] >= 50 ? sprintf("%s %.1f ", p, t[$2, p] / 1000) : "" }
        {
            up = n[$2, "up"] ? sprintf("up %dx %.1f ", n[$2, "up"], t[$2, "up"] / 1000) : ""
            phases = of("boot") up of("body") of("down") of("put_back")
            printf "%-5s %-26s %-8s %7d %7.1f %6d  %-44s %s\n", $1, $2, $3, $4, t[$2, "cpu"] / 1000,
                $5 + $6, phases, $8
        }' "$logs/phases.tsv" "$results"
}
# Seconds of lanes: two guests at once for a second are two. Then the processor time, by kind: what
# the emulators and their threads used, what suites of this machine and all that came of them.
by_phase() {
    awk -F'\t' '
        FILENAME ~ /results$/ { kind[$2] = $1; next }
        $2 == "cpu" { used[($1 in kind) ? kind[$1] : "build"] += $4; sum += $4; next }
        { n[$2] += $2 == "boot" || $2 == "up" ? $3 : 1; t[$2] += $4; all += $4 }
        END {
            k = split("build unit host boot up body down put_back", order, " ")
            print "phase      seconds   share  times"
            for (i = 1; i <= k; i++) if (order[i] in t)
                printf "%-9s %8.1f %6.1f%% %6d\n", order[i], t[order[i]] / 1000,
                    all ? 100 * t[order[i]] / all : 0, n[order[i]]
            printf "%-9s %8.1f; processor time %.1f:", "in all", all / 1000, sum / 1000
            k = split("build unit host guest", order, " ")
            for (i = 1; i <= k; i++) if (order[i] in used)
                printf " %s %.1f", order[i], used[order[i]] / 1000
            print ""
        }' "$results" "$logs/phases.tsv"
}
# What failed, once more, after the table: who sees only the last lines sees why. Who passed the
# second time is shown as he was the first.
failures() {
    local name verdict reason log
    while IFS=$'\t' read -r _ name verdict _ _ _ _ reason; do
        [ "$verdict" = FAIL ] || continue
        log=$logs/$name.log
        [[ $reason != UNSTABLE* ]] || log=$logs/$name.first.log
        echo
        echo "--- $name: $reason"
        {
            grep -E -e '^not ok\b|^test .* FAILED$|panicked at' \
                -e '^[A-Za-z_.]*(Error|Exception|Expired|Interrupt)\b' "$log" ||
                tail -n 8 "$log"
        } | tail -n 8 | cut -c1-400
    done <"$results"
}
# The count, alone on the last line; false when something failed or nothing ran.
closing() {
    awk -F'\t' -v ci="${CI:-}" '
        { p += $5; f += $6; s += $7; u += $3 == "UNSTABLE"; same += $3 == "SAME" }
        $8 ~ /NOT LISTED/ { odd++ }
        END {
            if (u) print u " unstable suites"
            if (same) print same " suites unchanged since a green run: not run"
            if (odd && ci != "true") print odd " suites would fail in CI: NOT LISTED in tests/lib/known"
            printf "%d passed, %d failed, %d skipped\n", p, f, s
            exit f > 0 || NR == 0
        }' "$results"
}
