# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Checks for shell tests: each prints `ok - text` or `not ok - text`; tap_end gives the test its
# exit status. Who has checked nothing has not passed.
tap_made=0 tap_failed=0
ok() { echo "ok - $*"; tap_made=$((tap_made + 1)); }
not_ok() { echo "not ok - $*"; tap_made=$((tap_made + 1)) tap_failed=$((tap_failed + 1)); }
# check TEXT COMMAND…
check() { local text=$1; shift; if "$@"; then ok "$text"; else not_ok "$text (failed: $*)"; fi; }
# refuse TEXT COMMAND…: the command must fail.
refuse() { local text=$1; shift; if "$@"; then not_ok "$text (did not fail: $*)"; else ok "$text"; fi; }
# equal TEXT GOT WANTED
equal() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: got '$2', wanted '$3'"; fi; }
# contains TEXT HAYSTACK NEEDLE
contains() { case $2 in *"$3"*) ok "$1" ;; *) not_ok "$1: no '$3' in: $2" ;; esac; }
# skip REASON: this test cannot run here.
skip() { echo "# skip: $*"; exit 77; }
tap_end() {
    [ $tap_made -gt 0 ] || not_ok "a check was made"
    exit $((tap_failed > 0))
}
