# SPDX-License-Identifier: MIT OR Apache-2.0
# Names of what runs: nodes, links, disks, containers.
_reserv_with_names() {
    local names word=${COMP_WORDS[COMP_CWORD]}
    _reserv "$@"
    [[ $word == -* ]] && return
    mapfile -t names < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    ((${#names[@]})) || return 0
    COMPREPLY=("${names[@]}")
    # Behind the parent of a new node its name follows.
    [[ ${#names[@]} -eq 1 && ${names[0]} == */ ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _reserv_with_names -o bashdefault -o default reserv
