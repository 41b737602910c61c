// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mk`, `rm`, `set`, `mv`: changes of the tree. Each is whole or undone.

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use crate::args::{Mk, Rm};
use crate::error::{Error, Kind};
use crate::fs::{Files, explain, missing};
use crate::path::NodePath;

/// The keys of `set`, each with its file.
const KEYS: [(&str, &str); 6] = [
    ("share", "share"),
    ("cap", "cap"),
    ("class", "class"),
    ("policy", "policy"),
    ("gc", "gc"),
    ("tune", "tune"),
];

/// While it lives, an interrupt waits: an edit of several steps is finished or undone first.
struct Whole(SigSet);

impl Whole {
    fn begin() -> Self {
        let mut stop = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
            stop.add(signal);
        }
        let mut old = SigSet::empty();
        // Cannot fail: the how and the sets are valid. If it did, the edit would only be less protected.
        let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&stop), Some(&mut old));
        Self(old)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.0), None);
    }
}

/// Make a node. It gets its name last, so nobody sees it under its name before it has its share.
pub(crate) fn mk(files: &dyn Files, args: &Mk) -> Result<NodePath, Error> {
    let path = NodePath::parse(&args.path, files.mount())?;
    let parent = path
        .parent()
        .ok_or_else(|| Error::usage(format!("'{path}' is a resource; resources are there already")))?;
    if files.is_dir(path.as_str()) {
        return Err(Error::refused(format!("there is a node '{path}' already"))
            .hint(format!("change it with: reserv set {path} share={}", args.share)));
    }
    let opener = if args.sched { "newsched" } else { "newqueue" };
    let _whole = Whole::begin();
    let made = files.create(parent.as_str(), opener).map_err(|e| {
        let queue = files.read(&parent.file("class")).is_ok();
        if queue {
            Error::refused(format!("'{parent}' is a queue and has no children"))
                .hint(format!("make a scheduler node first: reserv mk --sched {parent}"))
        } else {
            explain(files, &parent, "cannot get a child", &e)
        }
    })?;
    let new = parent.join(&made);
    let mut values = vec![("share", Some(&args.share)), ("cap", args.cap.as_ref())];
    values.insert(0, ("class", args.class.as_ref()));
    values.insert(0, ("policy", args.policy.as_ref()));
    let finish = || -> Result<(), Error> {
        for (key, value) in &values {
            if let Some(value) = value {
                files
                    .write(&new.file(key), value)
                    .map_err(|e| refused(files, &path, &new, key, value, &e))?;
            }
        }
        if new != path {
            files
                .rename(new.as_str(), path.as_str())
                .map_err(|e| Error::io(format!("cannot make '{path}'"), &e))?;
        }
        Ok(())
    };
    finish().map_err(|error| undo(error, files.rmdir(new.as_str()).err(), &new))?;
    Ok(path)
}

fn undo(error: Error, failure: Option<std::io::Error>, left: &NodePath) -> Error {
    match failure {
        None => error,
        Some(e) => error.hint(format!("and '{left}' could not be removed again: {e}")),
    }
}

/// Why a value was not taken. `shown` is the path to print, `at` the node that has the file.
fn refused(
    files: &dyn Files,
    shown: &NodePath,
    at: &NodePath,
    key: &str,
    value: &str,
    source: &std::io::Error,
) -> Error {
    if let Some(error) = missing(files, at) {
        return error;
    }
    let mut error = Error::io(format!("{shown}: {key} '{value}'"), source);
    let errno = source.raw_os_error();
    if errno == Some(libc::ENOENT) {
        let kind = if files.read(&at.file("policy")).is_ok() { "a scheduler node" } else { "a queue" };
        error.message = format!("{shown} is {kind}, which has no {key}");
        error.kind = Kind::Refused;
    }
    if let Some(wrong) = wrong_value(key, value) {
        error.message = format!("{shown}: {key}: {wrong}");
        error.hint = (!wrong.hint.is_empty()).then_some(wrong.hint);
    } else if errno == Some(libc::EOPNOTSUPP) {
        error.hint = Some("'reserv doctor' says what each driver can do".to_owned());
    }
    error
}

/// What the grammar says about a value that was refused: an errno cannot say which word was wrong.
fn wrong_value(key: &str, value: &str) -> Option<reserv_model::Error> {
    use reserv_model::{Class, Error, ErrorKind, Policy, Share, parse_cap};
    match key {
        "share" => value.parse::<Share>().err(),
        "cap" => parse_cap(value).err(),
        "class" => value.parse::<Class>().err(),
        "policy" => value.parse::<Policy>().err(),
        "gc" if value != "0" && value != "1" => {
            Some(Error::new(ErrorKind::Invalid, format!("'{value}' is neither 0 nor 1")))
        }
        _ => None,
    }
}

/// One change that `set` made.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Change {
    /// Where.
    pub path: String,
    /// Which file.
    pub key: String,
    /// What it read before.
    pub old: String,
    /// What it reads now.
    pub new: String,
}

/// Change several nodes. If one change is refused, those before it are taken back.
pub(crate) fn set(files: &dyn Files, words: &[String]) -> Result<Vec<Change>, Error> {
    let (paths, changes) = understand(files, words)?;
    for path in &paths {
        if let Some(error) = missing(files, path) {
            return Err(error);
        }
    }
    let _whole = Whole::begin();
    let mut done: Vec<Change> = Vec::new();
    for path in &paths {
        for (key, file, value) in &changes {
            let name = path.file(file);
            let result = files.read(&name).and_then(|old| files.write(&name, value).map(|()| old));
            match result {
                Ok(old) => done.push(Change {
                    path: path.to_string(),
                    key: (*key).to_owned(),
                    old: old.trim_end().to_owned(),
                    new: files.read(&name).unwrap_or_default().trim_end().to_owned(),
                }),
                Err(e) => {
                    let error = refused(files, path, path, key, value, &e);
                    return Err(take_back(files, &done, error));
                }
            }
        }
    }
    Ok(done)
}

fn take_back(files: &dyn Files, done: &[Change], mut error: Error) -> Error {
    for change in done.iter().rev() {
        let Ok(path) = NodePath::parse(&change.path, files.mount()) else { continue };
        if let Err(e) = files.write(&path.file(&change.key), &change.old) {
            error.add(&format!(
                "and {} of '{}' could not be set back to '{}': {e}",
                change.key, change.path, change.old
            ));
        }
    }
    error
}

type Setting<'a> = (&'static str, &'static str, &'a str);

fn understand<'a>(
    files: &dyn Files,
    words: &'a [String],
) -> Result<(Vec<NodePath>, Vec<Setting<'a>>), Error> {
    let mut paths = Vec::new();
    let mut changes: Vec<Setting<'a>> = Vec::new();
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            let path = NodePath::parse(word, files.mount())?;
            if !paths.contains(&path) {
                paths.push(path);
            }
            continue;
        };
        let Some(&(known, file)) = KEYS.iter().find(|(known, _)| *known == key) else {
            let names: Vec<String> = KEYS.iter().map(|(known, _)| (*known).to_owned()).collect();
            let error = Error::usage(format!("there is no key '{key}'"));
            return Err(match crate::fs::nearest(key, &names) {
                Some(near) => error.hint(format!("did you mean '{near}={value}'?")),
                None => error.hint(format!("the keys are {}", names.join(", "))),
            });
        };
        if changes.iter().any(|(earlier, ..)| *earlier == known) {
            return Err(Error::usage(format!("'{known}' is set twice")));
        }
        changes.push((known, file, value));
    }
    if paths.is_empty() {
        return Err(Error::usage("no node is named").hint("for example: reserv set web/site1 share=24"));
    }
    if changes.is_empty() {
        return Err(
            Error::usage("nothing to set").hint(format!("for example: reserv set {} share=24", paths[0]))
        );
    }
    Ok((paths, changes))
}

/// What became of a node that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Removed {
    /// It is gone.
    Deleted,
    /// It goes when its last member has left.
    Draining,
}

/// Delete one node.
pub(crate) fn rm(files: &dyn Files, text: &str, args: &Rm) -> Result<(NodePath, Removed), Error> {
    let path = NodePath::parse(text, files.mount())?;
    if path.is_resource() {
        return Err(Error::refused(format!("'{path}' is a resource and cannot be deleted"))
            .hint("'reserv down' gives it back to the kernel"));
    }
    if let Some(error) = missing(files, &path) {
        return Err(error);
    }
    if args.drain || args.flush {
        let word = if args.drain { "drain" } else { "flush" };
        files.write(&path.file("state"), word).map_err(|e| explain(files, &path, "cannot be deleted", &e))?;
        let gone = !files.is_dir(path.as_str());
        if gone || args.drain {
            return Ok((path, if gone { Removed::Deleted } else { Removed::Draining }));
        }
    }
    match files.rmdir(path.as_str()) {
        Ok(()) => Ok((path, Removed::Deleted)),
        Err(e) => {
            let mut error = explain(files, &path, "cannot be deleted", &e);
            match e.raw_os_error() {
                Some(libc::ENOTEMPTY) => {
                    error = error.hint(format!("delete its children first; 'reserv tree {path}' shows them"));
                }
                Some(libc::EBUSY) => {
                    let members = members(files, &path);
                    error.message = if members > 0 {
                        format!("'{path}' has {members} members")
                    } else {
                        format!("'{path}' is in use and stays")
                    };
                    error = error.hint("--drain deletes it when they have left, --flush moves them to q0");
                }
                _ => {}
            }
            Err(error)
        }
    }
}

fn members(files: &dyn Files, path: &NodePath) -> usize {
    files.read(&path.file("members")).map_or(0, |text| text.lines().filter(|line| !line.is_empty()).count())
}

/// Rename or move a node; answers its new path.
pub(crate) fn mv(files: &dyn Files, from: &str, to: &str) -> Result<(NodePath, NodePath), Error> {
    let from = NodePath::parse(from, files.mount())?;
    let mut to = NodePath::parse(to, files.mount())?;
    if let Some(error) = missing(files, &from) {
        return Err(error);
    }
    if from.is_resource() {
        return Err(Error::refused(format!("'{from}' is a resource and keeps its place")));
    }
    if files.is_dir(to.as_str()) && files.read(&to.file("policy")).is_ok() && to != from {
        to = to.join(from.name());
    }
    if to.as_str().starts_with(&format!("{from}/", from = from.as_str())) {
        return Err(Error::refused(format!("'{from}' cannot hang below itself")));
    }
    if files.is_dir(to.as_str()) {
        return Err(Error::refused(format!("there is a node '{to}' already")));
    }
    files.rename(from.as_str(), to.as_str()).map_err(|e| {
        match to.parent().and_then(|p| missing(files, &p)) {
            Some(error) => error,
            None => Error::io(format!("cannot move '{from}' to '{to}'"), &e),
        }
    })?;
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::fs::fake::Fake;
    use clap::Parser as _;

    fn try_mk(files: &dyn Files, words: &[&str]) -> Result<NodePath, Error> {
        let cli = Cli::try_parse_from(["reserv", "mk"].iter().chain(words)).unwrap();
        let Command::Mk(args) = cli.command else { unreachable!() };
        mk(files, &args)
    }

    fn try_rm(files: &dyn Files, path: &str, flags: &[&str]) -> Result<(NodePath, Removed), Error> {
        let cli = Cli::try_parse_from(["reserv", "rm", path].iter().chain(flags)).unwrap();
        let Command::Rm(args) = cli.command else { unreachable!() };
        rm(files, path, &args)
    }

    fn try_set(files: &dyn Files, words: &[&str]) -> Result<Vec<Change>, Error> {
        set(files, &words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    fn names(files: &dyn Files, dir: &str) -> Vec<String> {
        files.list(dir).unwrap().dirs
    }

    #[test]
    fn mk_makes_a_node_with_its_values() {
        let fake = Fake::new();
        assert_eq!(try_mk(&fake, &["web", "--sched", "--share", "3"]).unwrap().as_str(), "cpu/web");
        try_mk(&fake, &["web/site1", "--cap", "25%", "--class", "rr"]).unwrap();
        assert_eq!(fake.read("cpu/web/share").unwrap(), "3\n");
        assert_eq!(fake.read("cpu/web/policy").unwrap(), "sfq\n");
        assert_eq!(fake.read("cpu/web/site1/share").unwrap(), "100\n");
        assert_eq!(fake.read("cpu/web/site1/cap").unwrap(), "25%\n");
        assert_eq!(fake.read("cpu/web/site1/class").unwrap(), "rr\n");
        // A name that the name space would have given by itself.
        try_mk(&fake, &["q1"]).unwrap();
        assert_eq!(names(&fake, "cpu"), ["q0", "q1", "web"]);
    }

    #[test]
    fn a_refused_mk_leaves_nothing() {
        let fake = Fake::new();
        fake.refuse.borrow_mut().push(("cpu/q1/share".into(), libc::ENOSPC));
        let error = try_mk(&fake, &["web", "--share", "7"]).unwrap_err();
        assert_eq!(error.kind, Kind::Refused);
        assert!(error.message.contains("share '7'"), "{}", error.message);
        assert_eq!(names(&fake, "cpu"), ["q0"]);
        for (words, what) in [
            (&["q0/x"][..], "is a queue"),
            (&["nix/x"], "no node 'nix'"),
            (&["q0"], "already"),
            (&["cpu"], "resource"),
        ] {
            let error = try_mk(&fake, words).unwrap_err();
            assert!(error.message.contains(what), "{words:?}: {}", error.message);
        }
        assert_eq!(names(&fake, "cpu"), ["q0"]);
    }

    #[test]
    fn set_is_whole_or_undone() {
        let fake = Fake::new();
        try_mk(&fake, &["a"]).unwrap();
        try_mk(&fake, &["b"]).unwrap();
        let done = try_set(&fake, &["a", "b", "share=7", "cap=1cpu"]).unwrap();
        assert_eq!(done.len(), 4);
        assert_eq!((done[0].old.as_str(), done[0].new.as_str()), ("100", "7"));
        fake.refuse.borrow_mut().push(("cpu/b/cap".into(), libc::EINVAL));
        let error = try_set(&fake, &["a", "share=9", "b", "cap=lots"]).unwrap_err();
        assert!(error.hint.unwrap().contains("250ms/s"));
        for node in ["a", "b"] {
            assert_eq!(fake.read(&format!("cpu/{node}/share")).unwrap(), "7\n");
            assert_eq!(fake.read(&format!("cpu/{node}/cap")).unwrap(), "1cpu\n");
        }
    }

    #[test]
    fn set_explains_what_it_cannot_do() {
        let fake = Fake::new();
        fake.node("cpu/web", true);
        for (words, what) in [
            (&["q0", "sahre=1"][..], "did you mean 'share=1'?"),
            (&["q0", "colour=1"], "the keys are"),
            (&["share=1"], "no node is named"),
            (&["q0"], "nothing to set"),
            (&["q0", "share=1", "share=2"], "twice"),
            (&["q9", "share=1"], "no node 'q9'"),
            (&["wbe", "share=1"], "did you mean 'web'?"),
            (&["web", "class=rr"], "a scheduler node, which has no class"),
            (&["q0", "policy=sfq"], "a queue, which has no policy"),
        ] {
            let error = try_set(&fake, words).unwrap_err().to_string();
            assert!(error.contains(what), "{words:?}: {error}");
        }
    }

    #[test]
    fn rm_says_why_not() {
        let fake = Fake::new();
        fake.node("cpu/web", true);
        fake.node("cpu/web/a", false);
        assert!(try_rm(&fake, "web", &[]).unwrap_err().hint.unwrap().contains("children first"));
        assert_eq!(try_rm(&fake, "web/a", &[]).unwrap().1, Removed::Deleted);
        assert_eq!(try_rm(&fake, "web", &[]).unwrap().1, Removed::Deleted);
        assert_eq!(try_rm(&fake, "web", &[]).unwrap_err().kind, Kind::NotFound);
        assert!(try_rm(&fake, "cpu", &[]).is_err());
        fake.node("cpu/d", false);
        assert_eq!(try_rm(&fake, "d", &["--drain"]).unwrap().1, Removed::Draining);
        assert_eq!(fake.read("cpu/d/state").unwrap(), "drain\n");
    }

    #[test]
    fn mv_renames_and_moves() {
        let fake = Fake::new();
        fake.node("cpu/web", true);
        fake.node("cpu/a", false);
        assert_eq!(mv(&fake, "a", "b").unwrap().1.to_string(), "b");
        assert_eq!(mv(&fake, "b", "web").unwrap().1.to_string(), "web/b");
        assert_eq!(mv(&fake, "web/b", "cpu").unwrap().1.to_string(), "b");
        for (from, to, what) in [
            ("nix", "x", "no node 'nix'"),
            ("b", "q0", "already"),
            ("web", "web/x", "below itself"),
            ("cpu", "x", "resource"),
            ("b", "nix/b", "no node 'nix'"),
        ] {
            let error = mv(&fake, from, to).unwrap_err().to_string();
            assert!(error.contains(what), "{from} {to}: {error}");
        }
    }
}
