// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of commands. Help, completions and man pages are generated from it and from nothing
//! else.

mod up;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub use up::{Driver, Front, Up};
use words::{disk, duration, interval, rate, tid, word};

/// What stands under every page of help.
const AFTER: &str = "\
Paths name nodes below a resource: 'web/site1', 'cpu/web/site1' and '/reserv/cpu/web/site1' are the same node; \
'cpu' is the resource itself. Paths below another resource name it: 'disk/web'.

Exit status: 0 done; 1 refused or failed, with a reason on standard error; 2 wrong usage; 3 Reserv is not running; \
4 no such node or process; 5 not permitted; 6 saved without a resource that does not answer. 'run' exits with the program's own status, or 125 when the reservation \
could not be taken, 126 when the program could not be executed, 127 when it was not found.

Environment: RESERV_MOUNT (the mount point, /reserv), RESERV_RUN (run-time directory, /run/reserv), \
RESERV_VIA (files or socket: through the mount, or through reservd's control socket, which is root's way where reservd \
answers there), NO_COLOR.";

/// Give every tenant, program and thread its reserved share of the machine.
#[derive(Debug, Parser)]
#[command(
    name = "reserv",
    bin_name = "reserv",
    version,
    about = "Give every tenant, program and thread its reserved share of the machine",
    after_help = AFTER,
    max_term_width = 100,
    disable_help_subcommand = true,
    propagate_version = false,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Answer in JSON, for programs (the keys are documented in reserv(7))
    #[arg(long, global = true)]
    pub json: bool,
}

/// A web server for which there is a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Server {
    /// nginx (nginx -T)
    Nginx,
    /// Apache (apachectl -t)
    Apache,
    /// PHP-FPM (php-fpm -t)
    Php,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say which driver will be used on this machine, why, and what is lost with it; or whether a
    /// web server's configuration gives its sites the containers that it names
    Doctor {
        /// The web server; its own program says what its configuration is
        server: Option<Server>,
        /// Its main configuration file, where that is not its usual one
        #[arg(long, value_name = "FILE", requires = "server", value_hint = ValueHint::FilePath)]
        config: Option<PathBuf>,
    },
    /// Start Reserv, and apply a configuration
    Up(Up),
    /// Print the running tree as a configuration file
    Save {
        /// Where to write it; standard output if absent
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
        /// Write it to /etc/reserv/reserv.toml, which is applied when reservd starts, also after a
        /// boot
        #[arg(long, conflicts_with = "file")]
        boot: bool,
    },
    /// Stop Reserv and give the machine back to the kernel's own scheduler
    Down {
        /// Take only these resources down (links, counting resources), with their trees and tags;
        /// Reserv goes on
        #[arg(value_name = "RESOURCE")]
        resources: Vec<String>,
        /// Take the programs out of the kernel's memory too. Without it they stay loaded, tied to
        /// nothing, and the next 'up' needs no verifier
        #[arg(long, conflicts_with = "resources")]
        unload: bool,
    },
    /// Replace the programs that schedule links by this version's, after another version of Reserv
    /// was installed. Trees, tags and counters stay. Packets that wait are lost; their number is
    /// printed
    Upgrade {
        /// A link that is scheduled, as 'reserv status' names it
        #[arg(value_name = "RESOURCE", required = true)]
        resources: Vec<String>,
    },
    /// Show drivers, versions, what was refused last, and why a scheduler was ejected
    Status,
    /// Draw the trees of nodes with their shares
    Tree {
        /// Only this node and what is below it; every resource if it is not given; 'container' for
        /// containers
        path: Option<String>,
    },
    /// Put disks under Reserv, take them out again, and list them
    #[command(subcommand)]
    Disk(Disk),
    /// Watch who is served: shares as bars, service rate, runnable threads, caps; or containers, and
    /// what they use of each kind of resource
    Top(Top),
    /// Print what containers use: a line for each interval and container, as CSV or JSON
    Usage(Usage),
    /// Make a node, with its share, in one step
    Mk(Mk),
    /// Delete nodes
    Rm(Rm),
    /// Change nodes while they run
    #[command(override_usage = "reserv set PATH... KEY=VALUE...")]
    Set {
        /// Nodes, then changes: share= (a weight, which leaves the minimum as it is, or with
        /// a minimum: '50 250ms/s', '50 0'), shares= (of
        /// all children of a scheduler node in one step: 'site1 50 250ms/s, site2 30'), cap=,
        /// class=, policy=, gc= (1: deleted when nothing refers to it), limit= (most members; of a
        /// link 'PACKETS BYTES'; resets the queue's backlog counters), tunables (quantum=, lag=,
        /// turn=, decay=, priority=, request=, batch=, anticipate=, cost=, deadline=, round=,
        /// receive=, receive-burst=); with
        /// --thread: weight=, priority=, period=, budget=, deadline=
        #[arg(required = true, num_args = 1.., value_name = "PATH|KEY=VALUE")]
        words: Vec<String>,
        /// Change this thread instead, in its queue; parameters that are not named get their
        /// defaults
        #[arg(long, short, value_name = "TID", value_parser = clap::value_parser!(i32).range(1..))]
        thread: Option<i32>,
    },
    /// Add, remove and list the rules that say in which queue programs and packets are
    #[command(subcommand)]
    Rule(Rule),
    /// Rename a node, or move it below another scheduler node
    Mv {
        /// The node
        from: String,
        /// Its new path; if that is an existing scheduler node, the node becomes a child of it and
        /// keeps its name
        to: String,
    },
    /// Run a program under a reservation, with everything it starts
    Run(Run),
    /// Put running processes, threads, open files or sockets under a reservation
    Tag(Tag),
    /// Say in which queues processes are, and by which rule
    Ps(Ps),
    /// Give a user, group or process rights on a node and all below it; on a container, in every
    /// resource
    Allow(Allow),
    /// Deny rights on a node and all below it; a denial beats every 'allow'. Only root denies;
    /// others revoke what they allowed. On a container: in every resource
    Deny(Deny),
    /// Print who has which rights on a node: the entries there and those above it, which hold there
    /// too
    Access {
        /// The node, or a container
        #[arg(default_value = "cpu")]
        path: String,
    },
    /// Say what a process may do at a node, and which entry decides
    Why {
        /// The process
        #[arg(value_parser = clap::value_parser!(i32).range(1..))]
        pid: i32,
        /// The node, or a container: there it may what it may in every resource
        #[arg(default_value = "cpu")]
        path: String,
    },
    /// Print the counters of a node or a container; of 'container', a table of what all containers
    /// have used
    Stat {
        /// The node, or a container
        #[arg(default_value = "cpu")]
        path: String,
        /// Of a container, a table of it and all that is in it, ordered so
        #[arg(long, short, value_enum, value_name = "COLUMN")]
        sort: Option<crate::usage::Sort>,
    },
    /// Run one workload under the policies of each paper and under the kernel's own scheduler, and
    /// print one table
    Compare(Compare),
    /// The programs of 'compare'
    #[command(hide = true)]
    Load {
        /// hog, sleeper or decoder
        kind: String,
    },
    /// Follow the scheduler event by event: service and lag of every node, and whether its theorems
    /// hold
    Trace(Trace),
    /// Show on real servers what reservations do; takes some minutes
    Demo {
        /// Passed on to the demonstration
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Measure figures of the papers, Reserv beside the kernel's scheduler, and judge them; --list
    /// shows which
    Experiment {
        /// Passed on to experiments/run: [--list] NAME... [--quick] [--out DIR] [--json]
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
        args: Vec<OsString>,
    },
    /// Print the completion script of a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// What a shell may put behind these words: names of what runs, a line each
    #[command(hide = true)]
    Complete {
        /// Those behind 'reserv', the last one as far as it is typed
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
        words: Vec<String>,
    },
    /// Write generated files (for packagers)
    #[command(hide = true)]
    Gen {
        /// What to generate
        #[arg(value_enum)]
        what: Generated,
        /// Where to put it
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Only this node and what is below it; every resource if it is not given; 'container', or one,
    /// for what containers use of CPU, links, disks and memory
    pub path: Option<String>,
    /// In which order; siblings among themselves, with what is below them; the key s takes the next
    #[arg(long, short, value_enum, value_name = "COLUMN")]
    pub sort: Option<crate::top::Sort>,
    /// Below each queue of the CPU the ten processes that use most of it, and what the others use;
    /// the key P turns it on and off
    #[arg(long, short = 'P')]
    pub processes: bool,
    /// Print this many plain tables and end, instead of a display that is updated; 0 prints without
    /// end
    #[arg(long, short, value_name = "N")]
    pub batch: Option<u64>,
    /// Seconds between measurements
    #[arg(long, short, value_name = "S", default_value = "1", value_parser = interval)]
    pub interval: f64,
}

/// Arguments of `usage`.
#[derive(Debug, Args)]
pub struct Usage {
    /// Only this container and those in it; all if it is not given
    #[arg(default_value = "container", value_name = "CONTAINER")]
    pub path: String,
    /// As CSV, whose first line names the columns and their units (this is so without it, too);
    /// with --json an object per line
    #[arg(long)]
    pub csv: bool,
    /// Seconds between lines of one container
    #[arg(long, short, value_name = "S", default_value = "1", value_parser = interval)]
    pub interval: f64,
    /// End after so many intervals; 0 goes on without end
    #[arg(long, short = 'n', value_name = "N", default_value_t = 0)]
    pub count: u64,
    /// Print what was used so far, once, and end; the interval is empty then
    #[arg(long, conflicts_with_all = ["interval", "count"])]
    pub total: bool,
}

/// Arguments of `mk`.
#[derive(Debug, Args)]
pub struct Mk {
    /// The new nodes, all or none; the parent of each must exist and be a scheduler node
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<String>,
    /// A queue, where threads wait (the default)
    #[arg(long, conflicts_with = "sched")]
    pub queue: bool,
    /// A container: one node in the tree of every resource, those that come later too; with --sched
    /// one that holds containers
    #[arg(long, conflicts_with_all = ["cap", "class", "policy"])]
    pub container: bool,
    /// A scheduler node, which divides its share among its children
    #[arg(long)]
    pub sched: bool,
    /// Its weight among its siblings (0: served only when no sibling with a weight wants service),
    /// or a fixed share of its parent: =25%; then perhaps a minimum: '50 250ms/s'
    #[arg(long, short, value_name = "WEIGHT", default_value = "100", allow_hyphen_values = true)]
    pub share: String,
    /// An upper limit: 1.5cpu, 250ms/s, 25%
    #[arg(long, value_name = "CAP")]
    pub cap: Option<String>,
    /// How the queue orders what waits in it: ts, sfq, rr, fifo, edf; on a link also drr, on a disk
    /// scan, scan-edf, interactive, throughput or real-time; see reserv(7)
    #[arg(long, value_name = "CLASS", conflicts_with = "sched")]
    pub class: Option<String>,
    /// How the scheduler node orders its children: sfq, eevdf, mtrls, prio, wrr; on a link also
    /// wf2q+ or wf2q, on a disk wf2q+ or yfq; see reserv(7)
    #[arg(long, value_name = "POLICY", requires = "sched")]
    pub policy: Option<String>,
}

/// Arguments of `rm`.
#[derive(Debug, Args)]
pub struct Rm {
    /// The nodes; a scheduler node must have no children
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<String>,
    /// Accept no new members, and delete it when the last has left
    #[arg(long, conflicts_with = "flush")]
    pub drain: bool,
    /// Move its members to q0 and delete it now
    #[arg(long)]
    pub flush: bool,
}

/// What `rule` does.
#[derive(Debug, clap::Subcommand)]
pub enum Rule {
    /// Add a rule: conditions, all of which must hold, then the queue of each resource
    #[command(override_usage = "reserv rule add CONDITION=VALUE... to RESOURCE=QUEUE...")]
    Add {
        /// Conditions: uid=, gid=, group=, unit=, cgroup=, command=; or, about packets, port=,
        /// local_port=, remote=, protocol=; or, about what comes in, from=10.0.0.0/8,
        /// from='not 10.0.0.0/8' or from=any, with local_port= and protocol=. After the word 'to'
        /// queues: cpu=web/site1, eth0=web, container=web; cpu='users/{user}' is a queue for each
        /// user; of what comes in also receive=100/s (receive-burst=16), or receive=nothing
        #[arg(required = true, num_args = 1.., value_name = "WORD")]
        words: Vec<String>,
        /// Put it before rule N; last if absent. The first rule that matches wins
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        before: Option<u32>,
    },
    /// Remove the rule of this number; the others move up
    Rm {
        /// As 'reserv rule list' numbers them
        #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        number: u32,
    },
    /// Print the rules, in order, with their numbers, and what came in by those about who comes
    List,
}

/// What `disk` does.
#[derive(Debug, clap::Subcommand)]
pub enum Disk {
    /// Schedule the requests of a file or block device from now on; programs use /dev/reserv/NAME
    Attach {
        /// The file or device ('vdb' means /dev/vdb if no such file is here). It must not be
        /// mounted or otherwise in use
        #[arg(value_name = "[NAME=]FILE|DEVICE", value_parser = disk)]
        disk: (reserv_model::Name, String),
        /// Most requests that it is given at once (1 to 256)
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
        depth: Option<u32>,
        /// What it serves per second under any load, as 3MB/s: the minimums of its queues may add
        /// up to it
        #[arg(long, value_name = "RATE", value_parser = rate)]
        floor: Option<reserv_model::Rate>,
        /// How /dev/reserv/NAME is made; auto takes ublk where this kernel has it, else FUSE with a
        /// loop device
        #[arg(long, value_enum, default_value_t = Front::Auto)]
        front: Front,
        /// For trials: make it as slow as a model of a disk, spinning or flash
        #[arg(long, value_name = "DISK", value_parser = word::<reserv_model::DiskModel>)]
        model: Option<reserv_model::DiskModel>,
        /// By which driver: full is Reserv's block server, stock the kernel's BFQ or iocost with
        /// cgroups, whose shares are inexact; auto takes the full one
        #[arg(long, value_enum, default_value_t = Driver::Auto)]
        driver: Driver,
        /// How it orders its queues: sfq, wf2q+, yfq or cello; by the personality of 'reserv up' if
        /// absent
        #[arg(long, value_name = "POLICY", value_parser = word::<reserv_model::Policy>)]
        policy: Option<reserv_model::Policy>,
    },
    /// Give a disk back; nothing is lost. Refused while it is mounted or in use
    Detach {
        /// Its name in /reserv
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Show which disks are scheduled, by which driver, and as which device
    Status,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The queue for the CPU
    #[arg(long, value_name = "PATH", required_unless_present_any = ["net", "disk", "on", "container"])]
    pub cpu: Option<String>,
    /// A container: its queues of all resources
    #[arg(long = "in", value_name = "CONTAINER", conflicts_with_all = ["cpu", "net", "disk", "on"])]
    pub container: Option<String>,
    /// A queue of a link, with the link's name: eth0/web; once per link
    #[arg(long, value_name = "LINK/PATH")]
    pub net: Vec<String>,
    /// A queue of a disk, with the disk's name: vdb/web; once per disk
    #[arg(long, value_name = "DISK/PATH")]
    pub disk: Vec<String>,
    /// A queue of any resource, with the resource's name; once per resource
    #[arg(long, value_name = "RESOURCE/PATH")]
    pub on: Vec<String>,
    /// Where Reserv does not run, run the program all the same, without a reservation
    #[arg(long)]
    pub anyway: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD",
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// What `tag` tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// A process.
    pub pid: i32,
    /// Only what this descriptor of it stands for.
    pub fd: Option<u32>,
}

impl std::str::FromStr for Tagged {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pid, fd) = text.split_once('/').map_or((text, None), |(pid, fd)| (pid, Some(fd)));
        let pid = pid
            .parse()
            .ok()
            .filter(|pid| *pid > 0)
            .ok_or_else(|| format!("'{pid}' is no process"))?;
        let number = |fd: &str| fd.parse().map_err(|_| format!("'{fd}' is no descriptor"));
        Ok(Self { pid, fd: fd.map(number).transpose()? })
    }
}

/// Arguments of `tag`.
#[derive(Debug, Args)]
pub struct Tag {
    /// A queue
    pub path: String,
    /// Processes, with all their threads and what they will start; PID/FD is a single open file or
    /// socket of one
    #[arg(value_name = "PID[/FD]", required_unless_present = "thread")]
    pub pids: Vec<Tagged>,
    /// Single threads
    #[arg(long, short, value_name = "TID", num_args = 1.., value_parser = tid)]
    pub thread: Vec<i32>,
}

/// Arguments of `ps`.
#[derive(Debug, Args)]
pub struct Ps {
    /// These processes, or all in or below these nodes; if none is named, all that are in another
    /// queue than q0
    #[arg(value_name = "PID|PATH")]
    pub words: Vec<String>,
    /// Those in q0 too
    #[arg(long, short, conflicts_with = "words")]
    pub all: bool,
}

/// Arguments of `allow`.
#[derive(Debug, Args)]
pub struct Allow {
    /// A user, group:NAME, pid:N, everyone; with + between several, all must hold
    pub who: String,
    /// read, use, create, modify, grant, delete, with commas between them; or all
    pub rights: String,
    /// The node, or a container (container/web/site1: all its nodes, those that come later too); the
    /// rights hold for all below it too
    pub path: String,
    /// How many nodes may be made by this entry; 1000 if absent
    #[arg(long, short, value_name = "N")]
    pub quota: Option<u32>,
}

/// Arguments of `deny`.
#[derive(Debug, Args)]
pub struct Deny {
    /// A user, group:NAME, pid:N, everyone, or several with + between them
    pub who: String,
    /// read, use, create, modify, grant, delete, with commas between them; or all
    pub rights: String,
    /// The node, or a container
    pub path: String,
    /// Move to q0 at once what loses the right to its queue by this: threads, descriptors, default
    /// lists. Without it they stay
    #[arg(long)]
    pub fall: bool,
    /// Remove the entry that allows or denies there, and deny nothing
    #[arg(long)]
    pub take_back: bool,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// How long the workload runs under each scheduler; 5 if absent, at most 60 for a command of
    /// your own
    #[arg(long, short, value_name = "S", value_parser = interval)]
    pub seconds: Option<f64>,
    /// Go on although queues have members: they lose their tags. The tree itself is set up again as
    /// it was
    #[arg(long)]
    pub force: bool,
    /// A command to measure beside a busy loop of the same weight, instead of the built-in workload
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD",
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Only these nodes and what is below them
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,
    /// How long: 5s, 500ms, 1m; Ctrl-C ends it early
    #[arg(long, short, value_name = "D", default_value = "5s", value_parser = duration)]
    pub duration: Duration,
    /// Also where the tree is so large that all CPUs stop for some milliseconds, when the trace
    /// begins and when it ends
    #[arg(long, conflicts_with = "from")]
    pub pause: bool,
    /// A line for each slice of time and node
    #[arg(long, conflicts_with = "raw")]
    pub csv: bool,
    /// The events themselves, as JSON lines
    #[arg(long)]
    pub raw: bool,
    /// Judge events that were saved with --raw
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "duration")]
    pub from: Option<PathBuf>,
    /// Write here instead of to standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// What `gen` makes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Generated {
    /// Man pages of the commands
    Man,
    /// Completion scripts of all shells
    Completions,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_table_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_programs_own_options_stay_its_own() {
        let cli =
            Cli::try_parse_from(["reserv", "run", "--cpu", "web", "ls", "--json", "-l"]).unwrap();
        assert!(!cli.json);
        let Command::Run(run) = cli.command else { panic!("run") };
        assert_eq!(run.command, ["ls", "--json", "-l"]);
        let cli =
            Cli::try_parse_from(["reserv", "run", "--cpu", "web", "--", "ls", "--", "x"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("run") };
        assert_eq!(run.command, ["ls", "--", "x"]);
    }

    #[test]
    fn contradictions_are_usage_errors() {
        for words in [
            &["reserv", "mk", "a", "--queue", "--sched"][..],
            &["reserv", "mk", "a", "--sched", "--class", "rr"],
            &["reserv", "mk", "a", "--policy", "sfq"],
            &["reserv", "rm", "a", "--drain", "--flush"],
            &["reserv", "rm"],
            &["reserv", "tag", "a"],
            &["reserv", "tag", "a", "0"],
            &["reserv", "tag", "a", "-1"],
            &["reserv", "run", "--cpu", "a"],
            &["reserv", "run", "ls"],
            &["reserv", "top", "-i", "0"],
            &["reserv", "top", "-i", "nan"],
            &["reserv", "top", "container", "--sort", "swap"],
            &["reserv", "usage", "--total", "--count", "2"],
            &["reserv", "up", "--driver", "both"],
            &["reserv", "trace", "-d", "0"],
            &["reserv", "trace", "-d", "5h"],
            &["reserv", "trace", "--raw", "--csv"],
            &["reserv", "frobnicate"],
        ] {
            let error = Cli::try_parse_from(words).expect_err(&words.join(" "));
            assert_eq!(error.exit_code(), 2, "{words:?}");
        }
    }
}
