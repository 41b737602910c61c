// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our directories in one or two hierarchies, who is in them, and where a thread or process is.
//! What is set there is the driver's business.

use std::io;

use super::kernel::Kernel;
use super::mounts::{Layout, Version};
use crate::PlaneError;
pub(crate) use crate::libbpf::os;

/// The paths of one thread's cgroups as /proc/TID/cgroup names them, one for each of our
/// hierarchies.
pub(crate) type Place = Vec<String>;

/// Writes and says on failure what was tried.
pub(crate) fn put(kernel: &dyn Kernel, path: &str, text: &str) -> Result<(), PlaneError> {
    kernel.write(path, text).map_err(os(format!("write {text:?} to {path}")))
}

/// The number behind `key` in a flat keyed file.
pub(crate) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

pub(crate) fn malformed(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{path} does not read as expected"))
}

pub(crate) fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ESRCH))
}

/// Which of the threads that have a number, one after the other, is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Born {
    /// The kernel's number for it.
    Identity(u64),
    /// When it was started.
    Started(u64),
}

/// One tree of ours.
pub(crate) struct Places {
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) layout: Layout,
    /// Our cgroup's name at the top of each hierarchy.
    pub(crate) name: String,
}

impl Places {
    pub(crate) fn kernel(&self) -> &dyn Kernel {
        &*self.kernel
    }

    /// The file with one thread per line.
    pub(crate) fn threads_file(&self) -> &'static str {
        match self.layout.version {
            Version::V1 => "tasks",
            Version::V2 => "cgroup.threads",
        }
    }

    /// One directory per hierarchy.
    pub(crate) fn dirs(&self, path: &str) -> Vec<String> {
        self.layout.hierarchies.iter().map(|h| format!("{}/{}{path}", h.mount, self.name)).collect()
    }

    /// Directories of a place; `None` when it is not (or no longer) there.
    pub(crate) fn dirs_of(&self, place: &Place) -> Option<Vec<String>> {
        let dirs: Option<Vec<_>> =
            self.layout.hierarchies.iter().zip(place).map(|(h, p)| h.dir(p)).collect();
        dirs.filter(|dirs| {
            dirs.len() == self.layout.hierarchies.len()
                && dirs.iter().all(|d| self.kernel.exists(d))
        })
    }

    /// The hierarchies' tops.
    pub(crate) fn tops(&self) -> Vec<String> {
        self.layout.hierarchies.iter().map(|h| h.mount.clone()).collect()
    }

    /// Makes a node's directories; those that exist are fine.
    pub(crate) fn make_dirs(&self, path: &str) -> Result<(), PlaneError> {
        for dir in self.dirs(path) {
            match self.kernel.mkdir(&dir) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(os(format!("mkdir {dir}"))(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes a node's directories; `Ok(false)` while somebody is still (or again) in one of them.
    pub(crate) fn unmake(&self, path: &str) -> Result<bool, PlaneError> {
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

    /// Threads in a directory of ours, in any hierarchy; none when it does not exist.
    pub(crate) fn tids(&self, path: &str) -> Result<Vec<i32>, PlaneError> {
        self.ids(path, self.threads_file())
    }

    fn ids(&self, path: &str, file: &str) -> Result<Vec<i32>, PlaneError> {
        let mut out = Vec::new();
        for dir in self.dirs(path) {
            let file = format!("{dir}/{file}");
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

    /// Processes in a directory of ours, in any hierarchy; none when it does not exist.
    pub(crate) fn pids(&self, path: &str) -> Result<Vec<i32>, PlaneError> {
        self.ids(path, "cgroup.procs")
    }

    /// Where a thread is; `NoProcess` when it is gone.
    pub(crate) fn locate(&self, tid: i32) -> Result<Place, PlaneError> {
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
        let place: Option<Place> =
            self.layout.hierarchies.iter().map(|h| find(h.controller)).collect();
        place.ok_or_else(|| os(format!("/proc/{tid}/cgroup"))(malformed("it")))
    }

    /// The path of the mirror that a place lies in; `None` outside our tree.
    pub(crate) fn inside<'a>(&self, place: &'a Place) -> Option<&'a str> {
        let root = self.layout.hierarchies[0].root.trim_end_matches('/');
        let rest = place
            .first()?
            .strip_prefix(root)?
            .strip_prefix('/')?
            .strip_prefix(self.name.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// Whether any of a thread's cgroups is ours. Differs from [`Cg::inside`] where somebody died
    /// between the hierarchies of v1.
    pub(crate) fn ours(&self, place: &Place) -> bool {
        self.lies(place, &self.name)
    }

    /// Whether any of a thread's cgroups is in the tree of this name, at the top.
    pub(crate) fn lies(&self, place: &Place, name: &str) -> bool {
        self.layout.hierarchies.iter().zip(place).any(|(h, path)| {
            let ours = format!("{}/{name}", h.root.trim_end_matches('/'));
            path.strip_prefix(ours.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// What tells the thread that has a number from all that had it before, since boot.
    pub(crate) fn born(&self, tid: i32) -> io::Result<Born> {
        match self.kernel.identity(tid)? {
            Some(identity) => Ok(Born::Identity(identity)),
            None => self.started(tid).map(Born::Started),
        }
    }

    /// Whether it is still that one.
    pub(crate) fn is_the_same(&self, tid: i32, born: Born) -> bool {
        let now = match born {
            Born::Identity(_) => self.kernel.identity(tid).ok().flatten().map(Born::Identity),
            Born::Started(_) => self.started(tid).ok().map(Born::Started),
        };
        now == Some(born)
    }

    /// When a thread was started. Reading it waits for a process that is in the middle of an exec,
    /// which may take as long as somebody likes; nothing else that is read here does. So it is
    /// asked only where the kernel gives threads no identity (before Linux 6.9), and of who was
    /// recorded so.
    fn started(&self, tid: i32) -> io::Result<u64> {
        let path = format!("/proc/{tid}/stat");
        let text = self.kernel.read(&path)?;
        // tid (comm) state ppid …; the 22nd field is the start time. comm may hold blanks and
        // parentheses.
        let rest = text.rsplit_once(')').map(|(_, rest)| rest).ok_or_else(|| malformed(&path))?;
        let field = rest.split_whitespace().nth(19);
        field.and_then(|field| field.parse().ok()).ok_or_else(|| malformed(&path))
    }

    /// A line of /proc/TID/status.
    fn status(&self, tid: i32, key: &str) -> Result<String, PlaneError> {
        let text = self
            .kernel
            .read(&format!("/proc/{tid}/status"))
            .map_err(|_| PlaneError::NoProcess(tid))?;
        text.lines()
            .find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned()))
            .ok_or(PlaneError::NoProcess(tid))
    }

    fn status_number(&self, tid: i32, key: &str) -> Result<i32, PlaneError> {
        self.status(tid, key)?.parse().map_err(|_| PlaneError::NoProcess(tid))
    }

    /// Whether a thread runs or wants to.
    pub(crate) fn is_runnable(&self, tid: i32) -> bool {
        self.status(tid, "State").is_ok_and(|state| state.starts_with('R'))
    }

    /// The process that a process is a child of.
    pub(crate) fn parent(&self, tid: i32) -> Result<i32, PlaneError> {
        self.status_number(tid, "PPid")
    }

    /// The process of a thread.
    pub(crate) fn tgid(&self, tid: i32) -> Result<i32, PlaneError> {
        self.status_number(tid, "Tgid")
    }

    /// The threads of a process.
    pub(crate) fn threads(&self, pid: i32) -> Result<Vec<i32>, PlaneError> {
        let names = self
            .kernel
            .list(&format!("/proc/{pid}/task"))
            .map_err(|_| PlaneError::NoProcess(pid))?;
        Ok(names.iter().filter_map(|n| n.parse().ok()).collect())
    }

    fn put_in(&self, dirs: &[String], file: &str, id: i32) -> io::Result<()> {
        for dir in dirs {
            self.kernel.write(&format!("{dir}/{file}"), &id.to_string())?;
        }
        Ok(())
    }

    /// Moves one thread.
    pub(crate) fn put_thread(&self, dirs: &[String], tid: i32) -> io::Result<()> {
        self.put_in(dirs, self.threads_file(), tid)
    }

    /// Moves all threads of a process at once; no fork can slip through.
    pub(crate) fn put_process(&self, dirs: &[String], pid: i32) -> io::Result<()> {
        self.put_in(dirs, "cgroup.procs", pid)
    }
}
