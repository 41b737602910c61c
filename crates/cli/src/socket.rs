// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files by way of the control socket: root's, for nobody can keep it locked.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reserv_control::{Ask, Asker, Done, Failed, Kind as Found, Names, Text};
use serde::de::DeserializeOwned;

use crate::control::{Control, run_dir};
use crate::error::{Error, Kind};
use crate::fs::{Files, Listing};
use crate::path::Place;

/// The connection, and what a refusal was.
struct Teller {
    mount: PathBuf,
    asker: Asker,
    /// The words of the last change that was refused.
    refused: RefCell<Option<(String, Option<String>)>>,
}

/// See the head of this file.
pub(crate) struct Socket {
    teller: Rc<Teller>,
    place: Rc<dyn Place>,
}

impl Socket {
    /// Where the reservd that has its files at `mount` answers on it.
    pub(crate) fn open(mount: &Path) -> Option<Self> {
        let asker = Asker::open(&run_dir()).filter(|asker| asker.serves(mount))?;
        let teller =
            Rc::new(Teller { mount: mount.to_owned(), asker, refused: RefCell::default() });
        Some(Self { place: teller.clone(), teller })
    }

    /// The same where it has to be this way.
    pub(crate) fn need(mount: &Path) -> Result<Self, Error> {
        Control::need()?;
        Self::open(mount).ok_or_else(|| {
            let mount = mount.display();
            Error::new(
                Kind::NotRunning,
                format!("who answers on the control socket does not serve {mount}"),
            )
        })
    }
}

impl Teller {
    /// An answer, or its errno.
    fn ask<A: DeserializeOwned>(&self, ask: &Ask) -> io::Result<A> {
        let change = ask.is_change();
        self.asker.ask(ask).map_err(|failed| {
            if change && let Failed::Refused(refused) = &failed {
                let hint = Some(refused.hint.clone()).filter(|hint| !hint.is_empty());
                let text = Some(refused.text.clone()).filter(|text| !text.is_empty());
                self.refused.replace(text.map(|text| (text, hint)));
            }
            failed.into()
        })
    }

    /// A change.
    fn change(&self, ask: &Ask) -> io::Result<()> {
        self.ask::<Done>(ask).map(drop)
    }

    fn find(&self, path: &str) -> io::Result<Found> {
        self.ask(&Ask::kind(path))
    }
}

impl Place for Teller {
    fn mount(&self) -> &Path {
        &self.mount
    }

    fn has(&self, name: &str) -> bool {
        let found = self.find(&format!("{name}/share"));
        found.map_or_else(|error| crate::fs::late(&error), |_| true)
    }
}

impl Files for Socket {
    fn place(&self) -> &Rc<dyn Place> {
        &self.place
    }

    fn read(&self, path: &str) -> io::Result<String> {
        self.teller.ask::<Text>(&Ask::read(path)).map(|answer| answer.text)
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        self.teller.change(&Ask::write(path, format!("{text}\n")))
    }

    fn list(&self, dir: &str) -> io::Result<Listing> {
        let Names { files, directories, .. } = self.teller.ask(&Ask::list(dir))?;
        Ok(Listing { files, dirs: directories }.sorted())
    }

    fn rmdir(&self, dir: &str) -> io::Result<()> {
        self.teller.change(&Ask::rmdir(dir))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.teller.change(&Ask::rename(from, to))
    }

    fn inode(&self, path: &str) -> io::Result<u64> {
        self.teller.find(path).map(|found| found.inode)
    }

    fn is_dir(&self, dir: &str) -> bool {
        self.teller.find(dir).is_ok_and(|found| found.directory)
    }

    fn is_late(&self, dir: &str) -> Option<io::Error> {
        self.teller.find(dir).err().filter(crate::fs::late)
    }

    fn asks_the_daemon(&self) -> bool {
        true
    }

    /// It came with the answer.
    fn refusal(&self, _operation: &str) -> Option<(String, Option<String>)> {
        self.teller.refused.borrow().clone()
    }
}
