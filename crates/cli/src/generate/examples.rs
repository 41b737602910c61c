// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two examples for each page of a command.

/// A command line, and what it does.
pub(super) type Example = (&'static str, &'static str);

/// By the words after `reserv`. A test looks that each page has its own, and that each is understood.
pub(super) const EXAMPLES: &[(&str, [Example; 2])] = &[
    (
        "doctor",
        [
            ("reserv doctor", "Look at this machine; nothing is changed."),
            ("reserv doctor nginx", "Are its sites served in the containers that are named?"),
        ],
    ),
    (
        "up",
        [
            ("reserv up --config hosting.toml", "Start, apply the tree, print the difference."),
            ("reserv up --net eth0 --rate 100mbit", "Schedule what leaves by eth0, too."),
        ],
    ),
    (
        "save",
        [
            (
                "reserv save tree.toml",
                "The running tree, to be loaded by: reserv up --config tree.toml",
            ),
            ("reserv save --boot", "What runs now is what the next start sets up."),
        ],
    ),
    (
        "down",
        [
            ("reserv down", "All of it goes back to the kernel."),
            ("reserv down eth0", "Only this link; the rest stays."),
        ],
    ),
    (
        "upgrade",
        [
            ("reserv upgrade eth0", "This version's programs schedule eth0 from now on."),
            ("reserv upgrade eth0 eth1 --json", "Two links, and what that lost, for a program."),
        ],
    ),
    (
        "status",
        [
            ("reserv status", "The state, then what was refused before."),
            ("reserv status --json", "The same for a program; root only."),
        ],
    ),
    (
        "tree",
        [
            ("reserv tree", "Every resource with its nodes."),
            ("reserv tree web", "Only web and what is below it."),
        ],
    ),
    (
        "disk",
        [
            ("reserv disk attach /dev/vdb", "Schedule the requests of a disk."),
            ("reserv disk status", "Which disks are scheduled, and how."),
        ],
    ),
    (
        "disk attach",
        [
            ("reserv disk attach /dev/vdb", "Programs use /dev/reserv/vdb from now on."),
            (
                "reserv disk attach data=/srv/disk.img --floor 3MB/s",
                "A file, called data; so much can be promised as minimums.",
            ),
        ],
    ),
    (
        "disk detach",
        [
            ("reserv disk detach vdb", "Give it back; refused while it is in use."),
            ("reserv disk detach data --json", "The same for a program."),
        ],
    ),
    (
        "disk status",
        [
            ("reserv disk status", "Name, state and driver of each disk."),
            ("reserv disk status --json", "The same for a program."),
        ],
    ),
    (
        "top",
        [
            ("reserv top -P --sort received", "Live, who uses most first, down to processes."),
            ("reserv top --batch 5 --interval 2 web", "Five measurements of web as text."),
        ],
    ),
    (
        "usage",
        [
            ("reserv usage --interval 60", "A line for each minute and container, as CSV."),
            ("reserv usage --total container/web", "What web has used since it was made."),
        ],
    ),
    (
        "mk",
        [
            ("reserv mk web --sched --share 60", "A scheduler node, which divides its share."),
            (
                "reserv mk web/site1 web/site2 --share 24 --cap 1.5cpu",
                "Two queues in it, both or none.",
            ),
        ],
    ),
    (
        "rm",
        [
            ("reserv rm --drain web/site1", "Deleted when its last member has left."),
            (
                "reserv rm --flush web/site1 web/site2",
                "Their members go to q0, and both are deleted now.",
            ),
        ],
    ),
    (
        "set",
        [
            (
                "reserv set web/site1 web/site2 share=50",
                "The weight of two queues; their minimums stay.",
            ),
            ("reserv set web/site1 share='50 300ms/s' cap=2cpu", "A minimum, and a limit."),
        ],
    ),
    (
        "rule",
        [
            (
                "reserv rule add group=customers to cpu='customers/{user}'",
                "A queue for each user of a group.",
            ),
            ("reserv rule list", "All rules, with their numbers."),
        ],
    ),
    (
        "rule add",
        [
            (
                "reserv rule add uid=www-data command='php*' to cpu=web/site1",
                "Programs of a user, by their name.",
            ),
            (
                "reserv rule add from=192.0.2.0/24 local_port=80 to eth0=flood receive=100/s",
                "Who comes from there is another queue's, and slowed down at the entrance.",
            ),
        ],
    ),
    (
        "rule rm",
        [
            ("reserv rule rm 1", "The first rule; the others move up."),
            ("reserv rule rm 3 --json", "The third; what it was is answered as JSON."),
        ],
    ),
    (
        "rule list",
        [
            ("reserv rule list", "All rules, with their numbers."),
            ("reserv rule list --json", "The same for a program."),
        ],
    ),
    (
        "mv",
        [
            ("reserv mv web/site1 web/shop", "Another name."),
            ("reserv mv backup batch", "Below the scheduler node batch, by the same name."),
        ],
    ),
    (
        "run",
        [
            ("reserv run --cpu web/site1 -- make -j8", "A program with everything it starts."),
            (
                "reserv run --cpu web --net eth0/web --anyway -- nginx",
                "Queues of two resources; without them where Reserv does not run.",
            ),
        ],
    ),
    (
        "tag",
        [
            ("reserv tag web/site1 1234 1235", "Two processes that run already."),
            ("reserv tag rt --thread 4711", "A single thread."),
        ],
    ),
    (
        "ps",
        [
            ("reserv ps", "Who is in another queue than q0, and by which rule."),
            ("reserv ps 1234", "Where is process 1234?"),
        ],
    ),
    (
        "allow",
        [
            ("reserv allow alice use,create web/alice", "She may use it and make nodes below it."),
            (
                "reserv allow group:staff use batch --quota 8",
                "Of what a group makes there may be eight.",
            ),
        ],
    ),
    (
        "deny",
        [
            ("reserv deny bob use web", "Whatever else allows it to him."),
            ("reserv deny --take-back bob use web", "Neither allowed nor denied any more."),
        ],
    ),
    (
        "access",
        [
            ("reserv access web/alice", "What stands there, and above it."),
            ("reserv access --json container/web", "Of a container, for a program."),
        ],
    ),
    (
        "why",
        [
            ("reserv why 1234 web", "What process 1234 may do at web, and which entry says so."),
            ("reserv why 1234 container/web", "The same in every resource."),
        ],
    ),
    (
        "stat",
        [
            ("reserv stat web/site1", "Its counters; in a terminal with what they mean."),
            ("reserv stat container --sort cpu", "All containers and what they have used."),
        ],
    ),
    (
        "compare",
        [
            ("reserv compare", "The built-in workload under every scheduler."),
            (
                "reserv compare --seconds 20 -- make -j2",
                "A command of one's own beside a busy loop.",
            ),
        ],
    ),
    (
        "trace",
        [
            ("reserv trace --duration 10s", "Do the scheduler's theorems hold?"),
            (
                "reserv trace web --csv --output web.csv",
                "Service and lag below web, slice by slice.",
            ),
        ],
    ),
    (
        "demo",
        [("reserv demo", "All of it; some minutes."), ("reserv demo --quick", "The short form.")],
    ),
    (
        "experiment",
        [
            ("reserv experiment --list", "Which there are."),
            ("reserv experiment E-F9 --quick", "One of them, short."),
        ],
    ),
    (
        "completion",
        [
            (
                "reserv completion bash",
                "For bash: in a file of /usr/share/bash-completion/completions.",
            ),
            ("reserv completion fish", "For fish: in a file of /etc/fish/completions."),
        ],
    ),
];
