// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often the tree's lock is taken: once a switch, and not for a wake-up that displaces nobody.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use reserv_model::NodeId;
use reserv_plane::{Plane as _, Target};

use crate::setup::{Answer, Load, Setup, check};

const ROUNDS: u32 = 3000;

/// Bytes back to where they come from.
pub(crate) fn echo() {
    let mut byte = [0_u8];
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    while input.read(&mut byte).is_ok_and(|n| n == 1) {
        if output.write_all(&byte).is_err() || output.flush().is_err() {
            return;
        }
    }
}

/// Sections of the lock, and switches by the kernel's own count.
fn count(setup: &Setup) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let stat = fs::read_to_string("/proc/stat")?;
    let switches = stat.lines().find_map(|l| l.strip_prefix("ctxt ")).ok_or("no count of switches")?;
    Ok((setup.plane.0.counters().sections, switches.trim().parse()?))
}

fn since(now: (u64, u64), before: (u64, u64)) -> (f64, f64) {
    ((now.0 - before.0) as f64, (now.1 - before.1) as f64)
}

/// Two processes pass a byte to and fro; answers sections and switches.
fn ping(setup: &mut Setup, near: NodeId, far: NodeId) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let mut child = Command::new(env::current_exe()?)
        .arg("--echo")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut to = child.stdin.take().ok_or("no stdin")?;
    let mut from = child.stdout.take().ok_or("no stdout")?;
    setup.plane.0.tag(Target::Process(i32::try_from(child.id())?), far)?;
    setup.plane.0.tag(Target::Process(i32::try_from(std::process::id())?), near)?;
    let mut byte = [1_u8];
    let mut before = (0, 0);
    for round in 0..ROUNDS + 100 {
        if round == 100 {
            before = count(setup)?;
        }
        to.write_all(&byte)?;
        from.read_exact(&mut byte)?;
    }
    let got = since(count(setup)?, before);
    drop((to, from));
    child.wait()?;
    setup.plane.0.tag(Target::Process(i32::try_from(std::process::id())?), NodeId::Q0)?;
    Ok(got)
}

pub(crate) fn run() -> Answer {
    let mut setup = Setup::new()?;
    let (a, b) = (setup.queue(NodeId::ROOT, 100)?, setup.queue(NodeId::ROOT, 100)?);
    for (what, far) in [("one queue", a), ("two queues", b)] {
        let (sections, switches) = ping(&mut setup, a, far)?;
        check(
            switches >= 2.0 * f64::from(ROUNDS),
            &format!("{what}: {switches} switches for {ROUNDS} round trips"),
        );
        check(
            sections <= switches * 1.01,
            &format!(
                "{what}: {:.4} sections of the lock a switch, two wake-ups a round trip",
                sections / switches
            ),
        );
    }
    // Wake-ups beside a busy process: each is a switch to the sleeper and one back. A wake-up of another queue displaces nobody.
    let mut load = Load::default();
    load.hog(&mut setup.plane.0, b)?;
    setup.plane.0.tag(Target::Process(i32::try_from(std::process::id())?), a)?;
    let before = count(&setup)?;
    for _ in 0..300 {
        thread::sleep(Duration::from_millis(1));
    }
    let (sections, switches) = since(count(&setup)?, before);
    check(switches >= 300.0, &format!("300 sleeps: {switches} switches"));
    check(
        sections <= switches * 1.02 + 4.0,
        &format!("beside a busy process: {:.4} sections a switch", sections / switches),
    );
    setup.plane.0.tag(Target::Process(i32::try_from(std::process::id())?), NodeId::Q0)?;
    setup.health("after that")
}
