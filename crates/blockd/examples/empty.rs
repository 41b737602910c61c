// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ublk itself costs: a device of it whose requests are answered as soon as they come, with no
//! data, no tree and no disk below. `registered` has the kernel register their memory, as where
//! data are not copied. Prints the device's name and serves it until its input ends. For
//! `tests/bench/disk`.

use std::error::Error;
use std::io::{self, Read as _};
use std::{env, thread};

use reserv_blockd::buffer::Pool;
use reserv_blockd::front::ublk::control::Control;
use reserv_blockd::front::ublk::{self, Ublk};
use reserv_blockd::front::{Dataless, Front as _, Shape};
use reserv_blockd::ring::{Of, Ring};

/// No prefix has it.
const MARK: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let shape = Shape {
        size: 1 << 30,
        block: 512,
        physical: 4096,
        rotational: false,
        dataless: Dataless::default(),
        memory: 512,
        boundary: 0,
        copied: (env::args().nth(1).as_deref() != Some("registered")).then_some("there are none"),
        buffers: 1024,
    };
    let id = ublk::create(&shape, MARK)?;
    let mut ring = Ring::new()?;
    let mut front = Ublk::open(id, false, &shape, &mut ring)?;
    let ends = thread::spawn(move || -> io::Result<()> {
        println!("{}", ublk::begin(id, false)?.0);
        let _ = io::stdin().read(&mut [0]);
        Control::open()?.stop(id)
    });
    let mut pool = Pool::new(4096, 0);
    let (mut done, mut fetched, mut arrived) = (Vec::new(), Vec::new(), Vec::new());
    let ended = loop {
        ring.wait(None)?;
        ring.take(&mut done);
        fetched.extend(
            done.drain(..)
                .filter(|&(of, ..)| of == Of::Front)
                .map(|(_, slot, result)| (slot, result)),
        );
        if let Err(error) = front.receive(&mut ring, &fetched, &mut pool, &mut arrived) {
            break error;
        }
        fetched.clear();
        for request in arrived.drain(..) {
            front.answer(&mut ring, &request, Ok(()))?;
        }
    };
    drop((front, ring));
    ends.join().map_err(|_| "the other thread")??;
    Control::open()?.remove(id)?;
    if ended.raw_os_error() == Some(libc::ENODEV) { Ok(()) } else { Err(ended.into()) }
}
