# SPDX-License-Identifier: MIT OR Apache-2.0
# Names of what runs: nodes, links, disks, containers.
function __reserv_names
    set -l typed (commandline -opc) (commandline -ct)
    while set -q typed[1]; and test (string split -r -m1 / -- $typed[1])[-1] != reserv
        set -e typed[1]
    end
    set -q typed[2]; and $typed[1] complete -- $typed[2..] 2>/dev/null
end
complete -c reserv -n "test (count (__reserv_names)) -gt 0" -f -a "(__reserv_names)"
