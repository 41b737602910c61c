# SPDX-License-Identifier: MIT OR Apache-2.0
# Names of what runs: nodes, links, disks, containers; else what is there.
_reserv_names() {
    local -a typed names parents
    typed=("${(@Q)${(@z)LBUFFER}}")
    [[ $LBUFFER == *[[:space:]] ]] && typed+=("")
    while (( $#typed )) && [[ ${typed[1]:t} != reserv ]]; do shift typed; done
    names=("${(@f)$(_call_program names ${(q)typed[1]} complete -- "${(@q)typed[2,-1]}" 2>/dev/null)}")
    names=(${names:#})
    (( $#names )) || { _default "$@"; return }
    parents=(${(M)names:#*/}) names=(${names:#*/})
    (( $#names )) && compadd -a names
    # Behind the parent of a new node its name follows.
    (( $#parents )) && compadd -S '' -a parents
}
