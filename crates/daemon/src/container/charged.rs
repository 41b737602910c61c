// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel charges cgroups (v2), and whose processes are in each, read within a bound of
//! time.
//!
//! A user to whom systemd delegates makes as many cgroups as he likes there, and may keep a reader
//! busy for as long. So the time is divided: root's cgroups are read first, then always one of the
//! user who has had the least of it (max-min fair). Who is not read to the end when it is over has
//! kept what his own cgroups are charged from being known, and nobody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata, ReadDir};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::vec;

use reserv_model::ContainerId;

use crate::refusal::Refusal;

/// What is done at a time: processes that the CPU is asked for at once (others wait for it
/// meanwhile), entries of a folder.
const AT_ONCE: usize = 64;
/// More than can be read in the time; who has so many left waits in no memory of ours.
const FOLDERS_MAX: usize = 100_000;
const ROOT: u32 = 0;

/// What a cgroup is charged, and whose processes that is for.
#[derive(Debug)]
pub(super) struct Charged {
    pub(super) bytes: u64,
    /// Of its processes so far; `None`: one is in no container.
    pub(super) of: Option<BTreeSet<ContainerId>>,
    /// Who is late if it is not known.
    user: u32,
    /// Whether all of its processes were seen.
    whole: bool,
}

/// All that could be read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) charged: Vec<Charged>,
    /// Users whose cgroups were not read to the end: none of theirs is in it.
    pub(super) late: BTreeSet<u32>,
}

/// A cgroup's folder, and whose memory is charged for its processes: an index of what was found.
type Folder = (PathBuf, Option<usize>);

/// Of one user: what is left to be read, and the time that he has had.
#[derive(Default)]
struct Turn {
    took: Duration,
    processes: Option<(usize, vec::IntoIter<i32>)>,
    listing: Option<(ReadDir, Option<usize>)>,
    folders: Vec<Folder>,
    /// Some of his folders were left out, for want of room.
    too_many: bool,
}

impl Turn {
    fn has_more(&self) -> bool {
        self.processes.is_some() || self.listing.is_some() || !self.folders.is_empty()
    }

    /// Cgroups for which not all processes have been seen.
    fn open(&self) -> impl Iterator<Item = usize> {
        let processes = self.processes.iter().map(|(of, _)| *of);
        let listing = self.listing.iter().filter_map(|(_, above)| *above);
        processes.chain(listing).chain(self.folders.iter().filter_map(|(_, above)| *above))
    }
}

/// Who goes on: root, else who has had the least.
fn next(turns: &BTreeMap<u32, Turn>) -> Option<u32> {
    let waiting = turns.iter().filter(|(_, turn)| turn.has_more());
    let first = waiting.min_by_key(|(user, turn)| (**user != ROOT, turn.took, **user));
    first.map(|(user, _)| *user)
}

/// A reading: `user` says whose a folder is, `whose` in which containers processes are.
struct Reader<U, W> {
    turns: BTreeMap<u32, Turn>,
    found: Vec<Charged>,
    user: U,
    whose: W,
}

impl<U, W> Reader<U, W>
where
    U: Fn(&Path, &Metadata) -> u32,
    W: FnMut(&[i32]) -> Result<Option<BTreeSet<ContainerId>>, Refusal>,
{
    fn step(&mut self, user: u32) -> Result<(), Refusal> {
        let Some(turn) = self.turns.get_mut(&user) else { return Ok(()) };
        if let Some((of, mut pids)) = turn.processes.take() {
            let some: Vec<i32> = pids.by_ref().take(AT_ONCE).collect();
            let charged = &mut self.found[of];
            if let Some(before) = charged.of.take() {
                // Of one that is nobody's no more need be known.
                charged.of =
                    (self.whose)(&some)?.map(|more| before.into_iter().chain(more).collect());
            }
            if charged.of.is_some() && pids.len() > 0 {
                turn.processes = Some((of, pids));
            }
        } else if let Some((mut listing, above)) = turn.listing.take() {
            let some: Vec<_> = listing.by_ref().take(AT_ONCE).collect();
            if some.len() == AT_ONCE {
                turn.listing = Some((listing, above));
            }
            for entry in some.into_iter().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    self.found_folder(user, entry.path(), above);
                }
            }
        } else if let Some((at, above)) = turn.folders.pop() {
            self.folder(user, &at, above);
        }
        Ok(())
    }

    /// What is below a user's is his, whomever he has given it to: else he would be many.
    fn found_folder(&mut self, above_user: u32, at: PathBuf, above: Option<usize>) {
        let own = || fs::metadata(&at).map_or(ROOT, |folder| (self.user)(&at, &folder));
        let user = if above_user == ROOT { own() } else { above_user };
        let turn = self.turns.entry(user).or_default();
        if turn.folders.len() < FOLDERS_MAX {
            turn.folders.push((at, above));
            return;
        }
        turn.too_many = true;
        if let Some(of) = above {
            self.found[of].whole = false;
        }
    }

    fn folder(&mut self, user: u32, at: &Path, above: Option<usize>) {
        // One that has gone meanwhile has no files.
        let read = |name: &str| fs::read_to_string(at.join(name)).unwrap_or_default();
        let of = match read("memory.current").trim().parse() {
            Ok(bytes) => {
                let of = Some(BTreeSet::new());
                self.found.push(Charged { bytes, of, user, whole: true });
                Some(self.found.len() - 1)
            }
            // Without a memory controller its processes are charged to the one above.
            Err(_) => above,
        };
        let Some(turn) = self.turns.get_mut(&user) else { return };
        if let Some(of) = of {
            let procs = read("cgroup.procs");
            // 0: a process of a name space that we are not in.
            let pids: Vec<i32> = procs.lines().map(|line| line.parse().unwrap_or(0)).collect();
            if !pids.is_empty() {
                turn.processes = Some((of, pids.into_iter()));
            }
        }
        // Two names are its own; what has no others is not listed, which takes most of the time.
        if !fs::metadata(at).is_ok_and(|folder| folder.nlink() == 2) {
            turn.listing = fs::read_dir(at).ok().map(|listing| (listing, of));
        }
    }

    fn read(mut self, root: &Path, until: Instant) -> Result<Read, Refusal> {
        // The root itself is charged nothing.
        self.found_folder(ROOT, root.to_owned(), None);
        while let Some(user) = next(&self.turns) {
            let begun = Instant::now();
            if begun > until {
                break;
            }
            self.step(user)?;
            if let Some(turn) = self.turns.get_mut(&user) {
                turn.took += begun.elapsed();
            }
        }
        let not_done = self.turns.iter().filter(|(_, turn)| turn.has_more() || turn.too_many);
        let late: BTreeSet<u32> = not_done.map(|(user, _)| *user).collect();
        for of in self.turns.values().flat_map(Turn::open) {
            self.found[of].whole = false;
        }
        // Where root's are not known there may be a user's whose processes nobody has seen.
        let known = |one: &Charged| one.whole && !late.contains(&one.user);
        self.found.retain(|one| !late.contains(&ROOT) && known(one));
        Ok(Read { charged: self.found, late })
    }
}

/// All cgroups that memory is charged to, but for the root, to which none is.
pub(super) fn read(
    root: &Path,
    until: Instant,
    user: impl Fn(&Path, &Metadata) -> u32,
    whose: impl FnMut(&[i32]) -> Result<Option<BTreeSet<ContainerId>>, Refusal>,
) -> Result<Read, Refusal> {
    Reader { turns: BTreeMap::new(), found: Vec::new(), user, whose }.read(root, until)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_secs(60);

    fn cgroup(root: &Path, path: &str, bytes: Option<&str>, pids: &str) {
        let at = root.join(path);
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("cgroup.procs"), pids).unwrap();
        if let Some(bytes) = bytes {
            fs::write(at.join("memory.current"), bytes).unwrap();
        }
    }

    fn container(index: u32) -> ContainerId {
        ContainerId { index, generation: 1 }
    }

    /// A process is in the container of its number, and 0 in none.
    #[expect(clippy::unnecessary_wraps, reason = "as what asks the CPU, which may be late")]
    fn by_number(pids: &[i32]) -> Result<Option<BTreeSet<ContainerId>>, Refusal> {
        let of = |pid: &i32| (*pid != 0).then(|| container(pid.unsigned_abs()));
        Ok(pids.iter().map(of).collect())
    }

    /// Folders called uN are user N's.
    fn by_name(at: &Path, _: &Metadata) -> u32 {
        let name = at.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix('u').and_then(|number| number.parse().ok()).unwrap_or(ROOT)
    }

    fn found(read: &Read) -> BTreeMap<u64, Option<Vec<u32>>> {
        let of = |one: &Charged| one.of.as_ref().map(|of| of.iter().map(|id| id.index).collect());
        read.charged.iter().map(|one| (one.bytes, of(one))).collect()
    }

    #[test]
    fn processes_are_those_of_the_cgroup_that_pays_for_them() {
        let root = tempfile::tempdir().unwrap();
        let many = (1..=200).map(|n| n.to_string()).collect::<Vec<_>>().join("\n") + "\n";
        cgroup(root.path(), "", None, "1\n2\n");
        cgroup(root.path(), "a", Some("700\n"), "");
        cgroup(root.path(), "a/x", Some("500\n"), "10\n");
        // No memory controller here.
        cgroup(root.path(), "a/x/inner", None, "11\n12\n");
        cgroup(root.path(), "b", Some("300\n"), &many);
        cgroup(root.path(), "c", Some("200\n"), &format!("{many}0\n7\n"));
        cgroup(root.path(), "d", None, "12\n");
        let all = read(root.path(), Instant::now() + FAR, by_name, by_number).unwrap();
        let wanted = [
            (200, None),
            (300, Some((1..=200).collect())),
            (500, Some(vec![10, 11, 12])),
            (700, Some(Vec::new())),
        ];
        assert_eq!((found(&all), all.late), (BTreeMap::from(wanted), BTreeSet::new()));
        let none = read(root.path(), Instant::now(), by_name, by_number).unwrap();
        assert_eq!((found(&none), none.late), (BTreeMap::new(), BTreeSet::from([ROOT])), "no time");
    }

    #[test]
    fn who_is_not_read_to_the_end_costs_himself() {
        let root = tempfile::tempdir().unwrap();
        cgroup(root.path(), "a", Some("1000\n"), "1\n");
        cgroup(root.path(), "slice", Some("900\n"), "2\n");
        // Below a user's all is his, whatever it is called; a user's has no controller of root's.
        cgroup(root.path(), "slice/u8", None, "3\n");
        for n in 0..500 {
            cgroup(root.path(), &format!("u7/u8/{n}"), Some("1\n"), "4\n");
        }
        cgroup(root.path(), "u9", Some("90\n"), "5\n");
        let all = read(root.path(), Instant::now() + FAR, by_name, by_number).unwrap();
        assert_eq!(all.charged.len(), 503);
        // The time is over while user 7 is read for the hundredth time.
        let in_time = || Instant::now() + FAR / 12;
        let wait_for = |until: Instant| {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left + Duration::from_millis(1));
        };
        let (until, mut of_7) = (in_time(), 0);
        let slow = |pids: &[i32]| {
            of_7 += i32::from(pids == [4]);
            if of_7 == 100 {
                wait_for(until);
            }
            by_number(pids)
        };
        let some = read(root.path(), until, by_name, slow).unwrap();
        let wanted = [(90, Some(vec![5])), (900, Some(vec![2, 3])), (1000, Some(vec![1]))];
        assert_eq!((found(&some), some.late), (BTreeMap::from(wanted), BTreeSet::from([7])));
        // Where it is over before user 8's are seen, what pays for them too is not known.
        let until = in_time();
        let stop = |pids: &[i32]| {
            if pids != [1] && pids != [2] {
                wait_for(until);
            }
            by_number(pids)
        };
        let some = read(root.path(), until, by_name, stop).unwrap();
        assert!(some.late.contains(&7) && found(&some).contains_key(&1000), "{some:?}");
        assert_eq!(found(&some).contains_key(&900), !some.late.contains(&8), "{some:?}");
    }

    #[test]
    fn root_goes_first_and_then_who_has_had_least() {
        let folder = || vec![(PathBuf::new(), None)];
        let turn =
            |took, folders| Turn { took: Duration::from_secs(took), folders, ..Turn::default() };
        let mut turns = BTreeMap::from([
            (ROOT, turn(9, folder())),
            (7, turn(2, folder())),
            (8, turn(1, folder())),
            (9, turn(0, Vec::new())),
        ]);
        let order: Vec<u32> = std::iter::from_fn(|| {
            let user = next(&turns)?;
            turns.get_mut(&user).unwrap().folders.clear();
            Some(user)
        })
        .collect();
        assert_eq!(order, [ROOT, 8, 7]);
    }
}
