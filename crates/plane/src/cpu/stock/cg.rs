// SPDX-License-Identifier: MIT OR Apache-2.0
//! One interface to the cgroups of either version: our directories, who is in them, where a thread is.

use std::cell::Cell;
use std::io;

use super::kernel::Kernel;
use super::mirror::{Attr, Quota};
use super::mounts::{Layout, Version};
use super::weights::{Range, Share};
use super::{v1, v2};
use crate::PlaneError;

/// What differs between the versions. Directories are absolute; `cpu` is in the hierarchy that schedules, `acct` in
/// the one that counts.
pub(super) trait Flavour: Send {
    fn mechanism(&self) -> &'static str;
    fn range(&self) -> Range;
    /// The file with one thread per line.
    fn threads(&self) -> &'static str;
    /// The file with the weight.
    fn weight(&self) -> &'static str;
    /// A child's quota may not exceed its parent's.
    fn quotas_nest(&self) -> bool;
    /// Makes the hierarchy's top ready for our tree; answers whether it changed anything there.
    fn prepare(&self, kernel: &dyn Kernel, cpu: &str) -> Result<bool, PlaneError>;
    /// Takes that change back, if nobody else relies on it by now.
    fn unprepare(&self, kernel: &dyn Kernel, cpu: &str);
    /// Makes a new directory of ours fit to hold threads, or children if `scheduler`.
    fn made(&self, kernel: &dyn Kernel, cpu: &str, scheduler: bool) -> Result<(), PlaneError>;
    fn set_quota(&self, kernel: &dyn Kernel, cpu: &str, quota: Option<Quota>) -> Result<(), PlaneError>;
    /// Quota and period, in µs.
    fn quota(&self, kernel: &dyn Kernel, cpu: &str) -> io::Result<Option<(u64, u64)>>;
    /// CPU time received, by all below too.
    fn usage_ns(&self, kernel: &dyn Kernel, acct: &str) -> io::Result<u64>;
    /// Time held back by the quota.
    fn throttled_ns(&self, kernel: &dyn Kernel, cpu: &str) -> io::Result<u64>;
}

/// The paths of one thread's cgroups as /proc/TID/cgroup names them, one for each of our hierarchies.
pub(super) type Place = Vec<String>;

pub(super) fn os(context: impl Into<String>) -> impl FnOnce(io::Error) -> PlaneError {
    let context = context.into();
    move |source| PlaneError::Os { context, source }
}

/// Writes and says on failure what was tried.
pub(super) fn put(kernel: &dyn Kernel, path: &str, text: &str) -> Result<(), PlaneError> {
    kernel.write(path, text).map_err(os(format!("write {text:?} to {path}")))
}

/// The number behind `key` in a flat keyed file.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

pub(super) fn malformed(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{path} does not read as expected"))
}

pub(super) fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ESRCH))
}

/// What of /proc/TID/stat matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) runnable: bool,
    pub(super) parent: i32,
    /// With the tid, names a thread for the time since boot.
    pub(super) started: u64,
}

pub(super) struct Cg {
    pub(super) kernel: Box<dyn Kernel>,
    pub(super) layout: Layout,
    /// Our cgroup's name at the top of each hierarchy.
    pub(super) name: String,
    flavour: Box<dyn Flavour>,
    idle: Cell<Option<bool>>,
}

impl Cg {
    pub(super) fn new(kernel: Box<dyn Kernel>, layout: Layout, name: String) -> Self {
        let flavour: Box<dyn Flavour> = match layout.version {
            Version::V1 => Box::new(v1::V1),
            Version::V2 => Box::new(v2::V2),
        };
        Self { kernel, layout, name, flavour, idle: Cell::new(None) }
    }

    pub(super) fn flavour(&self) -> &dyn Flavour {
        &*self.flavour
    }

    pub(super) fn kernel(&self) -> &dyn Kernel {
        &*self.kernel
    }

    /// Top of the hierarchy that schedules.
    pub(super) fn top(&self) -> &str {
        &self.layout.hierarchies[0].mount
    }

    /// Directory of the hierarchy that schedules, for a path of the mirror.
    pub(super) fn cpu(&self, path: &str) -> String {
        format!("{}/{}{path}", self.top(), self.name)
    }

    /// The same in the hierarchy that counts.
    pub(super) fn acct(&self, path: &str) -> String {
        let last = self.layout.hierarchies.len() - 1;
        format!("{}/{}{path}", self.layout.hierarchies[last].mount, self.name)
    }

    /// One directory per hierarchy.
    pub(super) fn dirs(&self, path: &str) -> Vec<String> {
        self.layout.hierarchies.iter().map(|h| format!("{}/{}{path}", h.mount, self.name)).collect()
    }

    /// Directories of a place; `None` when it is not (or no longer) there.
    pub(super) fn dirs_of(&self, place: &Place) -> Option<Vec<String>> {
        let dirs: Option<Vec<_>> = self.layout.hierarchies.iter().zip(place).map(|(h, p)| h.dir(p)).collect();
        dirs.filter(|dirs| {
            dirs.len() == self.layout.hierarchies.len() && dirs.iter().all(|d| self.kernel.exists(d))
        })
    }

    /// The hierarchies' tops.
    pub(super) fn tops(&self) -> Vec<String> {
        self.layout.hierarchies.iter().map(|h| h.mount.clone()).collect()
    }

    pub(super) fn present(&self) -> bool {
        self.kernel.exists(&self.cpu(""))
    }

    /// The kernel has `cpu.idle`; our first directory shows it.
    pub(super) fn has_idle(&self) -> bool {
        if self.idle.get().is_none() && self.present() {
            self.idle.set(Some(self.kernel.exists(&format!("{}/cpu.idle", self.cpu("")))));
        }
        self.idle.get().unwrap_or(false)
    }

    /// Makes a node's directories; those that exist are fine.
    pub(super) fn make(&self, path: &str, scheduler: bool) -> Result<(), PlaneError> {
        for dir in self.dirs(path) {
            match self.kernel.mkdir(&dir) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(os(format!("mkdir {dir}"))(e));
                }
                _ => {}
            }
        }
        self.flavour.made(self.kernel(), &self.cpu(path), scheduler)
    }

    /// Removes a node's directories; `Ok(false)` while somebody is still (or again) in one of them.
    pub(super) fn unmake(&self, path: &str) -> Result<bool, PlaneError> {
        for dir in self.dirs(path) {
            let mut attempts = 0;
            while let Err(error) = self.kernel.rmdir(&dir) {
                if gone(&error) {
                    break;
                }
                if error.raw_os_error() != Some(libc::EBUSY) {
                    return Err(os(format!("rmdir {dir}"))(error));
                }
                // An exiting thread leaves the list before it leaves the cgroup.
                attempts += 1;
                if attempts == 100 || !self.tids(path)?.is_empty() {
                    return Ok(false);
                }
                self.kernel.pause();
            }
        }
        Ok(true)
    }

    pub(super) fn set_share(&self, path: &str, share: Share, idle: bool) -> Result<(), PlaneError> {
        let dir = self.cpu(path);
        // The kernel refuses a weight while the cgroup is idle, and an idle one forgets its weight.
        match share {
            Share::Idle => put(self.kernel(), &format!("{dir}/cpu.idle"), "1"),
            Share::Weight(weight) => {
                if idle {
                    put(self.kernel(), &format!("{dir}/cpu.idle"), "0")?;
                }
                put(self.kernel(), &format!("{dir}/{}", self.flavour.weight()), &weight.to_string())
            }
        }
    }

    pub(super) fn set_quota(&self, path: &str, quota: Option<Quota>) -> Result<(), PlaneError> {
        self.flavour.set_quota(self.kernel(), &self.cpu(path), quota)
    }

    /// What a cgroup is set to, as far as it can be read back.
    pub(super) fn read_attr(&self, path: &str) -> Option<Attr> {
        let dir = self.cpu(path);
        let number = |file: &str| self.kernel.read(&format!("{dir}/{file}")).ok()?.trim().parse::<u32>().ok();
        let share = match number("cpu.idle") {
            Some(1) => Share::Idle,
            _ => Share::Weight(number(self.flavour.weight())?),
        };
        let quota = self.flavour.quota(self.kernel(), &dir).ok()?;
        Some(Attr {
            share,
            quota: quota.map(|(quota_us, period_us)| Quota { quota_us, period_us, burst_us: 0 }),
        })
    }

    pub(super) fn usage_ns(&self, path: &str) -> io::Result<u64> {
        self.flavour.usage_ns(self.kernel(), &self.acct(path))
    }

    /// CPU time of the whole machine (of what the hierarchy sees of it).
    pub(super) fn machine_ns(&self) -> io::Result<u64> {
        let last = self.layout.hierarchies.len() - 1;
        self.flavour.usage_ns(self.kernel(), &self.layout.hierarchies[last].mount)
    }

    pub(super) fn throttled_ns(&self, path: &str) -> io::Result<u64> {
        self.flavour.throttled_ns(self.kernel(), &self.cpu(path))
    }

    /// Threads in a directory of ours, in any hierarchy; none when it does not exist.
    pub(super) fn tids(&self, path: &str) -> Result<Vec<i32>, PlaneError> {
        let mut out = Vec::new();
        for dir in self.dirs(path) {
            let file = format!("{dir}/{}", self.flavour.threads());
            match self.kernel.read(&file) {
                Ok(text) => out.extend(text.lines().filter_map(|l| l.trim().parse::<i32>().ok())),
                Err(e) if gone(&e) => {}
                Err(e) => return Err(os(format!("read {file}"))(e)),
            }
        }
        out.sort_unstable();
        out.dedup();
        Ok(out)
    }

    /// Where a thread is; `NoProcess` when it is gone.
    pub(super) fn locate(&self, tid: i32) -> Result<Place, PlaneError> {
        let text = match self.kernel.read(&format!("/proc/{tid}/cgroup")) {
            Ok(text) => text,
            Err(e) if gone(&e) => return Err(PlaneError::NoProcess(tid)),
            Err(e) => return Err(os(format!("read /proc/{tid}/cgroup"))(e)),
        };
        let find = |controller: &str| {
            text.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                controllers.split(',').any(|c| c == controller).then(|| path.to_owned())
            })
        };
        let place: Option<Place> = self.layout.hierarchies.iter().map(|h| find(h.controller)).collect();
        place.ok_or_else(|| os(format!("/proc/{tid}/cgroup"))(malformed("it")))
    }

    /// The path of the mirror that a place lies in; `None` outside our tree.
    pub(super) fn inside<'a>(&self, place: &'a Place) -> Option<&'a str> {
        let root = self.layout.hierarchies[0].root.trim_end_matches('/');
        let rest = place.first()?.strip_prefix(root)?.strip_prefix('/')?.strip_prefix(self.name.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// Whether any of a thread's cgroups is ours. Differs from [`Cg::inside`] where somebody died between the
    /// hierarchies of v1.
    pub(super) fn ours(&self, place: &Place) -> bool {
        self.layout.hierarchies.iter().zip(place).any(|(h, path)| {
            let ours = format!("{}/{}", h.root.trim_end_matches('/'), self.name);
            path.strip_prefix(ours.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    pub(super) fn stat(&self, tid: i32) -> io::Result<Stat> {
        let path = format!("/proc/{tid}/stat");
        let text = self.kernel.read(&path)?;
        // tid (comm) state ppid …; the 22nd field is the start time. comm may hold blanks and parentheses.
        let rest = text.rsplit_once(')').map(|(_, rest)| rest).ok_or_else(|| malformed(&path))?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
        Ok(Stat {
            runnable: fields.first() == Some(&"R"),
            parent: number(1).and_then(|n| i32::try_from(n).ok()).ok_or_else(|| malformed(&path))?,
            started: number(19).ok_or_else(|| malformed(&path))?,
        })
    }

    /// The process of a thread.
    pub(super) fn tgid(&self, tid: i32) -> Result<i32, PlaneError> {
        let text =
            self.kernel.read(&format!("/proc/{tid}/status")).map_err(|_| PlaneError::NoProcess(tid))?;
        text.lines()
            .find_map(|l| l.strip_prefix("Tgid:")?.trim().parse().ok())
            .ok_or(PlaneError::NoProcess(tid))
    }

    /// The threads of a process.
    pub(super) fn threads(&self, pid: i32) -> Result<Vec<i32>, PlaneError> {
        let names = self.kernel.list(&format!("/proc/{pid}/task")).map_err(|_| PlaneError::NoProcess(pid))?;
        Ok(names.iter().filter_map(|n| n.parse().ok()).collect())
    }

    fn put_in(&self, dirs: &[String], file: &str, id: i32) -> io::Result<()> {
        for dir in dirs {
            self.kernel.write(&format!("{dir}/{file}"), &id.to_string())?;
        }
        Ok(())
    }

    /// Moves one thread.
    pub(super) fn put_thread(&self, dirs: &[String], tid: i32) -> io::Result<()> {
        self.put_in(dirs, self.flavour.threads(), tid)
    }

    /// Moves all threads of a process at once; no fork can slip through.
    pub(super) fn put_process(&self, dirs: &[String], pid: i32) -> io::Result<()> {
        self.put_in(dirs, "cgroup.procs", pid)
    }
}
