// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mk`, `rm`, `set`, `mv`: changes of the tree. Each is whole or undone.

mod places;

pub(crate) use self::places::{Removed, mv, rm};
use crate::args::Mk;
use crate::error::{Error, Kind};
use crate::fs::{Files, explain, missing, writing};
use crate::path::NodePath;
use crate::signals::Held;

/// The keys of `set`, each with its file.
const KEYS: [(&str, &str); 20] = [
    ("share", "share"),
    (SHARES, SHARES),
    ("cap", "cap"),
    ("class", "class"),
    ("policy", "policy"),
    ("gc", "gc"),
    ("limit", BACKLOG),
    ("quantum", TUNE),
    ("lag", TUNE),
    ("turn", TUNE),
    ("decay", TUNE),
    ("priority", TUNE),
    ("request", TUNE),
    ("batch", TUNE),
    ("anticipate", TUNE),
    ("cost", TUNE),
    ("deadline", TUNE),
    ("round", TUNE),
    ("receive", TUNE),
    ("receive-burst", TUNE),
];

/// Words that are tried for what has another name.
const ELSEWHERE: [(&[&str], &str); 3] = [
    (
        &["minimum", "min", "guarantee", "reserve"],
        "a minimum stands behind the weight: share='24 250ms/s', of a link share='24 5mbit', of a disk share='24 1MB/s'",
    ),
    (&["backlog"], "what may wait is limit=: of a link limit='PACKETS BYTES'"),
    (&["weight"], "a node's weight is share=; a thread's is set with --thread"),
];

/// The file that holds several keys.
const TUNE: &str = "tune";
const BACKLOG: &str = "backlog";

/// The file of all children's shares, a line each: in a word of `set` commas stand between them.
const SHARES: &str = "shares";

/// What is written into a key's file.
fn text_of(key: &str, file: &str, value: &str) -> String {
    match file {
        TUNE => format!("{key} {value}"),
        SHARES => value.split(',').map(str::trim).collect::<Vec<_>>().join("\n"),
        _ => value.to_owned(),
    }
}

/// A key's value in what its file reads.
fn value_of(key: &str, file: &str, text: &str) -> String {
    if file == SHARES {
        return text.trim_end().lines().collect::<Vec<_>>().join(", ");
    }
    if file == BACKLOG {
        // Counters stand before it, and what is in force behind it.
        let limit = text.lines().find_map(|line| line.strip_prefix("limit "));
        return limit.unwrap_or_default().to_owned();
    }
    if file != TUNE {
        return settable(text);
    }
    let mut words = text.split_ascii_whitespace();
    std::iter::from_fn(|| Some((words.next()?, words.next()?)))
        .find(|(found, _)| *found == key)
        .map_or_else(String::new, |(_, value)| value.to_owned())
}

/// Make a node. With nothing but a share that is one write. Class, policy or cap are set while its
/// weight is still 0, so that it competes with nobody before it is as it was asked for.
pub(crate) fn mk(files: &dyn Files, args: &Mk, path: &str) -> Result<NodePath, Error> {
    let path = NodePath::parse(path, files.place())?;
    let parent = path.parent().ok_or_else(|| {
        Error::usage(format!("'{path}' is a resource; resources are there already"))
    })?;
    if files.is_dir(path.as_str()) {
        return Err(Error::refused(format!("there is a node '{path}' already"))
            .hint(format!("change it with: reserv set {path} share={}", args.share)));
    }
    if let Some(error) = missing(files, &parent) {
        return Err(error);
    }
    let later: Vec<(&str, &String)> =
        [("policy", &args.policy), ("class", &args.class), ("cap", &args.cap)]
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.as_ref()?)))
            .collect();
    for (key, value) in later.iter().copied().chain([("share", &args.share)]) {
        check_value(&path, key, value)?;
    }
    let kind = if args.sched { "scheduler" } else { "queue" };
    let share = if later.is_empty() { args.share.as_str() } else { "0" };
    let _whole = Held::begin();
    files.write(&parent.file("mk"), &format!("{kind} {} {share}", path.name())).map_err(|e| {
        if files.read(&parent.file("class")).is_ok() {
            return Error::refused(format!("'{parent}' is a queue and has no children"))
                .hint(format!("make a scheduler node instead: reserv mk --sched {parent}"));
        }
        if let Err(wrong) = reserv_model::Name::new(path.name()) {
            return worded(format!("{path}: {wrong}"), wrong.hint, &e);
        }
        refused(files, &path, &parent, "share", &args.share, &e)
    })?;
    let last = (!later.is_empty()).then_some(("share", &args.share));
    for (key, value) in later.into_iter().chain(last) {
        if let Err(e) = files.write(&path.file(key), value) {
            let mut error = refused(files, &path, &path, key, value, &e);
            if let Err(e) = files.rmdir(path.as_str()) {
                error.add(&format!("and '{path}' could not be removed again: {e}"));
            }
            return Err(error);
        }
    }
    Ok(path)
}

/// A refusal in the words of the grammar, with the errno of the file.
fn worded(message: String, hint: String, source: &std::io::Error) -> Error {
    let mut error = Error::refused(message);
    error.hint = (!hint.is_empty()).then_some(hint);
    error.errno = source.raw_os_error();
    error
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
    let file = KEYS.iter().find(|(known, _)| *known == key).map_or(key, |(_, file)| *file);
    let errno = source.raw_os_error();
    let operation = writing(at, if shown == at { file } else { "mk" });
    let mut error = explain(files, at, &format!("{key} '{value}'"), &operation, source);
    // What a value names may be missing too: then the reason says so.
    if errno == Some(libc::ENOENT)
        && files.read(&at.file(file)).is_err_and(|e| e.raw_os_error() == errno)
    {
        let kind = if at.is_resource() {
            "a resource"
        } else if is_scheduler(files, at) {
            "a scheduler node"
        } else {
            "a queue"
        };
        error.message = format!("{shown} is {kind}, which has no {key}");
        error.kind = Kind::Refused;
    }
    if let Some(wrong) = wrong_value(key, value) {
        error.message = format!("{shown}: {key}: {wrong}");
        error.hint = (!wrong.hint.is_empty()).then_some(wrong.hint);
    } else if errno == Some(libc::EOPNOTSUPP) && error.hint.is_none() {
        error.hint = Some("'reserv doctor' says what each driver can do".to_owned());
    }
    error
}

/// Refuses a value that no node takes, before anything is changed.
fn check_value(path: &NodePath, key: &str, value: &str) -> Result<(), Error> {
    let Some(wrong) = wrong_value(key, value) else { return Ok(()) };
    let source = std::io::Error::from_raw_os_error(wrong.errno().code());
    Err(worded(format!("{path}: {key}: {wrong}"), wrong.hint, &source))
}

/// What the grammar says about a value that was refused: an errno cannot say which word was wrong.
fn wrong_value(key: &str, value: &str) -> Option<reserv_model::Error> {
    use reserv_model::{Class, Error, ErrorKind, Policy, Share, parse_cap};
    match key {
        "share" => value.parse::<Share>().err(),
        "cap" => parse_cap(value).err(),
        "class" => value.parse::<Class>().err(),
        "policy" => value.parse::<Policy>().err(),
        _ if KEYS.contains(&(key, TUNE)) => {
            reserv_model::parse_tune(&format!("{key} {value}")).err()
        }
        "gc" if value != "0" && value != "1" => {
            Some(Error::new(ErrorKind::Invalid, format!("'{value}' is neither 0 nor 1")))
        }
        "limit" => {
            let mut words = value.split_ascii_whitespace();
            if words.next().is_none_or(|word| word.parse::<u32>().is_err()) {
                let why = format!("'{value}' is not a number of members");
                let hint = "most members that the queue takes, of a link most packets that wait in it, and most bytes behind them ('500 128KiB'); 0 is no limit";
                return Some(Error::new(ErrorKind::Invalid, why).hint(hint));
            }
            let bytes = words.next().and_then(|word| reserv_model::parse_bytes(word).err());
            bytes.or_else(|| {
                let word = words.next()?;
                Some(Error::new(ErrorKind::Invalid, format!("'{word}' after the limits")))
            })
        }
        _ => None,
    }
}

/// One change that `set` made.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Change {
    /// Where.
    pub path: NodePath,
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
    for (key, _, value) in &changes {
        check_value(&paths[0], key, value)?;
    }
    let _whole = Held::begin();
    let mut done: Vec<Change> = Vec::new();
    for path in &paths {
        for (key, file, value) in &changes {
            let name = path.file(file);
            let result = files.read(&name).and_then(|old| {
                let value = with_minimum(key, value, &old);
                files.write(&name, &text_of(key, file, &value)).map(|()| old)
            });
            match result {
                Ok(old) => done.push(Change {
                    path: path.clone(),
                    key: (*key).to_owned(),
                    old: value_of(key, file, &old),
                    new: value_of(key, file, &files.read(&name).unwrap_or_default()),
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

/// A weight alone leaves the minimum as it is; the file would take it for no minimum.
fn with_minimum(key: &str, value: &str, old: &str) -> String {
    let minimum = old.split_ascii_whitespace().nth(1).filter(|minimum| *minimum != "0");
    match minimum {
        Some(minimum) if key == "share" && value.split_ascii_whitespace().count() == 1 => {
            format!("{value} {minimum}")
        }
        _ => value.to_owned(),
    }
}

/// The line of a file that can be written back.
fn settable(text: &str) -> String {
    text.trim_end().lines().last().unwrap_or_default().to_owned()
}

/// Where a thread stands in the `members` of some queue below `node`, and its line there.
fn find_thread(files: &dyn Files, node: &NodePath, tid: i32) -> Option<(NodePath, String)> {
    let start = format!("tid {tid} ");
    if let Ok(text) = files.read(&node.file("members"))
        && let Some(line) = text.lines().find(|line| line.starts_with(&start))
    {
        return Some((node.clone(), line.to_owned()));
    }
    let listing = files.list(node.as_str()).ok()?;
    listing.dirs.iter().find_map(|name| find_thread(files, &node.join(name), tid))
}

/// Set what one thread asks of its queue's class: one write. With a path it is tagged with that
/// queue too.
pub(crate) fn set_thread(
    files: &dyn Files,
    tid: i32,
    words: &[String],
) -> Result<Vec<Change>, Error> {
    let (changes, paths): (Vec<&String>, Vec<&String>) =
        words.iter().partition(|w| w.contains('='));
    if paths.len() > 1 {
        return Err(Error::usage(format!("'{}' is a second queue of one thread", paths[1])));
    }
    if changes.is_empty() {
        let error = Error::usage("nothing to set");
        return Err(error.hint(format!(
            "for example: reserv set --thread {tid} weight=2, or default=1 to take all back"
        )));
    }
    let given: Vec<String> = changes.iter().map(|w| w.replacen('=', " ", 1)).collect();
    let default = given.len() == 1 && given[0].starts_with("default ");
    let params = if default { "default".to_owned() } else { given.join(" ") };
    if !default {
        reserv_model::ThreadParams::parse(params.split_ascii_whitespace()).map_err(|wrong| {
            let source = std::io::Error::from_raw_os_error(wrong.errno().code());
            worded(format!("thread {tid}: {wrong}"), wrong.hint, &source)
        })?;
    }
    let root = NodePath::parse("cpu", files.place())?;
    let found = find_thread(files, &root, tid);
    let path = match (paths.first(), &found) {
        (Some(path), _) => NodePath::parse(path, files.place())?,
        (None, Some((path, _))) => path.clone(),
        (None, None) => {
            let error = Error::new(
                Kind::NotFound,
                format!("thread {tid} is in no queue, or in q0, which does not list its threads"),
            );
            return Err(error
                .hint(format!("name its queue: reserv set PATH --thread {tid} {}", changes[0])));
        }
    };
    if let Some(error) = missing(files, &path) {
        return Err(error);
    }
    let old = found.map_or_else(|| "q0".to_owned(), |(_, line)| line);
    let _whole = Held::begin();
    files.write(&path.file("members"), &format!("tid {tid} {params}")).map_err(|e| {
        explain(files, &path, &format!("thread {tid}: {params}"), &writing(&path, "members"), &e)
    })?;
    let new = find_thread(files, &path, tid).map_or_else(String::new, |(_, line)| line);
    Ok(vec![Change { path, key: "members".to_owned(), old, new }])
}

fn take_back(files: &dyn Files, done: &[Change], mut error: Error) -> Error {
    for change in done.iter().rev() {
        let file = KEYS.iter().find(|(key, _)| *key == change.key).map_or("", |(_, file)| *file);
        if let Err(e) =
            files.write(&change.path.file(file), &text_of(&change.key, file, &change.old))
        {
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
        let bare = word.starts_with('=') && word.parse::<reserv_model::Share>().is_ok();
        let Some((key, value)) = word.split_once('=').filter(|_| !bare) else {
            let path = NodePath::parse(word, files.place())?;
            if !paths.contains(&path) {
                paths.push(path);
            }
            continue;
        };
        let Some(&(known, file)) = KEYS.iter().find(|(known, _)| *known == key) else {
            let names: Vec<String> = KEYS.iter().map(|(known, _)| (*known).to_owned()).collect();
            let error = Error::usage(format!("there is no key '{key}'"));
            let elsewhere =
                ELSEWHERE.iter().find(|(words, _)| words.contains(&key)).map(|(_, hint)| *hint);
            return Err(error.hint(match (elsewhere, crate::fs::nearest(key, &names)) {
                (Some(hint), _) => hint.to_owned(),
                (None, Some(near)) => format!("did you mean '{near}={value}'?"),
                (None, None) => format!("the keys are {}", names.join(", ")),
            }));
        };
        if changes.iter().any(|(earlier, ..)| *earlier == known) {
            return Err(Error::usage(format!("'{known}' is set twice")));
        }
        changes.push((known, file, value));
    }
    if paths.is_empty() {
        return Err(
            Error::usage("no node is named").hint("for example: reserv set web/site1 share=24")
        );
    }
    if changes.is_empty() {
        // Often a value without its key: a share.
        let bare = paths
            .last()
            .filter(|word| paths.len() > 1 && word.name().parse::<reserv_model::Share>().is_ok());
        let hint = match bare {
            Some(share) => format!("did you mean 'share={}'?", share.name()),
            None => format!("for example: reserv set {} share=24", paths[0]),
        };
        return Err(Error::usage("nothing to set").hint(hint));
    }
    Ok((paths, changes))
}

/// Whether a node has a policy, which only schedulers have; also one that is not shown to who asks.
fn is_scheduler(files: &dyn Files, node: &NodePath) -> bool {
    if node.is_container() {
        // Only what holds threads has members.
        return files
            .read(&node.file("members"))
            .is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT));
    }
    files
        .read(&node.file("policy"))
        .map_or_else(|e| e.raw_os_error() == Some(libc::EACCES), |_| true)
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
        mk(files, &args, &args.paths[0])
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
        try_mk(&fake, &["q1"]).unwrap();
        assert_eq!(names(&fake, "cpu"), ["q0", "q1", "web"]);
    }

    #[test]
    fn a_refused_mk_leaves_nothing() {
        let fake = Fake::new();
        for (file, words) in [
            ("cpu/mk", &["web", "--share", "7"][..]),
            ("cpu/web/share", &["web", "--share", "7", "--cap", "1cpu"]),
            ("cpu/web/cap", &["web", "--share", "7", "--cap", "1cpu"]),
            ("cpu/web/class", &["web", "--share", "7", "--class", "rr"]),
        ] {
            fake.refuse.borrow_mut().push((file.into(), libc::ENOSPC));
            let error = try_mk(&fake, words).unwrap_err();
            assert_eq!(error.kind, Kind::Refused, "{error}");
            assert_eq!(names(&fake, "cpu"), ["q0"], "{file}");
            assert!(fake.refuse.borrow().is_empty(), "{file} was written");
        }
        for (words, what) in [
            (&["web", "--share", "lots"][..], "\"lots\" is not a weight"),
            (&["web", "--share", ""], "nothing where"),
            (&["web", "--cap", "5 apples"], "no unit"),
            (&["web", "--class", "lifo"], "\"lifo\" is not a class"),
        ] {
            let error = try_mk(&fake, words).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
        fake.refuse.borrow_mut().push(("cpu/mk".into(), libc::EINVAL));
        let error = try_mk(&fake, &["a:b"]).unwrap_err();
        assert!(error.to_string().contains("A-Z a-z 0-9"), "{error}");
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
        let error = try_set(&fake, &["a", "share=9", "b", "cap=lots"]).unwrap_err();
        assert!(error.hint.unwrap().contains("250ms/s"));
        fake.refuse.borrow_mut().push(("cpu/b/cap".into(), libc::EINVAL));
        assert!(try_set(&fake, &["a", "share=9", "b", "cap=2cpu"]).is_err());
        for node in ["a", "b"] {
            assert_eq!(fake.read(&format!("cpu/{node}/share")).unwrap(), "7\n");
            assert_eq!(fake.read(&format!("cpu/{node}/cap")).unwrap(), "1cpu\n");
        }
    }

    #[test]
    fn a_limit_is_set_and_set_back() {
        let fake = Fake::new();
        fake.put("cpu/q0/backlog", "served 3\nservice_ns 4\nlimit 5 0");
        fake.refuse.borrow_mut().push(("cpu/q0/class".into(), libc::EINVAL));
        assert!(try_set(&fake, &["q0", "limit=16", "class=rr"]).is_err());
        assert_eq!(fake.read("cpu/q0/backlog").unwrap(), "5 0\n");
        // Of a link, with what is in force behind it.
        fake.refuse.borrow_mut().push(("cpu/q0/class".into(), libc::EINVAL));
        fake.put("cpu/q0/backlog", "served 3\nlimit 5 128KiB\nqueued 0\nlimit_bytes 131072");
        assert!(try_set(&fake, &["q0", "limit=16", "class=rr"]).is_err());
        assert_eq!(fake.read("cpu/q0/backlog").unwrap(), "5 128KiB\n");
    }

    #[test]
    fn set_explains_what_it_cannot_do() {
        let fake = Fake::new();
        fake.node("cpu/web", true);
        for (words, what) in [
            (&["q0", "sahre=1"][..], "did you mean 'share=1'?"),
            (&["q0", "colour=1"], "the keys are"),
            (&["q0", "minimum=5mbit"], "behind the weight: share='24 250ms/s'"),
            (&["q0", "backlog=9"], "what may wait is limit="),
            (&["share=1"], "no node is named"),
            (&["q0"], "for example: reserv set q0 share=24"),
            (&["q0", "40"], "did you mean 'share=40'?"),
            (&["q0", "=25%"], "did you mean 'share==25%'?"),
            (&["q0", "web"], "for example: reserv set q0 share=24"),
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
    fn tunables_are_keys_of_one_file() {
        let fake = Fake::new();
        fake.put("cpu/tune", "quantum default lag 20ms");
        let done = try_set(&fake, &["cpu", "lag=10ms"]).unwrap();
        assert_eq!(
            (done[0].old.as_str(), fake.read("cpu/tune").unwrap().as_str()),
            ("20ms", "lag 10ms\n")
        );
        fake.put("cpu/tune", "quantum default lag 20ms");
        fake.refuse.borrow_mut().push(("cpu/policy".into(), libc::EINVAL));
        assert!(try_set(&fake, &["cpu", "quantum=4ms", "policy=sfq"]).is_err());
        assert_eq!(fake.read("cpu/tune").unwrap(), "quantum default\n");
        let error = try_set(&fake, &["cpu", "quantum=4"]).unwrap_err().to_string();
        assert!(error.contains("no unit"), "{error}");
    }

    #[test]
    fn a_thread_is_found_and_set() {
        let fake = Fake::new();
        fake.node("cpu/rt", false);
        fake.put("cpu/rt/members", "tid 7 pid 7\ntid 8 pid 7 weight 2");
        let words = |w: &[&str]| w.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let done = set_thread(&fake, 8, &words(&["period=33ms", "budget=10ms"])).unwrap();
        assert_eq!(done[0].old, "tid 8 pid 7 weight 2");
        assert_eq!(fake.read("cpu/rt/members").unwrap(), "tid 8 period 33ms budget 10ms\n");
        set_thread(&fake, 9, &words(&["rt", "default=1"])).unwrap();
        assert_eq!(fake.read("cpu/rt/members").unwrap(), "tid 9 default\n");
        for (wrong, what) in [
            (&["colour=1"][..], "no parameter"),
            (&["budget=10ms"], "without \"period\""),
            (&["rt"], "nothing to set"),
            (&["rt", "q0", "weight=1"], "second queue"),
            (&["weight=1"], "in no queue"),
        ] {
            let error = set_thread(&fake, 10, &words(wrong)).unwrap_err().to_string();
            assert!(error.contains(what), "{wrong:?}: {error}");
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
        // One write to its state file deletes it with its members, or nothing happens.
        assert_eq!(
            try_rm(&fake, "d", &["--flush"]).unwrap().1,
            Removed::Draining,
            "plain files stay"
        );
        assert_eq!(fake.read("cpu/d/state").unwrap(), "flush\n");
        fake.refuse.borrow_mut().push(("cpu/d/state".into(), libc::EPERM));
        assert!(try_rm(&fake, "d", &["--flush"]).is_err());
        assert_eq!(fake.read("cpu/q0/members").unwrap(), "\n");
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
