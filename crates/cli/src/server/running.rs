// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server's processes: whether they have the module, and who its workers are.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Kind;
use crate::doctor::{Check, Verdict, check};

/// One that serves requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Worker {
    pub pid: i32,
    pub user: String,
}

/// What runs of a server with this configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Running {
    /// Processes that no other of the server's started: with the module, and without it.
    with: Vec<i32>,
    without: Vec<i32>,
    /// Of one with the module.
    pub worker: Option<Worker>,
}

impl Running {
    pub(super) fn check(&self, kind: &Kind) -> Check {
        let verdict = |verdict, found: String, means: Option<String>| {
            check("running", verdict, found, means.as_deref())
        };
        let pids = |of: &[i32]| of.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        if !self.without.is_empty() {
            let found = format!("process {} has not loaded the module", pids(&self.without));
            return verdict(Verdict::Missing, found, Some(kind.reload.to_owned()));
        }
        if self.with.is_empty() {
            let means = "the rights of its user are not looked at";
            return verdict(Verdict::Note, "no".to_owned(), Some(means.to_owned()));
        }
        let user = self.worker.as_ref().map(|worker| format!(", requests by {}", worker.user));
        let found = format!("process {}, with the module", pids(&self.with));
        verdict(Verdict::Ok, found + &user.unwrap_or_default(), None)
    }
}

struct Process {
    parent: i32,
    uid: u32,
    words: String,
    maps: String,
}

fn process(pid: i32, kind: &Kind) -> Option<Process> {
    let read = |file: &str| {
        fs::read(format!("/proc/{pid}/{file}"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let comm = read("comm").ok()?;
    let version = |rest: &str| rest.chars().all(|sign| sign.is_ascii_digit() || sign == '.');
    if !kind.processes.iter().any(|name| comm.trim_end().strip_prefix(name).is_some_and(version)) {
        return None;
    }
    let status = read("status").ok()?;
    let number = |key: &str| -> Option<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(Process {
        parent: i32::try_from(number("PPid:")?).ok()?,
        uid: number("Uid:")?,
        words: read("cmdline").ok()?.replace('\0', " "),
        maps: read("maps").ok()?,
    })
}

/// Servers that the caller has started, in his own name space of processes: anybody can call a
/// program like the server, and would be the user whom the caller is told to allow something.
pub(super) fn find(kind: &Kind, config: Option<&Path>) -> Running {
    let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let here = space("self");
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: BTreeMap<i32, Process> = pids
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| space(&pid.to_string()) == here)
        .filter_map(|pid| Some((pid, process(pid, kind)?)))
        .collect();
    sort_out(&all, kind, config, nix::unistd::getuid().as_raw())
}

fn sort_out(
    all: &BTreeMap<i32, Process>,
    kind: &Kind,
    config: Option<&Path>,
    caller: u32,
) -> Running {
    let ours = |words: &str| match config {
        Some(file) => words.contains(&*file.to_string_lossy()),
        None => !words.contains(&format!(" {} ", kind.option)),
    };
    let mut found = Running::default();
    for (pid, one) in all.iter().filter(|(_, one)| !all.contains_key(&one.parent)) {
        if one.uid != caller || !ours(&one.words) {
            continue;
        }
        if one.maps.contains(kind.module) {
            found.with.push(*pid);
        } else {
            found.without.push(*pid);
        }
    }
    let worker = all.iter().find(|(_, one)| found.with.contains(&one.parent));
    found.worker = worker.map(|(pid, one)| {
        let uid = nix::unistd::Uid::from_raw(one.uid);
        let user = nix::unistd::User::from_uid(uid).ok().flatten();
        Worker { pid: *pid, user: user.map_or(one.uid.to_string(), |user| user.name) }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::super::NGINX;
    use super::*;

    fn one(parent: i32, words: &str, maps: &str) -> Process {
        Process { parent, uid: 0, words: words.to_owned(), maps: maps.to_owned() }
    }

    #[test]
    fn a_server_of_another_configuration_is_not_ours() {
        let module = "7f00 r-xp /usr/lib/ngx_http_reserv_module.so";
        let all = BTreeMap::from([
            (10, one(1, "nginx: master process /usr/sbin/nginx", module)),
            (11, one(10, "nginx: worker process", module)),
            (20, one(1, "nginx: master process /usr/sbin/nginx -c /other.conf", "")),
            (21, one(20, "nginx: worker process", "")),
            (30, Process { uid: 1000, ..one(1, "nginx", "") }),
            (31, Process { uid: 1000, ..one(30, "nginx", module) }),
        ]);
        let found = sort_out(&all, &NGINX, None, 0);
        assert_eq!((&found.with[..], found.without.len()), (&[10][..], 0));
        assert_eq!(found.worker.as_ref().map(|worker| worker.pid), Some(11));
        assert_eq!(found.check(&NGINX).verdict, Verdict::Ok);
        let other = sort_out(&all, &NGINX, Some(Path::new("/other.conf")), 0);
        assert_eq!((other.with.len(), &other.without[..]), (0, &[20][..]));
        assert_eq!(other.worker, None);
        assert_eq!(other.check(&NGINX).verdict, Verdict::Missing);
        let none = sort_out(&all, &NGINX, Some(Path::new("/third.conf")), 0);
        assert_eq!(none.check(&NGINX).verdict, Verdict::Note);
        let of_a_user = sort_out(&all, &NGINX, None, 1000);
        assert_eq!((of_a_user.with.len(), &of_a_user.without[..]), (0, &[30][..]));
    }
}
