// SPDX-License-Identifier: MIT OR Apache-2.0
//! `reserv-blockd [--front auto|ublk|fuse] [--model spinning|flash] [--copy] [--buffers N] [--recover] FILE|DEVICE RUN-PREFIX`:
//! the block server of one disk; reservd starts it. `reserv-blockd --nudge DEVICE` sends a flush to
//! the device; its worker starts that ([`nudge`]).

use std::ffi::OsString;
use std::process::ExitCode;

use reserv_blockd::backend::Model;
use reserv_blockd::front::Choice;
use reserv_blockd::front::ublk::nudge;
use reserv_blockd::serve::Places;
use reserv_blockd::{keeper, log, private};

fn main() -> ExitCode {
    private::known_umask();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [option, device] = arguments.as_slice()
        && option == nudge::OPTION
    {
        return ExitCode::from(u8::from(nudge::flush(device.as_ref()).is_err()));
    }
    let mut rest = arguments.as_slice();
    let (mut front, mut model, mut copy, mut recover) =
        (Some(Choice::Auto), Ok(None), false, false);
    let mut buffers = Some(u32::MAX);
    loop {
        rest = match rest {
            [option, value, after @ ..] if option == "--front" => {
                front = value.to_str().and_then(Choice::of);
                after
            }
            [option, value, after @ ..] if option == "--model" => {
                model = value.to_string_lossy().parse::<Model>().map(Some);
                after
            }
            [option, value, after @ ..] if option == "--buffers" => {
                buffers = value.to_str().and_then(|word| word.parse().ok());
                after
            }
            [option, after @ ..] if option == "--copy" => {
                copy = true;
                after
            }
            [option, after @ ..] if option == "--recover" => {
                recover = true;
                after
            }
            _ => break,
        }
    }
    let ([target, prefix], Some(front), Ok(model), Some(buffers)) = (rest, front, model, buffers)
    else {
        log::say(format_args!(
            "reservd starts this: reserv-blockd [--front auto|ublk|fuse] [--model spinning|flash] [--copy] [--buffers N] [--recover] FILE|DEVICE RUN-PREFIX"
        ));
        return ExitCode::from(2);
    };
    keeper::rename_self();
    let mut places = Places::new(target.as_ref(), prefix.as_ref());
    places.model = model;
    places.copy = copy;
    places.buffers = buffers;
    keeper::work(&places).unwrap_or_else(|| keeper::keep(&places, &arguments, front, recover))
}
