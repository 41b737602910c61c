// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cgroup hierarchies this machine has: v2, v1, or both with the CPU controllers in one of
//! them (hybrid).

use super::kernel::Kernel;

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// Its name in the second field of /proc/TID/cgroup: empty for v2, else one of the controllers.
    pub(crate) controller: &'static str,
    /// Where it is mounted.
    pub(crate) mount: String,
    /// Which of its directories is mounted there, as /proc/TID/cgroup would print it (`/` but in
    /// containers).
    pub(crate) root: String,
}

impl Hierarchy {
    /// Directory of a cgroup named as /proc/TID/cgroup names it; `None` when it lies outside the
    /// mount.
    pub(crate) fn dir(&self, path: &str) -> Option<String> {
        let root = self.root.trim_end_matches('/');
        let rest = path.strip_prefix(root)?;
        if !(rest.is_empty() || rest.starts_with('/')) {
            return None;
        }
        Some(format!("{}{}", self.mount, rest.trim_end_matches('/')))
    }
}

/// Version of the CPU controller's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// `cpu.shares`, `cpuacct.usage`, `tasks`.
    V1,
    /// `cpu.weight`, `cpu.stat`, `cgroup.threads`.
    V2,
}

/// The hierarchies the driver works on: the first schedules, the last counts (they may be the same
/// one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) version: Version,
    pub(crate) hierarchies: Vec<Hierarchy>,
}

struct Mount {
    fstype: String,
    point: String,
    root: String,
    options: Vec<String>,
}

/// `\040` and its kin, as the kernel writes blanks in mountinfo.
fn unescape(word: &str) -> String {
    let bytes = word.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        if let Some(byte) =
            octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok())
        {
            out.push(byte);
            at += 4;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn parse(mountinfo: &str) -> Vec<Mount> {
    // id parent major:minor root point options [optional…] - fstype source super-options
    mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            Some(Mount {
                fstype: (*right.first()?).to_owned(),
                point: unescape(left.get(4)?),
                root: unescape(left.get(3)?),
                options: right
                    .get(2)
                    .map_or_else(Vec::new, |o| o.split(',').map(str::to_owned).collect()),
            })
        })
        .filter(|m| m.fstype == "cgroup" || m.fstype == "cgroup2")
        .collect()
}

fn mounts(kernel: &dyn Kernel) -> Result<Vec<Mount>, String> {
    let text =
        kernel.read("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    Ok(parse(&text))
}

fn hierarchy(m: &Mount, controller: &'static str) -> Hierarchy {
    Hierarchy { controller, mount: m.point.trim_end_matches('/').to_owned(), root: m.root.clone() }
}

/// v2, where it has this controller.
fn v2(kernel: &dyn Kernel, mounts: &[Mount], controller: &str) -> Option<Layout> {
    let has = |m: &&Mount| {
        let controllers =
            kernel.read(&format!("{}/cgroup.controllers", m.point)).unwrap_or_default();
        m.fstype == "cgroup2" && controllers.split_whitespace().any(|c| c == controller)
    };
    let found = mounts.iter().find(has)?;
    Some(Layout { version: Version::V2, hierarchies: vec![hierarchy(found, "")] })
}

fn v1<'a>(mounts: &'a [Mount], name: &str) -> Option<&'a Mount> {
    mounts.iter().find(|m| m.fstype == "cgroup" && m.options.iter().any(|option| option == name))
}

/// Finds the hierarchy that has the block I/O controller, or says what is missing.
pub(crate) fn find_io(kernel: &dyn Kernel) -> Result<Layout, String> {
    let mounts = mounts(kernel)?;
    if let Some(layout) = v2(kernel, &mounts, "io") {
        return Ok(layout);
    }
    let found =
        v1(&mounts, "blkio").ok_or("no mounted cgroup hierarchy has the controller io or blkio")?;
    Ok(Layout { version: Version::V1, hierarchies: vec![hierarchy(found, "blkio")] })
}

/// Finds the hierarchies that have the CPU controllers, or says what is missing.
pub(crate) fn find(kernel: &dyn Kernel) -> Result<Layout, String> {
    let mounts = mounts(kernel)?;
    if let Some(layout) = v2(kernel, &mounts, "cpu") {
        return Ok(layout);
    }
    match (v1(&mounts, "cpu"), v1(&mounts, "cpuacct")) {
        (Some(cpu), Some(acct)) => {
            let mut hierarchies = vec![hierarchy(cpu, "cpu")];
            if cpu.point != acct.point {
                hierarchies.push(hierarchy(acct, "cpuacct"));
            }
            Ok(Layout { version: Version::V1, hierarchies })
        }
        (Some(_), None) => {
            Err("the v1 controller cpuacct is not mounted: service could not be counted".into())
        }
        (None, _) if mounts.is_empty() => Err("no cgroup file system is mounted".into()),
        (None, _) => Err("no mounted cgroup hierarchy has the cpu controller".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_proc_become_directories() {
        let whole = Hierarchy { controller: "", mount: "/sys/fs/cgroup".into(), root: "/".into() };
        assert_eq!(whole.dir("/").as_deref(), Some("/sys/fs/cgroup"));
        assert_eq!(whole.dir("/a/b").as_deref(), Some("/sys/fs/cgroup/a/b"));
        let part = Hierarchy { controller: "cpu", mount: "/c".into(), root: "/docker/x".into() };
        assert_eq!(part.dir("/docker/x/q").as_deref(), Some("/c/q"));
        assert_eq!(part.dir("/docker/x").as_deref(), Some("/c"));
        assert_eq!(part.dir("/docker/xy"), None);
        assert_eq!(part.dir("/other"), None);
    }

    #[test]
    fn mountinfo_with_blanks_and_optional_fields() {
        let text = "40 31 0:37 / /a\\040b rw,relatime shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct\n\
                    1 1 0:1 / / rw - ext4 /dev/vda rw\nshort\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].point, "/a b");
        assert!(mounts[0].options.contains(&"cpuacct".to_owned()));
    }
}
