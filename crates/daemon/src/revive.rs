// SPDX-License-Identifier: MIT OR Apache-2.0
//! When to take a resource again that the kernel took from its driver. Pure: time is an argument.
//!
//! At once, then after 100 ms, 200 ms, 400 ms …: at most [`TRIES`] attempts within [`WINDOW`];
//! after that it stays out and says so. When it has run for [`WINDOW`] the count begins anew. `up`
//! begins it anew too.

use std::time::Duration;

/// Attempts within the window.
pub const TRIES: u32 = 5;
/// The window, and how long a stable run is.
pub const WINDOW: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Wait,
    /// Try to take the resource again; tell the outcome by the next poll.
    Revive,
    /// All attempts are used up (said once).
    GiveUp,
}

/// State between polls.
#[derive(Clone, Debug, Default)]
pub struct Reviver {
    tries: u32,
    /// Of the first of these tries.
    first: Duration,
    /// Not before.
    next: Duration,
    running_since: Option<Duration>,
    out: bool,
}

impl Reviver {
    /// One poll at time `now`.
    pub fn poll(&mut self, now: Duration, running: bool) -> Action {
        if running {
            let since = *self.running_since.get_or_insert(now);
            if now.saturating_sub(since) >= WINDOW {
                self.tries = 0;
            }
            self.out = false;
            return Action::Wait;
        }
        self.running_since = None;
        if self.out || now < self.next {
            return Action::Wait;
        }
        if self.tries > 0 && self.tries < TRIES && now.saturating_sub(self.first) > WINDOW {
            self.tries = 0;
        }
        if self.tries == TRIES {
            self.out = true;
            return Action::GiveUp;
        }
        if self.tries == 0 {
            self.first = now;
        }
        self.next = now + PAUSE * 2_u32.pow(self.tries);
        self.tries += 1;
        Action::Revive
    }

    /// Attempts so far.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Whether it stays out.
    pub fn is_out(&self) -> bool {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(reviver: &mut Reviver, from_ms: u64, to_ms: u64, running: bool) -> Vec<(u64, Action)> {
        let step = |ms| (ms, reviver.poll(Duration::from_millis(ms), running));
        (from_ms..to_ms).step_by(100).map(step).filter(|(_, a)| *a != Action::Wait).collect()
    }

    #[test]
    fn five_attempts_further_and_further_apart_then_out() {
        let mut reviver = Reviver::default();
        let got = run(&mut reviver, 0, 100_000, false);
        let expected = [0, 100, 300, 700, 1500].map(|ms| (ms, Action::Revive));
        assert_eq!(got[..5], expected);
        assert_eq!(got[5..], [(3100, Action::GiveUp)]);
        assert!(reviver.is_out());
    }

    #[test]
    fn a_stable_minute_begins_anew_and_a_short_run_does_not() {
        let mut reviver = Reviver::default();
        for round in 0..5 {
            let at = round * 10_000;
            assert_eq!(
                reviver.poll(Duration::from_millis(at), false),
                Action::Revive,
                "round {round}"
            );
            run(&mut reviver, at + 100, at + 9_000, true);
        }
        assert_eq!(reviver.poll(Duration::from_secs(50), false), Action::GiveUp);
        let mut reviver = Reviver::default();
        run(&mut reviver, 0, 1000, false);
        run(&mut reviver, 1000, 62_000, true);
        assert_eq!(run(&mut reviver, 62_000, 100_000, false).len(), 6);
    }

    #[test]
    fn rare_losses_are_always_repaired() {
        let mut reviver = Reviver::default();
        for round in 0..50 {
            let at = round * 20_000;
            assert_eq!(
                reviver.poll(Duration::from_millis(at), false),
                Action::Revive,
                "round {round}"
            );
            run(&mut reviver, at + 100, at + 19_000, true);
        }
    }
}
