// SPDX-License-Identifier: MIT OR Apache-2.0
//! `allow`, `deny`, `access`, `why`: who may do what, at a node or at all nodes of a container.

use reserv_model::{Right, Rights};
use serde::Serialize;

use crate::args::{Allow, Deny};
use crate::container;
use crate::edit::Change;
use crate::error::{Error, Kind};
use crate::fs::{Files, explain, missing, writing};
use crate::path::NodePath;

/// `alice`, `1000`, `group:www`, `pid:4711`, `everyone`, or several with `+` between them, in the
/// words of the access file.
fn party(text: &str) -> Result<String, Error> {
    if text == "everyone" {
        return Ok(text.to_owned());
    }
    let unknown = |what: &str, name: &str| Error::usage(format!("there is no {what} '{name}'"));
    let mut words = Vec::new();
    for part in text.split('+') {
        let (kind, name) = part.split_once(':').unwrap_or(("user", part));
        let number = name.parse::<u32>().ok();
        words.push(match kind {
            "user" | "uid" => {
                let known =
                    || nix::unistd::User::from_name(name).ok().flatten().map(|u| u.uid.as_raw());
                format!("uid {}", number.or_else(known).ok_or_else(|| unknown("user", name))?)
            }
            "group" | "gid" => {
                let known =
                    || nix::unistd::Group::from_name(name).ok().flatten().map(|g| g.gid.as_raw());
                format!("gid {}", number.or_else(known).ok_or_else(|| unknown("group", name))?)
            }
            "pid" => format!("pid {}", number.ok_or_else(|| unknown("process", name))?),
            _ => {
                return Err(Error::usage(format!("'{part}' names no user, group or process"))
                    .hint(
                        "everyone, a user, group:NAME or pid:N, or several with + between them",
                    ));
            }
        });
    }
    Ok(words.join(" "))
}

fn rights(text: &str) -> Result<Rights, Error> {
    text.parse().map_err(|e: reserv_model::Error| Error::usage(e.context).hint(e.hint))
}

/// Whether there is such a node or container.
fn there(files: &dyn Files, path: &NodePath) -> Result<(), Error> {
    if path.is_container() {
        return container::has_files(files, path);
    }
    missing(files, path).map_or(Ok(()), Err)
}

/// One line into the access file, and what the file says then.
fn write(files: &dyn Files, path: &NodePath, line: &str) -> Result<Change, Error> {
    there(files, path)?;
    let file = path.file("access");
    let shown =
        || files.read(&file).map(|text| text.trim_end().replace('\n', "; ")).unwrap_or_default();
    let old = shown();
    files.write(&file, line).map_err(|e| {
        explain(files, path, &format!("access '{line}'"), &writing(path, "access"), &e)
    })?;
    Ok(Change { path: path.clone(), key: "access".to_owned(), old, new: shown() })
}

/// Let somebody do something at a node and below it.
pub(crate) fn allow(files: &dyn Files, args: &Allow) -> Result<Change, Error> {
    let path = NodePath::parse(&args.path, files.place())?;
    let quota = args.quota.map_or_else(String::new, |quota| format!(" quota {quota}"));
    write(files, &path, &format!("allow {} {}{quota}", party(&args.who)?, rights(&args.rights)?))
}

/// Refuse it, whatever else stands; who is not root takes back what he allowed.
pub(crate) fn deny(files: &dyn Files, args: &Deny) -> Result<Change, Error> {
    let path = NodePath::parse(&args.path, files.place())?;
    let verb = if args.take_back || !nix::unistd::geteuid().is_root() { "remove" } else { "deny" };
    let tags = if args.fall { " tags fall" } else { "" };
    write(files, &path, &format!("{verb} {} {}{tags}", party(&args.who)?, rights(&args.rights)?))
}

/// One right of a process at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answer {
    /// `use`, `create`, `modify`, `grant`, `delete` or `read`.
    right: String,
    allowed: bool,
    /// The rule that decides.
    why: String,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let answer = if self.allowed { "yes" } else { "no" };
        write!(f, "{:<7} {answer:<4} {}", self.right, self.why)
    }
}

/// What a process may do at a node, and which rule says so: from its domain, where the line of the
/// nearest node upwards holds.
pub(crate) fn why(files: &dyn Files, pid: i32, path: &str) -> Result<Vec<Answer>, Error> {
    let path = NodePath::parse(path, files.place())?;
    there(files, &path)?;
    let text = files.read(&format!("proc/{pid}/domain")).map_err(|e| {
        let gone = matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESTALE | libc::ESRCH));
        if gone {
            Error::new(Kind::NotFound, format!("no process {pid}"))
        } else {
            Error::io(format!("process {pid}"), &e)
        }
    })?;
    let paths = if path.is_container() { container::nodes(files, &path)? } else { vec![path] };
    let everywhere = |right: Right| {
        let mut all = paths.iter().filter_map(|path| decide(&text, path, right.word()));
        let first = all.next()?;
        // Of a container one refusal is enough.
        Some(all.fold(first, |found, next| if found.allowed { next } else { found }))
    };
    Ok(Right::ALL.into_iter().filter_map(everywhere).collect())
}

/// Whether one of these rights is there.
pub(crate) fn allowed(answers: &[Answer], right: &str) -> bool {
    answers.iter().any(|answer| answer.right == right && answer.allowed)
}

/// One entry that holds at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    /// Where it stands: the node, or one above it.
    path: NodePath,
    /// As it is written.
    entry: String,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.entry)
    }
}

/// The entries that hold at a node or a container: the nearest first.
pub(crate) fn list(files: &dyn Files, path: &str) -> Result<Vec<Entry>, Error> {
    let path = NodePath::parse(path, files.place())?;
    there(files, &path)?;
    let mut found = Vec::new();
    let mut at = Some(path.clone());
    while let Some(here) = at {
        // What holds those without a parent has no list.
        if here.is_container() && here.is_resource() {
            break;
        }
        match files.read(&here.file("access")) {
            Ok(text) => found.extend(
                text.lines().map(|line| Entry { path: here.clone(), entry: line.to_owned() }),
            ),
            // Who may read a node need not see what is above it.
            Err(e) if here != path && e.raw_os_error() == Some(libc::EACCES) => {}
            Err(e) => return Err(explain(files, &here, "its access list cannot be read", "", &e)),
        }
        at = here.parent();
    }
    Ok(found)
}

/// What is said to who does not see all of a node and what is below it; `None` where he does.
pub(crate) fn partly(files: &dyn Files, paths: &[NodePath]) -> Option<String> {
    let euid = nix::unistd::geteuid();
    if euid.is_root() {
        return None;
    }
    let domain = files.read("self/domain").ok()?;
    let hidden: Vec<&str> =
        paths.iter().filter(|path| !reads(&domain, path)).map(NodePath::as_str).collect();
    let first = hidden.first()?;
    let user =
        nix::unistd::User::from_uid(euid).ok().flatten().map_or(euid.to_string(), |user| user.name);
    Some(format!(
        "of {} only your part is shown and the totals above it; root opens the rest: reserv allow {user} read {first}",
        hidden.join(", ")
    ))
}

/// Whether a domain lets everything be read at a node and below it.
fn reads(domain: &str, path: &NodePath) -> bool {
    let below =
        |line: &str| line.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('/'));
    let denied = || {
        domain.lines().any(|line| {
            below(line)
                && line.split(' ').nth(2) == Some("no")
                && line.split(' ').nth(1) == Some("read")
        })
    };
    decide(domain, path, Right::Read.word()).is_some_and(|answer| answer.allowed) && !denied()
}

fn decide(domain: &str, path: &NodePath, right: &str) -> Option<Answer> {
    let lines = domain.lines().filter_map(|line| {
        let mut words = line.splitn(4, ' ');
        Some((words.next()?, words.next()?, words.next()?, words.next()?))
    });
    let holds = |at: &str, why: &str| {
        let here = path.as_str() == at;
        let above = path.as_str().strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
        // What is so for one node only is not inherited; its children have lines of their own then.
        here || above && why != "he made it"
    };
    let nearest = lines
        .filter(|(at, word, _, why)| *word == right && holds(at, why))
        .max_by_key(|(at, ..)| at.len())?;
    let (_, word, answer, why) = nearest;
    Some(Answer { right: word.to_owned(), allowed: answer == "yes", why: why.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_people_name() {
        assert_eq!(party("everyone").unwrap(), "everyone");
        assert_eq!(party("root").unwrap(), "uid 0");
        assert_eq!(party("1000+gid:5+pid:77").unwrap(), "uid 1000 gid 5 pid 77");
        for bad in ["", "no-such-user-here", "pid:x", "tid:5", "group:", "uid:-1"] {
            assert!(party(bad).is_err(), "{bad}");
        }
        assert!(rights("use,create").is_ok() && rights("use,").is_err());
        assert!(rights("read").is_ok() && rights("look").is_err());
    }

    #[test]
    fn the_nearest_line_decides() {
        let domain = "cpu use no no entry allows it\ncpu/web use yes cpu/web: allow uid 5 use\ncpu/web/x use no cpu/web/x: deny uid 5 use\n\
                      cpu/web/s modify yes he made it\ncpu modify no no entry allows it\n";
        let at = |path: &str, right| {
            decide(domain, &NodePath::parse(path, &crate::fs::fake::place()).unwrap(), right)
                .unwrap()
        };
        assert!(
            !at("cpu", "use").allowed && at("web", "use").allowed && at("web/y/z", "use").allowed
        );
        assert!(
            !at("web/x", "use").allowed
                && !at("web/x/y", "use").allowed
                && !at("webs", "use").allowed
        );
        assert!(at("web/s", "modify").allowed && !at("web/s/t", "modify").allowed);
        let sees = |domain: &str, path: &str| {
            reads(domain, &NodePath::parse(path, &crate::fs::fake::place()).unwrap())
        };
        let rules = "cpu read no no entry allows it\ncpu/web read yes cpu/web: allow uid 5 use\ncpu/web/x read no cpu/web/x: deny uid 5 read\n";
        assert!(
            !sees(rules, "cpu")
                && !sees(rules, "web")
                && sees(rules, "web/y")
                && !sees(rules, "web/x")
        );
        assert!(!sees("", "cpu") && sees("cpu read yes cpu: allow everyone read\n", "web"));
        assert_eq!(at("web/x", "use").why, "cpu/web/x: deny uid 5 use");
        assert_eq!(
            decide(domain, &NodePath::parse("web", &crate::fs::fake::place()).unwrap(), "grant"),
            None
        );
    }
}
