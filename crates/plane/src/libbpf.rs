// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both kinds of loaders do with what libbpf and the kernel say.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use std::{fs, io, thread};

use libbpf_rs::{OpenObject, PrintLevel};

use crate::settings;
use crate::{PlaneError, sys};

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

/// The program that the kernel refused, by the last that libbpf said, and with which errno.
pub(crate) fn refused_program(said: &str) -> Option<(&str, &str)> {
    let line = said.lines().rev().find(|line| line.contains("': failed to load: "))?;
    let (before, errno) = line.split_once("': failed to load: ")?;
    let (_, name) = before.rsplit_once("prog '")?;
    Some((name, errno.trim()))
}

/// For whoever works on the programs: what each costs the verifier, where the environment asks for
/// it.
pub(crate) fn show_verifier(open: &mut OpenObject) {
    if settings::shows_verifier() {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| eprint!("{text}"))));
        for mut program in open.progs_mut() {
            program.set_log_level(4);
        }
    }
}

/// A driver's folder of pins.
pub(crate) fn folder(name: &str) -> PathBuf {
    settings::bpffs().join(name)
}

/// Makes such a folder. Where no bpf file system is mounted, which systemd does, the error says so.
pub(crate) fn make_folder(folder: &Path) -> Result<(), PlaneError> {
    fs::create_dir_all(folder).map_err(|error| {
        let hint = if in_bpffs(folder).is_ok_and(|is| !is) { NO_BPFFS } else { "" };
        os(format!("make {}{hint}", folder.display()))(error)
    })
}

const NO_BPFFS: &str = ", where no bpf file system is mounted (mount -t bpf bpf /sys/fs/bpf)";

/// Whether a folder, or where it would be, is in a file system of pins.
pub(crate) fn in_bpffs(folder: &Path) -> io::Result<bool> {
    let there = folder.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    Ok(nix::sys::statfs::statfs(there)?.filesystem_type() == nix::sys::statfs::BPF_FS_MAGIC)
}

#[test]
fn a_folder_of_pins_outside_a_bpf_file_system_says_so() {
    assert!(!in_bpffs(Path::new("/proc/self/none/below")).unwrap());
    let error = make_folder(Path::new("/proc/self/none/below")).unwrap_err().to_string();
    assert!(error.contains("/proc/self/none/below, where no bpf file system"), "{error}");
}

/// Under PREEMPT_RT softirqs and qdiscs are preempted while they have the programs' locks, and who
/// wants one then spins with interrupts off, for which that kernel is not made.
pub(crate) fn not_realtime() -> Result<(), String> {
    let file = fs::read_to_string("/sys/kernel/realtime").unwrap_or_default();
    let version = fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
    if is_realtime(&file, &version) {
        return Err(
            "this kernel is a real-time one (PREEMPT_RT), for which the full driver is not made"
                .into(),
        );
    }
    Ok(())
}

fn is_realtime(file: &str, version: &str) -> bool {
    file.trim() == "1" || version.split_whitespace().any(|word| word == "PREEMPT_RT")
}

#[test]
fn a_realtime_kernel_is_known_by_its_file_or_its_version() {
    assert!(is_realtime("1\n", ""));
    assert!(is_realtime("", "#1 SMP PREEMPT_RT Debian 7.2.13-1 (2026-10-01)"));
    assert!(!is_realtime("", "#1 SMP PREEMPT_DYNAMIC Debian 7.2.13-1 (2026-10-01)"));
    assert!(!is_realtime("0\n", "#1 SMP"));
}

/// The pin of the programs' variables that are 0 at first (.bss).
pub(crate) const VARIABLES: &str = "bss";

/// What a map is pinned as; `None` for the other sections, which the programs hold. The kernel's
/// file system of pins has no names with dots.
pub(crate) fn pin_name(map: &str) -> Option<&str> {
    match map.rsplit_once('.') {
        None => Some(map),
        Some((_, VARIABLES)) => Some(VARIABLES),
        Some(_) => None,
    }
}

/// How long a link that was removed may still be there: it goes a moment after its pin, and until
/// then the kernel refuses the same program at the same place.
const GOING_TRIES: u32 = 100;
const GOING_PAUSE: Duration = Duration::from_millis(20);

/// Attaches a pinned program and pins its link, unless that is there.
pub(crate) fn attach_once(
    folder: &Path,
    name: &str,
    attach: impl Fn(&OwnedFd) -> io::Result<OwnedFd>,
) -> Result<(), PlaneError> {
    let pin = folder.join(format!("link-{name}"));
    if pin.exists() {
        return Ok(());
    }
    let program =
        sys::open(&folder.join(name)).map_err(os(format!("open the pinned program {name}")))?;
    let mut tries = 0;
    let link = loop {
        match attach(&program) {
            Err(error)
                if tries < GOING_TRIES
                    && matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) =>
            {
                tries += 1;
                thread::sleep(GOING_PAUSE);
            }
            done => break done.map_err(os(format!("attach {name}")))?,
        }
    };
    match sys::pin(&link, &pin) {
        // Another thread has attached it meanwhile, for another disk, say: ours goes with `link`.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done.map_err(os(format!("pin the link of {name}"))),
    }
}

/// Detaches it, if it is attached. What the kernel can detach at once (links to cgroups,
/// interfaces) is detached when this returns, other links a moment later.
pub(crate) fn detach(folder: &Path, name: &str) -> Result<(), PlaneError> {
    let pin = folder.join(format!("link-{name}"));
    if let Ok(link) = sys::open(&pin) {
        let _ = sys::detach(&link);
    }
    match fs::remove_file(&pin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(os(format!("remove {}", pin.display()))(error))
        }
        _ => Ok(()),
    }
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
