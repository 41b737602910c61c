// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages for people, to standard error. Nobody may read it any more: that is no reason to end.

use std::fmt;
use std::io::Write as _;

/// One line.
pub fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "reserv-blockd[{}]: {text}", std::process::id());
}
