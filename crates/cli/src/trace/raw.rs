// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw traces: JSON lines. The first names the nodes, each of the others is an event, and the last
//! says how many were lost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use reserv_plane::cpu::full::{Event, EventKind};
use serde::{Deserialize, Serialize};

use super::Taken;
use crate::error::Error;

#[derive(Serialize, Deserialize)]
struct Line {
    at: u64,
    kind: String,
    node: u64,
    node2: u64,
    work: u64,
    tid: u32,
    unit: u16,
    flags: u8,
}

#[derive(Serialize, Deserialize)]
struct Names {
    names: BTreeMap<u64, String>,
}

#[derive(Serialize, Deserialize)]
struct Lost {
    lost: u64,
}

pub(super) fn write(taken: &Taken) -> Result<String, Error> {
    let json =
        |value: Result<String, serde_json::Error>| value.map_err(|e| Error::refused(e.to_string()));
    let mut text = json(serde_json::to_string(&Names { names: taken.names.clone() }))? + "\n";
    for e in &taken.events {
        let line = Line {
            at: e.at,
            kind: e.kind.word().to_owned(),
            node: e.node,
            node2: e.node2,
            work: e.work,
            tid: e.tid,
            unit: e.unit,
            flags: e.flags,
        };
        let _ = writeln!(text, "{}", json(serde_json::to_string(&line))?);
    }
    let _ = writeln!(text, "{}", json(serde_json::to_string(&Lost { lost: taken.lost }))?);
    Ok(text)
}

pub(super) fn read(path: &Path) -> Result<Taken, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::of_file(path, &e))?;
    parse(&text).map_err(|(line, why)| {
        Error::refused(format!("{}:{line}: no raw trace: {why}", path.display()))
            .hint("reserv trace --raw -o FILE writes one")
    })
}

pub(super) fn parse(text: &str) -> Result<Taken, (usize, String)> {
    let mut taken = Taken { events: Vec::new(), lost: 0, names: BTreeMap::new() };
    let mut ended = false;
    for (at, line) in text.lines().enumerate() {
        let wrong = |e: serde_json::Error| (at + 1, e.to_string());
        if at == 0 {
            taken.names = serde_json::from_str::<Names>(line).map_err(wrong)?.names;
        } else if line.starts_with("{\"lost\"") {
            taken.lost = serde_json::from_str::<Lost>(line).map_err(wrong)?.lost;
            ended = true;
        } else {
            let l: Line = serde_json::from_str(line).map_err(wrong)?;
            let kind = EventKind::from_word(&l.kind)
                .ok_or_else(|| (at + 1, format!("there is no event '{}'", l.kind)))?;
            let Line { at, node, node2, work, tid, unit, flags, .. } = l;
            taken.events.push(Event { at, kind, node, node2, work, tid, unit, flags });
        }
    }
    if ended {
        Ok(taken)
    } else {
        Err((text.lines().count() + 1, "its last line is missing".into()))
    }
}
