// SPDX-License-Identifier: MIT OR Apache-2.0
//! Putting the programs by when nobody is left who needs them, and taking them up again
//! ([`crate::parked`]).
//!
//! A link goes a moment after its pin, and a program of a hook may be in the middle of a run for
//! longer. So the maps are emptied in an order in which no run, whenever it began, leaves anything
//! behind: nothing new begets entries (`RT_CALL_CLOSE`); who has begun before that has ended; the
//! maps are emptied; whoever was taking an entry away himself has ended; the variables, in which
//! entries are counted, become 0.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::abi::{RtCall, RtPacketTable, what};
use super::load::{self, os};
use super::{Mechanism, RESOURCES, room};
use crate::{PlaneError, libbpf, parked, sys};

/// Stands in the folder of programs that may be put by: the kernel has refused none of them, so it
/// need not be asked again. Its name says which programs they are, for another build's daemon may
/// find them running.
fn mark(folder: &Path, mechanism: Mechanism) -> PathBuf {
    folder.join(format!("build-{:08x}", build(mechanism)))
}

/// Which programs these are.
fn build(mechanism: Mechanism) -> u32 {
    crc32fast::hash(
        &[load::OBJECT, format!("{mechanism:?} {:?}", room::told()).as_bytes()].concat(),
    )
}

/// These programs may be put by, later.
pub(super) fn allow(folder: &Path, mechanism: Mechanism) -> Result<(), PlaneError> {
    let program = sys::open(&folder.join(load::CALL)).map_err(os("open the pinned program"))?;
    let mark = mark(folder, mechanism);
    sys::pin(&program, &mark).map_err(os(format!("pin {}", mark.display())))
}

/// They may not: something of them is not there.
pub(super) fn forbid(folder: &Path, mechanism: Mechanism) {
    let _ = fs::remove_file(mark(folder, mechanism));
}

/// The full mechanism, where its programs are put by: the kernel has taken them. Those of the stock
/// one say nothing, for whoever asks for it by name has it on any kernel.
pub(super) fn full(folder: &Path) -> Option<Mechanism> {
    parked::is_there(folder, build(Mechanism::Full)).then_some(Mechanism::Full)
}

/// Take up what was put by; `false` where there is nothing of this build and mechanism. On error
/// what is in the folder is of no use.
pub(super) fn take_up(folder: &Path, mechanism: Mechanism) -> Result<bool, PlaneError> {
    if !parked::unpark(folder, build(mechanism))? {
        return Ok(false);
    }
    load::attach_hooks(folder, mechanism)?;
    // The kernel has taken all of them before. If it refuses one now it is asked by loading.
    if mark(folder, mechanism).exists() {
        Ok(true)
    } else {
        Err(PlaneError::Unsupported(
            "the kernel refuses to attach what it has attached before".into(),
        ))
    }
}

/// Put the programs by, empty. No resource needs them. Where that cannot be they go.
pub(super) fn put_by(
    folder: &Path,
    call: &OwnedFd,
    mechanism: Mechanism,
) -> Result<(), PlaneError> {
    if !mark(folder, mechanism).exists() {
        return load::unload(folder);
    }
    let put = load::unhook(folder)
        .and_then(|()| empty(folder, call))
        .and_then(|()| parked::park(folder, build(mechanism)));
    if let Err(error) = put {
        tracing::warn!(%error, "the tags' programs are not put by: the next start loads them anew");
        return load::unload(folder);
    }
    Ok(())
}

/// Whatever the programs know is forgotten.
fn empty(folder: &Path, program: &OwnedFd) -> Result<(), PlaneError> {
    let call = |what: u32| {
        let mut call = RtCall::new(what);
        sys::run(program, &mut call).map_err(os("run rt_call"))?;
        match -call.answer {
            0 => Ok(()),
            errno => Err(os(format!("call {what}"))(io::Error::from_raw_os_error(errno))),
        }
    };
    let rules =
        sys::open(&folder.join("packet_rules")).map_err(os("open the rules about packets"))?;
    let table =
        sys::new_array::<RtPacketTable>(c"packet_table").map_err(os("make a table of rules"))?;
    call(what::CLOSE)?;
    // The kernel answers a change of an array of maps when no run is left that has begun before it
    // (maybe_wait_bpf_programs). Resource 0 is the CPU, which has no packets.
    sys::put(&rules, &0_u32, &table.as_raw_fd()).map_err(os("wait for runs of programs"))?;
    for name in ["uses", "files", "socks", "lists", "above", "writers", "handed"] {
        sys::clear(&folder.join(name)).map_err(os(format!("empty the pinned map '{name}'")))?;
    }
    call(what::EMPTY)?;
    for resource in 0..u32::from(RESOURCES) {
        // Of 0 it is there, and the kernel waits again.
        sys::remove(&rules, &resource).map_err(os("forget rules about packets"))?;
    }
    sys::zero(&folder.join(libbpf::VARIABLES)).map_err(os("set the programs' variables to 0"))
}
