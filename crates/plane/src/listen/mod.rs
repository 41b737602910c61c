// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several listeners on one address and port, chosen by who comes (`bpf/listen`): Resource
//! Containers 4.8. One program for reservd's network name space, which is there from the first
//! socket on that says for whom it is. It is pinned under `RESERV_BPFFS`/listen, and does not need
//! us.

mod abi;
mod book;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libbpf_rs::{ErrorExt as _, MapCore as _, Object, ObjectBuilder, PrintLevel};

use self::abi::{RlDoor, RlKey, RlListener, RlRestKey};
pub use self::book::Listener;
use self::book::{kept, tables, told};
pub use self::socket::{Admission, Socket};
use crate::libbpf::{SAID, attach_once, detach, listen, os, refused, remove_pins};
use crate::{PlaneError, libbpf, sys};

/// The program, built by build.rs.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/listen.bpf.o"));
const PROGRAM: &str = "rl_listener";

/// The program and its maps. Dropping it leaves them there.
#[derive(Debug)]
pub struct Listeners {
    folder: PathBuf,
    sockets: OwnedFd,
    book: OwnedFd,
    clients: OwnedFd,
    doors: OwnedFd,
    rests: OwnedFd,
}

fn folder() -> PathBuf {
    libbpf::folder("listen")
}

/// Stands in the folder when all else does, and says which program it is.
fn mark(folder: &Path) -> PathBuf {
    static BUILD: LazyLock<u32> = LazyLock::new(|| crc32fast::hash(OBJECT));
    folder.join(format!("build-{:08x}", *BUILD))
}

/// The program in the kernel; with the maps that are pinned in `with`.
fn loaded(with: Option<&Path>) -> Result<Object, PlaneError> {
    libbpf_rs::set_print(Some((PrintLevel::Info, listen)));
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
    let mut open = ObjectBuilder::default()
        .name("reserv_listen")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| refused("open the program that chooses listeners", &error))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(folder) = with
            && let Some(name) = libbpf::pin_name(&name)
        {
            map.reuse_pinned_map(folder.join(name))
                .map_err(|error| refused(&format!("keep the map {name}"), &error))?;
        }
    }
    libbpf::show_verifier(&mut open);
    open.load().map_err(|error| {
        let error = refused("load the program that chooses listeners", &error);
        tracing::debug!(%error, "the program that chooses listeners");
        PlaneError::NotLoaded(format!(
            "this kernel refuses the program {PROGRAM} (Linux 5.17), which chooses a listener by \
             its client"
        ))
    })
}

fn program_of(object: &mut Object) -> Result<libbpf_rs::ProgramMut<'_>, PlaneError> {
    let missing = || PlaneError::NotLoaded(format!("the program {PROGRAM} is missing"));
    object.progs_mut().find(|program| program.name() == PROGRAM).ok_or_else(missing)
}

/// Nothing is there any more: the kernel chooses as always.
pub fn clear() -> Result<(), PlaneError> {
    let folder = folder();
    if !folder.exists() {
        return Ok(());
    }
    detach(&folder, PROGRAM)?;
    remove_pins(&folder)
}

impl Listeners {
    /// Begins: an empty book, and a program that is asked for each new client.
    pub fn begin() -> Result<Self, PlaneError> {
        let mut object = loaded(None)?;
        let folder = folder();
        clear()?;
        let mut all = || {
            libbpf::make_folder(&folder)?;
            for mut map in object.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                if let Some(name) = libbpf::pin_name(&name) {
                    map.pin(folder.join(name)).map_err(|error| refused(name, &error))?;
                }
            }
            let mut program = program_of(&mut object)?;
            program
                .pin(folder.join(PROGRAM))
                .context("pin")
                .map_err(|error| refused(PROGRAM, &error))?;
            let own = File::open("/proc/self/ns/net").map_err(os("the network name space"))?;
            let own_number = own.as_raw_fd().unsigned_abs();
            attach_once(&folder, PROGRAM, |program| {
                sys::attach_interface(program, own_number, libbpf_sys::BPF_SK_LOOKUP, 0)
            })?;
            let there = Self::open(folder.clone())?;
            there.mark()?;
            Ok(there)
        };
        let made = all();
        if made.is_err() {
            let _ = clear();
        }
        made
    }

    fn mark(&self) -> Result<(), PlaneError> {
        let mark = mark(&self.folder);
        sys::pin(&self.sockets, &mark).map_err(os(format!("pin {}", mark.display())))
    }

    /// What an earlier daemon left, made whole; another build's goes on with its maps. `None`:
    /// there is nothing.
    pub fn adopt() -> Result<Option<Self>, PlaneError> {
        let folder = folder();
        if !folder.join(format!("link-{PROGRAM}")).exists() {
            clear()?;
            return Ok(None);
        }
        let found = Self::open(folder.clone())?;
        if !mark(&folder).exists() {
            found.replace()?;
        }
        found.rebuild()?;
        Ok(Some(found))
    }

    /// This build's program in the place of another's.
    fn replace(&self) -> Result<(), PlaneError> {
        let mut object = loaded(Some(&self.folder))?;
        let mut program = program_of(&mut object)?;
        let link = sys::open(&self.folder.join(format!("link-{PROGRAM}")))
            .map_err(os("open the link of the program that chooses listeners"))?;
        sys::replace(&link, &program).map_err(os("replace the program that chooses listeners"))?;
        for entry in std::fs::read_dir(&self.folder).map_err(os("read the pins"))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("build-") {
                std::fs::remove_file(entry.path()).map_err(os("remove a mark"))?;
            }
        }
        std::fs::remove_file(self.folder.join(PROGRAM)).map_err(os("remove a pin"))?;
        program
            .pin(self.folder.join(PROGRAM))
            .context("pin")
            .map_err(|error| refused(PROGRAM, &error))?;
        self.mark()
    }

    fn open(folder: PathBuf) -> Result<Self, PlaneError> {
        let map = |name: &str| {
            sys::open(&folder.join(name)).map_err(os(format!("open the pinned map '{name}'")))
        };
        Ok(Self {
            sockets: map("sockets")?,
            book: map("listeners")?,
            clients: map("clients")?,
            doors: map("doors")?,
            rests: map("rests")?,
            folder,
        })
    }

    /// For whoever has a copy of a socket.
    pub fn admission(&self) -> Admission {
        Admission { sockets: self.folder.join("sockets") }
    }

    /// Whether a socket is among those that can be chosen.
    pub fn has(&self, cookie: u64) -> Result<bool, PlaneError> {
        let found = sys::get::<u64, u64>(&self.sockets, &cookie).map_err(os("look a socket up"))?;
        Ok(found.is_some())
    }

    /// All that live, by cookie.
    pub fn all(&self) -> Result<BTreeMap<u64, Listener>, PlaneError> {
        let mut all = BTreeMap::new();
        for cookie in sys::keys::<u64>(&self.book).map_err(os("read the listeners"))? {
            let found = sys::get::<u64, RlListener>(&self.book, &cookie)
                .map_err(os("look a listener up"))?;
            if let Some(found) = found.filter(|_| self.has(cookie).unwrap_or(true)) {
                all.insert(cookie, told(cookie, &found));
            }
        }
        Ok(all)
    }

    /// One is as it says from now on, or, without clients, as any other socket. All or nothing.
    pub fn set(&self, is: &Listener) -> Result<(), PlaneError> {
        let mut all = self.all()?;
        let cookie = is.socket.cookie;
        if is.listen.clients.is_empty() {
            all.remove(&cookie);
        } else {
            is.check()?;
            all.insert(cookie, is.clone());
        }
        // Before anything is changed: it may not fit.
        tables(&all)?;
        if is.listen.clients.is_empty() {
            sys::remove(&self.book, &cookie).map_err(os("remove a listener"))?;
        } else {
            sys::put(&self.book, &cookie, &kept(is)).map_err(os("keep a listener"))?;
        }
        self.rebuild()
    }

    /// A socket that is in no book is not to be chosen.
    pub fn leave(&self, cookie: u64) -> Result<(), PlaneError> {
        if !self.all()?.contains_key(&cookie) {
            sys::remove(&self.sockets, &cookie).map_err(os("remove a socket"))?;
        }
        Ok(())
    }

    /// The tables are those of the book. What comes comes before what goes, so that a client
    /// between the two is somebody's.
    fn rebuild(&self) -> Result<(), PlaneError> {
        let all = self.all()?;
        let wanted = tables(&all)?;
        let stale = |what: &'static str| os(format!("change the map '{what}'"));
        for (key, set) in &wanted.clients {
            sys::put(&self.clients, key, set).map_err(stale("clients"))?;
        }
        for (key, rest) in &wanted.rests {
            sys::put(&self.rests, key, rest).map_err(stale("rests"))?;
        }
        for (door, own) in &wanted.doors {
            sys::put(&self.doors, door, own).map_err(stale("doors"))?;
        }
        for door in sys::keys::<RlDoor>(&self.doors).map_err(stale("doors"))? {
            if !wanted.doors.contains_key(&door) {
                sys::remove(&self.doors, &door).map_err(stale("doors"))?;
            }
        }
        for key in sys::keys::<RlKey>(&self.clients).map_err(stale("clients"))? {
            if !wanted.clients.contains_key(&key) {
                sys::remove(&self.clients, &key).map_err(stale("clients"))?;
            }
        }
        for key in sys::keys::<RlRestKey>(&self.rests).map_err(stale("rests"))? {
            if !wanted.rests.contains_key(&key) {
                sys::remove(&self.rests, &key).map_err(stale("rests"))?;
            }
        }
        for cookie in sys::keys::<u64>(&self.book).map_err(stale("listeners"))? {
            if !all.contains_key(&cookie) {
                sys::remove(&self.book, &cookie).map_err(stale("listeners"))?;
            }
        }
        Ok(())
    }
}
