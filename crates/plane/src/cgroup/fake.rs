// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated machine: cgroup hierarchies with the kernel's own rules about who may be where, the
//! parts of /proc that the drivers read, and a disk with an elevator. Calls can be made to fail, or
//! to be the last ones of a daemon's life.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::kernel::Kernel;

/// Which hierarchies there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Split,
    Combined,
    V2,
    /// v1 with nothing but block I/O.
    Blkio,
}

/// Those with a CPU controller.
pub(crate) const KINDS: [Kind; 3] = [Kind::Split, Kind::Combined, Kind::V2];
/// Those with a controller of block I/O.
pub(crate) const IO_KINDS: [Kind; 2] = [Kind::Blkio, Kind::V2];

/// The disk's elevators, of which one is chosen.
pub(crate) const ELEVATOR: &str = "/sys/block/vdb/queue/scheduler";
/// iocost's switches, where there is one.
pub(crate) const QOS: &str = "/cg/io.cost.qos";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) weight: u32,
    pub(crate) idle: bool,
    pub(crate) quota: i64,
    pub(crate) period: i64,
    pub(crate) burst: i64,
    pub(crate) threaded: bool,
    /// Controllers that its children have.
    pub(crate) control: BTreeSet<String>,
    pub(crate) io_weight: u32,
    pub(crate) io_bytes: u64,
    pub(crate) usage_ns: u64,
    pub(crate) throttled_ns: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) tgid: i32,
    pub(crate) parent: i32,
    pub(crate) started: u64,
    /// One path per hierarchy, `""` the root.
    pub(crate) at: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) kind: Kind,
    /// By hierarchy, then by path.
    pub(crate) groups: Vec<BTreeMap<String, Group>>,
    pub(crate) threads: BTreeMap<i32, Thread>,
    pub(crate) files: BTreeMap<String, String>,
    /// Calls that change something.
    pub(crate) changes: usize,
    /// All calls.
    pub(crate) calls: usize,
    /// The change of this number fails with EIO.
    pub(crate) fail_at: Option<usize>,
    /// From this call on nothing reaches the kernel: the daemon is dead.
    pub(crate) dead_from: Option<usize>,
    /// Threads have an identity, as since Linux 6.9.
    pub(crate) identities: bool,
    /// All processes are in the middle of an exec: who asks when they were started waits for ever.
    pub(crate) in_exec: bool,
    clock: u64,
}

#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<World>>);

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

impl World {
    pub(crate) fn new(kind: Kind) -> Self {
        let root = Group {
            weight: if kind == Kind::V2 { 100 } else { 1024 },
            idle: false,
            quota: -1,
            period: 100_000,
            burst: 0,
            threaded: false,
            control: BTreeSet::new(),
            io_weight: 100,
            io_bytes: 0,
            usage_ns: 0,
            throttled_ns: 0,
        };
        let hierarchies = if kind == Kind::Split { 2 } else { 1 };
        Self {
            kind,
            groups: vec![BTreeMap::from([(String::new(), root)]); hierarchies],
            threads: BTreeMap::new(),
            files: BTreeMap::new(),
            changes: 0,
            calls: 0,
            fail_at: None,
            dead_from: None,
            identities: false,
            in_exec: false,
            clock: 1,
        }
    }

    fn mounts(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Split => &["/cg/cpu", "/cg/cpuacct"],
            Kind::Combined => &["/cg/cpu,cpuacct"],
            Kind::V2 => &["/cg"],
            Kind::Blkio => &["/cg/blkio"],
        }
    }

    /// Makes a cgroup as somebody else would.
    pub(crate) fn group(&mut self, path: &str) {
        for h in 0..self.groups.len() {
            self.mkdir(h, path).expect("a new cgroup");
        }
    }

    /// A thread that is born where its creator is, or at `path`.
    pub(crate) fn spawn(&mut self, tid: i32, process: i32, parent: i32, path: &str) {
        let at = match self.threads.get(&if tid == process { parent } else { process }) {
            Some(creator) => creator.at.clone(),
            None => vec![path.to_owned(); self.groups.len()],
        };
        self.clock += 1;
        self.threads.insert(tid, Thread { tgid: process, parent, started: self.clock, at });
    }

    /// A thread runs: its cgroup and all above count it.
    pub(crate) fn run(&mut self, tid: i32, ns: u64) {
        let h = self.groups.len() - 1;
        let mut path = self.threads[&tid].at[h].clone();
        loop {
            self.groups[h].get_mut(&path).expect("a thread's cgroup exists").usage_ns += ns;
            if path.is_empty() {
                break;
            }
            path = parent(&path).to_owned();
        }
    }

    fn mkdir(&mut self, h: usize, path: &str) -> io::Result<()> {
        if self.groups[h].contains_key(path) {
            return Err(errno(libc::EEXIST));
        }
        if !self.groups[h].contains_key(parent(path)) {
            return Err(errno(libc::ENOENT));
        }
        let mut group = self.groups[h][""].clone();
        (group.usage_ns, group.io_bytes, group.io_weight) = (0, 0, 100);
        group.control.clear();
        self.groups[h].insert(path.to_owned(), group);
        Ok(())
    }

    fn rmdir(&mut self, h: usize, path: &str) -> io::Result<()> {
        if !self.groups[h].contains_key(path) {
            return Err(errno(libc::ENOENT));
        }
        let below = format!("{path}/");
        if self.groups[h].keys().any(|k| k.starts_with(&below))
            || self.threads.values().any(|t| t.at[h] == path)
        {
            return Err(errno(libc::EBUSY));
        }
        self.groups[h].remove(path);
        Ok(())
    }

    /// v2: the domain that a cgroup's processes belong to; `None` while it is "domain invalid".
    fn domain(&self, path: &str) -> Option<String> {
        let mut at = path;
        while !at.is_empty() && self.groups[0][at].threaded {
            at = parent(at);
        }
        let invalid = !at.is_empty() && self.groups[0][parent(at)].threaded;
        (!invalid).then(|| at.to_owned())
    }

    fn attach(&mut self, h: usize, path: &str, id: i32, whole: bool) -> io::Result<()> {
        let thread = self.threads.get(&id).ok_or(errno(libc::ESRCH))?.clone();
        if self.kind == Kind::V2 {
            let to = self.domain(path).ok_or(errno(libc::EOPNOTSUPP))?;
            if !whole && self.domain(&thread.at[0]).as_ref() != Some(&to) {
                return Err(errno(libc::EOPNOTSUPP));
            }
            if !path.is_empty()
                && !self.groups[0][path].threaded
                && !self.groups[0][path].control.is_empty()
            {
                return Err(errno(libc::EBUSY));
            }
        }
        for (tid, t) in &mut self.threads {
            if *tid == id || (whole && t.tgid == thread.tgid) {
                path.clone_into(&mut t.at[h]);
            }
        }
        Ok(())
    }

    /// v1: no child may have more than its parent.
    fn quotas_fit(&self) -> bool {
        let rate = |g: &Group| {
            (g.quota >= 0).then(|| i128::from(g.quota) * 1_000_000 / i128::from(g.period))
        };
        self.groups[0].iter().all(|(path, group)| {
            let mut above = path.as_str();
            let mut bound = None;
            while !above.is_empty() && bound.is_none() {
                above = parent(above);
                bound = rate(&self.groups[0][above]);
            }
            rate(group).zip(bound).is_none_or(|(own, bound)| own <= bound)
        })
    }

    fn has_cpu(&self, path: &str) -> bool {
        self.has(path, "cpu")
    }

    fn has(&self, path: &str, controller: &str) -> bool {
        self.kind != Kind::V2
            || (!path.is_empty() && self.groups[0][parent(path)].control.contains(controller))
    }

    /// A process reads from the disk: in all of v2's cgroups above it, in one of v1's, which counts
    /// for BFQ alone.
    pub(crate) fn io(&mut self, pid: i32, bytes: u64) {
        let mut path = self.threads[&pid].at[0].clone();
        loop {
            self.groups[0].get_mut(&path).expect("a thread's cgroup exists").io_bytes += bytes;
            if path.is_empty() || self.kind != Kind::V2 {
                break;
            }
            path = parent(&path).to_owned();
        }
        let file = "/sys/block/vdb/stat".to_owned();
        let text = self.files.get(&file).cloned().unwrap_or_default();
        let mut words: Vec<u64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        words[0] += 1;
        words[2] += bytes / 512;
        self.files.insert(file, words.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    }

    /// A disk /dev/vdb, 8:16, with these elevators, one of them in brackets.
    pub(crate) fn disk(&mut self, elevators: &str) {
        for (path, text) in [
            (ELEVATOR, elevators),
            ("/sys/block/vdb/dev", "8:16\n"),
            ("/sys/block/vdb/stat", "5 0 80 0 0 0 0 0 0 0 0"),
            ("/sys/block/vdb/queue/iosched/low_latency", "1\n"),
            ("/sys/block/vdb/queue/iosched/strict_guarantees", "0\n"),
        ] {
            self.files.insert(path.to_owned(), text.to_owned());
        }
    }

    /// A write to a file that is no cgroup's.
    fn write_file(&mut self, path: &str, text: &str) -> io::Result<()> {
        let file = self.files.get_mut(path).ok_or(errno(libc::ENOENT))?;
        match path {
            ELEVATOR => {
                let names: Vec<String> = file
                    .split_whitespace()
                    .map(|name| name.trim_matches(['[', ']']).to_owned())
                    .collect();
                if !names.iter().any(|name| name == text) {
                    return Err(errno(libc::EINVAL));
                }
                let shown = |name: &String| {
                    if name == text { format!("[{name}] ") } else { format!("{name} ") }
                };
                *file = names.iter().map(shown).collect();
            }
            QOS => *file = format!("{text} ctrl=auto\n"),
            _ => text.clone_into(file),
        }
        Ok(())
    }

    fn write(&mut self, h: usize, path: &str, file: &str, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if !self.groups[h].contains_key(path) {
            return Err(errno(libc::ENOENT));
        }
        let v2 = self.kind == Kind::V2;
        let number = || text.parse::<i64>().map_err(|_| errno(libc::EINVAL));
        match file {
            "cgroup.procs" => {
                return self.attach(h, path, i32::try_from(number()?).unwrap_or(-1), true);
            }
            "cgroup.threads" if v2 => {
                return self.attach(h, path, i32::try_from(number()?).unwrap_or(-1), false);
            }
            "tasks" if !v2 => {
                return self.attach(h, path, i32::try_from(number()?).unwrap_or(-1), false);
            }
            "cgroup.type" if v2 && text == "threaded" && !path.is_empty() => {
                let above = parent(path);
                if !above.is_empty() && !self.groups[0][above].threaded {
                    return Err(errno(libc::EOPNOTSUPP));
                }
                self.groups[0].get_mut(path).expect("checked").threaded = true;
                return Ok(());
            }
            "cgroup.subtree_control" if v2 => {
                let (sign, controller) = text.split_at(1);
                if !path.is_empty() && !self.has(path, controller) {
                    return Err(errno(libc::ENOENT));
                }
                let below = format!("{path}/");
                let holds = |g: &Group| g.control.contains(controller);
                let used = self.groups[0].iter().any(|(k, g)| k.starts_with(&below) && holds(g));
                let inhabited = !path.is_empty() && self.threads.values().any(|t| t.at[0] == path);
                let group = self.groups[0].get_mut(path).expect("checked");
                let domain = controller != "cpu";
                match sign {
                    _ if !["cpu", "io", "memory"].contains(&controller) => {
                        return Err(errno(libc::EINVAL));
                    }
                    "+" if domain && (group.threaded || inhabited) => {
                        return Err(errno(libc::EBUSY));
                    }
                    "+" => group.control.insert(controller.to_owned()),
                    "-" if used => return Err(errno(libc::EBUSY)),
                    _ => group.control.remove(controller),
                };
                return Ok(());
            }
            _ => {}
        }
        let weight = if v2 { "io.bfq.weight" } else { "blkio.bfq.weight" };
        if (file == weight || (v2 && file == "io.weight"))
            && !path.is_empty()
            && self.has(path, "io")
        {
            let max = if file == weight { 1000 } else { 10_000 };
            if !(1..=max).contains(&number()?) {
                return Err(errno(libc::ERANGE));
            }
            self.groups[h].get_mut(path).expect("checked").io_weight =
                u32::try_from(number()?).unwrap_or(0);
            return Ok(());
        }
        if h != 0 || path.is_empty() || !self.has_cpu(path) {
            return Err(errno(libc::ENOENT));
        }
        let old = self.groups[0][path].clone();
        let group = self.groups[0].get_mut(path).expect("checked");
        match file {
            "cpu.idle" => {
                group.idle = number()? == 1;
                group.weight = if group.idle {
                    0
                } else if old.idle {
                    100
                } else {
                    group.weight
                };
            }
            "cpu.weight" | "cpu.shares" if (file == "cpu.weight") == v2 => {
                if group.idle {
                    return Err(errno(libc::EINVAL));
                }
                let range = if v2 { 1..=10_000 } else { 2..=262_144 };
                if !range.contains(&number()?) {
                    return Err(errno(libc::ERANGE));
                }
                group.weight = u32::try_from(number()?).unwrap_or(0);
            }
            "cpu.max" if v2 => {
                let (quota, period) = text.split_once(' ').ok_or(errno(libc::EINVAL))?;
                group.quota = if quota == "max" {
                    -1
                } else {
                    quota.parse().map_err(|_| errno(libc::EINVAL))?
                };
                group.period = period.parse().map_err(|_| errno(libc::EINVAL))?;
            }
            "cpu.max.burst" if v2 => group.burst = number()?,
            "cpu.cfs_quota_us" if !v2 => group.quota = number()?,
            "cpu.cfs_period_us" if !v2 => group.period = number()?,
            "cpu.cfs_burst_us" if !v2 => group.burst = number()?,
            _ => return Err(errno(libc::ENOENT)),
        }
        let bad = (group.quota >= 0 && (group.quota < 1000 || group.burst > group.quota))
            || !(1_000..=1_000_000).contains(&group.period);
        if bad || (!v2 && !self.quotas_fit()) {
            self.groups[0].insert(path.to_owned(), old);
            return Err(errno(libc::EINVAL));
        }
        Ok(())
    }

    fn read(&self, h: usize, path: &str, file: &str) -> io::Result<String> {
        let group = self.groups[h].get(path).ok_or(errno(libc::ENOENT))?;
        let v2 = self.kind == Kind::V2;
        let last = h + 1 == self.groups.len();
        let cpu = h == 0 && !path.is_empty() && self.has_cpu(path);
        Ok(match file {
            "cgroup.controllers" if v2 => "cpuset cpu io memory".into(),
            "cgroup.subtree_control" if v2 => {
                group.control.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            }
            "cgroup.procs" => {
                let inside = self.threads.values().filter(|t| t.at[h] == path).map(|t| t.tgid);
                inside
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .fold(String::new(), |all, pid| all + &pid.to_string() + "\n")
            }
            "io.bfq.weight" | "io.weight" if v2 && !path.is_empty() && self.has(path, "io") => {
                format!("default {}\n", group.io_weight)
            }
            "io.stat" if v2 && !path.is_empty() && self.has(path, "io") => {
                format!(
                    "8:0 rbytes=1 wbytes=1 rios=1 wios=1\n8:16 rbytes={} wbytes=0 rios=1 wios=0\n",
                    group.io_bytes
                )
            }
            "blkio.bfq.weight" if self.kind == Kind::Blkio && !path.is_empty() => {
                format!("{}\n", group.io_weight)
            }
            "blkio.bfq.io_service_bytes" if self.kind == Kind::Blkio => {
                format!(
                    "8:16 Read {}\n8:16 Write 0\n8:16 Total {}\nTotal 7\n",
                    group.io_bytes, group.io_bytes
                )
            }
            "cgroup.type" if v2 && !path.is_empty() => {
                if group.threaded { "threaded" } else { "domain" }.into()
            }
            "cgroup.threads" | "tasks" if (file == "tasks") != v2 => self
                .threads
                .iter()
                .filter(|(_, t)| t.at[h] == path)
                .fold(String::new(), |text, (tid, _)| text + &tid.to_string() + "\n"),
            "cpuacct.usage" if !v2 && last => format!("{}\n", group.usage_ns),
            "cpu.stat" if v2 => {
                format!(
                    "usage_usec {}\nnr_throttled 0\nthrottled_usec {}\n",
                    group.usage_ns / 1000,
                    group.throttled_ns / 1000
                )
            }
            "cpu.stat" if h == 0 => {
                format!("nr_throttled 0\nthrottled_time {}\n", group.throttled_ns)
            }
            "cpu.idle" if cpu => i32::from(group.idle).to_string(),
            "cpu.weight" if cpu && v2 => group.weight.to_string(),
            "cpu.shares" if cpu && !v2 => group.weight.to_string(),
            "cpu.max" if cpu && v2 && group.quota < 0 => format!("max {}\n", group.period),
            "cpu.max" if cpu && v2 => format!("{} {}\n", group.quota, group.period),
            "cpu.max.burst" if cpu && v2 => group.burst.to_string(),
            "cpu.cfs_quota_us" if cpu && !v2 => group.quota.to_string(),
            "cpu.cfs_period_us" if cpu && !v2 => group.period.to_string(),
            "cpu.cfs_burst_us" if cpu && !v2 => group.burst.to_string(),
            _ => return Err(errno(libc::ENOENT)),
        })
    }

    fn proc(&self, rest: &str) -> io::Result<String> {
        match rest {
            "self/mountinfo" => {
                let line = |mount: &str, kind: &str, options: &str| {
                    format!("1 1 0:1 / {mount} rw - {kind} {kind} rw,{options}\n")
                };
                return Ok(match self.kind {
                    // A hybrid machine: v2 is there, without the cpu controller.
                    Kind::Split => {
                        line("/none", "cgroup2", "")
                            + &line("/cg/cpu", "cgroup", "cpu")
                            + &line("/cg/cpuacct", "cgroup", "cpuacct")
                    }
                    Kind::Combined => line("/cg/cpu,cpuacct", "cgroup", "cpu,cpuacct"),
                    Kind::V2 => line("/cg", "cgroup2", ""),
                    Kind::Blkio => {
                        line("/none", "cgroup2", "") + &line("/cg/blkio", "cgroup", "blkio")
                    }
                });
            }
            "sys/kernel/random/boot_id" => return Ok("boot\n".into()),
            _ => {}
        }
        let (tid, file) = rest.split_once('/').ok_or(errno(libc::ENOENT))?;
        let tid: i32 = tid.parse().map_err(|_| errno(libc::ENOENT))?;
        let t = self.threads.get(&tid).ok_or(errno(libc::ENOENT))?;
        let place = |h: usize| if t.at[h].is_empty() { "/" } else { &t.at[h] };
        Ok(match (file, self.kind) {
            ("cgroup", Kind::V2) => format!("0::{}\n", place(0)),
            ("cgroup", Kind::Combined) => format!("3:cpu,cpuacct:{}\n0::/\n", place(0)),
            ("cgroup", Kind::Split) => {
                format!("4:cpuacct:{}\n3:cpu:{}\n0::/\n", place(1), place(0))
            }
            ("cgroup", Kind::Blkio) => format!("7:blkio:{}\n0::/\n", place(0)),
            ("stat", _) => {
                assert!(!self.in_exec, "it waits for {tid}'s exec");
                let zeros = "0 ".repeat(17);
                format!("{tid} (a) b) R {} {zeros}{} 0\n", t.parent, t.started)
            }
            ("status", _) => {
                format!("Name:\ta\nState:\tR (running)\nTgid:\t{}\nPPid:\t{}\n", t.tgid, t.parent)
            }
            _ => return Err(errno(libc::ENOENT)),
        })
    }

    fn split(&self, path: &str) -> Option<(usize, String)> {
        self.mounts().iter().enumerate().find_map(|(h, mount)| {
            let rest = path.strip_prefix(mount)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| (h, rest.to_owned()))
        })
    }

    fn file<'a>(&self, path: &'a str) -> io::Result<(usize, String, &'a str)> {
        let (dir, file) = path.rsplit_once('/').ok_or(errno(libc::ENOENT))?;
        let (h, rest) = self.split(dir).ok_or(errno(libc::ENOENT))?;
        Ok((h, rest, file))
    }
}

impl Fake {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(Arc::new(Mutex::new(World::new(kind))))
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no test panics while it holds this")
    }

    fn call(&self, change: bool) -> io::Result<MutexGuard<'_, World>> {
        let mut world = self.world();
        world.calls += 1;
        if world.dead_from.is_some_and(|from| world.calls > from) {
            return Err(errno(libc::EINTR));
        }
        if change {
            world.changes += 1;
            if world.fail_at == Some(world.changes) {
                return Err(errno(libc::EIO));
            }
        }
        Ok(world)
    }
}

impl Kernel for Fake {
    fn identity(&self, tid: i32) -> io::Result<Option<u64>> {
        let world = self.call(false)?;
        let thread = world.threads.get(&tid).ok_or(errno(libc::ESRCH))?;
        Ok(world.identities.then_some(1_000_000 + thread.started))
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let world = self.call(false)?;
        if let Some(text) = world.files.get(path) {
            return Ok(text.clone());
        }
        if let Some(rest) = path.strip_prefix("/proc/") {
            return world.proc(rest);
        }
        let (h, dir, file) = world.file(path)?;
        world.read(h, &dir, file)
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let mut world = self.call(true)?;
        if path.starts_with("/sys/") || path == QOS {
            return world.write_file(path, text);
        }
        let (h, dir, file) = world.file(path)?;
        world.write(h, &dir, file, text)
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        let mut world = self.call(true)?;
        let (h, dir) = world.split(path).ok_or(errno(libc::ENOENT))?;
        world.mkdir(h, &dir)
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        let mut world = self.call(true)?;
        let (h, dir) = world.split(path).ok_or(errno(libc::ENOENT))?;
        world.rmdir(h, &dir)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let world = self.call(false)?;
        if let Some(pid) = path.strip_prefix("/proc/").and_then(|p| p.strip_suffix("/task")) {
            let pid: i32 = pid.parse().map_err(|_| errno(libc::ENOENT))?;
            let tgid = world.threads.get(&pid).ok_or(errno(libc::ENOENT))?.tgid;
            return Ok(world
                .threads
                .iter()
                .filter(|(_, t)| t.tgid == tgid)
                .map(|(tid, _)| tid.to_string())
                .collect());
        }
        let (h, dir) = world.split(path).ok_or(errno(libc::ENOENT))?;
        if !world.groups[h].contains_key(&dir) {
            return Err(errno(libc::ENOENT));
        }
        let inside = world.groups[h].keys().filter(|k| !k.is_empty() && parent(k) == dir);
        Ok(inside.filter_map(|k| k.rsplit_once('/').map(|(_, name)| name.to_owned())).collect())
    }

    fn exists(&self, path: &str) -> bool {
        let Ok(world) = self.call(false) else { return false };
        if let Some((h, dir)) = world.split(path)
            && world.groups[h].contains_key(&dir)
        {
            return true;
        }
        world.files.contains_key(path)
            || world.file(path).is_ok_and(|(h, dir, file)| world.read(h, &dir, file).is_ok())
    }

    fn store(&self, path: &str, text: &[u8]) -> io::Result<()> {
        self.call(true)?.files.insert(path.to_owned(), String::from_utf8_lossy(text).into_owned());
        Ok(())
    }

    fn append(&self, path: &str, text: &str) -> io::Result<()> {
        *self.call(true)?.files.entry(path.to_owned()).or_default() += text;
        Ok(())
    }

    fn remove(&self, path: &str) {
        if let Ok(mut world) = self.call(true) {
            world.files.remove(path);
        }
    }

    fn pause(&self) {}
}
