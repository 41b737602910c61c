// SPDX-License-Identifier: MIT OR Apache-2.0
//! `reserv-blockd [--front auto|ublk|fuse] [--recover] FILE|DEVICE RUN-PREFIX`: the block server of one disk; reservd starts it.

use std::ffi::OsString;
use std::process::ExitCode;

use reserv_blockd::front::Choice;
use reserv_blockd::serve::Places;
use reserv_blockd::{keeper, log};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut rest = arguments.as_slice();
    let (mut front, mut recover) = (Some(Choice::Auto), false);
    loop {
        rest = match rest {
            [option, value, after @ ..] if option == "--front" => {
                front = value.to_str().and_then(Choice::of);
                after
            }
            [option, after @ ..] if option == "--recover" => {
                recover = true;
                after
            }
            _ => break,
        }
    }
    let ([target, prefix], Some(front)) = (rest, front) else {
        log::say(format_args!(
            "reservd starts this: reserv-blockd [--front auto|ublk|fuse] [--recover] FILE|DEVICE RUN-PREFIX"
        ));
        return ExitCode::from(2);
    };
    let places = Places::new(target.as_ref(), prefix.as_ref());
    keeper::work(&places).unwrap_or_else(|| keeper::keep(&places, &arguments, front, recover))
}
