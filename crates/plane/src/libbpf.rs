// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both kinds of loaders do with what libbpf and the kernel say.

use std::io;
use std::sync::Mutex;

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
