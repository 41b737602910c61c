// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long one program waits for another. Who gives up must not do so before the other may answer:
//! the order is checked here.

use core::time::Duration;

/// Within this reservd answers a request of a file or of a path, or says that it does not.
pub const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long a client asks for the next worker after one has gone.
pub const NEXT_WORKER_MAX: Duration = Duration::from_secs(10);
/// The longest pause of a keeper before it starts the next worker.
pub const WORKER_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Within this a resource that somebody has is had by the next, or he is told.
pub const RESOURCE_MAX: Duration = Duration::from_secs(10);
/// In a full stop: how long resources may take to say whether they can go.
pub const STOP_ASK_MAX: Duration = Duration::from_secs(6);
/// And how long those besides the CPU are waited for, all of them at once: a block server ends
/// within 15 s.
pub const STOP_RESOURCES_MAX: Duration = Duration::from_secs(25);
/// How long a full stop may take before the worker is killed and another one finishes it.
pub const STOP_WORKER_MAX: Duration = Duration::from_secs(45);
/// Who asked reservd to stop waits so long for its end. `dist/reserv.service` has it for systemd.
pub const STOP_MAX: Duration = Duration::from_secs(100);

const _: () = {
    assert!(
        RESOURCE_MAX.as_millis() < ANSWER_MAX.as_millis(),
        "who is told of a resource is told in time"
    );
    assert!(
        WORKER_PAUSE_MAX.as_millis() < NEXT_WORKER_MAX.as_millis(),
        "the next worker is waited for"
    );
    // The CPU, which goes first, is waited for as anybody waits for a resource.
    let stop = STOP_ASK_MAX.as_millis() + RESOURCE_MAX.as_millis() + STOP_RESOURCES_MAX.as_millis();
    assert!(stop < STOP_WORKER_MAX.as_millis(), "no worker is killed for what it still waits for");
    assert!(
        2 * STOP_WORKER_MAX.as_millis() < STOP_MAX.as_millis(),
        "a second worker is waited for"
    );
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_waits_as_long_as_who_asks() {
        let unit = include_str!("../../../dist/reserv.service");
        let said = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
        assert_eq!(said.and_then(|said| said.parse().ok()), Some(STOP_MAX.as_secs()));
    }
}
