// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the device that is offered should be like: as the disk below, or the disk of the file
//! below.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use crate::backend::Backend;
use crate::front::Shape;
use crate::sysfs;

/// Of a target with this backend, which is, or lies on, the device `below`. `asked`: data are to be
/// copied in any case.
pub fn shape(
    target: &Path,
    is_disk: bool,
    below: (u32, u32),
    backend: &dyn Backend,
    asked: bool,
) -> Shape {
    let file =
        if is_disk { None } else { OpenOptions::new().read(true).write(true).open(target).ok() };
    let file = file.as_ref();
    Shape {
        size: backend.size(),
        block: backend.block(),
        physical: sysfs::physical_block(below).max(backend.block()),
        rotational: backend.arm(),
        dataless: backend.dataless(),
        memory: backend.memory_block(),
        boundary: sysfs::virt_boundary(below),
        copied: if asked {
            Some("that was asked for")
        } else if is_disk {
            sysfs::wants_stable(below)
                .then_some("the disk below wants them not to change while they are written")
        } else {
            let free = file.is_some_and(may_change);
            (!free).then_some(
                "the file's file system may want them not to change while they are written",
            )
        },
        buffers: u32::MAX,
    }
}

/// Data may change while they are written to a file there. Elsewhere there may be sums over them.
fn may_change(file: &File) -> bool {
    // SAFETY: the structure is plain numbers.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: one structure is written.
    let done = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) };
    done == 0
        && [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::TMPFS_MAGIC]
            .contains(&found.f_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::FileBackend;

    #[test]
    fn a_file_is_asked_and_left_as_it_was() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::write(file.path(), [7; 5120]).unwrap();
        let backend = FileBackend::open(file.path()).unwrap();
        let shape = shape(file.path(), false, (0, 0), &backend, false);
        assert_eq!(shape.size, 5120 / u64::from(shape.block) * u64::from(shape.block));
        assert!(shape.physical >= shape.block && shape.block >= 512);
        assert_eq!(std::fs::read(file.path()).unwrap(), [7; 5120]);
    }
}
