// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ejection, revival, adoption, mounts that come and go.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, process, thread};

use reserv_model::{Batch, Class, Kind, NodeId, Op};
use reserv_plane::cpu::full::{self, Full};
use reserv_plane::{Health, List, Lists as _, Plane as _, Threads as _};

use crate::setup::{Answer, Guard, Load, Setup, check, near, service, settle, shares};

pub(crate) fn eject() -> Answer {
    fs::write("/proc/sysrq-trigger", "S")?;
    Ok(())
}

pub(crate) fn detached(plane: &mut Full) -> Result<Option<String>, Box<dyn Error>> {
    for _ in 0..500 {
        if let Health::Detached(why) = plane.health()? {
            return Ok(Some(why));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(None)
}

/// chcpures() takes descriptors of one mount; when that is gone, its number is nobody's, whoever
/// gets it next.
pub(crate) fn run_mount() -> Answer {
    let mut s = Setup::new()?;
    let at = std::path::Path::new("/dev/shm/full-mount");
    fs::create_dir_all(at)?;
    let mount = |what: &str| -> Answer {
        let status = Command::new(what)
            .args((what == "mount").then_some(["-t", "tmpfs", "none"]).into_iter().flatten())
            .arg(at)
            .status()?;
        if status.success() { Ok(()) } else { Err(format!("{what}: {status}").into()) }
    };
    mount("mount")?;
    let dev = std::os::unix::fs::MetadataExt::dev(&fs::metadata(at)?);
    s.plane.0.set_mount(dev)?;
    let known = s.plane.0.counters().mount;
    check(
        known == u64::from(libc::major(dev)) << 20 | u64::from(libc::minor(dev)),
        "the mount is known",
    );
    let held = fs::File::create(at.join("held"))?;
    let lazily = Command::new("umount").arg("--lazy").arg(at).status()?;
    check(
        lazily.success() && s.plane.0.counters().mount == known,
        "unmounted while a file is open, it lives on",
    );
    drop(held);
    check(
        s.plane.0.counters().mount == 0,
        "with the last file it is gone, and its number means nothing",
    );
    mount("mount")?;
    check(s.plane.0.counters().mount == 0, "nor does it for the next mount");
    mount("umount")?;
    fs::remove_dir(at)?;
    Ok(())
}

/// Ejection and revival, adoption after SIGKILL, another scheduler.
pub(crate) fn run_life() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 300)?);
    let first = load.hog(&mut s.plane.0, a)?;
    load.hog(&mut s.plane.0, b)?;
    let me = i32::try_from(process::id())?;
    s.plane.0.set_default(me, List::Child, b)?;
    settle();
    for round in 1..=3 {
        let before = s.plane.0.sample()?;
        eject()?;
        let why = detached(&mut s.plane.0)?;
        check(
            why.as_ref().is_some_and(|w| w.contains("sysrq") || w.contains("SysRq")),
            &format!("ejection {round} is noticed, with its reason: {why:?}"),
        );
        check(s.plane.0.tag_of(first)? == a, "tags are kept while out");
        let mut child = Command::new("sleep").arg("100").spawn()?;
        let born_out = i32::try_from(child.id())?;
        check(s.plane.0.tag_of(born_out)? == b, "and inherited");
        s.plane.0.revive()?;
        check(s.plane.0.health()? == Health::Running, "it comes back");
        check(s.plane.0.tag_of(first)? == a && s.plane.0.tag_of(born_out)? == b, "with all tags");
        check(s.plane.0.members(b)?.len() == 2, "and members");
        child.kill()?;
        child.wait()?;
        let after = s.plane.0.sample()?;
        check(
            service(&after, b) >= service(&before, b) && after.len() == before.len(),
            "and counters and nodes",
        );
        settle();
        near(
            &shares(&s.plane.0, &[a, b], Duration::from_secs(5))?,
            &[0.25, 0.75],
            0.01,
            "and shares",
        );
    }
    // A second driver, as another daemon would be.
    let other = Command::new(env::current_exe()?)
        .arg("--other")
        .env("RESERV_BPFFS", "/sys/fs/bpf/reserv-other")
        .output()?;
    let said = String::from_utf8_lossy(&other.stdout).into_owned();
    check(
        said.contains("Taken"),
        &format!("another scheduler that is loaded is a clear error: {}", said.trim()),
    );
    s.health("which changes nothing")?;
    // What objects share stays when one of them is refused: the other may run.
    let shared = Path::new("/sys/fs/bpf/reserv-other-work-3");
    for map in ["work", "works", "worklists"] {
        fs::remove_file(shared.join(map))?;
    }
    fs::remove_dir(shared)?;
    // Adoption: the process that loaded it is gone.
    drop(load);
    drop(s);
    let mut loader =
        Command::new(env::current_exe()?).arg("--loader").stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(out) = loader.stdout.take() {
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
    }
    loader.kill()?;
    loader.wait()?;
    check(
        fs::read_to_string("/sys/kernel/sched_ext/state")?.trim() == "enabled",
        "killed, it goes on scheduling",
    );
    let adopted = full::adopt()?;
    check(adopted.is_some(), "a new daemon finds it");
    if let Some(plane) = adopted {
        let mut guard = Guard(plane);
        check(guard.0.applied_seq()? == Some(7), "with the number of its last batch");
        check(guard.0.sample()?.len() == 3, "with its tree");
        check(guard.0.health()? == Health::Running, "and its health");
        let bad = guard.0.apply(&Batch { seq: 7, ops: Vec::new() });
        check(bad.is_err(), "and goes on from there");
        let id = NodeId { index: 9, generation: 1 };
        let ok = guard.0.apply(&Batch {
            seq: 8,
            ops: vec![Op::Create { id, parent: NodeId::ROOT, kind: Kind::Queue(Class::Ts) }],
        });
        check(ok.is_ok(), "with edits");
    }
    check(
        fs::read_to_string("/sys/kernel/sched_ext/state")?.trim() == "disabled",
        "stopped, the kernel has the CPUs back",
    );
    check(full::adopt()?.is_none(), "and there is nothing to adopt");
    Ok(())
}
