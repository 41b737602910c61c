// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is stacked above a block device: partitions, what the kernel calls its holders (device
//! mapper, md), loop devices whose file lies on one of these, and so on upwards.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;
use std::{fs, mem};

/// Devices (numbers as the C library packs them), and whether a driver makes requests of its own
/// out of theirs. A partition's are its disk's.
pub(super) type Above = BTreeMap<u64, bool>;

/// On which devices the file of a loop device lies: that of its file system, and where the file is
/// a block device, that. `None`: it has no file.
pub(super) type Backing = [u64; 2];

/// By the file's name, which means nothing here where it was deleted or is in another mount name
/// space. The loop device would know, but whoever has it open keeps it from being taken away, and
/// its file system from being unmounted.
pub(super) fn backing(name: &str) -> Option<Backing> {
    let path = fs::read_to_string(format!("/sys/class/block/{name}/loop/backing_file")).ok()?;
    let path = CString::new(path.strip_suffix('\n')?).ok()?;
    // SAFETY: numbers only.
    let mut found: libc::statx = unsafe { mem::zeroed() };
    // Nobody elsewhere is asked: not every file system answers.
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the path ends with a NUL, and the kernel writes one structure.
    let answer = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, &raw mut found) };
    (answer == 0).then(|| {
        [
            libc::makedev(found.stx_dev_major, found.stx_dev_minor),
            libc::makedev(found.stx_rdev_major, found.stx_rdev_minor),
        ]
    })
}

fn number(device: &Path) -> Option<u64> {
    let text = fs::read_to_string(device.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// All that is above the device `disk`, by the kernel's files at `sys`; `backing` tells of a loop
/// device.
pub(super) fn find(sys: &Path, disk: &str, backing: &dyn Fn(&str) -> Option<Backing>) -> Above {
    let class = sys.join("class/block");
    let loops: Vec<(String, Backing)> = names(&class)
        .into_iter()
        .filter(|name| class.join(name).join("loop").is_dir())
        .filter_map(|name| backing(&name).map(|on| (name, on)))
        .collect();
    let mut found = Above::new();
    let Some(own) = number(&class.join(disk)) else { return found };
    let mut left = vec![(disk.to_owned(), own, false)];
    while let Some((name, dev, passes)) = left.pop() {
        let device = class.join(&name);
        let parts =
            names(&device).into_iter().filter(|part| device.join(part).join("partition").exists());
        let holders = names(&device.join("holders"));
        let files = loops.iter().filter(|(_, on)| on.contains(&dev)).map(|(name, _)| name.clone());
        let above = parts
            .map(|part| (part, passes))
            .chain(holders.into_iter().chain(files).map(|n| (n, true)));
        for (name, passes) in above {
            let Some(dev) = number(&class.join(&name)) else { continue };
            // Whoever is known already is not looked at again, unless for more than before: it
            // ends, whatever the kernel says.
            if dev == own || found.get(&dev).is_some_and(|known| *known || !passes) {
                continue;
            }
            found.insert(dev, passes);
            left.push((name, dev, passes));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of the kernel's files: names with numbers, partitions and holders.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("class/block")).unwrap();
            Self(folder)
        }

        fn device(self, name: &str, number: &str) -> Self {
            let folder = self.0.path().join("class/block").join(name);
            fs::create_dir_all(folder.join("holders")).unwrap();
            fs::write(folder.join("dev"), format!("{number}\n")).unwrap();
            if name.starts_with("loop") {
                fs::create_dir_all(folder.join("loop")).unwrap();
            }
            self
        }

        fn part(self, disk: &str, name: &str, number: &str) -> Self {
            let this = self.device(name, number);
            let folder = this.0.path().join("class/block").join(disk).join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("partition"), "1\n").unwrap();
            this
        }

        fn holder(self, below: &str, name: &str) -> Self {
            fs::create_dir_all(
                self.0.path().join("class/block").join(below).join("holders").join(name),
            )
            .unwrap();
            self
        }

        fn find(&self, disk: &str, loops: &[(&str, Backing)]) -> Vec<(u32, u32, bool)> {
            let backing = |name: &str| loops.iter().find(|(of, _)| *of == name).map(|(_, on)| *on);
            find(self.0.path(), disk, &backing)
                .into_iter()
                .map(|(dev, passes)| (libc::major(dev), libc::minor(dev), passes))
                .collect()
        }
    }

    #[test]
    fn a_partition_is_the_disks_own_and_what_holds_it_is_not() {
        let tree = Tree::new()
            .device("ublkb0", "259:0")
            .part("ublkb0", "ublkb0p1", "259:1")
            .part("ublkb0", "ublkb0p2", "259:2")
            .device("dm-0", "253:0")
            .holder("ublkb0p2", "dm-0");
        assert_eq!(tree.find("ublkb0", &[]), [(253, 0, true), (259, 1, false), (259, 2, false)]);
        assert_eq!(tree.find("dm-0", &[]), []);
        assert_eq!(tree.find("ublkb9", &[]), []);
    }

    #[test]
    fn volumes_on_an_array_of_two_disks_are_above_both_and_a_partition_of_the_array_is_its() {
        let tree = Tree::new()
            .device("vdb", "254:16")
            .device("vdc", "254:32")
            .device("vdd", "254:48")
            .device("md0", "9:0")
            .part("md0", "md0p1", "259:7")
            .device("dm-3", "253:3")
            .device("dm-4", "253:4")
            .holder("vdb", "md0")
            .holder("vdc", "md0")
            .holder("vdd", "dm-4")
            .holder("md0p1", "dm-3");
        let both = [(9, 0, true), (253, 3, true), (259, 7, true)];
        assert_eq!(tree.find("vdb", &[]), both);
        assert_eq!(tree.find("vdc", &[]), both);
        assert_eq!(tree.find("vdd", &[]), [(253, 4, true)]);
    }

    #[test]
    fn a_loop_device_is_above_what_its_file_lies_on_and_others_are_not() {
        let tree = Tree::new()
            .device("vdb", "254:16")
            .device("dm-0", "253:0")
            .device("loop0", "7:0")
            .device("loop1", "7:1")
            .device("loop2", "7:2")
            .device("loop3", "7:3")
            .part("loop1", "loop1p1", "259:3")
            .holder("vdb", "dm-0");
        let (vdb, dm, other) = (libc::makedev(254, 16), libc::makedev(253, 0), libc::makedev(8, 0));
        // On a file system of the disk's; on a volume of it itself; elsewhere; without a file. And
        // one in a file on another loop device.
        let loops = [("loop0", [vdb, 0]), ("loop1", [other, dm]), ("loop2", [other, 0])];
        let wanted = [(7, 0, true), (7, 1, true), (253, 0, true), (259, 3, true)];
        assert_eq!(tree.find("vdb", &loops), wanted);
        let deeper = [("loop0", [vdb, 0]), ("loop3", [libc::makedev(7, 0), 0])];
        assert_eq!(tree.find("vdb", &deeper), [(7, 0, true), (7, 3, true), (253, 0, true)]);
    }

    #[test]
    fn a_circle_ends() {
        let tree = Tree::new()
            .device("a", "1:1")
            .device("b", "1:2")
            .device("c", "1:3")
            .holder("a", "b")
            .holder("b", "c")
            .holder("c", "a")
            .holder("c", "b")
            .holder("c", "gone");
        assert_eq!(tree.find("a", &[]), [(1, 2, true), (1, 3, true)]);
    }
}
