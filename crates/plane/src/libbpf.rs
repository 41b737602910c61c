// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both kinds of loaders do with what libbpf and the kernel say.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs, io};

use libbpf_rs::PrintLevel;

use crate::PlaneError;

/// What libbpf had to say, the last of it: the verifier's words when it refuses a program.
pub(crate) static SAID: Mutex<String> = Mutex::new(String::new());

#[expect(clippy::needless_pass_by_value, reason = "libbpf-rs wants it so")]
pub(crate) fn listen(_: PrintLevel, text: String) {
    if let Ok(mut said) = SAID.lock() {
        said.push_str(&text);
        let extra = said.len().saturating_sub(16_384);
        let cut = (extra..=said.len()).find(|i| said.is_char_boundary(*i)).unwrap_or(0);
        said.drain(..cut);
    }
}

pub(crate) fn os(context: impl Into<String>) -> impl FnOnce(io::Error) -> PlaneError {
    let context = context.into();
    move |source| PlaneError::Os { context, source }
}

/// What libbpf refused, with the end of what it said.
pub(crate) fn refused(context: &str, error: &libbpf_rs::Error) -> PlaneError {
    let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
    let tail: Vec<&str> = said.lines().rev().take(40).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    PlaneError::Os {
        context: format!("{context}: {error:#}\n{}", tail.join("\n")),
        source: io::Error::other("libbpf"),
    }
}

/// A driver's folder of pins.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(&env::var_os("RESERV_BPFFS").unwrap_or_else(|| "/sys/fs/bpf/reserv".into())).join(name)
}

/// Removes all pins with their folder, if it is there.
pub(crate) fn remove_pins(folder: &Path) -> Result<(), PlaneError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(os(format!("read {}", folder.display()))(error)),
    };
    for entry in entries.flatten() {
        fs::remove_file(entry.path()).map_err(os(format!("remove {}", entry.path().display())))?;
    }
    fs::remove_dir(folder).map_err(os(format!("remove {}", folder.display())))
}
