// SPDX-License-Identifier: MIT OR Apache-2.0
//! How locks are taken here.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a lock guards. A thread that panicked has ended the process (see `worker`), so poison is
/// never seen.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
