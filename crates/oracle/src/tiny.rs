// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every sequence of events of a tiny node or queue, for policies and classes with models of their
//! own.

/// A core and its model, which take one of some events at a time.
pub trait Tiny {
    /// How many events there are now.
    fn options(&self) -> u32;
    /// One of them happens, to both; what differs is an error.
    fn take(&mut self, option: u32) -> Result<(), String>;
}

/// All sequences of `depth` events. Answers how many there were.
pub fn every<T: Tiny>(make: impl Fn() -> T, depth: usize) -> Result<u64, String> {
    let mut path = vec![0; depth];
    let mut count = 0;
    loop {
        let mut tiny = make();
        let mut widths = Vec::with_capacity(depth);
        for &option in &path {
            widths.push(tiny.options());
            tiny.take(option).map_err(|e| format!("{path:?}: {e}"))?;
        }
        count += 1;
        // The next sequence: the last event that has another one.
        let Some(at) = (0..depth).rev().find(|&i| path[i] + 1 < widths[i]) else {
            return Ok(count);
        };
        path[at] += 1;
        path[at + 1..].fill(0);
    }
}
