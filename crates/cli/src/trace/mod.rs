// SPDX-License-Identifier: MIT OR Apache-2.0
//! `trace`: service and lag of every node, from the events of the real scheduler, and whether its
//! theorems hold.
//!
//! The events come from the full driver itself (`reserv_plane::cpu::full::Tracer`); the daemon is
//! asked for nothing but the names, which are directories of /reserv whose inode numbers are the
//! nodes' ids. Root's are asked by the control socket, as with all commands: nobody who holds a
//! directory locked keeps a trace from its beginning or its end.

mod books;
mod deadline;
mod fair;
mod lags;
mod level;
mod raw;
mod rear;
mod report;
mod verdict;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use reserv_plane::PlaneError;
use reserv_plane::cpu::full::{Event, EventKind, Tracer};

use self::books::Books;
use crate::args::Trace;
use crate::error::{Error, Kind};
use crate::fs::{Files, mount_point};
use crate::paint::Paint;
use crate::path::{Mount, NodePath, Place};

/// Room for about a hundred thousand events between two readings.
const RING_BYTES: u32 = 8 << 20;
const READ_EVERY: Duration = Duration::from_millis(20);
/// Slices of time in series.
const SLICES: u64 = 60;

/// A trace, taken or read.
struct Taken {
    events: Vec<Event>,
    lost: u64,
    names: BTreeMap<u64, String>,
}

impl Taken {
    /// What all its events come to.
    ///
    /// A wake-up says how long the step in service has lasted by the clock; what is charged at the
    /// step's end lacks what interrupts and other classes had of that. So it says no more than that.
    fn books(&self, slice: u64) -> Books {
        let mut next = None; // of the steps that end
        let mut events = self.events.clone();
        for event in events.iter_mut().rev() {
            match event.kind {
                EventKind::Settle => next = Some((event.node, event.work)),
                EventKind::Wake => {
                    if let Some((node, charged)) = next
                        && node == event.node2
                    {
                        event.work = event.work.min(charged);
                    }
                }
                _ => {}
            }
        }
        let mut books = Books::new(slice);
        for event in &events {
            books.event(event);
        }
        books
    }
}

/// The command.
pub(crate) fn trace(args: &Trace, json: bool) -> Result<ExitCode, Error> {
    // A trace that was taken is judged where nothing runs, too.
    let files = crate::fs::open();
    let place = files.as_ref().map_or_else(
        |_| Rc::new(Mount(mount_point())) as Rc<dyn Place>,
        |files| files.place().clone(),
    );
    let paths = args
        .paths
        .iter()
        .map(|path| NodePath::parse(path, &place).map(|p| p.as_str().to_owned()))
        .collect::<Result<Vec<_>, _>>()?;
    let taken = match &args.from {
        Some(file) => raw::read(file)?,
        None => take(args, files)?,
    };
    if let Some(path) = paths.iter().find(|path| !taken.names.values().any(|name| name == *path)) {
        return Err(Error::new(
            Kind::NotFound,
            format!("there was no node {path} during the trace"),
        ));
    }
    let text;
    let mut status = ExitCode::SUCCESS;
    if args.raw {
        text = raw::write(&taken)?;
    } else {
        let ends =
            taken.events.iter().map(|e| e.at).min().zip(taken.events.iter().map(|e| e.at).max());
        let slice = ends.map_or(1, |(from, to)| (to - from).div_ceil(SLICES).max(1));
        let books = taken.books(slice);
        let mut report = report::report(&books, &taken.names, taken.lost, slice);
        report.keep(&paths);
        if report.broken() {
            status = ExitCode::from(Kind::Refused as u8);
        }
        text = if json {
            serde_json::to_string_pretty(&report).map_err(|e| Error::refused(e.to_string()))? + "\n"
        } else if args.csv {
            report.csv()
        } else {
            report.draw(if args.output.is_some() { Paint::none() } else { Paint::stdout() })
        };
    }
    match &args.output {
        Some(path) => std::fs::write(path, text).map_err(|e| Error::of_file(path, &e))?,
        None => std::io::stdout()
            .write_all(text.as_bytes())
            .map_err(|e| Error::io("standard output", &e))?,
    }
    Ok(status)
}

fn plane(error: &PlaneError) -> Error {
    match error {
        PlaneError::Unsupported(why) => {
            Error::new(Kind::NotRunning, format!("nothing to trace: {why}"))
                .hint("trace needs the full driver of the CPU, and root: reserv up --driver full")
        }
        PlaneError::Os { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Error::new(Kind::Denied, format!("{error}")).hint("trace needs root")
        }
        PlaneError::Full(why) => Error::refused(why.clone()).hint(
            "with --pause all CPUs stop for some milliseconds, when the trace begins and when it \
             ends",
        ),
        _ => Error::refused(error.to_string()),
    }
}

fn take(args: &Trace, files: Result<Box<dyn Files>, Error>) -> Result<Taken, Error> {
    if !nix::unistd::geteuid().is_root() {
        return Err(
            Error::new(Kind::Denied, "trace reads what all threads do").hint("trace needs root")
        );
    }
    let files = files?;
    let mut names = names(&*files);
    // An interrupt ends the trace early, with what there is.
    let stop = crate::signals::Held::begin();
    let mut tracer = Tracer::start(RING_BYTES, args.pause).map_err(|e| plane(&e))?;
    let began = Instant::now();
    let mut events = Vec::new();
    while began.elapsed() < args.duration && !stop.take() {
        std::thread::sleep(READ_EVERY.min(args.duration.saturating_sub(began.elapsed())));
        events.extend(tracer.read().map_err(|e| plane(&e))?);
    }
    let (rest, lost) = tracer.stop().map_err(|e| plane(&e))?;
    events.extend(rest);
    names.extend(self::names(&*files));
    Ok(Taken { events, lost, names })
}

/// Paths by id. What goes meanwhile is left out.
fn names(files: &dyn Files) -> BTreeMap<u64, String> {
    let mut names = BTreeMap::new();
    let mut todo = vec!["cpu".to_owned()];
    while let Some(path) = todo.pop() {
        let Ok(inode) = files.inode(&path) else { continue };
        names.insert(id_of(inode), path.clone());
        let below = files.list(&path).unwrap_or_default().dirs;
        todo.extend(below.into_iter().map(|name| format!("{path}/{name}")));
    }
    names
}

/// reserv(7): the low 16 bits of a directory's inode are the node's index, the 32 above its
/// generation.
fn id_of(inode: u64) -> u64 {
    (inode >> 16 & 0xffff_ffff) << 32 | inode & 0xffff
}

#[cfg(test)]
mod tests;
