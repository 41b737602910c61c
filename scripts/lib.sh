# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What the scripts share: the repository's root, and a PATH in which cargo and the system's tools are found.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH=$PATH:/usr/sbin:/sbin
[ -x "$HOME/.cargo/bin/cargo" ] && PATH=$HOME/.cargo/bin:$PATH
target=${CARGO_TARGET_DIR:-$root/target}
# Read by the scripts that source this file.
export root target
# Of `cargo test`, for the unit tests: they share what they depend on with the release build
# (target/release/deps), and what has no hash in its name, as `reserv`, goes to a folder of its own.
# Cargo before 1.91 knows no build-dir, and compiles all of it in that folder.
# shellcheck disable=SC2034 # Read by the scripts that source this file.
unit_words=(--release --config "$root/scripts/units.toml" --config "build.build-dir='$target'"
    --target-dir "$target/units")

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

# option FILE KEYWORD: the options in a test's header comment, `# KEYWORD: OPTIONS`.
header() { sed -n "1,20s/^[#/ ]*$2: *//p" "$1" | head -1; }
# value OPTIONS NAME DEFAULT: the value of --NAME in a list of options.
value() { local v; v=$(sed -n "s/.*--$2[ =]\([^ ]*\).*/\1/p" <<<" $1 "); echo "${v:-$3}"; }
# kernels_of_versions: names of the kernels that guests may have.
kernels_of_versions() { awk '!/^#/ && NF && $3 != "-" { print $1 }' "$root/vm/versions"; }
