// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups of the cpu controller: which of them the driver can mirror inside q0
//! (`bpf/cpu/cgroups.h`), found by looking at the mounted hierarchy before anything is started.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use reserv_facts::tree::{DEPTH_MAX, HIDDEN_MAX};

use crate::PlaneError;

/// Nodes of the mirror.
pub const NODES_MAX: usize = HIDDEN_MAX as usize;
/// How deep cgroups may be nested: as the tree, less the root and the node over q0.
pub const LEVELS_MAX: usize = DEPTH_MAX - 2;
/// How many are named in a message.
pub(super) const NAMED_MAX: usize = 8;

/// What the mounted hierarchy asks of a mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Cgroups below the root that have the cpu controller.
    pub total: usize,
    /// Those with other than default settings, by path, with what is set.
    pub set: Vec<(String, String)>,
    /// Nodes that the mirror takes.
    pub nodes: usize,
    /// Those that it has no room for, by path, with the reason.
    pub without_room: Vec<(String, String)>,
}

pub use crate::settings::ignores_cgroup_weights as ignored;

/// A few of many names.
pub fn few(names: &[String]) -> String {
    let mut text = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED_MAX {
        text = format!("{text} and {} more", names.len() - NAMED_MAX);
    }
    text
}

/// Refuses to start where something cannot be mirrored.
pub(super) fn check() -> Result<(), PlaneError> {
    match hierarchy(Path::new("/"), "cpu").map(|at| survey(&at)) {
        Some(found) if !found.without_room.is_empty() => {
            Err(PlaneError::Unsupported(refusal(&found)))
        }
        _ => Ok(()),
    }
}

/// What cannot be mirrored, in words.
pub fn refusal(found: &Survey) -> String {
    let names: Vec<String> =
        found.without_room.iter().map(|(path, why)| format!("{path} ({why})")).collect();
    format!(
        "the CPU settings of {} of {} cgroups would have no effect: {}. \
         'reserv up --ignore-cgroup-weights' starts all the same, and ignores those of all cgroups; '--driver stock' keeps them",
        names.len(),
        found.total,
        few(&names)
    )
}

/// Where the hierarchy with a controller (`cpu`, `memory`) is mounted, v2 or v1.
pub fn hierarchy(root: &Path, controller: &str) -> Option<PathBuf> {
    let at = |point: &str| root.join(point.trim_start_matches('/'));
    // Users may mount (fusermount) on names of any bytes.
    let mounts = String::from_utf8_lossy(&fs::read(at("/proc/self/mounts")).ok()?).into_owned();
    let mut found = None;
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let &[_, point, kind, options, ..] = words.as_slice() else { continue };
        let has = match kind {
            "cgroup2" => fs::read_to_string(at(point).join("cgroup.controllers"))
                .is_ok_and(|list| list.split_whitespace().any(|name| name == controller)),
            "cgroup" => options.split(',').any(|option| option == controller),
            _ => false,
        };
        if has {
            found = found.or_else(|| Some(at(point)));
        }
    }
    found
}

fn number(dir: &Path, file: &str) -> Option<i64> {
    fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
}

/// What is set in a cgroup; `None`: it has no cpu controller.
fn settings(dir: &Path) -> Option<String> {
    let mut set = Vec::new();
    if dir.join("cpu.weight").exists() {
        match number(dir, "cpu.weight") {
            Some(weight) if weight != 100 && weight != 0 => {
                set.push(format!("cpu.weight {weight}"));
            }
            _ => {}
        }
        let max = fs::read_to_string(dir.join("cpu.max")).unwrap_or_default();
        if !max.is_empty() && !max.starts_with("max") {
            set.push(format!("cpu.max {}", max.trim()));
        }
    } else if dir.join("cpu.shares").exists() {
        match number(dir, "cpu.shares") {
            Some(shares) if shares != 1024 && shares != 3 => {
                set.push(format!("cpu.shares {shares}"));
            }
            _ => {}
        }
        if let Some(quota @ 0..) = number(dir, "cpu.cfs_quota_us") {
            set.push(format!("cpu.cfs_quota_us {quota}"));
        }
    } else {
        return None;
    }
    if number(dir, "cpu.idle") == Some(1) {
        set.push("cpu.idle 1".into());
    }
    Some(set.join(", "))
}

/// Looks at the whole hierarchy, in the kernel's order: parents first, siblings by age.
pub fn survey(mount: &Path) -> Survey {
    let mut found = Survey::default();
    let mut inner: BTreeSet<PathBuf> = BTreeSet::new();
    let mut folded: BTreeSet<PathBuf> = BTreeSet::new();
    let mut stack = vec![(mount.to_owned(), 0_usize)];
    while let Some((dir, level)) = stack.pop() {
        if level > 0 {
            let Some(set) = settings(&dir) else { continue };
            let path = format!("/{}", dir.strip_prefix(mount).unwrap_or(&dir).display());
            found.total += 1;
            if !set.is_empty() {
                found.set.push((path.clone(), set));
            }
            let parent = dir.parent().unwrap_or(mount).to_owned();
            let needs = 1 + usize::from(!inner.contains(&parent));
            let why = if level > LEVELS_MAX {
                Some(format!("nested deeper than {LEVELS_MAX} levels"))
            } else if folded.contains(&parent) || found.nodes + needs > NODES_MAX {
                Some(format!("more than {NODES_MAX} nodes"))
            } else {
                None
            };
            if let Some(why) = why {
                found.without_room.push((path, why));
                folded.insert(dir.clone());
            } else {
                found.nodes += needs;
                inner.insert(parent);
            }
        }
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        let mut children: Vec<(u64, PathBuf)> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| Some((entry.metadata().ok()?.ino(), entry.path())))
            .collect();
        children.sort_unstable();
        stack.extend(children.into_iter().rev().map(|(_, path)| (path, level + 1)));
    }
    found
}

/// Paths of cgroups by their ids (inode numbers).
pub(super) fn paths(ids: &BTreeSet<u64>) -> Vec<String> {
    let Some(mount) = hierarchy(Path::new("/"), "cpu") else { return Vec::new() };
    let mut named = Vec::new();
    let mut stack = vec![mount.clone()];
    while let Some(dir) = stack.pop() {
        if fs::metadata(&dir).is_ok_and(|meta| ids.contains(&meta.ino())) {
            named.push(format!("/{}", dir.strip_prefix(&mount).unwrap_or(&dir).display()));
        }
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        stack.extend(
            entries.flatten().filter(|e| e.file_type().is_ok_and(|k| k.is_dir())).map(|e| e.path()),
        );
    }
    named.sort_unstable();
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hierarchy of files: directories, each with its `cpu.weight` and `cpu.max`.
    fn tree(groups: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, weight, max) in groups {
            let dir = root.path().join(path);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cpu.weight"), weight).unwrap();
            fs::write(dir.join("cpu.max"), max).unwrap();
        }
        root
    }

    #[test]
    fn a_mount_on_a_name_that_is_no_text_hides_no_other() {
        let root = tree(&[("sys/fs/cgroup", "100\n", "max 100000\n")]);
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let mounts = b"x /home/u/\xff\xfe fuse rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        fs::write(root.path().join("proc/self/mounts"), mounts).unwrap();
        fs::write(root.path().join("sys/fs/cgroup/cgroup.controllers"), "cpu io\n").unwrap();
        assert_eq!(hierarchy(root.path(), "cpu"), Some(root.path().join("sys/fs/cgroup")));
    }

    #[test]
    fn settings_other_than_the_defaults_are_named() {
        let root = tree(&[
            ("a", "100\n", "max 100000\n"),
            ("a/b", "300\n", "20000 100000\n"),
            ("c", "100\n", "max 100000\n"),
        ]);
        fs::create_dir_all(root.path().join("plain/below")).unwrap();
        fs::write(root.path().join("c/cpu.idle"), "1\n").unwrap();
        let found = survey(root.path());
        assert_eq!(found.total, 3, "without the controller it is none of ours");
        assert_eq!(found.nodes, 5, "a, b, c, and a scheduler over the root's queue and over a's");
        assert_eq!(
            found.set,
            [
                ("/a/b".into(), "cpu.weight 300, cpu.max 20000 100000".into()),
                ("/c".into(), "cpu.idle 1".into())
            ]
        );
        assert!(found.without_room.is_empty());
    }

    #[test]
    fn what_is_too_deep_is_named_and_the_level_above_is_not() {
        let paths: Vec<String> = (1..=LEVELS_MAX + 2).map(|n| vec!["d"; n].join("/")).collect();
        let groups: Vec<(&str, &str, &str)> =
            paths.iter().map(|p| (p.as_str(), "100\n", "max 100000\n")).collect();
        let root = tree(&groups);
        let found = survey(root.path());
        assert_eq!(found.without_room.len(), 2);
        assert_eq!(found.without_room[0].0, format!("/{}", paths[LEVELS_MAX]));
        assert!(refusal(&found).contains("--ignore-cgroup-weights"));
    }

    #[test]
    fn one_more_than_there_is_room_for_is_named() {
        let paths: Vec<String> = (0..NODES_MAX).map(|n| format!("g{n}")).collect();
        let groups: Vec<(&str, &str, &str)> =
            paths.iter().map(|p| (p.as_str(), "100\n", "max 100000\n")).collect();
        let root = tree(&groups);
        let found = survey(root.path());
        assert_eq!(
            (found.nodes, found.without_room.len()),
            (NODES_MAX, 1),
            "the scheduler over q0 takes one"
        );
        assert!(few(&paths).ends_with(&format!("and {} more", NODES_MAX - NAMED_MAX)));
    }

    #[test]
    fn the_hierarchy_is_the_one_with_the_controller() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/self/mounts",
            "cgroup2 /u cgroup2 rw 0 0\ncgroup /c cgroup rw,cpu,cpuacct 0 0\n",
        );
        write("u/cgroup.controllers", "io\n");
        assert_eq!(hierarchy(root.path(), "cpu"), Some(root.path().join("c")));
        write("u/cgroup.controllers", "cpu io\n");
        assert_eq!(hierarchy(root.path(), "cpu"), Some(root.path().join("u")));
    }
}
