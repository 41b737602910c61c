// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads: their queue, and what they ask of its class.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::Path;

use crate::calls::{self, CHCPURES, GETCPURES, GETPARAM, SETPARAM, ThreadParam};
use crate::descriptor::{by_index, open_at};
use crate::error::{Error, Result};
use crate::files::Attempt;
use crate::place::{self, Place};

/// The resource whose queues threads are tagged with.
const CPU: &str = "cpu";
const CPU_NUMBER: u64 = 0;

/// What a thread asks of its queue's class; 0: not set. This is `struct reserv_params`, which grows
/// at its end (`sized.rs`): write it with `..Params::default()`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// In thousandths.
    pub weight: u32,
    /// 1 to 100, higher first.
    pub priority: u32,
    /// Of a periodic thread.
    pub period_ns: u64,
    /// What it needs in each period.
    pub budget_ns: u64,
    /// From the beginning of a period; 0: its end.
    pub deadline_ns: u64,
}

/// As borrowed.rs says.
pub(crate) fn chcpures(queue: RawFd) -> Result<()> {
    let Err(e) = calls::number(queue, CHCPURES, 0) else { return Ok(()) };
    if !calls::is_open(queue) {
        return Err(Error::new(libc::EBADF, format!("descriptor {queue} is not open")));
    }
    let place = Place::find()?;
    let handle = place.tagging(queue)?;
    let node = place.path_of(CPU_NUMBER, |h| h.id == handle.id);
    let Some(node) = node.filter(|_| e.raw_os_error() != Some(libc::ESTALE)) else {
        if handle.resource != CPU_NUMBER {
            return Err(Error::new(
                libc::EINVAL,
                format!("descriptor {queue} is of a queue that is no queue of {CPU}"),
            ));
        }
        if e.raw_os_error() == Some(libc::EACCES) {
            return Err(Error::new(
                libc::EACCES,
                format!("descriptor {queue}: no right to use its queue"),
            ));
        }
        let text = format!("descriptor {queue}: the queue is gone{}", place::or_hidden());
        return Err(Error::new(libc::ESTALE, text));
    };
    match e.raw_os_error() {
        Some(libc::EINVAL) => join(&place, &node, &own_thread(&place)),
        Some(libc::EAGAIN) => Err(Error::new(
            libc::EAGAIN,
            format!("{node} has as many members as it may have, or drains"),
        )),
        Some(libc::EBADF) => Err(Error::new(
            libc::EBADF,
            format!(
                "descriptor {queue} of {node} was opened with O_PATH or for writing alone; open it for reading"
            ),
        )),
        Some(libc::EACCES) => {
            Err(Error::new(libc::EACCES, format!("{node}: no right to use this queue")))
        }
        _ => Err(Error::of(&node, &e)),
    }
}

/// As [`chcpures`](crate::chcpures), by the queue's path.
pub fn chcpures_path(queue: impl AsRef<Path>) -> Result<()> {
    let place = Place::find()?;
    let node = place.node(queue)?;
    if !place.way.asks_the_daemon() {
        return chcpures(open_at(&place, &node)?.as_raw_fd());
    }
    match join(&place, &node, &own_thread(&place)) {
        // A number means another thread where reservd runs: in another pid name space.
        Err(e) if e.errno() == libc::EACCES && calls::gettid() != calls::getpid() => {
            chcpures(open_at(&place, &node)?.as_raw_fd())
        }
        done => done,
    }
}

/// What `members` calls the calling thread: who writes to the file is known by the kernel, and who
/// connected to the socket is the process's first thread.
fn own_thread(place: &Place) -> String {
    if place.way.asks_the_daemon() && calls::gettid() != calls::getpid() {
        format!("tid {}", calls::gettid())
    } else {
        "tid self".to_owned()
    }
}

/// A write to `members`.
fn join(place: &Place, node: &str, who: &str) -> Result<()> {
    place.write(&format!("{node}/members"), who).map_err(|e| {
        if e.raw_os_error() == Some(libc::ENOENT) && place.has(node, "newqueue") {
            return Error::new(
                libc::EINVAL,
                format!("{node} is a scheduler node; only queues have members"),
            );
        }
        place.explain(&Attempt::writing(node, "members", who), &e)
    })
}

/// The calling thread's queue.
pub fn cpures() -> Result<String> {
    let place = Place::find()?;
    match hook(&place, GETCPURES) {
        Ok(index) => by_index(&place, CPU_NUMBER, i64::from(index) - 1),
        Err(_) => Ok(place.shown(&member(&place)?.0)),
    }
}

/// A command that any descriptor of /reserv will do for.
fn hook(place: &Place, command: i32) -> io::Result<i32> {
    let root = OpenOptions::new().read(true).open(&place.root)?;
    calls::number(root.as_raw_fd(), command, 0)
}

/// Where the files say that the calling thread is, with its line there; `q0` shows no members. The
/// queue that it is in is listed, and shows it at least its own line.
fn member(place: &Place) -> Result<(String, String)> {
    let own = format!("tid {} ", calls::gettid());
    let line = |text: &str| text.lines().find(|l| l.starts_with(&own)).map(str::to_owned);
    let mut found = None;
    let mut todo = vec![CPU.to_owned()];
    while let (Some(dir), None) = (todo.pop(), &found) {
        let children = place
            .children(&dir)
            .map_err(|e| place.explain(&Attempt::reading(&dir, "its nodes"), &e))?;
        for (name, _) in children {
            let node = format!("{dir}/{name}");
            match place.read(&format!("{node}/members")) {
                Ok(text) => found = found.or_else(|| line(&text).map(|line| (node, line))),
                // A scheduler node; or it went meanwhile.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => {
                    todo.push(node);
                }
                // Of others, it is seen that they are there, and no more: this thread is not in
                // them.
                Err(e) if e.raw_os_error() == Some(libc::EACCES) => {}
                Err(e) => return Err(place.explain(&Attempt::reading(&node, "members"), &e)),
            }
        }
        todo.retain(|node| place.way.is_dir(node));
    }
    Ok(found.unwrap_or_else(|| (format!("{CPU}/q0"), String::new())))
}

/// Tags a process, with all its threads.
pub fn tag(queue: impl AsRef<Path>, pid: i32) -> Result<()> {
    let place = Place::find()?;
    join(&place, &place.node(queue)?, &whom(pid)?.to_string())
}

/// Tags one thread.
pub fn tag_thread(queue: impl AsRef<Path>, tid: i32) -> Result<()> {
    let place = Place::find()?;
    join(&place, &place.node(queue)?, &format!("tid {}", whom(tid)?))
}

fn whom(id: i32) -> Result<i32> {
    if id > 0 {
        Ok(id)
    } else {
        Err(Error::new(libc::EINVAL, format!("{id} is no process or thread")))
    }
}

/// Sets what the calling thread asks of its queue's class, all of it.
pub fn set_params(params: &Params) -> Result<()> {
    let place = Place::find()?;
    let root = root(&place)?;
    let mut param = ThreadParam::new();
    (param.weight, param.priority) = (params.weight, params.priority);
    (param.period_ns, param.budget_ns) = (params.period_ns, params.budget_ns);
    param.deadline_ns = params.deadline_ns;
    let Err(e) = calls::param(root.as_raw_fd(), SETPARAM, &mut param) else { return Ok(()) };
    match e.raw_os_error() {
        Some(libc::EINVAL)
            if calls::param(root.as_raw_fd(), GETPARAM, &mut ThreadParam::new()).is_err() =>
        {
            // The hook is not there: the file knows the same parameters.
            join(&place, &member(&place)?.0, &format!("{} {}", own_thread(&place), text_of(params)))
        }
        Some(libc::EINVAL) => Err(Error::new(libc::EINVAL, wrong(params))),
        Some(libc::ENOSPC) => {
            let text = "the thread's queue is not guaranteed what all its budgets need: ask for less, or raise its share";
            Err(Error::new(libc::ENOSPC, text))
        }
        Some(libc::EACCES) => {
            let text = "a weight above that of the thread's nice value, a priority above 50, or a period in a queue that it may not use: root's to give";
            Err(Error::new(libc::EACCES, text))
        }
        _ => Err(Error::of("the thread's parameters", &e)),
    }
}

fn root(place: &Place) -> Result<std::fs::File> {
    OpenOptions::new().read(true).open(&place.root).map_err(|e| Error::of(place.root.display(), &e))
}

/// What the calling thread asks of its queue's class.
pub fn get_params() -> Result<Params> {
    let place = Place::find()?;
    let mut param = ThreadParam::new();
    if calls::param(root(&place)?.as_raw_fd(), GETPARAM, &mut param).is_ok() {
        return Ok(Params {
            weight: param.weight,
            priority: param.priority,
            period_ns: param.period_ns,
            budget_ns: param.budget_ns,
            deadline_ns: param.deadline_ns,
        });
    }
    Ok(params_in(&member(&place)?.1))
}

/// As `members` takes them.
fn text_of(params: &Params) -> String {
    let mut out = String::new();
    let Params { weight, priority, .. } = *params;
    if weight > 0 {
        let _ = write!(out, "weight {}.{:03} ", weight / 1000, weight % 1000);
    }
    if priority > 0 {
        let _ = write!(out, "priority {priority} ");
    }
    for (key, ns) in [
        ("period", params.period_ns),
        ("budget", params.budget_ns),
        ("deadline", params.deadline_ns),
    ] {
        if ns > 0 {
            let _ = write!(out, "{key} {ns}ns ");
        }
    }
    if out.is_empty() { "default".to_owned() } else { out.trim_end().to_owned() }
}

/// As `members` prints them: `tid 1 pid 1 weight 2 period 33ms budget 10ms`.
fn params_in(line: &str) -> Params {
    let mut params = Params::default();
    let mut words = line.split_whitespace();
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        match key {
            "weight" => {
                params.weight = scaled(value, 3).and_then(|n| n.try_into().ok()).unwrap_or(0);
            }
            "priority" => params.priority = value.parse().unwrap_or(0),
            "period" => params.period_ns = duration(value),
            "budget" => params.budget_ns = duration(value),
            "deadline" => params.deadline_ns = duration(value),
            _ => {}
        }
    }
    params
}

/// A decimal number times 10^`places`.
fn scaled(text: &str, places: usize) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part = format!("{part:0<places$}");
    format!("{whole}{}", part.get(..places)?).parse().ok()
}

/// `33ms` in ns.
fn duration(text: &str) -> u64 {
    let units = [("ns", 0), ("us", 3), ("ms", 6), ("s", 9)];
    let number =
        units.into_iter().find_map(|(unit, places)| scaled(text.strip_suffix(unit)?, places));
    number.unwrap_or(0)
}

/// Which of the rules of `F_RESERV_SETPARAM` (bpf/abi.h) is broken: the kernel says only that one
/// is.
fn wrong(params: &Params) -> String {
    let Params { weight, priority, period_ns: period, budget_ns: budget, deadline_ns: deadline } =
        *params;
    let (ms, s) = (1_000_000, 1_000_000_000);
    let end = if deadline > 0 { deadline } else { period };
    if weight > 1_000_000_000 {
        format!("weight {weight}: at most 1000000000 thousandths")
    } else if priority > 100 {
        format!("priority {priority}: at most 100")
    } else if period == 0 && budget > 0 {
        format!("budget_ns {budget} without period_ns")
    } else if period == 0 && deadline > 0 {
        format!("deadline_ns {deadline} without period_ns")
    } else if period > 0 && !(ms..=10 * s).contains(&period) {
        format!("period_ns {period}: 1 ms to 10 s")
    } else if period > 0 && deadline > 0 && !(ms..=period).contains(&deadline) {
        format!("deadline_ns {deadline}: 1 ms to the period, {period}")
    } else if period > 0 && !(10_000..=end).contains(&budget) {
        format!("budget_ns {budget}: 10 us to the deadline, {end}")
    } else {
        "the thread's parameters are out of range".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_text_and_back() {
        let all = Params {
            weight: 2500,
            priority: 7,
            period_ns: 33_000_000,
            budget_ns: 10_000_000,
            deadline_ns: 20_000_000,
        };
        assert_eq!(
            text_of(&all),
            "weight 2.500 priority 7 period 33000000ns budget 10000000ns deadline 20000000ns"
        );
        assert_eq!(params_in(&format!("tid 8 pid 7 {}", text_of(&all))), all);
        let line = "tid 8 pid 7 weight 2.5 priority 7 period 33ms budget 0.01s deadline 20000us";
        assert_eq!(params_in(line), all);
        assert_eq!(text_of(&Params::default()), "default");
        assert_eq!(params_in("tid 8 pid 7"), Params::default());
        assert_eq!((duration("100ns"), duration("1.5s"), duration("x")), (100, 1_500_000_000, 0));
    }

    #[test]
    fn the_wrong_parameter_is_named() {
        let p = Params::default();
        let ms = 1_000_000;
        for (params, word) in [
            (Params { weight: u32::MAX, ..p }, "weight 4294967295"),
            (Params { priority: 101, ..p }, "priority 101"),
            (Params { budget_ns: ms, ..p }, "without period"),
            (Params { deadline_ns: ms, ..p }, "without period"),
            (Params { period_ns: 5, ..p }, "period_ns 5"),
            (Params { period_ns: 9 * ms, deadline_ns: 10 * ms, ..p }, "deadline_ns 10000000"),
            (Params { period_ns: 9 * ms, ..p }, "budget_ns 0"),
            (
                Params { period_ns: 9 * ms, budget_ns: 5 * ms, deadline_ns: 4 * ms, ..p },
                "budget_ns 5000000",
            ),
        ] {
            assert!(wrong(&params).contains(word), "{}", wrong(&params));
        }
    }
}
