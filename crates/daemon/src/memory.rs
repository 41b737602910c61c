// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the allocator keeps for threads.
//!
//! The C library gives threads pools of their own, eight for each CPU of the machine, and what was
//! once in use in one of them is seldom given back. reservd's threads come and go by the thousand
//! (connections, whoever asks a resource), so in time each pool has been at its own highest: with
//! two CPUs 16 pools of 135 to 350 kB for 650 kB that are in use, and growing over a million
//! operations; with 64 CPUs it would be 512. Its threads wait for locks and the kernel, not for the
//! allocator.

/// Pools for all threads together.
const POOLS: i32 = 2;

/// For this process, before it has threads.
pub fn few_pools() {
    // SAFETY: It takes two numbers; one that it does not know it refuses, and nothing has changed.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, POOLS) };
}
