// SPDX-License-Identifier: MIT OR Apache-2.0
//! `reserv-blockd FILE|DEVICE RUN-PREFIX`: the block server of one disk; reservd starts it.

use std::ffi::OsString;
use std::process::ExitCode;

use reserv_blockd::serve::Places;
use reserv_blockd::{keeper, log};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [target, prefix] = arguments.as_slice() else {
        log::say(format_args!("reservd starts this: reserv-blockd FILE|DEVICE RUN-PREFIX"));
        return ExitCode::from(2);
    };
    let places = Places::new(target.as_ref(), prefix.as_ref());
    keeper::work(&places).unwrap_or_else(|| keeper::keep(&places, &arguments))
}
