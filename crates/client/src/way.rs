// SPDX-License-Identifier: MIT OR Apache-2.0
//! By which way a call reaches the files.
//!
//! | way | of whom |
//! |---|---|
//! | the control socket | root, where reservd answers on it: a locked directory does not stop him |
//! | the mount | all others; and what is a descriptor, for everybody |
//!
//! `RESERV_VIA` (`files` or `socket`) says which to take.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use reserv_control::{Ask, Asker, Done, Failed, Kind, Names, Text};
use reserv_facts::place::{RUN, variable};
use serde::de::DeserializeOwned;

use crate::calls;
use crate::files::command;
use crate::place::named;

/// Nearly every text in one read(2): each is a call of the daemon.
const READ: usize = 4096;

/// See the head of this file.
#[derive(Debug)]
pub(crate) enum Way {
    /// The files themselves, below their mount point.
    Mount(PathBuf),
    /// By path.
    Socket {
        asker: Asker,
        /// The daemon's words for the last change that it refused.
        refused: RefCell<Option<String>>,
    },
}

/// Root's way past the mount, if there is one.
pub(crate) fn socket() -> Option<Asker> {
    let via = named(variable::VIA);
    let asked = via.as_deref().map(Path::as_os_str);
    let wanted = asked.map_or(calls::geteuid() == 0, |via| via == "socket");
    let run = wanted.then(|| named(variable::RUN).unwrap_or_else(|| RUN.into()))?;
    Asker::open(&run)
}

impl Way {
    pub(crate) fn by(asker: Asker) -> Self {
        Self::Socket { asker, refused: RefCell::default() }
    }

    fn ask<A: DeserializeOwned>(asker: &Asker, ask: &Ask) -> io::Result<A> {
        asker.ask(ask).map_err(io::Error::from)
    }

    fn change(asker: &Asker, refused: &RefCell<Option<String>>, ask: &Ask) -> io::Result<()> {
        asker.ask::<Done>(ask).map(drop).map_err(|failed| {
            if let Failed::Refused(why) = &failed {
                refused.replace(Some(why.text.clone()).filter(|text| !text.is_empty()));
            }
            failed.into()
        })
    }

    /// The words of the last change that was refused, where they came with the answer.
    pub(crate) fn refused(&self) -> Option<String> {
        match self {
            Self::Mount(_) => None,
            Self::Socket { refused, .. } => refused.borrow().clone(),
        }
    }

    /// Whether the daemon hears of all that is asked; the kernel refuses by a file's mode.
    pub(crate) fn asks_the_daemon(&self) -> bool {
        matches!(self, Self::Socket { .. })
    }

    /// All of a file.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        match self {
            Self::Mount(root) => read_file(&root.join(path)),
            Self::Socket { asker, .. } => {
                Self::ask(asker, &Ask::read(path)).map(|Text { text }| text)
            }
        }
    }

    /// One command.
    pub(crate) fn write(&self, path: &str, text: &str) -> io::Result<()> {
        match self {
            Self::Mount(root) => {
                command(&mut OpenOptions::new().write(true).open(root.join(path))?, text)
            }
            Self::Socket { asker, refused } => {
                Self::change(asker, refused, &Ask::write(path, format!("{text}\n")))
            }
        }
    }

    /// Whether a file may be opened for writing.
    pub(crate) fn may_write(&self, path: &str) -> bool {
        match self {
            Self::Mount(root) => OpenOptions::new().write(true).open(root.join(path)).is_ok(),
            Self::Socket { .. } => true,
        }
    }

    /// Names of the directories in a directory, as they stand there, with their inode numbers.
    pub(crate) fn children(&self, path: &str) -> io::Result<Vec<(String, u64)>> {
        match self {
            Self::Mount(root) => {
                let mut found = Vec::new();
                for entry in fs::read_dir(root.join(path))? {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        found.push((entry.file_name().to_string_lossy().into_owned(), entry.ino()));
                    }
                }
                Ok(found)
            }
            Self::Socket { asker, .. } => {
                let Names { directories, inodes, .. } = Self::ask(asker, &Ask::list(path))?;
                Ok(directories.into_iter().zip(inodes).collect())
            }
        }
    }

    /// Names of the files in a directory.
    pub(crate) fn files(&self, path: &str) -> io::Result<Vec<String>> {
        match self {
            Self::Mount(root) => {
                let entries = fs::read_dir(root.join(path))?.flatten();
                let files =
                    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
                Ok(files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
            }
            Self::Socket { asker, .. } => {
                Self::ask(asker, &Ask::list(path)).map(|Names { files, .. }| files)
            }
        }
    }

    fn kind(&self, path: &str) -> io::Result<Kind> {
        match self {
            Self::Mount(root) => {
                let found = fs::symlink_metadata(root.join(path))?;
                Ok(Kind { directory: found.is_dir(), inode: found.ino() })
            }
            Self::Socket { asker, .. } => Self::ask(asker, &Ask::kind(path)),
        }
    }

    /// The inode number of what is there.
    pub(crate) fn inode(&self, path: &str) -> io::Result<u64> {
        self.kind(path).map(|found| found.inode)
    }

    /// Whether there is a directory.
    pub(crate) fn is_dir(&self, path: &str) -> bool {
        self.kind(path).is_ok_and(|found| found.directory)
    }

    /// A node goes.
    pub(crate) fn rmdir(&self, path: &str) -> io::Result<()> {
        match self {
            Self::Mount(root) => fs::remove_dir(root.join(path)),
            Self::Socket { asker, refused } => Self::change(asker, refused, &Ask::rmdir(path)),
        }
    }

    /// It is renamed or moved.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match self {
            Self::Mount(root) => fs::rename(root.join(from), root.join(to)),
            Self::Socket { asker, refused } => Self::change(asker, refused, &Ask::rename(from, to)),
        }
    }

    /// The caller's own directory of a process, right in any pid name space.
    pub(crate) fn own(&self) -> io::Result<String> {
        match self {
            Self::Mount(root) => {
                let target = fs::read_link(root.join("self"))?;
                Ok(format!("proc/{}", target.file_name().unwrap_or_default().to_string_lossy()))
            }
            // A link that reservd follows for whoever connected.
            Self::Socket { .. } => Ok("self".to_owned()),
        }
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut text = vec![0; READ];
    let mut length = 0;
    loop {
        match file.read(&mut text[length..]) {
            Ok(got) => length += got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if length < text.len() {
            text.truncate(length);
            return String::from_utf8(text).map_err(|_| io::Error::from_raw_os_error(libc::EILSEQ));
        }
        text.resize(2 * length, 0);
    }
}
