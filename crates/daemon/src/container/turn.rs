// SPDX-License-Identifier: MIT OR Apache-2.0
//! One change of containers at a time. Who waits is told so when somebody has had the turn for as
//! long as anybody waits for a resource. It is taken before any resource, and never under one.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::core::slot::PATIENCE;
use crate::refusal::Refusal;
use crate::sync::lock;

#[derive(Default)]
pub(super) struct Turn {
    since: Mutex<Option<Instant>>,
    free: Condvar,
    /// Whether there is something to look after.
    woken: Mutex<bool>,
    wake: Condvar,
}

/// The turn, until it is dropped.
pub(super) struct Turning<'t>(&'t Turn);

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        *lock(&self.0.since) = None;
        self.0.free.notify_one();
    }
}

impl Turn {
    pub(super) fn take(&self) -> Result<Turning<'_>, Refusal> {
        let mut since = lock(&self.since);
        while let Some(begun) = *since {
            let left = (begun + PATIENCE).saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!(
                    "another change of containers waits, since {} s",
                    begun.elapsed().as_secs()
                );
                return Err(Refusal::new(libc::EAGAIN, text));
            }
            since = self.free.wait_timeout(since, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *since = Some(Instant::now());
        Ok(Turning(self))
    }

    /// Something is to be looked after.
    pub(super) fn wake(&self) {
        *lock(&self.woken) = true;
        self.wake.notify_one();
    }

    /// Waits until something is, for at most so long; answers whether.
    pub(super) fn sleep(&self, most: Duration) -> bool {
        let woken = lock(&self.woken);
        let waited = self.wake.wait_timeout_while(woken, most, |woken| !*woken);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}
