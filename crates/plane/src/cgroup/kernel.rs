// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that this driver makes to the kernel. The tests put a simulated cgroup file system
//! here.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Files and directories of cgroupfs and /proc, and the driver's own few files.
pub(crate) trait Kernel: Send {
    /// The whole text of a file.
    fn read(&self, path: &str) -> io::Result<String>;
    /// One write(2) to a file that exists; never creates or truncates.
    fn write(&self, path: &str, text: &str) -> io::Result<()>;
    /// Makes a directory; `AlreadyExists` when there is one.
    fn mkdir(&self, path: &str) -> io::Result<()>;
    /// Removes a directory that has no children.
    fn rmdir(&self, path: &str) -> io::Result<()>;
    /// Names of the directories in a directory.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &str) -> bool;
    /// Makes a file of our own with this text, whole or not at all.
    fn store(&self, path: &str, text: &[u8]) -> io::Result<()>;
    /// Adds to a file of our own.
    fn append(&self, path: &str, text: &str) -> io::Result<()>;
    /// Removes a file of our own; there need not be one.
    fn remove(&self, path: &str);
    /// Which thread has a number, as no other since the machine's start. `None`: the kernel does
    /// not say it, or only of the first thread of a process.
    fn identity(&self, tid: i32) -> io::Result<Option<u64>>;
    /// Lets the kernel finish something (an exit that still holds a cgroup) between two attempts.
    fn pause(&self);
}

/// The running kernel.
pub(crate) struct Real;

impl Kernel for Real {
    fn read(&self, path: &str) -> io::Result<String> {
        // Names of programs in /proc/TID/stat need not be UTF-8.
        Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &str) -> bool {
        fs::exists(path).unwrap_or(false)
    }

    fn store(&self, path: &str, text: &[u8]) -> io::Result<()> {
        if let Some(parent) = Path::new(path).parent() {
            fs::create_dir_all(parent)?;
        }
        let new = format!("{path}.new");
        fs::write(&new, text)?;
        fs::rename(&new, path)
    }

    fn append(&self, path: &str, text: &str) -> io::Result<()> {
        fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
    }

    fn remove(&self, path: &str) {
        if let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path, %error, "not removed");
        }
    }

    fn identity(&self, tid: i32) -> io::Result<Option<u64>> {
        crate::sys::identity(tid)
    }

    fn pause(&self) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
