// SPDX-License-Identifier: MIT OR Apache-2.0
//! `doctor nginx`, `doctor apache`, `doctor php`: whether a server's configuration gives its sites
//! the containers that it names. The server itself says what its configuration is, in all its
//! files; a file for each server reads that. Nothing is changed.

mod apache;
mod nginx;
mod php;
mod running;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;

use crate::access;
use crate::args::Server;
use crate::container;
use crate::doctor::{Check, Verdict, check};
use crate::error::Error;
use crate::fs::{self, Files};
use crate::paint::Paint;
use crate::path::NodePath;
use running::Running;

/// What a configuration says of Reserv. Places are `FILE:LINE`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    /// Where the module is loaded.
    module: Option<String>,
    /// Where requests begin to be served in containers.
    on: Vec<String>,
    /// Containers that are named, each with the first place; as they are written.
    shares: BTreeMap<String, String>,
    /// Containers that PHP-FPM or another program is told of with each request, likewise. They need
    /// no module here.
    passed: BTreeMap<String, String>,
    /// Values that are known only when the server runs, each with the first place.
    later: BTreeMap<String, String>,
    /// Containers in which all others must be, where the configuration names such.
    roots: BTreeMap<String, String>,
    /// What the server says against the module or its words.
    wrong: Vec<String>,
    /// What somebody should know: the name of the check, what there is and what it means.
    notes: Vec<(&'static str, String, &'static str)>,
    /// Its main file, where the server says which.
    config: Option<PathBuf>,
}

impl Said {
    /// A value that names a container, or is known later if it holds one of these signs.
    fn share(&mut self, value: &str, signs: &[char], place: &str) {
        note(&mut self.shares, &mut self.later, value, signs, place);
    }

    /// The same of a request's parameter or variable, which may be another one than the container.
    fn pass(&mut self, name: &str, value: &str, signs: &[char], place: &str) {
        if name == PASSED {
            note(&mut self.passed, &mut self.later, value, signs, place);
        }
    }

    /// Whether containers are named for another program alone, and for no module.
    fn only_passes(&self) -> bool {
        let own = self.module.is_some() || !self.on.is_empty() || !self.shares.is_empty();
        !own && !self.passed.is_empty()
    }
}

fn note(
    known: &mut BTreeMap<String, String>,
    later: &mut BTreeMap<String, String>,
    value: &str,
    signs: &[char],
    place: &str,
) {
    if !value.is_empty() {
        let one = if value.contains(signs) { later } else { known };
        one.entry(value.to_owned()).or_insert_with(|| place.to_owned());
    }
}

/// The parameter of FastCGI by which PHP-FPM is told of a container (servers/php/reserv.c).
const PASSED: &str = "RESERV_CONTAINER";

/// What is different from server to server.
struct Kind {
    name: &'static str,
    /// What its processes are called; a version may follow.
    processes: &'static [&'static str],
    /// Its option for another configuration file.
    option: &'static str,
    /// The module's file.
    module: &'static str,
    /// How it is loaded.
    load: &'static str,
    /// What switches it on.
    engine: &'static str,
    /// What makes a running server read its configuration again.
    reload: &'static str,
    /// Its configuration, or what it says is wrong with it.
    read: fn(Option<&Path>) -> Result<Said, String>,
}

const NGINX: Kind = Kind {
    name: "nginx",
    processes: &["nginx"],
    option: "-c",
    module: "ngx_http_reserv_module.so",
    load: "load_module /usr/local/lib/nginx/modules/ngx_http_reserv_module.so;",
    engine: "reserv on;",
    reload: "nginx -s reload",
    read: nginx::read,
};

const APACHE: Kind = Kind {
    name: "Apache",
    processes: &["apache2", "httpd"],
    option: "-f",
    module: "mod_reserv.so",
    load: "LoadModule reserv_module /usr/local/lib/apache2/modules/mod_reserv.so",
    engine: "ReservEngine On",
    reload: "apachectl graceful",
    read: apache::read,
};

const PHP: Kind = Kind {
    name: "PHP-FPM",
    processes: &["php-fpm"],
    option: "-y",
    module: "php_reserv.so",
    load: "extension = /usr/local/lib/php/php_reserv.so",
    engine: "reserv.containers = web",
    reload: "systemctl reload 'php*-fpm*'",
    read: php::read,
};

/// Everything that is said of a server.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// `nginx`, `Apache` or `PHP-FPM`.
    server: &'static str,
    /// Whether nothing is missing.
    pub ok: bool,
    /// What was looked at.
    checks: Vec<Check>,
}

impl Report {
    /// For people.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let mut text: String = self.checks.iter().map(|check| check.lines(paint)).collect();
        let summary = if self.ok {
            format!("{}: its sites are served in the containers that are named.", self.server)
        } else {
            format!("{}: not all of its sites are served in their containers.", self.server)
        };
        text.push('\n');
        text.push_str(&paint.bold(&summary));
        text.push('\n');
        text
    }
}

/// Look at one. `config`: its main file, where that is not the one that it was built with.
pub(crate) fn examine(server: Server, config: Option<&Path>) -> Report {
    let kind = match server {
        Server::Nginx => NGINX,
        Server::Apache => APACHE,
        Server::Php => PHP,
    };
    let checks = match (kind.read)(config) {
        Err(why) => vec![check("config", Verdict::Missing, why, None)],
        Ok(said) => {
            let found = running::find(&kind, said.config.as_deref().or(config));
            let reserv = reserv();
            checks(&kind, &said, &found, reserv.as_deref())
        }
    };
    let ok = !checks.iter().any(|check| check.verdict == Verdict::Missing);
    Report { server: kind.name, ok, checks }
}

/// Reserv's files, if it binds threads; else why it does not, and what would help.
fn reserv() -> Result<Box<dyn Files>, Check> {
    let missing =
        |found: String, means: &str| check("reserv", Verdict::Missing, found, Some(means));
    let files = fs::open().map_err(|e| missing(e.message, "start it: reserv up"))?;
    let status = crate::up::status_json().map_err(|e| missing(e.message, "start it: reserv up"))?;
    match status["resources"]["cpu"]["driver"].as_str() {
        Some("full") => Ok(files),
        Some(other) => Err(missing(
            format!("the CPU has the {other} driver, which binds no threads"),
            "requests are served as without the module; see 'reserv doctor'",
        )),
        None => Err(missing(
            "no CPU is under Reserv".to_owned(),
            "requests are served as without the module",
        )),
    }
}

fn checks(
    kind: &Kind,
    said: &Said,
    found: &Running,
    reserv: Result<&dyn Files, &Check>,
) -> Vec<Check> {
    let accepted = format!("{} accepts it", kind.name);
    let mut all = vec![check("config", Verdict::Ok, accepted, None)];
    all.extend(said.wrong.iter().map(|why| check("config", Verdict::Missing, why, None)));
    if said.only_passes() {
        let means = "containers are passed to another program; the server's own work is in none";
        all.push(check("module", Verdict::Note, "not loaded", Some(means)));
    } else {
        all.extend(switches(kind, said));
    }
    all.push(found.check(kind));
    match reserv {
        Ok(files) => {
            all.push(check("reserv", Verdict::Ok, "runs, and binds threads", None));
            // One container may be written in several ways.
            let named: BTreeMap<String, (&String, &String)> = said
                .shares
                .iter()
                .map(|(value, at)| {
                    let path = container::path(files, value);
                    (path.map_or_else(|_| value.clone(), |path| path.to_string()), (value, at))
                })
                .collect();
            let worker = found.worker.as_ref();
            all.extend(said.roots.iter().map(|(value, at)| one(files, value, at, true, worker)));
            all.extend(named.values().map(|(value, at)| {
                outside(files, said, value, at)
                    .unwrap_or_else(|| one(files, value, at, false, worker))
            }));
            // Whose user must have the right is said by `doctor php`.
            let passed = said.passed.iter().filter(|(value, _)| !said.shares.contains_key(*value));
            all.extend(passed.map(|(value, at)| one(files, value, at, false, None)));
        }
        Err(why) => all.push(why.clone()),
    }
    all.extend(said.later.iter().map(|(value, at)| {
        let means = "known when a request is; not looked at";
        check("container", Verdict::Note, format!("{value} ({at})"), Some(means))
    }));
    all.extend(
        said.notes
            .iter()
            .map(|(name, found, means)| check(name, Verdict::Note, found, Some(means))),
    );
    all
}

/// What a server needs to serve requests in containers by itself.
fn switches(kind: &Kind, said: &Said) -> Vec<Check> {
    let missing =
        |name, found: &str, means: &str| check(name, Verdict::Missing, found, Some(means));
    let on = |name, how: String| check(name, Verdict::Ok, how, None);
    let mut all = vec![match &said.module {
        Some(place) => on("module", format!("loaded by {place}")),
        None => missing("module", "not loaded", &format!("add: {}", kind.load)),
    }];
    all.push(if said.on.is_empty() {
        let means = format!("no request is served in a container; add: {}", kind.engine);
        missing("engine", "off everywhere", &means)
    } else {
        on("engine", format!("on at {}", said.on.join(", ")))
    });
    if said.shares.is_empty() && said.later.is_empty() {
        all.push(check("container", Verdict::Missing, "none is named", None));
    }
    all
}

/// One that is not in those in which it must be.
fn outside(files: &dyn Files, said: &Said, value: &str, at: &str) -> Option<Check> {
    let path = container::path(files, value).ok()?;
    let roots = said.roots.keys().filter_map(|root| container::path(files, root).ok());
    let roots: Vec<NodePath> = roots.collect();
    let inside = |root: &NodePath| Path::new(path.as_str()).starts_with(root.as_str());
    if roots.is_empty() || roots.iter().any(inside) {
        return None;
    }
    let found = format!("{path} ({at}) is in none of those that may be named");
    let means = format!("add it there: {}", said.on.join(", "));
    Some(check("container", Verdict::Missing, found, Some(&means)))
}

/// One container: it is there, it holds threads (or, with `within`, others that do), and the
/// server's user may use it.
fn one(
    files: &dyn Files,
    value: &str,
    at: &str,
    within: bool,
    worker: Option<&running::Worker>,
) -> Check {
    let missing =
        |found: String, means: &str| check("container", Verdict::Missing, found, Some(means));
    let wrong = |why: &dyn std::fmt::Display| {
        check("container", Verdict::Missing, format!("{value} ({at}): {why}"), None)
    };
    let path = match container::path(files, value) {
        Ok(path) => path,
        Err(e) => return wrong(&e.message),
    };
    if container::there(files, &path).is_err() {
        let make = format!("reserv mk --container {}", container::below(&path));
        return missing(format!("there is no {path} ({at})"), &make);
    }
    let mut there = format!("{path} ({at})");
    match files.list(path.as_str()) {
        Ok(listing) if listing.files.iter().any(|name| name == "members") => {}
        Ok(_) if within => there = format!("all in {there}"),
        Ok(_) => {
            let means = format!("name one of those in it: reserv tree {path}");
            return missing(format!("{path} ({at}) holds containers, not threads"), &means);
        }
        Err(e) => return wrong(&e),
    }
    match refused(files, &path, worker) {
        Ok(Some(user)) => missing(
            format!("{there}: {user} has no right to use it"),
            &format!("reserv allow {user} use {path}"),
        ),
        Ok(None) => check("container", Verdict::Ok, there, None),
        Err(e) => wrong(&e.message),
    }
}

/// The server's user, where an access list speaks of the container and does not let him use it. As
/// long as none does, what the server opened as root is enough.
fn refused(
    files: &dyn Files,
    path: &NodePath,
    worker: Option<&running::Worker>,
) -> Result<Option<String>, Error> {
    let Some(worker) = worker else { return Ok(None) };
    if access::list(files, path.as_str())?.is_empty() {
        return Ok(None);
    }
    let may = access::why(files, worker.pid, path.as_str())?;
    Ok((!access::allowed(&may, "use")).then(|| worker.user.clone()))
}

/// So long a server's program may take: with many sites it reads for seconds, and what hangs (a
/// name that is looked up, a file on a server that is gone) does not end.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a server's program says. Not every PATH has the folders of administrators' programs.
fn ask(program: &str, words: &[&str], config: Option<(&str, &Path)>) -> std::io::Result<Output> {
    let run = |program: &str| {
        let mut command = Command::new(program);
        command.args(words);
        if let Some((option, file)) = config {
            command.arg(option).arg(file);
        }
        within(PATIENCE, &mut command)
    };
    match run(program) {
        Err(e) if e.kind() == ErrorKind::NotFound => run(&format!("/usr/sbin/{program}")),
        answer => answer,
    }
}

/// What a program prints, if it ends in time; else it is ended, with all that it started.
fn within(patience: Duration, command: &mut Command) -> std::io::Result<Output> {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let shown = words.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn()?;
    let group = i32::try_from(child.id()).ok().map(Pid::from_raw);
    let (tell, told) = mpsc::channel();
    thread::Builder::new().spawn(move || tell.send(child.wait_with_output()))?;
    told.recv_timeout(patience).unwrap_or_else(|_| {
        // Nobody has waited for it yet, or has just now: the number is no other's.
        if let Some(group) = group {
            let _ = killpg(group, Signal::SIGKILL);
        }
        let seconds = patience.as_secs();
        let why = format!(
            "'{shown}' gave no answer within {seconds} s, and was ended; run it by \
             hand to see what it waits for"
        );
        Err(std::io::Error::new(ErrorKind::TimedOut, why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::fake::Fake;

    fn found(said: &Said, running: &Running, files: &Fake) -> Vec<(Verdict, String)> {
        checks(&NGINX, said, running, Ok(files))
            .into_iter()
            .map(|check| (check.verdict, format!("{}: {}", check.name, check.found)))
            .collect()
    }

    fn missing(text: &str) -> (Verdict, String) {
        (Verdict::Missing, text.to_owned())
    }

    #[test]
    fn a_server_that_gives_no_answer_is_ended() {
        let shell = |text: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", text]);
            command
        };
        let said =
            within(Duration::from_secs(30), &mut shell("echo a; echo b >&2; exit 3")).unwrap();
        assert_eq!(
            (said.status.code(), &*said.stdout, &*said.stderr),
            (Some(3), &b"a\n"[..], &b"b\n"[..])
        );
        // With what it started, which holds its output open.
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let began = std::time::Instant::now();
        let text = format!("sleep 300 & echo $! > {}; wait", pid.display());
        let error = within(Duration::from_secs(1), &mut shell(&text)).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(60));
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let text = error.to_string();
        assert!(text.contains("gave no answer within 1 s, and was ended"), "{text}");
        let pid = std::fs::read_to_string(pid).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        let gone = |_| {
            thread::sleep(Duration::from_millis(50));
            state().map_or(true, |text| text.contains(") Z"))
        };
        assert!((0..600).any(gone), "{:?}", state());
    }

    #[test]
    fn containers_that_serve_nobody_are_named() {
        let files = Fake::new();
        for (path, sched) in
            [("container", true), ("container/web", true), ("container/web/a", false)]
        {
            files.node(path, sched);
        }
        let mut said =
            Said { module: Some("c:1".into()), on: vec!["c:2".into()], ..Said::default() };
        said.share("web/a", &['$'], "c:3");
        said.share("container/web/a", &['$'], "c:4");
        let nobody = Running::default();
        let all = found(&said, &nobody, &files);
        assert!(all.iter().all(|(verdict, _)| *verdict != Verdict::Missing), "{all:?}");
        let named = |all: &[(Verdict, String)]| {
            all.iter().filter(|(_, text)| text.starts_with("container")).count()
        };
        assert_eq!(named(&all), 1, "one container, in two ways: {all:?}");
        said.share("web", &['$'], "c:5");
        said.share("web/none", &['$'], "c:6");
        said.share("web/$x", &['$'], "c:7");
        said.share("container", &['$'], "c:8");
        said.share("", &['$'], "c:9");
        let all = found(&said, &nobody, &files);
        assert_eq!(named(&all), 5, "{all:?}");
        let holds = missing("container: container/web (c:5) holds containers, not threads");
        assert!(all.contains(&holds), "{all:?}");
        assert!(all.contains(&missing("container: there is no container/web/none (c:6)")));
        assert!(all.contains(&(Verdict::Note, "container: web/$x (c:7)".to_owned())));
        assert!(all.iter().any(|(verdict, text)| *verdict == Verdict::Missing
            && text.starts_with("container: container (c:8): ")));
    }

    #[test]
    fn what_may_be_named_is_looked_at_as_a_whole() {
        let files = Fake::new();
        for (path, sched) in [
            ("container", true),
            ("container/web", true),
            ("container/web/a", false),
            ("container/webs", false),
        ] {
            files.node(path, sched);
        }
        let mut said =
            Said { module: Some("c:1".into()), on: vec!["c:2".into()], ..Said::default() };
        for root in ["web", "none", "webs"] {
            said.roots.insert(root.to_owned(), "c:2".to_owned());
        }
        said.share("web/a", &['$'], "c:3");
        let all = found(&said, &Running::default(), &files);
        assert!(all.contains(&(Verdict::Ok, "container: all in container/web (c:2)".to_owned())));
        assert!(all.contains(&(Verdict::Ok, "container: container/webs (c:2)".to_owned())));
        assert!(all.contains(&missing("container: there is no container/none (c:2)")), "{all:?}");
        assert!(all.contains(&(Verdict::Ok, "container: container/web/a (c:3)".to_owned())));
        // A name that begins alike is another one.
        said.roots.remove("webs");
        said.share("webs", &['$'], "c:4");
        let all = found(&said, &Running::default(), &files);
        let outside = "container: container/webs (c:4) is in none of those that may be named";
        assert!(all.contains(&missing(outside)), "{all:?}");
    }

    #[test]
    fn who_only_passes_containers_on_needs_no_module() {
        let files = Fake::new();
        for (path, sched) in
            [("container", true), ("container/web", true), ("container/web/a", false)]
        {
            files.node(path, sched);
        }
        let mut said = Said::default();
        said.pass("RESERV_CONTAINER", "web/a", &['$'], "c:1");
        said.pass("SCRIPT_NAME", "web/none", &['$'], "c:2");
        let nobody = Running::default();
        let all = found(&said, &nobody, &files);
        assert!(all.iter().all(|(verdict, _)| *verdict != Verdict::Missing), "{all:?}");
        assert!(all.contains(&(Verdict::Ok, "container: container/web/a (c:1)".to_owned())));
        said.pass("RESERV_CONTAINER", "web/b", &['$'], "c:3");
        said.pass("RESERV_CONTAINER", "$reserv_share", &['$'], "c:4");
        let all = found(&said, &nobody, &files);
        assert!(all.contains(&missing("container: there is no container/web/b (c:3)")), "{all:?}");
        assert!(all.contains(&(Verdict::Note, "container: $reserv_share (c:4)".to_owned())));
        // Its own requests are to be in containers as well.
        said.on.push("c:5".to_owned());
        assert!(found(&said, &nobody, &files).contains(&missing("module: not loaded")));
    }

    #[test]
    fn nothing_said_is_nothing_served() {
        let all = found(&Said::default(), &Running::default(), &Fake::new());
        for text in ["module: not loaded", "engine: off everywhere", "container: none is named"] {
            assert!(all.contains(&missing(text)), "{text}: {all:?}");
        }
    }
}
