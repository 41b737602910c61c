// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root qdisc that was there before ours: whether it can be put back, where it is written down,
//! and putting it back.

use std::path::Path;
use std::{fs, io};

use super::rtnl::{self, Qdisc};
use crate::PlaneError;
use crate::libbpf::os;

/// Root qdiscs that are configured by one message, so that they can be put back as they were.
const SIMPLE: &[&str] = &[
    "noqueue",
    "pfifo_fast",
    "pfifo",
    "bfifo",
    "fq",
    "fq_codel",
    "codel",
    "sfq",
    "cake",
    "fq_pie",
    "pie",
];

/// Whether the root qdisc that is there may be replaced, and how it is put back: `None` where the
/// kernel chooses it anew.
pub(super) fn replaceable(
    interface: &str,
    index: u32,
    ours: impl Fn(&Qdisc) -> bool,
) -> Result<Option<Qdisc>, PlaneError> {
    let (root, below) = rtnl::root(index).map_err(os(format!("the qdisc of {interface}")))?;
    match root {
        Some(q) if ours(&q) || q.handle == 0 => Ok(None),
        Some(q) if below == 0 && SIMPLE.contains(&q.kind.as_str()) => Ok(Some(q)),
        Some(q) => Err(PlaneError::Taken(format!(
            "{interface} has a qdisc {} {:x}: of somebody's making, which could not be put back as it was (tc qdisc del dev {interface} root)",
            q.kind,
            q.handle >> 16
        ))),
        None => Ok(None),
    }
}

/// What is put back at the end: nothing where the kernel chooses.
pub(super) fn write_former(file: &Path, qdisc: Option<&Qdisc>) -> Result<(), PlaneError> {
    let Some(qdisc) = qdisc else {
        let _ = fs::remove_file(file);
        return Ok(());
    };
    let text = serde_json::to_vec(qdisc).map_err(io::Error::from);
    text.and_then(|text| fs::write(file, text)).map_err(os(format!("write {}", file.display())))
}

/// Takes our root qdisc off an interface, and puts the former one back.
pub(super) fn put_back(
    file: &Path,
    interface: &str,
    index: u32,
    ours: impl Fn(&Qdisc) -> bool,
) -> Result<(), PlaneError> {
    let (root, _) = rtnl::root(index).map_err(os(format!("the qdisc of {interface}")))?;
    if !root.is_some_and(|q| ours(&q)) {
        return Ok(());
    }
    rtnl::remove(index).map_err(os(format!("take our qdisc off {interface}")))?;
    let former: Option<Qdisc> =
        fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(q) = former
        && let Err(error) = rtnl::replace(index, q.handle, &q.kind, &q.options)
    {
        tracing::error!(%error, interface, kind = q.kind, "the former qdisc was not put back");
    }
    Ok(())
}
