// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tenants PARENT NAME=WEIGHT…`: a queue for each tenant below PARENT, and what part of the
//! resource each is entitled to. Whole or not at all: if one is refused, those before it are
//! deleted again.
//!
//! ```text
//! tenants cpu gold=60 silver=30 bronze=10
//! ```

use std::path::Path;
use std::process::ExitCode;

fn make(parent: &Path, tenants: &[(String, String)]) -> reserv::Result<()> {
    for (i, (name, weight)) in tenants.iter().enumerate() {
        if let Err(error) = reserv::mkqueue(parent.join(name), Some(weight)) {
            for (name, _) in &tenants[..i] {
                reserv::delete(parent.join(name), reserv::Delete::Flush)?;
            }
            return Err(error);
        }
    }
    for (name, _) in tenants {
        let queue = parent.join(name);
        println!("{} {} ppm", queue.display(), reserv::stat(&queue)?.weight_share_ppm);
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let tenants: Option<Vec<_>> = words
        .iter()
        .skip(1)
        .map(|w| w.split_once('=').map(|(n, w)| (n.to_owned(), w.to_owned())))
        .collect();
    let (Some(parent), Some(tenants)) = (words.first(), tenants.filter(|t| !t.is_empty())) else {
        eprintln!("usage: tenants PARENT NAME=WEIGHT...");
        return ExitCode::from(2);
    };
    if let Err(error) = make(Path::new(parent), &tenants) {
        eprintln!("tenants: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
