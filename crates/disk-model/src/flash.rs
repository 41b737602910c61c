// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels of flash behind one interface.

use crate::{Request, Served, part};

/// The numbers of a flash disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Its size.
    pub sectors: u64,
    /// How many channels work at the same time.
    pub channels: u64,
    /// Sectors of a page; consecutive pages lie on consecutive channels.
    pub page: u64,
    /// Time that a channel takes to read a page, or a part of one, ns.
    pub read_ns: u64,
    /// To write it, ns.
    pub write_ns: u64,
    /// Time of 1 MiB on the interface, which requests use one after another, ns.
    pub mib_ns: u64,
    /// Of each request, in the controller, ns.
    pub overhead_ns: u64,
}

impl Flash {
    /// 500 GB, 8 channels, 550 MB/s on the interface.
    pub const SATA: Self = Self {
        sectors: 1_000_000_000,
        channels: 8,
        page: 32,
        read_ns: 60_000,
        write_ns: 200_000,
        mib_ns: 1_900_000,
        overhead_ns: 20_000,
    };
}

/// The disk at work.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    kind: Flash,
    /// Each idle from then on.
    free: Vec<u64>,
    interface: u64,
}

impl Channels {
    pub(crate) fn new(kind: Flash) -> Self {
        assert!(
            kind.sectors > 0 && kind.channels > 0 && kind.page > 0,
            "a disk with something on it"
        );
        let channels = usize::try_from(kind.channels).expect("few channels");
        Self { kind, free: vec![0; channels], interface: 0 }
    }

    pub(crate) const fn kind(&self) -> &Flash {
        &self.kind
    }

    pub(crate) fn submit(&mut self, now: u64, r: Request) -> Served {
        let k = self.kind;
        let ready = now + k.overhead_ns;
        if r.sectors == 0 {
            return Served { begun: now, done: ready };
        }
        let (sectors, time) = (u64::from(r.sectors), if r.write { k.write_ns } else { k.read_ns });
        let (first, last) = (r.sector / k.page, (r.sector + sectors - 1) / k.page);
        let moved = part(sectors * crate::SECTOR, k.mib_ns, 1 << 20);
        let (mut begun, mut done) = (u64::MAX, 0);
        // What is written has to be there first; what is read goes when it is.
        let from = if r.write { self.interface.max(ready) + moved } else { ready };
        for page in first..=last {
            let free = &mut self.free[usize::try_from(page % k.channels).expect("a channel")];
            let start = from.max(*free);
            *free = start + time;
            begun = begun.min(start);
            done = done.max(*free);
        }
        if r.write {
            self.interface = from;
        } else {
            done = done.max(self.interface) + moved;
            self.interface = done;
        }
        Served { begun: begun.min(from).max(now), done }
    }
}
