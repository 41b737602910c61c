// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words of the command line that are more than text.

use std::time::Duration;

/// `[NAME=]PATH`, made absolute; the path need not exist yet. A bare name that is no file here may
/// be a device's.
pub(super) fn disk(text: &str) -> Result<(reserv_model::Name, String), String> {
    let (name, path) = match text.split_once('=') {
        Some((name, path)) if !name.contains('/') => (Some(name), path),
        _ => (None, text),
    };
    let device = std::path::Path::new("/dev").join(path);
    let is_device = !path.is_empty()
        && !path.contains('/')
        && !std::path::Path::new(path).exists()
        && device.exists();
    let path = if is_device { Ok(device) } else { std::path::absolute(path) }
        .map_err(|e| format!("{path}: {e}"))?;
    let name = match name {
        Some(name) => name.to_owned(),
        None => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let name =
        reserv_model::Name::new(&name).map_err(|e| format!("{e}: NAME={}", path.display()))?;
    let path = path.to_str().ok_or("a path that is no text")?;
    Ok((name, path.to_owned()))
}

/// A thread. What is none may be a queue that stands behind the threads.
pub(super) fn tid(word: &str) -> Result<i32, String> {
    let tid = word.parse().ok().filter(|tid| *tid > 0);
    tid.ok_or_else(|| "no thread; the queue stands first: reserv tag QUEUE --thread TID".to_owned())
}

/// `NAME=file:PATH` or `NAME=net:IFACE`.
pub(super) fn counting(text: &str) -> Result<(reserv_model::Name, reserv_model::Source), String> {
    let (name, on) = text.split_once('=').ok_or("NAME=file:PATH or NAME=net:IFACE")?;
    let said = |e: reserv_model::Error| format!("{e} ({})", e.hint);
    Ok((reserv_model::Name::new(name).map_err(said)?, on.parse().map_err(said)?))
}

pub(super) fn rate(word: &str) -> Result<reserv_model::Rate, String> {
    word.parse().map_err(|e: reserv_model::Error| format!("{e} ({})", e.hint))
}

/// A queue of the CPU, with or without the resource's name.
pub(super) fn queue_of_cpu(word: &str) -> Result<reserv_model::NodePath, String> {
    let path: reserv_model::NodePath = word
        .strip_prefix("cpu/")
        .unwrap_or(word)
        .parse()
        .map_err(|e: reserv_model::Error| format!("{e} ({})", e.hint))?;
    if path.is_root() {
        Err("the name of a queue of the CPU, as web/site1".into())
    } else {
        Ok(path)
    }
}

/// One of a list of words; else which there are.
pub(super) fn word<T: std::str::FromStr<Err = reserv_model::Error>>(
    word: &str,
) -> Result<T, String> {
    word.parse().map_err(|e: reserv_model::Error| e.hint)
}

pub(super) fn duration(word: &str) -> Result<Duration, String> {
    let wrong = || "write a number and ms, s or m, as 500ms or 5s; at most an hour".to_owned();
    let unit = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
    let number: f64 = word[..unit].parse().map_err(|_| wrong())?;
    let seconds = match &word[unit..] {
        "ms" => number / 1e3,
        "s" | "" => number,
        "m" => number * 60.0,
        _ => return Err(wrong()),
    };
    if (0.01..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(wrong())
    }
}

pub(super) fn interval(word: &str) -> Result<f64, String> {
    let seconds: f64 = word.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("must be from 0.05 to 3600".to_owned())
    }
}
