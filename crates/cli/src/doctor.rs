// SPDX-License-Identifier: MIT OR Apache-2.0
//! `doctor`: what this machine has, which driver that makes, and what is lost with it. Looks,
//! changes nothing.

use std::fs;
use std::path::PathBuf;

use reserv_plane::cpu::full::{Fallback, groups};
use reserv_plane::tag::Mechanism;
use serde::Serialize;

use crate::paint::Paint;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// There.
    Ok,
    /// Missing, and something does not work without it.
    Missing,
    /// Worth knowing.
    Note,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// A word for it; stable.
    pub name: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What it means, when it is not simply there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub means: Option<String>,
}

impl Check {
    /// For people: what was found, and what it means below it.
    pub(crate) fn lines(&self, paint: Paint) -> String {
        let mark = match self.verdict {
            Verdict::Ok => paint.green("ok  "),
            Verdict::Missing => paint.red("no  "),
            Verdict::Note => paint.dim("·   "),
        };
        let found = format!("{mark}{:<10} {}\n", self.name, self.found);
        let below = |means: &String| format!("               {}\n", paint.dim(means));
        found + &self.means.as_ref().map(below).unwrap_or_default()
    }
}

/// One driver of the CPU.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DriverReport {
    /// `full` or `stock`.
    pub name: &'static str,
    /// The mechanism.
    pub mechanism: &'static str,
    /// Whether it can run here.
    pub usable: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// What it cannot do where it runs.
    pub lost: Vec<&'static str>,
}

/// Everything that `doctor` says.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// `full`, `stock` or null.
    pub driver: Option<&'static str>,
    /// One sentence.
    pub summary: String,
    /// In order of preference.
    pub drivers: Vec<DriverReport>,
    /// What was looked at.
    pub checks: Vec<Check>,
}

/// A machine's files; tests have their own.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    root: PathBuf,
    is_root: bool,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        Self { root: PathBuf::from("/"), is_root: nix::unistd::geteuid().is_root() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn text(&self, path: &str) -> Option<String> {
        // Names in it need not be text: users may mount (fusermount) wherever they like.
        let text = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    }

    fn mounts(&self, kind: &str) -> Vec<(String, String)> {
        self.text("/proc/self/mounts")
            .unwrap_or_default()
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                (words.len() > 3 && words[2] == kind)
                    .then(|| (words[1].to_owned(), words[3].to_owned()))
            })
            .collect()
    }

    /// Look at everything. `probes` are the drivers' own answers: the name, and what is missing.
    pub(crate) fn examine(&self, probes: &[(&'static str, Result<(), String>)]) -> Report {
        let checks = vec![
            self.kernel(),
            self.rights(),
            self.sched_ext(),
            self.other_scheduler(),
            self.btf(),
            self.bpffs(),
            self.lsm(),
            self.cgroup(),
            self.mirror(),
            self.fuse(),
        ];
        report(checks, probes)
    }

    fn kernel(&self) -> Check {
        let release =
            self.text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
        check("kernel", Verdict::Note, format!("Linux {release}"), None)
    }

    fn rights(&self) -> Check {
        if self.is_root {
            check("rights", Verdict::Ok, "root", None)
        } else {
            check(
                "rights",
                Verdict::Missing,
                "not root",
                Some("'reserv up' must be started by root; and some checks here see less"),
            )
        }
    }

    fn sched_ext(&self) -> Check {
        match self.text("/sys/kernel/sched_ext/state") {
            Some(state) => {
                check("sched_ext", Verdict::Ok, format!("in this kernel, {state}"), None)
            }
            None => check(
                "sched_ext",
                Verdict::Missing,
                "not in this kernel",
                Some(
                    "the full driver needs a kernel with CONFIG_SCHED_CLASS_EXT; it is tested on 7.2 and 7.3",
                ),
            ),
        }
    }

    fn other_scheduler(&self) -> Check {
        match self.text("/sys/kernel/sched_ext/root/ops").filter(|ops| !ops.is_empty()) {
            Some(ops) if ops.starts_with("reserv") => {
                check("scheduler", Verdict::Ok, "ours is loaded", None)
            }
            Some(ops) => check(
                "scheduler",
                Verdict::Missing,
                format!("'{ops}' is loaded"),
                Some(
                    "there can be one sched_ext scheduler; stop the other one for the full driver",
                ),
            ),
            None => check("scheduler", Verdict::Ok, "no other sched_ext scheduler", None),
        }
    }

    fn btf(&self) -> Check {
        if self.path("/sys/kernel/btf/vmlinux").exists() {
            check("btf", Verdict::Ok, "the kernel has type information", None)
        } else {
            check(
                "btf",
                Verdict::Missing,
                "no type information of the kernel",
                Some("the full driver needs CONFIG_DEBUG_INFO_BTF"),
            )
        }
    }

    fn bpffs(&self) -> Check {
        match self.mounts("bpf").first() {
            Some((at, _)) => check("bpffs", Verdict::Ok, format!("at {at}"), None),
            None => check(
                "bpffs",
                Verdict::Note,
                "not mounted",
                Some("the full driver keeps its programs there: mount -t bpf bpf /sys/fs/bpf"),
            ),
        }
    }

    fn lsm(&self) -> Check {
        match self.text("/sys/kernel/security/lsm") {
            Some(list) if list.contains("lockdown") && self.lockdown() => check(
                "lsm",
                Verdict::Missing,
                format!("{list}; lockdown=confidentiality"),
                Some("BPF is refused under this lockdown, and with it the full driver"),
            ),
            Some(list) => check("lsm", Verdict::Note, list, None),
            None => check("lsm", Verdict::Note, "unknown (securityfs is not mounted)", None),
        }
    }

    fn lockdown(&self) -> bool {
        self.text("/sys/kernel/security/lockdown")
            .is_some_and(|text| text.contains("[confidentiality]"))
    }

    fn cgroup(&self) -> Check {
        let v2 = self.mounts("cgroup2").into_iter().find(|(at, _)| {
            self.text(&format!("{at}/cgroup.controllers"))
                .is_some_and(|list| list.split_whitespace().any(|name| name == "cpu"))
        });
        if let Some((at, _)) = v2 {
            return check("cgroup", Verdict::Ok, format!("version 2 with cpu at {at}"), None);
        }
        let v1 = self
            .mounts("cgroup")
            .into_iter()
            .find(|(_, options)| options.split(',').any(|option| option == "cpu"));
        match v1 {
            Some((at, _)) => {
                check("cgroup", Verdict::Ok, format!("version 1 with cpu at {at}"), None)
            }
            None => check(
                "cgroup",
                Verdict::Missing,
                "no cpu controller",
                Some("the stock driver needs cgroup v2 with cpu, or v1"),
            ),
        }
    }

    /// What the full driver makes of the cgroups' own settings.
    fn mirror(&self) -> Check {
        let Some(mount) = groups::hierarchy(&self.root, "cpu") else {
            return check("mirror", Verdict::Note, "no cgroups with CPU settings", None);
        };
        let found = groups::survey(&mount);
        let set: Vec<String> =
            found.set.iter().map(|(path, what)| format!("{path} ({what})")).collect();
        let mut text = format!("{} cgroups with the cpu controller", found.total);
        if !set.is_empty() {
            text =
                format!("{text}, of which these have settings of their own: {}", groups::few(&set));
        }
        if found.without_room.is_empty() {
            let means = "the full driver mirrors them inside q0; a thread that is tagged with another queue leaves its cgroup's \
                         weight and cap";
            return check("mirror", Verdict::Ok, text, (found.total > 0).then_some(means));
        }
        check(
            "mirror",
            Verdict::Note,
            text,
            Some(&format!("with the full driver, {}", groups::refusal(&found))),
        )
    }

    fn fuse(&self) -> Check {
        if self.path("/dev/fuse").exists() {
            check("fuse", Verdict::Ok, "/dev/fuse", None)
        } else {
            check(
                "fuse",
                Verdict::Missing,
                "no /dev/fuse",
                Some("there can be no /reserv: load the module fuse"),
            )
        }
    }
}

/// How descriptors are tagged here: the plane's own survey.
pub(crate) fn tags(survey: Result<(Mechanism, Vec<String>), String>) -> Check {
    let (found, limits) = match survey {
        Ok((Mechanism::Full, limits)) => ("files and sockets, by fcntl", limits),
        Ok((Mechanism::Stock, limits)) => ("sockets, by setsockopt", limits),
        Err(why) => return check("tags", Verdict::Note, format!("not known: {why}"), None),
    };
    let verdict = if limits.is_empty() { Verdict::Ok } else { Verdict::Note };
    check("tags", verdict, found, (!limits.is_empty()).then(|| limits.join("; ")).as_deref())
}

/// How interfaces are scheduled here.
pub(crate) fn links(survey: Result<(reserv_model::Driver, String), String>) -> Check {
    match survey {
        Ok((reserv_model::Driver::Stock, why)) => check(
            "links",
            Verdict::Note,
            format!("stock: HTB (reserv up --net IFACE --rate RATE); not full: {why}"),
            Some(
                "shares hold at a rate that is told; no bounds on delays, no policies, weights of siblings 130 to 1 at most",
            ),
        ),
        Ok(_) => check("links", Verdict::Ok, "full: a qdisc in BPF (reserv up --net IFACE)", None),
        Err(why) => check(
            "links",
            Verdict::Note,
            why,
            Some(
                "interfaces are not scheduled here ('reserv up --net' is refused); 'reserv up --count NAME=net:IFACE' counts",
            ),
        ),
    }
}

/// Where what comes in by an interface can be told apart here.
pub(crate) fn entrances(places: &[reserv_model::Receive]) -> Check {
    let words: Vec<&str> = places.iter().map(|at| at.word()).collect();
    if words.is_empty() {
        let found = "this kernel refuses the programs of an entrance (tcx: Linux 6.6)";
        let means = "what comes in is not told apart ('reserv up --receive' is refused)";
        return check("entrances", Verdict::Note, found, Some(means));
    }
    let found = format!("{} (reserv up --net IFACE --receive)", words.join(" or "));
    check("entrances", Verdict::Ok, found, None)
}

/// What makes the devices of scheduled disks here, and what the stock driver would share them by.
pub(crate) fn disks(survey: Result<(), String>, stock: Result<String, String>) -> Check {
    let stock = match stock {
        Ok(means) => format!("stock, inexact: {means} (--driver stock)"),
        Err(why) => format!("not stock: {why}"),
    };
    match survey {
        Ok(()) => check(
            "disks",
            Verdict::Ok,
            format!("full: by ublk (reserv disk attach); {stock}"),
            None,
        ),
        Err(why) => check(
            "disks",
            Verdict::Note,
            format!(
                "full: by FUSE and loop devices (reserv disk attach); {stock}; not by ublk: {why}"
            ),
            Some(
                "slower; and if a block server and its keeper are both killed, its device answers with errors",
            ),
        ),
    }
}

/// What the full driver of the CPU does without on this kernel, each with what that costs.
pub(crate) fn fallbacks(found: &[&Fallback]) -> Vec<Check> {
    let none = "the kernel has all that the full CPU driver uses";
    if found.is_empty() {
        return vec![check("fallback", Verdict::Ok, none, None)];
    }
    let without = |one: &&Fallback| {
        let found = format!("{}: without {} (Linux {})", one.name, one.symbol, one.since);
        let cost = format!("costs {}", one.cost);
        check("fallback", Verdict::Note, found, Some(&cost))
    };
    found.iter().map(without).collect()
}

pub(crate) fn check(
    name: &'static str,
    verdict: Verdict,
    found: impl Into<String>,
    means: Option<&str>,
) -> Check {
    Check { name, verdict, found: found.into(), means: means.map(str::to_owned) }
}

fn report(checks: Vec<Check>, probes: &[(&'static str, Result<(), String>)]) -> Report {
    let missing = |names: &[&str]| -> Option<String> {
        let found: Vec<String> = checks
            .iter()
            .filter(|check| names.contains(&check.name) && check.verdict == Verdict::Missing)
            .map(|check| format!("{}: {}", check.name, check.found))
            .collect();
        (!found.is_empty()).then(|| found.join("; "))
    };
    let driver = |name: &'static str, mechanism, needs: &[&str], lost: Vec<&'static str>| {
        let own = probes
            .iter()
            .find(|(probed, _)| *probed == name)
            .and_then(|(_, result)| result.clone().err());
        let why_not = missing(needs).or(own);
        DriverReport { name, mechanism, usable: why_not.is_none(), why_not, lost }
    };
    let drivers = vec![
        driver(
            "full",
            "our scheduler on sched_ext",
            &["sched_ext", "scheduler", "btf", "lsm", "fuse"],
            Vec::new(),
        ),
        driver(
            "stock",
            "the kernel's cgroups",
            &["cgroup", "fuse"],
            vec![
                "policies other than the kernel's fair scheduler, and classes other than ts",
                "changing one's own tag by system call, and so rebinding per request",
                "a child default list of its own: cdefault is always the same as default",
                "the order against the outside: real-time threads run before every reservation, and what runs outside \
                 our cgroups is weighed against the whole tree",
                "exact shares on several CPUs: they depend on the kernel's load balancer",
            ],
        ),
    ];
    let chosen = drivers.iter().find(|driver| driver.usable);
    let summary = match chosen {
        Some(driver) if driver.name == "full" => {
            "The CPU will be driven by the full driver: everything works here.".to_owned()
        }
        Some(_) => format!(
            "The CPU will be driven by the stock driver, because the full one cannot run here ({}).",
            drivers[0].why_not.as_deref().and_then(|why| why.split("; ").next()).unwrap_or("")
        ),
        None => "No driver of the CPU can run here.".to_owned(),
    };
    Report { driver: chosen.map(|driver| driver.name), summary, drivers, checks }
}

impl Report {
    /// For people.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let mut text: String = self.checks.iter().map(|check| check.lines(paint)).collect();
        let mut line = |words: String| {
            text.push_str(&words);
            text.push('\n');
        };
        line(String::new());
        for driver in &self.drivers {
            let mark = if driver.usable { paint.green("can run") } else { paint.red("cannot run") };
            line(format!("driver {} ({}): {mark}", paint.bold(driver.name), driver.mechanism));
            if let Some(why) = &driver.why_not {
                line(format!("    {why}"));
            }
            if driver.usable && Some(driver.name) == self.driver {
                for lost in &driver.lost {
                    line(format!("    lost: {lost}"));
                }
            }
        }
        line(String::new());
        line(paint.bold(&self.summary));
        text
    }
}

/// A machine for tests, and for nothing else.
#[cfg(test)]
impl Machine {
    fn at(root: &std::path::Path) -> Self {
        Self { root: root.to_owned(), is_root: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    const V2: (&str, &[u8]) =
        ("proc/self/mounts", b"cgroup2 /cg cgroup2 rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n");
    const CPU: (&str, &[u8]) = ("cg/cgroup.controllers", b"cpuset cpu io\n");
    const FUSE: (&str, &[u8]) = ("dev/fuse", b"");
    const BTF: (&str, &[u8]) = ("sys/kernel/btf/vmlinux", b"");
    const SCX: (&str, &[u8]) = ("sys/kernel/sched_ext/state", b"disabled\n");

    fn driver(files: &[(&str, &[u8])]) -> Report {
        Machine::at(machine(files).path()).examine(&[])
    }

    #[test]
    fn the_best_driver_that_can_run_is_chosen() {
        let full = driver(&[V2, CPU, FUSE, SCX, BTF]);
        assert_eq!(full.driver, Some("full"), "{full:?}");
        let stock = driver(&[V2, CPU, FUSE]);
        assert_eq!(stock.driver, Some("stock"));
        assert!(stock.summary.contains("sched_ext: not in this kernel"));
        let v1: (&str, &[u8]) = ("proc/self/mounts", b"cgroup /cg cgroup rw,cpu,cpuacct 0 0\n");
        assert_eq!(driver(&[v1, FUSE]).driver, Some("stock"));
        assert_eq!(driver(&[V2, FUSE]).driver, None, "no cpu controller");
        assert_eq!(driver(&[V2, CPU, SCX, BTF]).driver, None, "no fuse, no /reserv");
    }

    #[test]
    fn what_is_missing_is_named() {
        let report = driver(&[V2, CPU, FUSE, SCX]);
        assert_eq!(report.driver, Some("stock"));
        assert!(report.drivers[0].why_not.as_ref().unwrap().contains("no type information"));
        let other =
            driver(&[V2, CPU, FUSE, SCX, BTF, ("sys/kernel/sched_ext/root/ops", b"scx_rusty\n")]);
        assert!(other.drivers[0].why_not.as_ref().unwrap().contains("scx_rusty"));
    }

    #[test]
    fn a_drivers_own_probe_counts() {
        let dir = machine(&[V2, CPU, FUSE, SCX, BTF]);
        let report =
            Machine::at(dir.path()).examine(&[("full", Err("trampolines are refused".to_owned()))]);
        assert_eq!(report.driver, Some("stock"));
        assert!(report.render(Paint::stdout()).contains("trampolines are refused"));
    }
}
