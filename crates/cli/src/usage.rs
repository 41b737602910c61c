// SPDX-License-Identifier: MIT OR Apache-2.0
//! What containers have used, and use: `usage`, and `stat` and `top` of `container`.
//!
//! All of it is read from one file, `container/usage`, which has a line for each resource and one
//! for each container. Amounts are kept by container and resource, not by path: one that is made
//! anew under an old path begins at 0, and one that is moved goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::args;
use crate::container::{below, there};
use crate::error::Error;
use crate::fs::{self, Files, explain};
use crate::path::{CONTAINERS, NodePath};

/// What begins the file's lines about memory.
const MEMORY: &str = "memory";

/// How often it is looked whether memory has been read, and after what pause.
const MEMORY_TRIES: u32 = 5;
const MEMORY_PAUSE: Duration = Duration::from_millis(100);

/// Own, and with all below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) own: u64,
    pub(crate) subtree: u64,
}

impl Pair {
    fn add(&mut self, other: Self) {
        self.own = self.own.saturating_add(other.own);
        self.subtree = self.subtree.saturating_add(other.subtree);
    }

    const fn since(self, before: Self) -> Self {
        Self {
            own: self.own.saturating_sub(before.own),
            subtree: self.subtree.saturating_sub(before.subtree),
        }
    }
}

/// What a column sums: resources of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Of {
    Cpu,
    Link,
    Disk,
    /// What there is now, not a sum over time; and not of all it is known.
    Memory,
}

impl Of {
    const ALL: [Self; 4] = [Self::Cpu, Self::Link, Self::Disk, Self::Memory];

    fn named(word: &str) -> Option<Self> {
        match word {
            "cpu" => Some(Self::Cpu),
            "link" => Some(Self::Link),
            "disk" => Some(Self::Disk),
            _ => None,
        }
    }

    /// The key of an amount: its unit is in it.
    fn key(self, own: bool) -> String {
        let (what, unit) = match self {
            Self::Cpu => ("cpu", "ns"),
            Self::Link => ("links", "bytes"),
            Self::Disk => ("disks", "bytes"),
            Self::Memory => ("memory", "bytes"),
        };
        format!("{what}_{}_{unit}", if own { "own" } else { "subtree" })
    }
}

/// By what rows are ordered: the name, or what was used most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Parents before what is in them
    #[default]
    Name,
    /// CPU time, with all below it
    Cpu,
    /// CPU time of its own threads
    CpuOwn,
    /// What links sent, with all below it
    Links,
    /// What links sent of its own
    LinksOwn,
    /// What disks served, with all below it
    Disks,
    /// What disks served of its own
    DisksOwn,
    /// Memory now, with all below it
    Memory,
    /// Memory now of its own
    MemoryOwn,
}

impl Sort {
    const fn column(self) -> Option<(Of, bool)> {
        match self {
            Self::Name => None,
            Self::Cpu => Some((Of::Cpu, false)),
            Self::CpuOwn => Some((Of::Cpu, true)),
            Self::Links => Some((Of::Link, false)),
            Self::LinksOwn => Some((Of::Link, true)),
            Self::Disks => Some((Of::Disk, false)),
            Self::DisksOwn => Some((Of::Disk, true)),
            Self::Memory => Some((Of::Memory, false)),
            Self::MemoryOwn => Some((Of::Memory, true)),
        }
    }
}

/// A resource as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Resource {
    kind: String,
    unit: String,
    /// Why it is not known what was used of it.
    late: Option<String>,
}

/// A container as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    id: String,
    holds: String,
    path: String,
    used: BTreeMap<String, Pair>,
    memory: Option<Pair>,
}

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reading {
    resources: BTreeMap<String, Resource>,
    lines: Vec<Line>,
    /// Why nothing is known of memory.
    memory_late: Option<String>,
}

impl Reading {
    /// Lines of a later version are passed over.
    fn parse(text: &str) -> Self {
        let mut read = Self::default();
        let mut memory = HashMap::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some("resource") => {
                    let (Some(name), Some(kind), Some(unit)) =
                        (words.next(), words.next(), words.next())
                    else {
                        continue;
                    };
                    let late =
                        (words.next() == Some("late")).then(|| words.collect::<Vec<_>>().join(" "));
                    let resource = Resource { kind: kind.into(), unit: unit.into(), late };
                    read.resources.insert(name.to_owned(), resource);
                }
                Some("container") => {
                    let (Some(id), Some(holds), Some(path)) =
                        (words.next(), words.next(), words.next())
                    else {
                        continue;
                    };
                    let mut used = BTreeMap::new();
                    while let (Some(name), Some(own), Some(subtree)) =
                        (words.next(), words.next(), words.next())
                    {
                        let number = |word: &str| word.parse().ok();
                        if let (Some(own), Some(subtree)) = (number(own), number(subtree)) {
                            used.insert(name.to_owned(), Pair { own, subtree });
                        }
                    }
                    let (id, holds, path) = (id.to_owned(), holds.to_owned(), path.to_owned());
                    read.lines.push(Line { id, holds, path, used, memory: None });
                }
                Some(MEMORY) => match (words.next(), words.next()) {
                    (Some("late"), why) => {
                        let why: Vec<&str> = why.into_iter().chain(words).collect();
                        read.memory_late = Some(why.join(" "));
                    }
                    (Some(id), Some(own)) => {
                        let subtree = words.next().and_then(|word| word.parse().ok());
                        if let (Ok(own), Some(subtree)) = (own.parse(), subtree) {
                            memory.insert(id.to_owned(), Pair { own, subtree });
                        }
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        for line in &mut read.lines {
            line.memory = memory.get(&line.id).copied();
        }
        read
    }
}

/// What one container used, in a time or in all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) path: String,
    holds: String,
    /// By kind of resource.
    sums: BTreeMap<Of, Pair>,
    /// By resource, with its unit.
    by_resource: BTreeMap<String, (String, Pair)>,
}

impl Row {
    fn sum(&self, of: Of) -> Pair {
        self.sums.get(&of).copied().unwrap_or_default()
    }

    fn amount(&self, (of, own): (Of, bool)) -> u64 {
        let pair = self.sum(of);
        if own { pair.own } else { pair.subtree }
    }

    /// Of what adds up nothing is 0.
    fn is_known(&self, of: Of) -> bool {
        of != Of::Memory || self.sums.contains_key(&of)
    }

    /// `value` says how a sum is written, `suffix` what stands behind its unit.
    fn to_json(
        &self,
        suffix: &str,
        value: impl Fn(u64) -> Value,
    ) -> serde_json::Map<String, Value> {
        let mut object = serde_json::Map::new();
        object.insert("container".into(), self.path.as_str().into());
        object.insert("holds".into(), self.holds.as_str().into());
        for of in Of::ALL {
            for own in [true, false] {
                let (key, amount) = (of.key(own), self.amount((of, own)));
                match of {
                    Of::Memory => object.insert(key, self.is_known(of).then_some(amount).into()),
                    _ => object.insert(format!("{key}{suffix}"), value(amount)),
                };
            }
        }
        let one = |(name, (unit, pair)): (&String, &(String, Pair))| {
            let (own, subtree) = (format!("own_{unit}{suffix}"), format!("subtree_{unit}{suffix}"));
            (name.clone(), json!({ own: value(pair.own), subtree: value(pair.subtree) }))
        };
        let resources: serde_json::Map<_, _> = self.by_resource.iter().map(one).collect();
        object.insert("resources".into(), resources.into());
        object
    }
}

/// Rows in order. Where amounts are equal, by name.
pub(crate) fn sort(rows: &mut [Row], by: Sort) {
    let names = |row: &Row| row.path.split('/').map(str::to_owned).collect::<Vec<_>>();
    match by.column() {
        None => rows.sort_by_cached_key(names),
        Some(column) => {
            rows.sort_by_cached_key(|row| (std::cmp::Reverse(row.amount(column)), names(row)));
        }
    }
}

/// Readings of containers, and the ones before.
pub(crate) struct Meter {
    path: NodePath,
    /// What each had used of each resource when that was known last.
    before: HashMap<(String, String), Pair>,
    /// Of resources that did not answer yet: what they tell first is no use of this time.
    unknown: BTreeSet<String>,
    /// What kind each was when it was there.
    kinds: BTreeMap<String, Of>,
    begun: bool,
    /// Whether the last reading failed because reservd, or a resource, did not answer.
    late: bool,
    /// Whether it had nothing about memory. That is not waited for again.
    memory_late: bool,
}

/// One measurement.
#[derive(Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) rows: Vec<Row>,
    /// Resources that did not answer, and why.
    pub(crate) late: Vec<(String, String)>,
}

impl Meter {
    /// Of a container and those in it, or of all.
    pub(crate) fn new(files: &dyn Files, path: &str) -> Result<Self, Error> {
        let path = NodePath::parse(path, files.place())?;
        if !path.is_container() {
            return Err(Error::usage(format!("'{path}' is a node, and no container"))
                .hint("write container for all of them, or container/web"));
        }
        if path.as_str() != CONTAINERS {
            there(files, &path)?;
        }
        Ok(Self {
            path,
            before: HashMap::new(),
            unknown: BTreeSet::new(),
            kinds: BTreeMap::new(),
            begun: false,
            late: false,
            memory_late: false,
        })
    }

    /// Memory is read when somebody asks, and is there a moment later.
    fn read(&mut self, files: &dyn Files) -> Result<Reading, Error> {
        let mut read = self.read_once(files)?;
        for _ in 0..MEMORY_TRIES {
            if self.memory_late || read.memory_late.is_none() {
                break;
            }
            std::thread::sleep(MEMORY_PAUSE);
            read = self.read_once(files)?;
        }
        self.memory_late = read.memory_late.is_some();
        Ok(read)
    }

    fn read_once(&mut self, files: &dyn Files) -> Result<Reading, Error> {
        let file = format!("{CONTAINERS}/usage");
        let text = files.read(&file);
        self.late = text.as_ref().is_err_and(fs::late);
        let text = text.map_err(|e| explain(files, &self.path, "cannot be read", "", &e))?;
        let read = Reading::parse(&text);
        for (name, resource) in &read.resources {
            if let Some(kind) = Of::named(&resource.kind) {
                self.kinds.insert(name.clone(), kind);
            }
        }
        Ok(read)
    }

    fn measured(&self, read: &Reading, amount: impl Fn(&Line, &str, Pair) -> Pair) -> Measured {
        let row = |line: &Line| {
            let mut row = Row {
                path: line.path.clone(),
                holds: line.holds.clone(),
                sums: BTreeMap::new(),
                by_resource: BTreeMap::new(),
            };
            if let Some(memory) = line.memory {
                row.sums.insert(Of::Memory, memory);
            }
            for (name, pair) in &line.used {
                let used = amount(line, name, *pair);
                if let Some(of) = self.kinds.get(name) {
                    row.sums.entry(*of).or_default().add(used);
                }
                let unit = read.resources.get(name).map_or("", |resource| &resource.unit);
                row.by_resource.insert(name.clone(), (unit.to_owned(), used));
            }
            row
        };
        let late = |(name, resource): (&String, &Resource)| {
            resource.late.clone().map(|why| (name.clone(), why))
        };
        let of_memory = read.memory_late.iter().map(|why| (MEMORY.to_owned(), why.clone()));
        // What is elsewhere is remembered all the same: it may be moved here.
        let top = below(&self.path);
        let inside = format!("{top}/");
        let all = self.path.as_str() == CONTAINERS;
        let here = |line: &&Line| all || line.path == top || line.path.starts_with(&inside);
        Measured {
            rows: read.lines.iter().filter(here).map(row).collect(),
            late: read.resources.iter().filter_map(late).chain(of_memory).collect(),
        }
    }

    /// What was used so far.
    pub(crate) fn total(&mut self, files: &dyn Files) -> Result<Measured, Error> {
        let read = self.read(files)?;
        Ok(self.measured(&read, |_, _, pair| pair))
    }

    /// What was used since the last time; the first time nothing. Of a resource that was late, when
    /// it answers, since it was known last.
    pub(crate) fn measure(&mut self, files: &dyn Files) -> Result<Measured, Error> {
        let read = self.read(files)?;
        let measured = self.measured(&read, |line, name, pair| {
            match self.before.get(&(line.id.clone(), name.to_owned())) {
                Some(before) => pair.since(*before),
                None if !self.begun || self.unknown.contains(name) => Pair::default(),
                None => pair,
            }
        });
        let is_late = |(_, resource): &(&String, &Resource)| resource.late.is_some();
        let late = read.resources.iter().filter(is_late).map(|(name, _)| name.clone());
        let late: BTreeSet<String> = late.collect();
        self.unknown = if self.begun { &self.unknown & &late } else { late.clone() };
        self.begun = true;
        let mut now = HashMap::new();
        for line in read.lines {
            for name in &late {
                let key = (line.id.clone(), name.clone());
                if let Some(pair) = self.before.get(&key) {
                    now.insert(key, *pair);
                }
            }
            for (name, pair) in line.used {
                now.insert((line.id.clone(), name), pair);
            }
        }
        self.before = now;
        Ok(measured)
    }
}

/// Width of what is no terminal.
pub(crate) const WIDTH: usize = 80;
/// Of a column of numbers.
const NUMBER: usize = 8;
const COLUMNS: [(&str, (Of, bool)); 7] = [
    ("CPU", (Of::Cpu, false)),
    ("CPU-OWN", (Of::Cpu, true)),
    ("LINK", (Of::Link, false)),
    ("LINK-OWN", (Of::Link, true)),
    ("DISK", (Of::Disk, false)),
    ("DISK-OWN", (Of::Disk, true)),
    ("MEMORY", (Of::Memory, false)),
];

/// At most [`NUMBER`] characters, with three digits.
#[expect(clippy::cast_precision_loss, reason = "printed with three digits")]
fn short(amount: u64, of: Of, seconds: Option<f64>) -> String {
    if amount == 0 {
        return "-".into();
    }
    let value = amount as f64 / seconds.unwrap_or(1.0);
    let in_unit = |value: f64, unit: &str| {
        let digits = if value >= 99.95 { 0 } else { usize::from(value < 9.995) + 1 };
        let text = format!("{value:.digits$}{unit}");
        if text.len() > NUMBER { format!("{value:.0e}{unit}") } else { text }
    };
    let per = if seconds.is_some() { "/s" } else { "" };
    if of == Of::Cpu {
        return match (seconds, value) {
            (Some(_), ns) if ns >= 999.5e6 => in_unit(ns / 1e9, "cpu"),
            (Some(_), ns) if ns >= 1e6 => format!("{:.0}ms/s", ns / 1e6),
            (Some(_), ns) => format!("{:.0}us/s", ns / 1e3),
            (None, ns) if ns < 999.5e3 => format!("{:.0}us", ns / 1e3),
            (None, ns) if ns < 999.5e6 => format!("{:.0}ms", ns / 1e6),
            (None, ns) if ns < 99_999e9 => in_unit(ns / 1e9, "s"),
            (None, ns) => in_unit(ns / 3600e9, "h"),
        };
    }
    let mut scaled = value;
    for unit in ["B", "kB", "MB", "GB", "TB", "PB", "EB"] {
        if scaled < 999.5 || unit == "EB" {
            let whole = unit == "B" || scaled >= 99.95;
            let digits = usize::from(!whole);
            return format!("{scaled:.digits$}{unit}{per}");
        }
        scaled /= 1e3;
    }
    String::new()
}

/// The end of a path that is too long: what is in the same parent differs there.
fn clipped(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let left: String = text.chars().skip(length + 1 - width.max(1)).collect();
    format!("…{left}")
}

/// A table no wider than this: totals, or per second of so long a time. What is known of no row has
/// no column.
pub(crate) fn draw(measured: &Measured, seconds: Option<f64>, width: usize) -> Vec<String> {
    let is_shown = |of: Of| of != Of::Memory || measured.rows.iter().any(|row| row.is_known(of));
    let columns = COLUMNS.into_iter().filter(|(_, (of, _))| is_shown(*of));
    let columns: Vec<(&str, (Of, bool))> = columns.collect();
    let numbers = columns.len() * (NUMBER + 2);
    let longest = measured.rows.iter().map(|row| row.path.chars().count()).max().unwrap_or(0);
    let wide = longest.max("CONTAINER".len()).min(width.saturating_sub(numbers).max(9));
    let mut head = format!("{:wide$}", "CONTAINER");
    for (name, _) in &columns {
        let _ = write!(head, "  {name:>NUMBER$}");
    }
    let mut lines = vec![head];
    for row in &measured.rows {
        let mut line = format!("{:wide$}", clipped(&row.path, wide));
        for (_, column) in &columns {
            let per = seconds.filter(|_| column.0 != Of::Memory);
            let text = short(row.amount(*column), column.0, per);
            let _ = write!(line, "  {text:>NUMBER$}");
        }
        lines.push(line);
    }
    let late = |(name, why): &(String, String)| {
        format!("late {name}: {why}").chars().take(width).collect::<String>()
    };
    lines.extend(measured.late.iter().map(late));
    lines
}

fn late(measured: &Measured) -> Vec<&str> {
    measured.late.iter().map(|(name, _)| name.as_str()).collect()
}

/// `stat` of `container`, or with `--sort`: what each has used so far.
pub(crate) fn stat(files: &dyn Files, path: &str, by: Sort, json: bool) -> Result<String, Error> {
    let mut measured = Meter::new(files, path)?.total(files)?;
    sort(&mut measured.rows, by);
    if json {
        let rows = measured.rows.iter().map(|row| Value::Object(row.to_json("", Value::from)));
        let object = json!({ "containers": rows.collect::<Vec<_>>(), "late": late(&measured) });
        let text = serde_json::to_string_pretty(&object);
        return text.map(|text| text + "\n").map_err(|e| Error::refused(e.to_string()));
    }
    Ok(draw(&measured, None, WIDTH).join("\n") + "\n")
}

/// One measurement of `top`, as one line.
pub(crate) fn top_line(measured: &Measured, elapsed: f64, seconds: f64) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = |amount: u64| Value::from(amount as f64 / seconds);
    let rows = measured.rows.iter().map(|row| Value::Object(row.to_json("_per_s", rate)));
    json!({
        "elapsed_s": elapsed,
        "containers": rows.collect::<Vec<_>>(),
        "late": late(measured),
    })
}

/// The first line: what each number is, with its unit.
fn csv_head() -> String {
    let amounts: Vec<String> =
        Of::ALL.iter().flat_map(|of| [of.key(true), of.key(false)]).collect();
    format!("time_unix_s,interval_s,container,holds,{},late\n", amounts.join(","))
}

/// Nothing here needs quotes: names of containers and of resources are letters, digits, dot, dash
/// and underline.
fn csv_line(row: &Row, (time, interval): (f64, Option<f64>), late: &[&str]) -> String {
    let interval = interval.map_or_else(String::new, |seconds| format!("{seconds:.3}"));
    let mut line = format!("{time:.3},{interval},{},{}", row.path, row.holds);
    for of in Of::ALL {
        let Pair { own, subtree } = row.sum(of);
        let _ =
            if row.is_known(of) { write!(line, ",{own},{subtree}") } else { write!(line, ",,") };
    }
    format!("{line},{}\n", late.join(" "))
}

fn json_line(row: &Row, (time, interval): (f64, Option<f64>), late: &[&str]) -> String {
    let mut object = row.to_json("", Value::from);
    object.insert("time_unix_s".into(), time.into());
    object.insert("interval_s".into(), interval.map_or(Value::Null, Value::from));
    object.insert("late".into(), late.into());
    format!("{}\n", Value::Object(object))
}

/// When the next reading is due. What was missed is not made up for: an interval is longer then, and
/// none is empty.
pub(crate) fn following(last: Instant, interval: f64) -> Instant {
    let interval = Duration::from_secs_f64(interval);
    let now = Instant::now();
    let next = last + interval;
    if next > now { next } else { now + interval }
}

/// `usage`: a line for each interval and container.
pub(crate) fn record(files: &dyn Files, args: &args::Usage, json: bool) -> Result<(), Error> {
    if args.csv && json {
        return Err(Error::usage("--csv and --json are two forms of the same lines"));
    }
    let mut meter = Meter::new(files, &args.path)?;
    let mut out = std::io::stdout().lock();
    let mut put = |text: &str| {
        let done = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        done.map_err(|e| Error::io("standard output", &e))
    };
    if !json {
        put(&csv_head())?;
    }
    let mut tell = |measured: &mut Measured, interval: Option<f64>| {
        sort(&mut measured.rows, Sort::Name);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let late = late(measured);
        let write = if json { json_line } else { csv_line };
        let text: String =
            measured.rows.iter().map(|row| write(row, (time, interval), &late)).collect();
        put(&text)
    };
    if args.total {
        return tell(&mut meter.total(files)?, None);
    }
    meter.measure(files)?;
    let mut last = Instant::now();
    let mut next = last;
    for n in 0.. {
        if args.count > 0 && n >= args.count {
            break;
        }
        next = following(next, args.interval);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let mut measured = match meter.measure(files) {
            // The next interval is the longer for it.
            Err(_) if meter.late => continue,
            measured => measured?,
        };
        let now = Instant::now();
        tell(&mut measured, Some(now.duration_since(last).as_secs_f64()))?;
        last = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
