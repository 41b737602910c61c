// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the kernel's own scheduler is measured: cgroups of version 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Part;
use crate::error::Error;

/// Where they are made.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Cgroups of version 2 with the parts' weights; gone when dropped.
pub(super) struct Groups {
    top: PathBuf,
    parts: Vec<PathBuf>,
    /// Whether we told the root to hand the controller on.
    told: bool,
}

impl Groups {
    pub(super) fn make(parts: &[Part]) -> Result<Self, String> {
        let root = Path::new(CGROUPS);
        let at = |path: &Path| format!("{}", path.display());
        let read =
            |path: PathBuf| fs::read_to_string(&path).map_err(|e| format!("{}: {e}", at(&path)));
        if !read(root.join("cgroup.controllers"))?.split_ascii_whitespace().any(|c| c == "cpu") {
            return Err("cgroup version 2 has no cpu controller here".into());
        }
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).map_err(|e| format!("{}: {e}", at(&path)))
        };
        let control = root.join("cgroup.subtree_control");
        let told = !read(control.clone())?.split_ascii_whitespace().any(|c| c == "cpu");
        if told {
            write(control, "+cpu")?;
        }
        let top = root.join(format!("reserv-compare-{}", std::process::id()));
        let mut groups = Self { top: top.clone(), parts: Vec::new(), told };
        fs::create_dir(&top).map_err(|e| format!("{}: {e}", at(&top)))?;
        write(top.join("cgroup.subtree_control"), "+cpu")?;
        for part in parts {
            let dir = top.join(part.name);
            fs::create_dir(&dir).map_err(|e| format!("{}: {e}", at(&dir)))?;
            groups.parts.push(dir.clone());
            write(dir.join("cpu.weight"), &part.weight.to_string())?;
        }
        // As much against everything else as the parts together have beside q0.
        let all: u32 = parts.iter().map(|p| p.weight).sum();
        write(top.join("cpu.weight"), &all.to_string())?;
        Ok(groups)
    }

    pub(super) fn put(&self, part: &Part, pid: i32) -> Result<(), Error> {
        let file = self.top.join(part.name).join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(|e| Error::io(file.display(), &e))
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for dir in self.parts.iter().chain([&self.top]) {
            // A process that has just ended may still be counted.
            for _ in 0..50 {
                match fs::remove_dir(dir) {
                    Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    _ => break,
                }
            }
        }
        if self.told {
            let _ = fs::write(Path::new(CGROUPS).join("cgroup.subtree_control"), "-cpu");
        }
    }
}
