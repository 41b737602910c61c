// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: a thin face of the files under /reserv, and of reservd's control socket for
//! what no file does (start, stop, whole configurations). Hints and suggestions are written here
//! and nowhere below.

mod access;
mod ahead;
pub mod args;
mod boot;
mod compare;
mod container;
mod control;
mod delta;
mod doctor;
mod edit;
mod error;
mod fs;
pub mod generate;
mod launch;
mod load;
mod names;
mod node;
mod paint;
mod path;
mod ps;
mod rules;
mod run;
mod server;
mod settings;
mod signals;
mod socket;
mod top;
mod top_containers;
mod trace;
mod tree;
mod up;
mod usage;
mod watch;
mod whole;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use serde_json::json;

use args::{Cli, Command, Disk, Generated};
use error::{Error, Kind};
use paint::Paint;
use path::NodePath;

/// The program.
pub fn main() -> ExitCode {
    signals::default();
    let cli = Cli::parse();
    let json = cli.json;
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            if json {
                eprintln!("{}", error.to_json());
            } else {
                eprint!("{}", render(&error));
            }
            ExitCode::from(error.kind as u8)
        }
    }
}

fn render(error: &Error) -> String {
    let paint = Paint::stderr();
    let text = error.render();
    match text.strip_prefix("reserv:") {
        Some(rest) => format!("{}{rest}", paint.red("reserv:")),
        None => text,
    }
}

/// Standard output, as text or as JSON.
fn say(text: &str) -> Result<ExitCode, Error> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| Error::io("standard output", &e))?;
    Ok(ExitCode::SUCCESS)
}

/// For people, beside what a program may read.
fn note(words: Option<String>) {
    if let Some(words) = words {
        eprintln!("# {words}");
    }
}

fn say_json(value: &impl serde::Serialize) -> Result<ExitCode, Error> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|e| Error::refused(e.to_string()))?;
    text.push('\n');
    say(&text)
}

/// The command `disk`.
fn disk(args: &Disk, json: bool) -> Result<ExitCode, Error> {
    match args {
        Disk::Attach { disk: (name, path), depth, floor, front, model, driver, policy } => {
            up::attach(up::disk(name, path, *depth, *floor, *front, *model, *driver)?, *policy)?;
            if json {
                say_json(&json!({ "attached": name.as_str() }))
            } else {
                say(&if *driver == args::Driver::Stock {
                    format!(
                        "{path} is shared as it is, inexactly, and /reserv/{name} is its tree\n"
                    )
                } else {
                    format!("{path} is /dev/reserv/{name} now, and /reserv/{name} its tree\n")
                })
            }
        }
        Disk::Detach { name } => {
            up::is_disk(name)?;
            up::down_some(std::slice::from_ref(name))?;
            if json { say_json(&json!({ "detached": name })) } else { Ok(ExitCode::SUCCESS) }
        }
        Disk::Status => {
            let disks = up::disks()?;
            if json {
                return say_json(&disks);
            }
            let line = |disk: &up::DiskLine| {
                let policy = disk.policy.as_ref().map(|policy| format!(", policy {policy}"));
                let first = format!(
                    "{}: {}, {}{}",
                    disk.name,
                    disk.state,
                    disk.mechanism,
                    policy.unwrap_or_default()
                );
                let width = paint::width();
                let limit =
                    |limit: &String| paint::wrapped(&format!("    {limit}"), width, "        ");
                let limits = disk.limits.iter().map(limit);
                std::iter::once(paint::wrapped(&first, width, "    "))
                    .chain(limits)
                    .map(|line| line + "\n")
                    .collect::<String>()
            };
            say(&disks.iter().map(line).collect::<String>())
        }
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each command")]
fn dispatch(cli: Cli) -> Result<ExitCode, Error> {
    let json = cli.json;
    match cli.command {
        Command::Doctor { server: Some(server), config } => {
            let report = server::examine(server, config.as_deref());
            if json {
                say_json(&report)?
            } else {
                say(&report.render(Paint::stdout()))?
            };
            Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(Kind::Refused as u8) })
        }
        Command::Doctor { .. } => {
            let mut report = doctor::Machine::here().examine(&probes());
            if let Ok(found) = reserv_plane::cpu::full::fallbacks() {
                report.checks.extend(doctor::fallbacks(&found));
            }
            report.checks.push(doctor::tags(reserv_plane::tag::survey()));
            report.checks.push(doctor::links(reserv_plane::net::survey()));
            if nix::unistd::geteuid().is_root() {
                report.checks.push(doctor::entrances(&reserv_plane::receive::survey()));
            }
            report.checks.push(doctor::disks(
                reserv_plane::disk::survey(),
                reserv_plane::disk::stock::survey(),
            ));
            if json {
                say_json(&report)?
            } else {
                say(&report.render(Paint::stdout()))?
            };
            Ok(if report.driver.is_some() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(Kind::Refused as u8)
            })
        }
        Command::Tree { path } => {
            let files = fs::open()?;
            let Some(path) = path else {
                let all = tree::load_all(&*files)?;
                if json {
                    return say_json(&all);
                }
                let draw = |node| tree::draw(node, Paint::stdout(), paint::width());
                let drawn: Vec<String> = all.iter().map(draw).collect();
                let said = say(&drawn.join("\n"));
                note(access::partly(&*files, &NodePath::resources(&*files)));
                return said;
            };
            let parsed = NodePath::parse(&path, files.place())?;
            if parsed.is_container() {
                let all = container::load(&*files, &parsed)?;
                return if json { say_json(&all) } else { say(&container::draw(&all)) };
            }
            let node = tree::load(&*files, &path)?;
            if json {
                return say_json(&node);
            }
            let said = say(&tree::draw(&node, Paint::stdout(), paint::width()));
            note(access::partly(&*files, &[NodePath::parse(&path, files.place())?]));
            said
        }
        Command::Top(args) => {
            let files = fs::open()?;
            let plain = args.batch.is_some() || json || !std::io::stdout().is_terminal();
            if let Some(path) = of_containers(&*files, args.path.as_deref(), None)? {
                top_containers::watch(&*files, path, &args, plain, json)?;
            } else {
                let by = args.sort.map(top::Sort::of_nodes).transpose()?.unwrap_or_default();
                if plain {
                    top::batch(&*files, &args, by, json)?;
                } else {
                    top::live(&*files, &args, by)?;
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Mk(args) => mk(&args, json),
        Command::Rm(args) => rm(&args, json),
        Command::Rule(args) => rules::rule(&args, json),
        Command::Set { words, thread } => set(&words, thread, json),
        Command::Mv { from, to } => {
            let (from, to) = edit::mv(&*fs::open()?, &from, &to)?;
            if json {
                say_json(&json!({ "from": from.as_str(), "to": to.as_str() }))
            } else {
                Ok(ExitCode::SUCCESS)
            }
        }
        Command::Run(args) => Err(run::run(&args)),
        Command::Tag(args) => {
            let (queue, tagged) = run::tag(&*fs::open()?, &args)?;
            if json {
                say_json(&json!({ "queue": queue.as_str(), "tagged": tagged }))
            } else {
                Ok(ExitCode::SUCCESS)
            }
        }
        Command::Ps(args) => {
            let shown = ps::ps(&*fs::open()?, &args)?;
            note(shown.hidden);
            if json { say_json(&shown.rows) } else { say(&ps::draw(&shown.rows, paint::width())) }
        }
        Command::Allow(args) => changed(&[access::allow(&*fs::open()?, &args)?], json),
        Command::Deny(args) => changed(&[access::deny(&*fs::open()?, &args)?], json),
        Command::Access { path } => {
            let entries = access::list(&*fs::open()?, &path)?;
            if json {
                return say_json(&entries);
            }
            let line = |entry: &access::Entry| format!("{entry}\n");
            say(&entries.iter().map(line).collect::<String>())
        }
        Command::Why { pid, path } => {
            let answers = access::why(&*fs::open()?, pid, &path)?;
            if json {
                return say_json(&answers);
            }
            let line = |a: &access::Answer| a.to_string() + "\n";
            say(&answers.iter().map(line).collect::<String>())
        }
        Command::Usage(args) => {
            usage::record(&*fs::open()?, &args, json)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Stat { path, sort } => {
            let files = fs::open()?;
            let parsed = NodePath::parse(&path, files.place())?;
            of_containers(&*files, Some(&path), sort)?;
            if parsed.is_container() && (sort.is_some() || parsed.is_resource()) {
                return say(&usage::stat(&*files, &path, sort.unwrap_or_default(), json)?);
            }
            if parsed.is_container() {
                let (text, used) = container::usage(&*files, &parsed)?;
                return if json { say_json(&used) } else { say(&text) };
            }
            let (text, stat) = tree::stat(&*files, &path)?;
            match json {
                true => say_json(&stat),
                false if std::io::stdout().is_terminal() => say(&tree::readable(&text, &stat)),
                false => say(&text),
            }
        }
        Command::Completion { shell } => {
            generate::completion(shell, &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Complete { words } => say(&names::complete(words)),
        Command::Gen { what, dir } => {
            let written = match what {
                Generated::Man => generate::man(&dir),
                Generated::Completions => generate::completions(&dir),
            }
            .map_err(|e| Error::io(dir.display(), &e))?;
            say(&format!("{}\n", written.join("\n")))
        }
        Command::Up(args) => up(&args, json),
        Command::Save { file, boot } => {
            if let Some(path) = file.as_deref() {
                up::meant_as_file(path)?;
            }
            let (config, text, missing) = up::save()?;
            // What is started from must be whole.
            if let Some(missing) = missing.clone().filter(|_| boot) {
                return Err(missing);
            }
            let done = match file {
                _ if boot => boot::write(&text).map(|()| ExitCode::SUCCESS),
                Some(path) => whole::write(&path, &text).map(|()| ExitCode::SUCCESS),
                None if json => say_json(&config),
                None => say(&text),
            }?;
            missing.map_or(Ok(done), Err)
        }
        Command::Down { resources, .. } if !resources.is_empty() => {
            up::down_some(&resources)?;
            note(boot::lost());
            if json { say_json(&json!({ "running": true })) } else { Ok(ExitCode::SUCCESS) }
        }
        Command::Down { unload, .. } => {
            let lost = boot::lost();
            up::down(unload)?;
            note(lost);
            if json { say_json(&json!({ "running": false })) } else { Ok(ExitCode::SUCCESS) }
        }
        Command::Upgrade { resources } => {
            let done = up::upgrade(&resources)?;
            if json { say_json(&json!({ "upgraded": done })) } else { say(&up::upgraded(&done)) }
        }
        Command::Status => {
            if json {
                say_json(&up::status_json()?)
            } else {
                let text = up::status()?;
                let said = say(&text);
                // Who does not answer would be waited for again.
                let of = |key: &str| text.lines().filter(|line| line.contains(key)).count();
                if of(".health running") == of(".driver ") {
                    note(boot::lost());
                }
                said
            }
        }
        Command::Disk(args) => disk(&args, json),
        Command::Compare(args) => {
            let report = compare::compare(&args)?;
            if json {
                say_json(&report)?
            } else {
                say(&compare::render(&report))?
            };
            report.measured()
        }
        Command::Load { kind } => Ok(ExitCode::from(u8::try_from(load::main(&kind)).unwrap_or(2))),
        Command::Trace(args) => trace::trace(&args, json),
        Command::Demo { args } => Err(program(
            "demo",
            &args,
            &Error::refused("the demonstration is not installed")
                .hint("in the source tree: make demo (make demo QUICK=1: the short form)"),
        )),
        Command::Experiment { mut args } => {
            // The option that every command has is the experiments' as well.
            if json {
                args.push("--json".into());
            }
            Err(program(
                "experiments",
                &args,
                &Error::refused("the experiments are not installed")
                    .hint("in the source tree: experiments/run --list"),
            ))
        }
    }
}

/// The path, if it is a container's; of others nothing is sorted.
fn of_containers<'p>(
    files: &dyn fs::Files,
    path: Option<&'p str>,
    sort: Option<usage::Sort>,
) -> Result<Option<&'p str>, Error> {
    let Some(path) = path else { return Ok(None) };
    if NodePath::parse(path, files.place())?.is_container() {
        return Ok(Some(path));
    }
    if sort.is_some() {
        return Err(Error::usage(format!("'{path}' is a node, and only containers are sorted"))
            .hint("write container for all of them, or container/web"));
    }
    Ok(None)
}

fn set(words: &[String], thread: Option<i32>, json: bool) -> Result<ExitCode, Error> {
    let files = fs::open()?;
    let changes = match thread {
        Some(tid) => edit::set_thread(&*files, tid, words)?,
        None => edit::set(&*files, words)?,
    };
    changed(&changes, json)
}

fn changed(changes: &[edit::Change], json: bool) -> Result<ExitCode, Error> {
    if json {
        return say_json(&json!({ "changed": changes }));
    }
    let paint = Paint::stdout();
    for c in changes {
        say(&format!("{} {}: {} {} → {}\n", paint.yellow("~"), c.path, c.key, c.old, c.new))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn up(args: &args::Up, json: bool) -> Result<ExitCode, Error> {
    let brought = up::up(args)?;
    note(rules::unknown(&brought.rules));
    if json {
        say_json(&json!({
            "dry_run": args.dry_run,
            "started": brought.started,
            "difference": brought.difference,
        }))?;
    } else {
        if brought.started {
            say(&format!("Reserv is up: {}\n", fs::mount_point().display()))?;
        }
        match &brought.difference {
            Some(lines) if lines.is_empty() => say("no difference\n")?,
            Some(lines) => say(&delta::render(lines, Paint::stdout()))?,
            None if !brought.started && !args.dry_run => say("Reserv is running already\n")?,
            None => ExitCode::SUCCESS,
        };
    }
    if !args.dry_run && brought.difference.as_ref().is_some_and(|lines| !lines.is_empty()) {
        note(boot::lost());
    }
    if let Some(child) = brought.child {
        launch::stay(child)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The demonstration and the experiments are programs of their own, installed in `share/reserv`.
/// They are looked for beside the executable, and beside the name by which it was called: with a
/// `target` that is a link elsewhere only the latter lies in the source tree.
fn program(name: &str, args: &[std::ffi::OsString], missing: &Error) -> Error {
    use std::os::unix::process::CommandExt as _;
    let called = std::env::args_os().next().map(std::path::PathBuf::from);
    let called = called.filter(|path| path.components().count() > 1).map(std::path::absolute);
    let exes = [std::env::current_exe().ok(), called.and_then(Result::ok)];
    let script = exes
        .iter()
        .flatten()
        .flat_map(|exe| exe.ancestors().skip(2).take(2))
        .flat_map(|above| {
            [
                above.join("share/reserv").join(name),
                above.join("share/reserv").join(name).join("run"),
                above.join(name).join("run"),
            ]
        })
        .find(|path| path.is_file());
    match script {
        Some(path) => {
            Error::io(path.display(), &std::process::Command::new(&path).args(args).exec())
        }
        None => missing.clone(),
    }
}

/// What the drivers themselves say about this machine.
fn probes() -> Vec<(&'static str, Result<(), String>)> {
    use reserv_plane::cpu::{full, stock};
    vec![("full", full::probe()), ("stock", stock::probe())]
}

/// All of them or none.
fn mk(args: &args::Mk, json: bool) -> Result<ExitCode, Error> {
    let files = fs::open()?;
    let mut made: Vec<NodePath> = Vec::new();
    for path in &args.paths {
        let of_container =
            args.container || NodePath::parse(path, files.place()).is_ok_and(|p| p.is_container());
        let done = if of_container {
            container::mk(&*files, args, path)
        } else {
            edit::mk(&*files, args, path)
        };
        match done {
            Ok(path) => made.push(path),
            Err(mut error) => {
                for path in made.iter().rev() {
                    if let Err(e) = files.rmdir(path.as_str()) {
                        error.add(&format!("and '{path}' could not be removed again: {e}"));
                    }
                }
                return Err(error);
            }
        }
    }
    let made: Vec<&str> = made.iter().map(NodePath::as_str).collect();
    match (&made[..], json) {
        ([path], true) => say_json(&json!({ "made": path })),
        (paths, true) => say_json(&json!({ "made": paths })),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Every path is tried; what went is said, what did not is the error.
fn rm(args: &args::Rm, json: bool) -> Result<ExitCode, Error> {
    let files = fs::open()?;
    let mut removed = Vec::new();
    let mut failed: Option<Error> = None;
    for path in &args.paths {
        match edit::rm(&*files, path, args) {
            Ok((path, how)) => {
                if how == edit::Removed::Draining && !json {
                    say(&format!("{path} goes when its last member has left\n"))?;
                }
                removed.push(json!({ "path": path.as_str(), "state": how }));
            }
            Err(error) => match &mut failed {
                None => failed = Some(error),
                Some(first) => first.add(&error.message),
            },
        }
    }
    if json {
        say_json(&json!({ "removed": removed }))?;
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}
