// SPDX-License-Identifier: MIT OR Apache-2.0
//! `compare`: one workload under each personality and under the kernel's own scheduler, one after
//! the other, one table.
//!
//! All of it runs on one CPU, so that weights decide. The built-in workload: three hogs with
//! weights 1 : 2 : 4, a sleeper that wakes every 7 ms, and a decoder with 8 ms of work every 33 ms,
//! whose weight is enough for it. With a command: the command, of the weight of a hog beside it.
//!
//! The tree is saved before and set up again after, whatever happens in between; tags cannot be
//! (that is why members are a reason to refuse).

mod groups;

use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use reserv_model::{
    Class, Config, NodeConfig, NodeKind, Personality, ResourceConfig, ResourceKind, Share,
};
use serde::Serialize;
use serde_json::Value;

use self::groups::Groups;
use crate::args::Compare;
use crate::control::Control;
use crate::error::Error;
use crate::load::{self, Got};
use crate::node::Node;
use crate::paint::{duration, percent, table};
use crate::path::NodePath;
use crate::signals::Held;
use crate::{run, up};

/// Longest time that the load has to start in, and to end in.
const GRACE: Duration = Duration::from_secs(30);

/// One member of the workload.
struct Part {
    name: &'static str,
    weight: u32,
    load: &'static str,
}

const BUILT_IN: &[Part] = &[
    Part { name: "hog1", weight: 100, load: "hog" },
    Part { name: "hog2", weight: 200, load: "hog" },
    Part { name: "hog4", weight: 400, load: "hog" },
    Part { name: "sleeper", weight: 100, load: "sleeper" },
    Part { name: "decoder", weight: 400, load: "decoder" },
];

const OWN: &[Part] = &[
    Part { name: "command", weight: 100, load: "" },
    Part { name: "hog", weight: 100, load: "hog" },
];

/// What came of it under one scheduler.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// A personality, or `kernel`.
    pub(crate) scheduler: String,
    /// The mechanism in words.
    pub(crate) policy: String,
    /// Share that each always-running part asked for among them, and got; 0 to 1.
    pub(crate) shares: Vec<(String, f64, f64)>,
    /// Largest distance between the two.
    pub(crate) share_error: f64,
    /// Lateness of the sleeper's wake-ups.
    pub(crate) wake_p50_ns: Option<u64>,
    /// The same, of the worst hundredth.
    pub(crate) wake_p99_ns: Option<u64>,
    /// Of the decoder.
    pub(crate) frames: u64,
    /// Of the decoder: not done in time.
    pub(crate) misses: u64,
    /// Times that a part left the CPU, per second, all parts together.
    pub(crate) switches_per_s: f64,
    /// Of the command.
    pub(crate) seconds: Option<f64>,
    /// Exit status of the command; none when it was ended because its time was over.
    pub(crate) status: Option<i32>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    cpu: usize,
    seconds: f64,
    rows: Vec<Row>,
    /// What could not be measured, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
}

impl Report {
    /// A gap in the table is no failure; a table without any of Reserv's schedulers is.
    pub(crate) fn measured(&self) -> Result<ExitCode, Error> {
        if self.rows.iter().any(|row| row.scheduler != "kernel") {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Error::refused("none of Reserv's schedulers could be measured"))
    }
}

fn say(what: &str) {
    let start = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let end = if std::io::stderr().is_terminal() { "" } else { "\n" };
    let _ = write!(std::io::stderr(), "{start}reserv: {what}{end}");
}

/// The whole comparison.
pub(crate) fn compare(args: &Compare) -> Result<Report, Error> {
    let held = Held::begin();
    let began = Control::connect()?.is_none();
    if began {
        say("starting Reserv");
        up::start_plain()?;
    }
    let mut control = Control::need()?;
    let result = check_driver(&mut control).and_then(|()| check_members(args)).and_then(|()| {
        let saved = up::saved(&mut control)?;
        drop(control);
        let result = all(args, &held);
        match (up::restore(&saved), result) {
            (Ok(()), result) => result,
            (Err(also), Ok(_)) => Err(also),
            (Err(also), Err(mut error)) => {
                error.add(&format!("and the tree was not set up again: {}", also.message));
                Err(error)
            }
        }
    });
    if began {
        up::down(false)?;
    }
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    result
}

fn check_driver(control: &mut Control) -> Result<(), Error> {
    let status = control.ask::<Value>(&reserv_control::Command::Status {})?;
    let driver =
        status.pointer("/resources/cpu/driver").and_then(Value::as_str).unwrap_or("unknown");
    if driver == "full" {
        return Ok(());
    }
    Err(Error::refused(format!("the {driver} driver has one policy: there is nothing to compare"))
        .hint("comparing needs the full driver (sched_ext); 'reserv doctor' says why it cannot be used here"))
}

/// Members would lose their tags.
fn check_members(args: &Compare) -> Result<(), Error> {
    let files = crate::fs::open()?;
    let cpu = NodePath::parse("cpu", files.place())?;
    let root = Node::read(&*files, &cpu).map_err(|e| Error::io("cpu", &e))?;
    let mut members = 0;
    root.each(&mut |node, _| {
        let listed = node.kind == "queue" && node.path != "cpu/q0";
        let text = if listed {
            files.read(&format!("{}/members", node.path)).unwrap_or_default()
        } else {
            String::new()
        };
        members += text.lines().count();
    });
    if members == 0 || args.force {
        return Ok(());
    }
    let noun = if members == 1 { "member" } else { "members" };
    Err(Error::refused(format!("the tree has {members} {noun}, who would lose their tags"))
        .hint("--force does it all the same; the tree itself is set up again as it is"))
}

fn all(args: &Compare, held: &Held) -> Result<Report, Error> {
    let cpu = first_cpu()?;
    let parts = if args.command.is_empty() { BUILT_IN } else { OWN };
    let length = Duration::from_secs_f64(args.seconds.unwrap_or(if args.command.is_empty() {
        5.0
    } else {
        60.0
    }));
    let mut report =
        Report { cpu, seconds: length.as_secs_f64(), rows: Vec::new(), missing: Vec::new() };
    let stop = || {
        if held.take() { Err(Error::refused("interrupted; the tree is as it was")) } else { Ok(()) }
    };
    // Containers order as the default does; what else they are no load shows.
    for &personality in Personality::ALL.iter().filter(|one| !one.binds_children()) {
        say(&format!("{personality}: {:.0} s", length.as_secs_f64()));
        let config = tree_for(personality, parts)?;
        match up::apply_whole(&config) {
            Ok(()) => {}
            // A policy that this kernel's programs do not have is a gap in the table, not the end
            // of it.
            Err(error) => {
                report.missing.push(format!("{personality}: {}", error.message));
                continue;
            }
        }
        let policy = format!(
            "{}, {}",
            personality.policy(ResourceKind::Cpu),
            personality.class(ResourceKind::Cpu)
        );
        let files = crate::fs::open()?;
        let tag = |part: &Part, pid: i32| {
            run::tag_process(&*files, &NodePath::parse(part.name, files.place())?, pid)
        };
        report.rows.push(measure(args, parts, cpu, length, (personality.word(), &policy), &tag)?);
        stop()?;
    }
    say(&format!("kernel: {:.0} s", length.as_secs_f64()));
    match Groups::make(parts) {
        Err(why) => report.missing.push(format!("kernel: {why}")),
        Ok(groups) => {
            up::down(false)?;
            let tag = |part: &Part, pid: i32| groups.put(part, pid);
            report.rows.push(measure(
                args,
                parts,
                cpu,
                length,
                ("kernel", "EEVDF, cgroups"),
                &tag,
            )?);
        }
    }
    Ok(report)
}

fn first_cpu() -> Result<usize, Error> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|e| Error::io("affinity", &e.into()))?;
    (0..CpuSet::count())
        .find(|cpu| set.is_set(*cpu) == Ok(true))
        .ok_or_else(|| Error::refused("no CPU to run on"))
}

fn tree_for(personality: Personality, parts: &[Part]) -> Result<Config, Error> {
    let wrong = |e: reserv_model::Error| Error::refused(e.to_string());
    let mut cpu = ResourceConfig { personality, ..ResourceConfig::default() };
    for part in parts {
        let weight = reserv_model::Weight::from_milli(part.weight * 1000)
            .unwrap_or(reserv_model::Weight::DEFAULT);
        let node = NodeConfig { share: Share::of(weight), ..NodeConfig::new(NodeKind::Queue) };
        cpu.nodes.insert(part.name.parse().map_err(wrong)?, node);
    }
    let q0 = NodeConfig { class: Some(Class::Ts), ..NodeConfig::new(NodeKind::Queue) };
    cpu.nodes.insert("q0".parse().map_err(wrong)?, q0);
    Ok(Config { cpu: Some(cpu), ..Config::default() })
}

/// The load's processes; ended when dropped.
struct Load(Vec<Child>);

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(part: &Part, cpu: usize) -> Result<Child, Error> {
    let failed = |e: &std::io::Error| Error::io(format!("cannot start the {}", part.name), e);
    let exe = std::env::current_exe().map_err(|e| failed(&e))?;
    let mut command = Command::new(exe);
    command.args(["load", part.load]).stdin(Stdio::piped()).stdout(Stdio::piped());
    pin(&mut command, cpu);
    command.spawn().map_err(|e| failed(&e))
}

fn pin(command: &mut Command, cpu: usize) {
    let mut set = CpuSet::new();
    let _ = set.set(cpu);
    // SAFETY: sched_setaffinity is a system call; the closure allocates nothing.
    unsafe {
        command.pre_exec(move || {
            sched_setaffinity(Pid::from_raw(0), &set).map_err(std::io::Error::from)
        });
    }
}

type Tagger<'a> = dyn Fn(&Part, i32) -> Result<(), Error> + 'a;

fn measure(
    args: &Compare,
    parts: &[Part],
    cpu: usize,
    length: Duration,
    (scheduler, policy): (&str, &str),
    tag: &Tagger<'_>,
) -> Result<Row, Error> {
    let pid = |child: &Child| i32::try_from(child.id()).unwrap_or(0);
    let mut load = Load(Vec::new());
    for part in parts.iter().filter(|p| !p.load.is_empty()) {
        let child = spawn(part, cpu)?;
        let id = pid(&child);
        load.0.push(child);
        tag(part, id)?;
    }
    let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let from = load::now() + 300_000_000;
    for child in &mut load.0 {
        let line = format!("{from} {}\n", from + length_ns);
        let told = child.stdin.take().map(|mut pipe| pipe.write_all(line.as_bytes()));
        told.transpose().map_err(|e| Error::io("the load", &e))?;
    }
    let own = parts.iter().find(|p| p.load.is_empty());
    let own = own.map(|part| run_own(args, part, cpu, length, tag)).transpose()?;
    let mut got: Vec<(&Part, Got)> = Vec::new();
    let (answers, wait) = std::sync::mpsc::channel();
    for (at, child) in load.0.iter_mut().enumerate() {
        let Some(pipe) = child.stdout.take() else { continue };
        let answers = answers.clone();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(pipe).read_line(&mut line);
            let _ = answers.send((at, line));
        });
    }
    drop(answers);
    let loads: Vec<&Part> = parts.iter().filter(|p| !p.load.is_empty()).collect();
    let until = Instant::now() + length + GRACE;
    let early = own.as_ref().is_some_and(|own| own.elapsed < length);
    while !early && got.len() < loads.len() {
        let left = until.saturating_duration_since(Instant::now());
        let (at, line) = wait.recv_timeout(left).map_err(|_| {
            Error::refused(format!(
                "{scheduler}: the load did not end in time: something starves it"
            ))
        })?;
        let one = serde_json::from_str(&line).map_err(|e| {
            Error::refused(format!("{scheduler}: the {} said nothing ({e})", loads[at].name))
        })?;
        got.push((loads[at], one));
    }
    if let (Some(own), Some(hog)) = (&own, loads.first()) {
        if early {
            // The command has ended: what its rival had until then stands in /proc.
            let cpu_ns = own.rival_ns;
            got.push((hog, Got { cpu_ns, ..Got::default() }));
        }
        got.push((&parts[0], Got { cpu_ns: own.cpu_ns, switches: own.switches, ..Got::default() }));
    }
    Ok(row(scheduler, policy, &got, own.as_ref(), length))
}

/// What a command of the user's got.
struct Own {
    elapsed: Duration,
    cpu_ns: u64,
    switches: u64,
    rival_ns: u64,
    status: Option<i32>,
}

fn run_own(
    args: &Compare,
    part: &Part,
    cpu: usize,
    length: Duration,
    tag: &Tagger<'_>,
) -> Result<Own, Error> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = || getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|e| Error::io("usage", &e.into()));
    let ns = |t: nix::sys::time::TimeVal| {
        u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000
            + u64::try_from(t.tv_usec()).unwrap_or(0) * 1000
    };
    let before = usage()?;
    let mut command = Command::new("sh");
    // It waits for its tag before it becomes the command.
    command.args(["-c", "read -r _ && exec \"$@\"", "sh"]).args(&args.command);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    pin(&mut command, cpu);
    let name = args.command[0].to_string_lossy().into_owned();
    let child = command.spawn().map_err(|e| Error::io(format!("cannot start '{name}'"), &e))?;
    let mut load = Load(vec![child]);
    let child = &mut load.0[0];
    tag(part, i32::try_from(child.id()).unwrap_or(0))?;
    // The hog begins 0.3 s after it was told to.
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    if let Some(mut pipe) = child.stdin.take() {
        let _ = pipe.write_all(b"go\n");
    }
    let mut status = None;
    while begin.elapsed() < length {
        match child.try_wait().map_err(|e| Error::io(&name, &e))? {
            Some(ended) => {
                status = ended.code();
                break;
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    let elapsed = begin.elapsed();
    drop(load);
    let after = usage()?;
    let count = |u: &nix::sys::resource::Usage| {
        u64::try_from(u.voluntary_context_switches() + u.involuntary_context_switches())
            .unwrap_or(0)
    };
    let cpu = |u: &nix::sys::resource::Usage| ns(u.user_time()) + ns(u.system_time());
    let cpu_ns = cpu(&after).saturating_sub(cpu(&before));
    let rival_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).saturating_sub(cpu_ns);
    Ok(Own {
        elapsed,
        cpu_ns,
        switches: count(&after).saturating_sub(count(&before)),
        rival_ns,
        status,
    })
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn row(
    scheduler: &str,
    policy: &str,
    got: &[(&Part, Got)],
    own: Option<&Own>,
    length: Duration,
) -> Row {
    let wants = |part: &Part| part.load == "hog" || part.load.is_empty();
    let all: u64 = got.iter().filter(|(p, _)| wants(p)).map(|(_, g)| g.cpu_ns).sum();
    let asked: u32 = got.iter().filter(|(p, _)| wants(p)).map(|(p, _)| p.weight).sum();
    let mut shares: Vec<(String, f64, f64)> = got
        .iter()
        .filter(|(p, _)| wants(p))
        .map(|(p, g)| {
            (
                p.name.to_owned(),
                f64::from(p.weight) / f64::from(asked),
                g.cpu_ns as f64 / all.max(1) as f64,
            )
        })
        .collect();
    shares.sort_by(|a, b| a.0.cmp(&b.0));
    let share_error = shares.iter().map(|(_, asked, got)| (asked - got).abs()).fold(0.0, f64::max);
    let mut late: Vec<u64> = got.iter().flat_map(|(_, g)| g.late_ns.iter().copied()).collect();
    late.sort_unstable();
    let at = |percent: usize| {
        late.get((late.len() * percent / 100).min(late.len().saturating_sub(1))).copied()
    };
    let switches: u64 = got.iter().map(|(_, g)| g.switches).sum();
    let elapsed = own.map_or(length, |own| own.elapsed).as_secs_f64();
    Row {
        scheduler: scheduler.to_owned(),
        policy: policy.to_owned(),
        shares,
        share_error,
        wake_p50_ns: at(50),
        wake_p99_ns: at(99),
        frames: got.iter().map(|(_, g)| g.frames).sum(),
        misses: got.iter().map(|(_, g)| g.misses).sum(),
        switches_per_s: switches as f64 / elapsed,
        seconds: own.map(|own| own.elapsed.as_secs_f64()),
        status: own.and_then(|own| own.status),
    }
}

/// For people.
pub(crate) fn render(report: &Report) -> String {
    use std::fmt::Write as _;
    let own = report.rows.iter().any(|row| row.seconds.is_some());
    let mut rows = vec![
        if own {
            vec![
                "SCHEDULER",
                "POLICY, CLASS",
                "SHARES",
                "OFF BY",
                "SECONDS",
                "STATUS",
                "SWITCHES/S",
            ]
        } else {
            vec![
                "SCHEDULER",
                "POLICY, CLASS",
                "SHARES",
                "OFF BY",
                "WAKE P50",
                "WAKE P99",
                "MISSES",
                "SWITCHES/S",
            ]
        }
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>(),
    ];
    let asked: Vec<String> = report
        .rows
        .first()
        .map_or_else(Vec::new, |row| row.shares.iter().map(|s| percent(s.1)).collect());
    let mut asks = vec!["asked".to_owned(), String::new(), asked.join(" ")];
    asks.resize(rows[0].len(), String::new());
    rows.push(asks);
    for row in &report.rows {
        let shares: Vec<String> = row.shares.iter().map(|s| percent(s.2)).collect();
        let late = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), duration);
        let mut line = vec![
            row.scheduler.clone(),
            row.policy.clone(),
            shares.join(" "),
            percent(row.share_error),
        ];
        if own {
            line.push(format!("{:.2}", row.seconds.unwrap_or_default()));
            line.push(row.status.map_or_else(|| "time over".to_owned(), |s| s.to_string()));
        } else {
            line.extend([
                late(row.wake_p50_ns),
                late(row.wake_p99_ns),
                format!("{} of {}", row.misses, row.frames),
            ]);
        }
        line.push(format!("{:.0}", row.switches_per_s));
        rows.push(line);
    }
    let right: Vec<bool> = (0..rows[0].len()).map(|column| column > 2).collect();
    let mut text = table(&right, &rows).join("\n") + "\n";
    for missing in &report.missing {
        let _ = writeln!(text, "not measured: {missing}");
    }
    text
}
