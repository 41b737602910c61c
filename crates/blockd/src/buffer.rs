// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for data, aligned as devices want it, kept for the next request.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Of memory for direct I/O.
const ALIGN: usize = 4096;

/// Aligned memory.
#[derive(Debug)]
pub struct Buffer {
    at: NonNull<u8>,
    size: usize,
}

// SAFETY: plain memory that belongs to whoever has the buffer.
unsafe impl Send for Buffer {}

impl Buffer {
    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, ALIGN).unwrap_or(Layout::new::<[u8; ALIGN]>())
    }

    fn new(size: usize) -> Self {
        // SAFETY: the size is not 0 (`Pool::new`).
        let Some(at) = NonNull::new(unsafe { alloc_zeroed(Self::layout(size)) }) else {
            handle_alloc_error(Self::layout(size))
        };
        Self { at, size }
    }

    /// Where it lies. It does not move.
    pub fn at(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// The first bytes of it.
    ///
    /// # Panics
    /// It is not that long.
    pub fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.size, "{len} of {} bytes", self.size);
        // SAFETY: the memory is initialised (zeroed at first) and that long.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), len) }
    }

    /// And to be written.
    ///
    /// # Panics
    /// It is not that long.
    pub fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.size, "{len} of {} bytes", self.size);
        // SAFETY: as `bytes`, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: made by `new` with the same layout.
        unsafe { dealloc(self.at.as_ptr(), Self::layout(self.size)) }
    }
}

/// Buffers of one size.
#[derive(Debug)]
pub struct Pool {
    size: usize,
    keep: usize,
    free: Vec<Buffer>,
}

impl Pool {
    /// Of buffers of `size` bytes, of which `keep` are kept while nobody needs them.
    ///
    /// # Panics
    /// `size` is 0.
    pub fn new(size: usize, keep: usize) -> Self {
        assert!(size > 0, "a buffer has room");
        Self { size, keep, free: (0..keep).map(|_| Buffer::new(size)).collect() }
    }

    /// One.
    pub fn take(&mut self) -> Buffer {
        self.free.pop().unwrap_or_else(|| Buffer::new(self.size))
    }

    /// Not needed any more.
    pub fn give(&mut self, buffer: Buffer) {
        if self.free.len() < self.keep && buffer.size == self.size {
            self.free.push(buffer);
        }
    }

    /// Of each.
    pub const fn size(&self) -> usize {
        self.size
    }
}
