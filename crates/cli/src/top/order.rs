// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which order `top` shows rows: siblings among themselves, each with what is below it.

use clap::ValueEnum;

use super::measure::Measured;
use crate::error::Error;
use crate::usage;

/// What `--sort` takes: columns of nodes, and of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Parents before what is in them
    Name,
    /// Of nodes: who received most
    Received,
    /// Of nodes: who is entitled to most
    Share,
    /// Of nodes: who has most threads that wait or run
    Runnable,
    /// Of containers: CPU time, with all below it
    Cpu,
    /// Of containers: CPU time of its own threads
    CpuOwn,
    /// Of containers: what links sent, with all below it
    Links,
    /// Of containers: what links sent of its own
    LinksOwn,
    /// Of containers: what disks served, with all below it
    Disks,
    /// Of containers: what disks served of its own
    DisksOwn,
    /// Of containers: memory now, with all below it
    Memory,
    /// Of containers: memory now of its own
    MemoryOwn,
}

/// By what nodes are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// As they are listed.
    #[default]
    Name,
    /// The most first, as of all below.
    Received,
    /// The most first.
    Share,
    /// The most first.
    Runnable,
}

impl By {
    #[expect(clippy::cast_precision_loss, reason = "compared only")]
    fn of(self, row: &Measured) -> f64 {
        match self {
            // The rest of a queue's processes is behind them.
            _ if row.is_rest() => -1.0,
            Self::Name => 0.0,
            Self::Received => row.received,
            Self::Share => row.entitled,
            Self::Runnable => row.runnable as f64,
        }
    }
}

/// As it is written behind --sort.
pub(super) fn word(it: &impl ValueEnum) -> String {
    it.to_possible_value().map_or_else(String::new, |word| word.get_name().to_owned())
}

/// The next one, round and round.
pub(crate) fn next<T: ValueEnum + PartialEq>(it: &T) -> T {
    let all = T::value_variants();
    let at = all.iter().position(|one| one == it).unwrap_or(0);
    all[(at + 1) % all.len()].clone()
}

impl Sort {
    /// Where nodes are shown.
    pub(crate) fn of_nodes(self) -> Result<By, Error> {
        By::from_str(&word(&self), false).map_err(|_| {
            let why =
                format!("--sort {}: a column of containers, and these are nodes", word(&self));
            Error::usage(why)
                .hint("name, received, share or runnable; or: reserv top container --sort cpu")
        })
    }

    /// Where containers are shown.
    pub(crate) fn of_containers(self) -> Result<usage::Sort, Error> {
        usage::Sort::from_str(&word(&self), false).map_err(|_| {
            let why =
                format!("--sort {}: a column of nodes, and these are containers", word(&self));
            let words: Vec<String> = usage::Sort::value_variants().iter().map(word).collect();
            Error::usage(why).hint(words.join(", "))
        })
    }
}

/// Rows in depth-first order, siblings by a column; those that have as much stay as they are.
pub(super) fn arrange(rows: Vec<Measured>, by: By) -> Vec<Measured> {
    let mut groups: Vec<Vec<Measured>> = Vec::new();
    let top = rows.iter().map(|row| row.depth).min().unwrap_or(0);
    for row in rows {
        match groups.last_mut().filter(|_| row.depth > top) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    if by == By::Name {
        groups.sort_by_key(|group| group[0].at);
    } else {
        groups.sort_by(|a, b| by.of(&b[0]).total_cmp(&by.of(&a[0])));
    }
    let below = |mut group: Vec<Measured>| {
        let rest = group.split_off(1);
        group.extend(if rest.is_empty() { rest } else { arrange(rest, by) });
        group
    };
    groups.into_iter().flat_map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(all: &[(&str, usize, f64)]) -> Vec<Measured> {
        let row = |(at, (name, depth, received)): (usize, &(&str, usize, f64))| Measured {
            path: (*name).to_owned(),
            depth: *depth,
            received: *received,
            at,
            ..Measured::default()
        };
        all.iter().enumerate().map(row).collect()
    }

    fn names(rows: &[Measured]) -> String {
        rows.iter().map(|row| row.path.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn siblings_are_sorted_and_stay_with_what_is_below_them() {
        let all = rows(&[
            ("cpu", 0, 1.0),
            ("a", 1, 0.2),
            ("a1", 2, 0.05),
            ("a2", 2, 0.15),
            ("b", 1, 0.8),
            ("b1", 2, 0.8),
            ("c", 1, 0.2),
            ("net", 0, 0.5),
            ("x", 1, 0.0),
            ("y", 1, 0.5),
        ]);
        let sorted = arrange(all, By::Received);
        assert_eq!(names(&sorted), "cpu b b1 a a2 a1 c net y x");
        assert_eq!(names(&arrange(sorted, By::Name)), "cpu a a1 a2 b b1 c net x y");
        assert!(arrange(Vec::new(), By::Share).is_empty());
    }

    #[test]
    fn a_column_of_others_is_refused() {
        assert!(Sort::Cpu.of_nodes().is_err() && Sort::Share.of_containers().is_err());
        for sort in Sort::value_variants() {
            assert!(sort.of_nodes().is_ok() || sort.of_containers().is_ok(), "{sort:?}");
        }
    }
}
