// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which resources there are beside the CPU, and their numbers: `resources` in the run-time
//! directory, replaced whole.
//!
//! An entry is written before anything of its resource is made and taken out after all of it is
//! gone, so that the next daemon finishes what a dead one began: it brings up what is entered, and
//! ends what is marked as going. A number is part of inode numbers and of kernel maps: the next one
//! in turn is taken, and the one that went longest ago comes again last.

use std::io;
use std::path::{Path, PathBuf};

use reserv_model::{Name, Source};
use reserv_namespace::{RESOURCES_MAX, Resource};
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// A resource that is up, coming or going.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    number: u8,
    /// Its directory.
    pub name: Name,
    /// What it counts.
    pub on: Source,
    /// It is being taken down.
    pub going: bool,
}

impl Known {
    /// Its number, if it is one.
    pub fn resource(&self) -> Option<Resource> {
        Resource::new(self.number).filter(|r| *r != Resource::CPU)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    /// Where the search for a free number begins.
    next: u8,
    known: Vec<Known>,
}

/// Of the file.
const VERSION: u32 = 1;

/// The version comes first: what another one has beside it is not looked at.
fn read(bytes: &[u8]) -> Result<Content, String> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let Head { version } = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if version != VERSION {
        return Err(format!("version {version} instead of {VERSION}"));
    }
    serde_json::from_slice(bytes).map_err(|e| e.to_string())
}

/// See the head of this file.
#[derive(Debug)]
pub struct Registry {
    path: PathBuf,
    content: Content,
}

impl Registry {
    /// Reads the file; none is an empty one.
    pub fn open(run: &Path) -> Result<Self, Refusal> {
        let path = run.join("resources");
        let content = match std::fs::read(&path) {
            Ok(bytes) => read(&bytes).map_err(|why| Refusal::unreadable(&path, why))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Content { version: VERSION, next: 1, known: Vec::new() }
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { path, content })
    }

    /// All of them.
    pub fn known(&self) -> &[Known] {
        &self.content.known
    }

    fn change(&mut self, change: impl FnOnce(&mut Content)) -> io::Result<()> {
        let mut next = self.content.clone();
        change(&mut next);
        let new = self.path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&next)?)?;
        std::fs::rename(&new, &self.path)?;
        self.content = next;
        Ok(())
    }

    /// Enters a resource under a free number; `None` when all are taken.
    pub fn enter(&mut self, name: &Name, on: &Source) -> io::Result<Option<Known>> {
        let taken = |number: u8| self.content.known.iter().any(|known| known.number == number);
        let last = RESOURCES_MAX - 1;
        let in_turn = (self.content.next..=last).chain(1..self.content.next);
        let Some(number) = in_turn.into_iter().find(|&number| !taken(number)) else {
            return Ok(None);
        };
        let known = Known { number, name: name.clone(), on: on.clone(), going: false };
        self.change(|content| {
            content.next = if number == last { 1 } else { number + 1 };
            content.known.push(known.clone());
        })?;
        Ok(Some(known))
    }

    /// It is another one now, under the same number.
    pub fn becomes(&mut self, resource: Resource, on: &Source) -> io::Result<()> {
        self.change(|content| {
            for known in content.known.iter_mut().filter(|known| known.number == resource.number())
            {
                known.on = on.clone();
            }
        })
    }

    /// It is being taken down; or stays after all.
    pub fn going(&mut self, resource: Resource, going: bool) -> io::Result<()> {
        self.change(|content| {
            for known in content.known.iter_mut().filter(|known| known.number == resource.number())
            {
                known.going = going;
            }
        })
    }

    /// It is gone.
    pub fn remove(&mut self, resource: Resource) -> io::Result<()> {
        self.change(|content| content.known.retain(|known| known.number != resource.number()))
    }

    /// Nothing is left.
    pub fn end(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_turn_and_outlive_the_daemon() {
        let dir = std::env::temp_dir().join(format!("reserv-registry-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (name, on) = (Name::new("d").unwrap(), "net:lo".parse().unwrap());
        let mut registry = Registry::open(&dir).unwrap();
        for turn in 0..40_u8 {
            let known = registry.enter(&name, &on).unwrap().unwrap();
            assert_eq!(
                known.resource().unwrap().number(),
                1 + turn % 15,
                "never the one that just went"
            );
            registry = Registry::open(&dir).unwrap();
            assert_eq!(registry.known(), std::slice::from_ref(&known));
            registry.going(known.resource().unwrap(), true).unwrap();
            assert!(registry.known()[0].going);
            let other = "net:eth9".parse().unwrap();
            registry.becomes(known.resource().unwrap(), &other).unwrap();
            assert_eq!(Registry::open(&dir).unwrap().known()[0].on, other);
            registry.remove(known.resource().unwrap()).unwrap();
        }
        for _ in 1..RESOURCES_MAX {
            assert!(registry.enter(&name, &on).unwrap().is_some());
        }
        assert!(registry.enter(&name, &on).unwrap().is_none(), "there are fifteen");
        registry.end().unwrap();
        std::fs::write(dir.join("resources"), br#"{"version":2,"next":1,"known":[]}"#).unwrap();
        assert!(Registry::open(&dir).is_err(), "a later version is not guessed at");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
