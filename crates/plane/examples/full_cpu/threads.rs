// SPDX-License-Identifier: MIT OR Apache-2.0
//! Affinity, kernel threads, and threads that nobody must forget.

use std::error::Error;
use std::time::{Duration, Instant};
use std::{fs, iter, process, thread};

use reserv_model::{NodeId, Op};
use reserv_plane::{Plane as _, Target, Threads as _};

use crate::setup::{Answer, Load, Setup, check, near, service, settle, shares, weight};

pub(crate) fn pin(pid: i32, cpu: usize) {
    // SAFETY: the set is a plain bit array on our stack.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Threads that may use one CPU only, changed all the time, and no CPU idle meanwhile.
pub(crate) fn run_affinity() -> Answer {
    let cpus = thread::available_parallelism()?.get();
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    let mut pids = Vec::new();
    for i in 0..2 * cpus {
        pids.push(load.hog(&mut s.plane.0, if i % 2 == 0 { a } else { b })?);
    }
    let start = Instant::now();
    let mut changes = 0;
    while start.elapsed() < Duration::from_secs(5) {
        for (i, pid) in pids.iter().enumerate() {
            pin(*pid, (i + changes) % cpus);
        }
        changes += 1;
        thread::sleep(Duration::from_millis(3));
    }
    s.health(&format!("{changes} rounds of sched_setaffinity on busy threads"))?;
    for pid in &pids {
        pin(*pid, 0);
    }
    settle();
    // By the clock: a processor that this machine takes away for 0.2 s is a hundredth of it.
    near(
        &shares(&s.plane.0, &[a, b], Duration::from_secs(10))?,
        &[0.5, 0.5],
        0.02,
        "all pinned to one CPU, half each",
    );
    let where_now = |pid: i32| -> Result<usize, Box<dyn Error>> {
        let line = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Ok(line
            .rsplit(')')
            .next()
            .unwrap_or("")
            .split_whitespace()
            .nth(36)
            .unwrap_or("")
            .parse()?)
    };
    for pid in &pids {
        check(where_now(*pid)? == 0, "a pinned thread is where it may be");
    }
    s.health("affinity")
}

/// Ten queues are bound to CPU 0. Two of weights 1 and 2 have CPU 1, and divide it so.
pub(crate) fn run_apart() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let mut bound = |weight: u32, cpu: usize| -> Result<NodeId, Box<dyn Error>> {
        let queue = s.queue(NodeId::ROOT, weight)?;
        pin(load.hog(&mut s.plane.0, queue)?, cpu);
        Ok(queue)
    };
    let crowd = (0..10).map(|_| bound(100, 0)).collect::<Result<Vec<_>, _>>()?;
    let pair = [bound(100, 1)?, bound(200, 1)?];
    settle();
    let all = [&pair[..], &crowd].concat();
    let got = shares(&s.plane.0, &all, Duration::from_secs(10))?;
    let of = |part: &[f64]| -> Vec<f64> {
        part.iter().map(|had| had / part.iter().sum::<f64>()).collect()
    };
    let (pair, crowd) = got.split_at(2);
    near(&of(pair), &[1.0 / 3.0, 2.0 / 3.0], 0.01, "a CPU of two, beside ten on the other");
    near(&of(crowd), &[0.1; 10], 0.01, "the CPU of ten");
    near(&[pair.iter().sum()], &[0.5], 0.01, "and each CPU is used");
    s.health("queues bound to CPUs")
}

/// What the kernel does to threads behind our back, all at once: affinity, nice values and tags of
/// threads that wait, run and sleep are changed while they wake each other. `OWNERS_SECONDS` of it.
pub(crate) fn run_owners() -> Answer {
    let cpus = thread::available_parallelism()?.get();
    let seconds = std::env::var("OWNERS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let queues = [s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 300)?];
    let mut pids = Vec::new();
    for i in 0..2 * cpus {
        pids.push(load.hog(&mut s.plane.0, queues[i % 2])?);
    }
    let until = Instant::now() + Duration::from_secs(seconds);
    let nappers: Vec<_> = (0..2 * cpus)
        .map(|i| {
            thread::spawn(move || {
                while Instant::now() < until {
                    thread::sleep(Duration::from_micros(200 + 100 * i as u64));
                }
            })
        })
        .collect();
    for task in fs::read_dir("/proc/self/task")? {
        pids.push(task?.file_name().to_string_lossy().parse()?);
    }
    let mut changes = 0_usize;
    while Instant::now() < until {
        for (i, pid) in pids.iter().enumerate() {
            match (i + changes) % 5 {
                0 => pin(*pid, changes % cpus),
                1 => pin_all(*pid, cpus),
                2 => drop(s.plane.0.tag(Target::Thread(*pid), queues[changes % 2])),
                // SAFETY: a number of a thread and a nice value.
                3 => drop(unsafe {
                    libc::setpriority(
                        libc::PRIO_PROCESS,
                        (*pid).cast_unsigned(),
                        i32::from(changes.is_multiple_of(2)),
                    )
                }),
                _ => thread::yield_now(),
            }
        }
        changes += 1;
        if changes.is_multiple_of(16) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    for napper in nappers {
        napper.join().map_err(|_| "a thread died")?;
    }
    for pid in &pids {
        pin_all(*pid, cpus);
    }
    s.health(&format!("{changes} rounds of changes in {seconds} s"))?;
    // Nobody was forgotten: every busy one goes on.
    let at = |pid: i32| -> Result<u64, Box<dyn Error>> {
        let line = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
        Ok(line.split_whitespace().next().unwrap_or("").parse()?)
    };
    let busy = pids.iter().take(2 * cpus);
    let before = busy.clone().map(|pid| at(*pid)).collect::<Result<Vec<_>, _>>()?;
    thread::sleep(Duration::from_secs(3));
    for (pid, before) in busy.zip(before) {
        check(at(*pid)? > before, "a busy thread goes on");
    }
    s.health("owners")
}

fn pin_all(pid: i32, cpus: usize) {
    // SAFETY: as in pin().
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in 0..cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

pub(crate) fn ksm(file: &str, value: &str) -> Answer {
    Ok(fs::write(format!("/sys/kernel/mm/ksm/{file}"), value)?)
}

/// A kernel thread (ksmd) that would use a whole CPU: it goes over this memory again and again.
pub(crate) struct Ksm(Vec<u8>);

impl Ksm {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut memory = vec![0_u8; 64 << 20];
        for (i, page) in memory.chunks_mut(4096).enumerate() {
            // No two pages are equal: they are compared for ever and never merged.
            page.get_mut(..8).ok_or("a page")?.copy_from_slice(&i.to_le_bytes());
        }
        // SAFETY: a hint about our own memory, which changes nothing that a program could see.
        if unsafe {
            libc::madvise(
                memory.as_mut_ptr().map_addr(|a| a.next_multiple_of(4096)).cast(),
                63 << 20,
                libc::MADV_MERGEABLE,
            )
        } != 0
        {
            return Err(std::io::Error::last_os_error().into());
        }
        ksm("smart_scan", "0")?;
        ksm("sleep_millisecs", "0")?;
        ksm("pages_to_scan", "100")?;
        ksm("run", "1")?;
        Ok(Self(memory))
    }

    /// How long it has run, and waited for a CPU, in ns: what it wanted, as the kernel counts it.
    fn wanted() -> Result<f64, Box<dyn Error>> {
        let ksmd = fs::read_dir("/proc")?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == "ksmd\n"));
        let text = fs::read_to_string(ksmd.ok_or("no ksmd")?.join("schedstat"))?;
        let ns: Vec<f64> = text.split_whitespace().take(2).flat_map(str::parse).collect();
        Ok(ns.iter().sum())
    }
}

impl Drop for Ksm {
    fn drop(&mut self) {
        let _ = ksm("run", "0");
        self.0.clear();
    }
}

/// Kernel threads under user load have their own floor, and no more of the others' than that; and
/// nobody waits for ever.
pub(crate) fn run_kthreads() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    // This test has a queue of its own; q0 has next to nothing, and a busy thread in it.
    let (me, a, z) =
        (s.queue(NodeId::ROOT, 20_000)?, s.queue(NodeId::ROOT, 10_000)?, s.queue(NodeId::ROOT, 0)?);
    s.plane.0.tag(Target::Process(i32::try_from(process::id())?), me)?;
    // In its queue once it runs: a program's start is many short steps, and each would wait for its
    // turn.
    let mut pids = Vec::new();
    for _ in 0..4 {
        pids.push(load.hog(&mut s.plane.0, me)?);
    }
    thread::sleep(Duration::from_secs(1));
    for (pid, queue) in pids.into_iter().zip([a, a, z, NodeId::Q0]) {
        s.plane.0.tag(Target::Process(pid), queue)?;
    }
    s.apply(vec![Op::Reweight { id: NodeId::Q0, weight: weight(1) }])?;
    let busy = Ksm::start()?;
    thread::sleep(Duration::from_secs(1));
    let (start, before, counted) = (Instant::now(), s.plane.0.sample()?, s.plane.0.counters());
    let had = Ksm::wanted()?;
    // Longer than the kernel bears with a thread that waits.
    let mut seconds = Vec::new();
    for _ in 0..36 {
        thread::sleep(Duration::from_secs(1));
        seconds.push(s.plane.0.counters().kernel_threads_ns);
    }
    let (after, time) = (s.plane.0.sample()?, start.elapsed().as_nanos() as f64);
    let kernel = (s.plane.0.counters().kernel_threads_ns - counted.kernel_threads_ns) as f64;
    s.health("36 s of load beside a q0 of weight 1 in 10000")?;
    let wanted = (Ksm::wanted()? - had) / time;
    let begins = iter::once(counted.kernel_threads_ns).chain(seconds.iter().copied());
    let each: Vec<_> = begins
        .zip(&seconds)
        .map(|(begin, end)| format!("{:.0}", (end - begin) as f64 / 1e6))
        .collect();
    // 5 % of the time, and what the bucket holds at once (20 ms) and a step at the ends.
    check(
        (kernel - 0.05 * time).abs() <= 26e6,
        &format!(
            "kernel threads that could use all of the CPU get their floor: {:.2} % of it, ksmd \
             wanted {:.1}; ms in each second: {}",
            kernel / time * 100.0,
            wanted * 100.0,
            each.join(" ")
        ),
    );
    let got = |id| (service(&after, id) - service(&before, id)) as f64 / 1e6;
    check(
        got(a) / time * 1e6 > 0.93,
        &format!("and the others what is left: {:.2} %", got(a) / time * 1e8),
    );
    // Who waited for 5 s has a step of 4 ms.
    let q0 = got(NodeId::Q0) - kernel / 1e6;
    check(q0 >= 5.0 * 4.0, &format!("a busy thread in q0 is not forgotten: {q0:.1} ms in 36 s"));
    check(
        got(z) >= 5.0 * 4.0,
        &format!("nor one of weight 0, in the background: {:.1} ms in 36 s", got(z)),
    );
    drop(busy);
    Ok(())
}
