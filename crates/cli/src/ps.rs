// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ps`: in which queues processes are, and by which rule.
//!
//! Where the threads of a process are, the queues' lists of members say, and which queue of each
//! other resource it uses, its list of defaults. Which rule put it there only the daemon knows, who
//! tells root.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;

use reserv_control::Command;
use serde::Serialize;
use serde_json::Value;

use crate::args::Ps;
use crate::control::Control;
use crate::error::{Error, Kind};
use crate::fs::{Files, gone, missing};
use crate::paint::{cut, table};
use crate::path::NodePath;

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pid: i32,
    uid: u32,
    command: String,
    /// One for each resource; of the CPU one for each queue that threads of it are in. Empty where
    /// the caller may not know.
    queues: Vec<NodePath>,
    /// How many of its threads are in which queue, where some are in another than q0.
    threads: BTreeMap<String, usize>,
    /// The number of the rule that put it into its queues; none: by hand, or as its parent.
    rule: Option<u64>,
}

/// What is shown, and a word on what is not.
pub(crate) struct Shown {
    pub(crate) rows: Vec<Row>,
    /// A part is hidden from the caller.
    pub(crate) hidden: Option<String>,
}

/// By process, how many of its threads are in which queue of the CPU.
type Inside = BTreeMap<i32, BTreeMap<String, usize>>;

/// A number of a line of a list of members, by the word before it.
pub(crate) fn number(line: &str, key: &str) -> Option<i32> {
    line.split_ascii_whitespace().skip_while(|word| *word != key).nth(1)?.parse().ok()
}

/// Threads of each process by the queue of the CPU that they are in; whether some are hidden.
fn members(files: &dyn Files) -> Result<(Inside, bool), Error> {
    let mut found = Inside::new();
    let mut hidden = false;
    gather(files, &NodePath::parse("cpu", files.place())?, &mut found, &mut hidden)?;
    Ok((found, hidden))
}

/// The same of a node and what is below it. A queue that is not read is one whose members would be
/// taken for q0's: what is gone has none, what is hidden is told, all else is an error.
fn gather(
    files: &dyn Files,
    node: &NodePath,
    found: &mut Inside,
    hidden: &mut bool,
) -> Result<(), Error> {
    let mut failed = |e: std::io::Error| match e.raw_os_error() {
        Some(libc::EACCES) => {
            *hidden = true;
            Ok(())
        }
        _ if gone(&e) => Ok(()),
        _ => Err(Error::io(format!("{node}: where processes are"), &e)),
    };
    let text = files.read(&node.file("members")).or_else(|e| failed(e).map(|()| String::new()))?;
    let below = files.list(node.as_str()).map(|listing| listing.dirs);
    let below = below.or_else(|e| failed(e).map(|()| Vec::new()))?;
    for line in text.lines() {
        if let Some(pid) = number(line, "pid") {
            *found.entry(pid).or_default().entry(node.as_str().to_owned()).or_default() += 1;
        }
    }
    below.iter().try_for_each(|name| gather(files, &node.join(name), found, hidden))
}

/// The queues of a process's list of defaults, one for each resource.
fn defaults(files: &dyn Files, pid: i32) -> Result<Vec<NodePath>, std::io::Error> {
    let text = files.read(&format!("proc/{pid}/default"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let words = lines.flat_map(str::split_ascii_whitespace);
    Ok(words.filter_map(|word| NodePath::parse(word, files.place()).ok()).collect())
}

/// Which rule put which process into which queue: known to root. `Err`: why that is not told.
fn rules() -> Result<BTreeMap<i32, (u64, String)>, String> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(BTreeMap::new());
    }
    let answer = Control::need().and_then(|mut c| c.ask::<Value>(&Command::Rules {}));
    let answer = answer.map_err(|e| e.to_string())?;
    let applied = answer["applied"].as_object().ok_or("the CPU's tree is busy; ask again")?;
    let one = |put: &Value| Some((put[0].as_u64()?, put[1].as_str()?.to_owned()));
    Ok(applied.iter().filter_map(|(pid, put)| Some((pid.parse().ok()?, one(put)?))).collect())
}

/// Who a process is, without what another could make wait: no file of its memory.
fn who(pid: i32) -> Option<(u32, String)> {
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    Some((uid, command(pid)?))
}

/// A process's name, as it may be shown.
pub(crate) fn command(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().replace(char::is_control, "?"))
}

fn living() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The command.
pub(crate) fn ps(files: &dyn Files, args: &Ps) -> Result<Shown, Error> {
    let (mut pids, mut paths) = (BTreeSet::new(), Vec::new());
    for word in &args.words {
        match word.parse::<i32>() {
            Ok(pid) if who(pid).is_some() => drop(pids.insert(pid)),
            Ok(pid) => {
                return Err(Error::new(Kind::NotFound, format!("there is no process {pid}")));
            }
            Err(_) => {
                let path = NodePath::parse(word, files.place())?;
                if let Some(error) = missing(files, &path) {
                    return Err(error);
                }
                paths.push(path);
            }
        }
    }
    let (inside, mut hidden) = members(files)?;
    hidden |= crate::access::partly(files, &NodePath::resources(files)).is_some();
    // Which queue nobody could read may be anybody's, whatever is found out below.
    let all_seen = !hidden;
    let mut failed = None;
    let (by, no_rules) = match rules() {
        Ok(by) => (by, None),
        Err(why) => {
            (BTreeMap::new(), Some(format!("which rule put them there is not told: {why}")))
        }
    };
    let of_cpu_only = NodePath::resources(files).len() == 1;
    let q0 = NodePath::parse("cpu/q0", files.place())?;
    let mut rows = Vec::new();
    let considered = if pids.is_empty() || !paths.is_empty() { living() } else { Vec::new() };
    for pid in considered.into_iter().chain(pids.iter().copied()).collect::<BTreeSet<_>>() {
        let Some((uid, command)) = who(pid) else { continue };
        let mut threads = inside.get(&pid).cloned().unwrap_or_default();
        let wanted = pids.contains(&pid);
        let mut queues = Vec::new();
        if wanted || !of_cpu_only {
            match defaults(files, pid) {
                Ok(all) => queues = all,
                Err(e) if e.raw_os_error() == Some(libc::EACCES) => hidden = true,
                // It has ended.
                Err(e) if gone(&e) || e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        // Threads are where they are, whatever new ones would get.
        if !threads.is_empty() {
            queues.retain(|queue| queue.resource() != "cpu");
            let of_cpu = threads
                .keys()
                .filter_map(|t| NodePath::parse(&format!("/reserv/{t}"), files.place()).ok());
            queues = of_cpu.chain(queues).collect();
        } else if all_seen {
            queues.retain(|queue| queue.resource() != "cpu");
            queues.insert(0, q0.clone());
        }
        if threads.len() == 1 {
            threads.clear();
        }
        let tagged = queues.iter().any(|queue| queue.name() != "q0");
        let below = |queue: &NodePath, path: &NodePath| {
            queue == path || queue.as_str().starts_with(&format!("{}/", path.as_str()))
        };
        let named = paths.iter().any(|path| queues.iter().any(|queue| below(queue, path)));
        if wanted || named || (args.words.is_empty() && (tagged || args.all)) {
            // Who was moved by hand since is not where the rule put him.
            let put =
                by.get(&pid).filter(|(_, at)| queues.iter().any(|queue| queue.as_str() == at));
            let rule = put.map(|(rule, _)| *rule);
            rows.push(Row { pid, uid, command, queues, threads, rule });
        }
    }
    rows.sort_by_cached_key(|row| {
        (row.queues.iter().map(ToString::to_string).collect::<Vec<_>>(), row.pid)
    });
    let hidden = hidden.then(|| "queues that you may not read are left out".to_owned());
    let failed = failed.map(|e| format!("of some processes only the CPU's queue is known: {e}"));
    let words: Vec<String> = hidden.into_iter().chain(failed).chain(no_rules).collect();
    let hidden = (!words.is_empty()).then(|| words.join("; "));
    Ok(Shown { rows, hidden })
}

/// For people, in a terminal of so many columns: what is too long is cut off at its end, where the
/// command is.
pub(crate) fn draw(rows: &[Row], width: Option<usize>) -> String {
    let mut cells = vec![["PID", "USER", "QUEUES", "RULE", "COMMAND"].map(str::to_owned).to_vec()];
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    for row in rows {
        let user = names.entry(row.uid).or_insert_with(|| {
            let found = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(row.uid));
            found.ok().flatten().map_or_else(|| row.uid.to_string(), |user| user.name)
        });
        let queue = |queue: &NodePath| match row.threads.get(queue.as_str()) {
            Some(threads) => format!("{queue} ({threads} of its threads)"),
            None => queue.to_string(),
        };
        let queues: Vec<String> = row.queues.iter().map(queue).collect();
        cells.push(vec![
            row.pid.to_string(),
            user.clone(),
            if queues.is_empty() { "?".to_owned() } else { queues.join(" ") },
            row.rule.map_or_else(|| "-".to_owned(), |rule| rule.to_string()),
            row.command.clone(),
        ]);
    }
    let lines = table(&[true, false, false, true, false], &cells);
    lines.iter().map(|line| cut(line, width) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::fake::Fake;

    fn shown(fake: &Fake, words: &[&str]) -> Vec<(i32, String)> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let rows = ps(fake, &Ps { words, all: false }).unwrap().rows;
        let queues =
            |row: &Row| row.queues.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        rows.iter().map(|row| (row.pid, queues(row))).collect()
    }

    #[test]
    fn processes_are_found_by_queue_and_by_number() {
        let me = i32::try_from(std::process::id()).unwrap();
        let fake = Fake::new();
        fake.node("cpu/web", true);
        for queue in ["cpu/web/a", "cpu/web/b", "cpu/c"] {
            fake.node(queue, false);
        }
        assert_eq!(shown(&fake, &[]), []);
        assert_eq!(shown(&fake, &[&me.to_string()]), [(me, "q0".to_owned())]);
        fake.put("cpu/web/a/members", &format!("tid {me} pid {me}\ntid 7 pid {me} weight 2"));
        assert_eq!(shown(&fake, &[]), [(me, "web/a".to_owned())]);
        assert_eq!(shown(&fake, &["web"]), [(me, "web/a".to_owned())]);
        assert_eq!(shown(&fake, &["c"]), []);
        fake.put("cpu/web/b/members", &format!("tid 8 pid {me}"));
        let rows = ps(&fake, &Ps { words: vec![me.to_string()], all: false }).unwrap().rows;
        let text = draw(&rows, None);
        assert!(text.contains("web/a (2 of its threads) web/b (1 of its threads)"), "{text}");
        let text = draw(&rows, Some(40));
        assert!(
            text.lines().all(|line| line.chars().count() <= 40) && text.contains('…'),
            "{text}"
        );
        // What cannot be read is not q0.
        std::fs::remove_file(fake.inner_path("cpu/web/a/members")).unwrap();
        assert_eq!(shown(&fake, &[&me.to_string()]), [(me, "web/b".to_owned())], "gone");
        fake.put("cpu/web/b/members", "");
        std::fs::create_dir(fake.inner_path("cpu/web/a/members")).unwrap();
        let error = ps(&fake, &Ps { words: vec![me.to_string()], all: false }).err().unwrap();
        assert!(error.message.contains("web/a"), "{error:?}");
        for (word, kind) in [("0", Kind::NotFound), ("nosuch", Kind::NotFound)] {
            let error = ps(&fake, &Ps { words: vec![word.into()], all: false }).err().unwrap();
            assert_eq!(error.kind, kind, "{word}");
        }
    }
}
