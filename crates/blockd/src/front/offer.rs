// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning and the end of a device, whatever makes it.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use super::fuse::{self, Fuse};
use super::ublk::control::{self, Control};
use super::ublk::{self, Ublk, nudge};
use super::{Front, Held, Shape, loopdev};
use crate::log::say;
use crate::ring::Ring;
use crate::sysfs;

/// Name and number of a device.
pub type Device = (String, u64);
/// The front end, and who says when its device is there, if it is not.
pub type Offered = (Box<dyn Front>, Option<Receiver<io::Result<Device>>>);

/// An elevator on our own device ruins shares, and so does writeback throttling. Changing them
/// waits until the device's requests are answered.
fn without_elevator((name, dev): Device) -> Device {
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    if sysfs::elevator(major, minor).is_some_and(|now| now != "none")
        && let Err(error) = sysfs::set_elevator(major, minor, "none")
    {
        say(format_args!("the elevator of {name} could not be switched off: {error}"));
    }
    // Nor may the kernel hold writers back (of swap, say) before the tree sees what they want, in
    // the order in which they came.
    limited((name, dev), "wbt_lat_usec", 0)
}

/// A limit of the device's own queue.
fn limited((name, dev): Device, file: &str, most: u32) -> Device {
    if let Err(error) = sysfs::set_limit(libc::major(dev), libc::minor(dev), file, most) {
        say(format_args!("{file} of {name} could not be changed: {error}"));
    }
    (name, dev)
}

/// Without an elevator: else the limit would be the elevator's, not the driver's.
fn with_a_slot_left(device: Device) -> Device {
    limited(without_elevator(device), "nr_requests", ublk::DEPTH_USED.into())
}

/// What is longer would come in parts, each with memory of ours.
fn in_whole_parts(device: Device) -> Device {
    limited(without_elevator(device), "max_sectors_kb", fuse::PART_KIB)
}

/// Offer the disk, or go on with the device that there is, by its name (empty: none), of a worker
/// before us (`again`). Setting a device up asks for requests to be answered meanwhile, so another
/// thread does that.
pub fn offer(
    held: Held,
    ring: &mut Ring,
    shape: &Shape,
    image: &Path,
    mark: u64,
    (device, again): (&str, bool),
) -> io::Result<Offered> {
    let (send, receive) = channel();
    match held {
        Held::Fuse(session) => {
            let front = Fuse::new(session, shape);
            if again {
                front.resend()?;
            }
            if device.is_empty() {
                let (image, block) = (image.to_owned(), shape.block);
                std::thread::spawn(move || {
                    send.send(loopdev::attach(&image, block).map(in_whole_parts))
                });
                return Ok((Box::new(front), Some(receive)));
            }
            Ok((Box::new(front), None))
        }
        Held::Ublk => {
            let there = control::number_of(device);
            let id = if let Some(id) = there {
                id
            } else {
                // What a worker left that died before anybody saw its device.
                control::remove_marked(mark)?;
                ublk::create(shape, mark)?
            };
            let again = there.is_some();
            let front = Ublk::open(id, again, shape, ring)?;
            std::thread::spawn(move || {
                let begun = ublk::begin(id, again);
                if let (true, Ok((name, _))) = (again, &begun) {
                    // Beside what follows, which may wait for a request that is forgotten.
                    nudge::begin(name.clone());
                }
                send.send(begun.map(with_a_slot_left))
            });
            Ok((Box::new(front), Some(receive)))
        }
    }
}

/// How a device ends.
pub enum Ended {
    /// At once.
    Now,
    /// When this says so. The kernel may write what its page cache still has, so requests are to be
    /// answered meanwhile.
    Soon(Receiver<io::Result<()>>),
}

/// A device goes, which nobody uses.
pub fn end(device: &str) -> io::Result<Ended> {
    let Some(id) = control::number_of(device) else {
        // Giving the file up closes it, which nobody waits for an answer of (NOFLUSH).
        return loopdev::detach(device).map(|()| Ended::Now);
    };
    // Ours alone: nobody mounts it from here on.
    let path = format!("/dev/{device}");
    let mine = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path)?;
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let _ = send.send(Control::open().and_then(|mut control| control.stop(id)));
        drop(mine);
    });
    Ok(Ended::Soon(receive))
}
