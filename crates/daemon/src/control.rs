// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket `/run/reserv/control.sock`: what is no file of the name space, and the files
//! for who must not wait for the mount. Root only (asked of the kernel, `SO_PEERCRED`, beside the
//! mode 0600). What is said there is [`reserv_control`]'s.
//!
//! No connection stops the others: a line has a greatest length and a longest time; a connection
//! that says nothing is closed, at once where another one needs its place.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::sys::socket::{SockType, getsockopt, sockopt::PeerCredentials};
use reserv_control::{Ask, Changes, Command, Mode, Refused, Stopped as Down, Up, Version};
use reserv_facts::time::ANSWER_MAX;
use reserv_model::{Config, Containers, DeleteMode, Written};
use reserv_plane::private;
use serde_json::{Value, json};

use crate::begin;
use crate::connections::{Connections, Line, Lines, Place};
use crate::container::Room;
use crate::core::Core;
use crate::forgetter::Forgetter;
use crate::fs::Fs;
use crate::fs::by_path::{ByPath, Peer};
use crate::fuse::proto::Caller;
use crate::process;
use crate::refusal::Refusal;
use crate::spare::Spare;
use crate::unanswered::{Fatal, Unanswered};

/// Most connections at once.
const CONNECTIONS_MAX: usize = 32;
/// Most that wait to be accepted.
const WAITING_MAX: i32 = 128;
/// How long a connection may be silent, and how long a line may take.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The same while all others wait for it.
const SILENCE_SHORT: Duration = Duration::from_millis(500);

/// Asks the main thread for a full stop; the answer comes when it is done, just before the process
/// ends.
pub type StopAsker = Sender<Sender<Result<(), Refusal>>>;
/// How a stop ended; the worker goes on to live until this is dropped.
type Stopped = Receiver<Result<(), Refusal>>;

/// Reads a configuration from its text (TOML).
pub fn parse_config(text: &str) -> Result<Config, Refusal> {
    let written: Written = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or_else(String::new, |span| {
            format!("line {}: ", 1 + text[..span.start.min(text.len())].matches('\n').count())
        });
        Refusal::new(libc::EINVAL, format!("configuration: {line}{}", error.message()))
    })?;
    let config = Config::try_from(written)?;
    config.check()?;
    Ok(config)
}

/// Binds the socket; an old one (the lock says that its owner is dead) is replaced.
pub fn bind(path: &Path) -> std::io::Result<UnixListener> {
    private::listen_at(path, SockType::Stream, WAITING_MAX).map(UnixListener::from)
}

/// The same for as long as it takes: the file system may be full.
pub fn bind_at_last(path: &Path) -> UnixListener {
    let mut pause = Duration::from_millis(100);
    loop {
        std::thread::sleep(pause);
        match bind(path) {
            Ok(listener) => {
                tracing::info!("the control socket is there");
                return listener;
            }
            Err(error) => tracing::debug!(%error, "no control socket yet"),
        }
        pause = (pause * 2).min(SILENCE_MAX);
    }
}

/// What connections are served with.
pub struct Served {
    /// What they are about.
    pub core: Arc<Core>,
    /// For `down`.
    pub stop: StopAsker,
    /// For names that go.
    pub forgetter: Arc<Forgetter>,
    /// The name space. Each connection has a handle of its own to the same one.
    pub files: Fs,
    /// Containers, which no resource knows.
    pub room: Arc<Room>,
    /// What ended a worker before.
    pub unanswered: Unanswered,
}

/// Serves connections, for ever.
pub fn serve(listener: &UnixListener, served: Served) {
    let served = Arc::new(served);
    let connections = Arc::new(Connections::new(CONNECTIONS_MAX));
    let mut spare = Spare::default();
    loop {
        spare.fill();
        let mut scarce = false;
        let accepted = listener.accept().or_else(|error| {
            scarce = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
            if !scarce {
                return Err(error);
            }
            spare.give();
            listener.accept()
        });
        let Ok((stream, _)) = accepted else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let stream = Arc::new(stream);
        let Some(place) = connections.enter(&stream).map(Arc::new) else {
            tracing::debug!("as many connections as there may be, and all are served");
            continue;
        };
        if scarce {
            // Here: the next one is accepted when this one has given its descriptors back.
            tracing::warn!("no descriptor: a control connection is served with the last ones");
            said(talk(&stream, &served, &place, SILENCE_SHORT));
            continue;
        }
        let spawned = {
            let (stream, served, place) = (stream.clone(), served.clone(), place.clone());
            let body = move || said(talk(&stream, &served, &place, SILENCE_MAX));
            begin::thread("connection", body)
        };
        if let Err(error) = spawned {
            // Here, so that who wants to mend it can: others wait meanwhile, but not for long.
            tracing::warn!(%error, "no thread: a control connection is served by the listener");
            said(talk(&stream, &served, &place, SILENCE_SHORT));
        }
    }
}

fn said(ended: std::io::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a control connection ended");
    }
}

fn refusal(Refusal { errno, text, hint }: Refusal) -> Value {
    Refused { errno, text, hint }.line()
}

/// Who connected. Only root comes so far as to need it.
fn peer(stream: &UnixStream, credentials: nix::sys::socket::UnixCredentials) -> Peer {
    let (tid, pid) = (credentials.pid(), credentials.pid().cast_unsigned());
    let held = if tid == 0 { None } else { process::hold_peer(stream.as_fd(), pid) };
    Peer { caller: Caller { uid: credentials.uid(), gid: credentials.gid(), tid }, held }
}

/// On a thread that may be lost, with what it answers by; within the time that the mount takes too.
fn answer_in_time(
    files: &mut Option<ByPath>,
    new: impl Fn() -> ByPath,
    ask: Ask,
) -> Result<Value, Refusal> {
    let (tell, hear) = channel();
    let mut by = files.take().unwrap_or_else(&new);
    let ask = Arc::new(ask);
    let of_thread = ask.clone();
    let body = move || {
        let answer = by.answer(&of_thread);
        let _ = tell.send((by, answer));
    };
    if begin::thread("by path", body).is_err() {
        return files.insert(new()).answer(&ask);
    }
    let (by, answer) = hear.recv_timeout(ANSWER_MAX).map_err(|_| Refusal::no_answer())?;
    *files = Some(by);
    answer
}

fn talk(
    stream: &UnixStream,
    served: &Served,
    place: &Place,
    silence: Duration,
) -> std::io::Result<()> {
    stream.set_write_timeout(Some(silence))?;
    let credentials = getsockopt(stream, PeerCredentials)?;
    let mut files = None;
    let mut lines = Lines::new(stream, silence);
    loop {
        let line = lines.line()?;
        // Whoever loses the place as he speaks asks again: nothing is begun for him here.
        if matches!(line, Line::End) || !place.busy() {
            return Ok(());
        }
        let mut last = None;
        let answered = match &line {
            _ if credentials.uid() != 0 => {
                Err(Refusal::new(libc::EPERM, "only root may use the control socket"))
            }
            Line::Whole(line) => {
                let mut by_path = |ask: Ask| {
                    let new = || ByPath::new(served.files.clone(), peer(stream, credentials));
                    answer_in_time(&mut files, new, ask)
                };
                answer(line, served, &mut by_path, &mut last)
            }
            Line::TooLong | Line::End => Err(Refusal::new(libc::EMSGSIZE, "the line is too long")),
        };
        // Whoever is told that a node is gone finds it gone; after a stop all of them are, with the
        // mount, and nobody is left whom to tell.
        let removed = served.core.take_removed();
        if last.is_none() || answered.is_err() {
            served.forgetter.forget(&removed);
        }
        let mut text = answered.unwrap_or_else(refusal).to_string();
        text.push('\n');
        let mut writer = stream;
        writer.write_all(text.as_bytes())?;
        drop(last);
        if matches!(line, Line::TooLong) {
            stream.shutdown(Shutdown::Write)?;
            lines.drain();
            return Ok(());
        }
        place.idle();
    }
}

/// Where a list, or something else, stands in place of an object: serde would take a list's items
/// for the fields, in their order, and an empty one for a configuration that wants nothing.
fn not_an_object(value: &Value) -> Option<&'static str> {
    let is = |value: Option<&Value>| value.is_none_or(|v| v.is_object() || v.is_null());
    let config = value.get("config");
    let cpu = config.and_then(|c| c.get("cpu"));
    let count = config.and_then(|c| c.get("count"));
    let empty = serde_json::Map::new();
    let counting = count.and_then(Value::as_object).unwrap_or(&empty);
    let resources: Vec<&Value> = cpu.into_iter().chain(counting.values()).collect();
    let nodes: Vec<&Value> = resources.iter().filter_map(|r| r.get("nodes")).collect();
    let containers = config.and_then(|c| c.get("container"));
    let rules = config.and_then(|c| c.get("rule")).and_then(Value::as_array);
    [
        ("the request", value.is_object()),
        ("config", is(config)),
        ("config.cpu", is(cpu)),
        ("config.count", is(count)),
        ("count", is(value.get("count"))),
        ("a resource", counting.values().all(Value::is_object)),
        ("a resource's nodes", nodes.iter().all(|n| n.is_object() || n.is_null())),
        (
            "a node",
            nodes.iter().filter_map(|n| n.as_object()).all(|n| n.values().all(Value::is_object)),
        ),
        ("config.container", is(containers)),
        (
            "a container",
            containers.and_then(Value::as_object).is_none_or(|c| c.values().all(Value::is_object)),
        ),
        ("a rule", rules.is_none_or(|rules| rules.iter().all(Value::is_object))),
        ("a rule's match", rules.is_none_or(|rules| rules.iter().all(|r| is(r.get("match"))))),
    ]
    .into_iter()
    .find_map(|(place, good)| (!good).then_some(place))
}

/// What a line asks for.
enum Meant {
    Files(Ask),
    Command(Command),
}

fn wrong(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(libc::EINVAL, format!("no command of the control socket: {why}"))
}

fn value_of(line: &[u8]) -> Result<Value, Refusal> {
    let value: Value = serde_json::from_slice(line).map_err(wrong)?;
    match not_an_object(&value) {
        Some(place) => Err(wrong(format_args!("{place} is no object"))),
        None => Ok(value),
    }
}

fn meant(value: Value) -> Result<Meant, Refusal> {
    if Ask::is(&value) {
        serde_json::from_value(value).map(Meant::Files).map_err(wrong)
    } else {
        serde_json::from_value(value).map(Meant::Command).map_err(wrong)
    }
}

/// Reads a line: for `fuzz/`.
#[doc(hidden)]
pub fn understands(line: &[u8]) -> Result<(), Refusal> {
    meant(value_of(line)?).map(drop)
}

/// `last` holds, until the answer to a stop is written, what keeps this process alive so long.
fn answer(
    line: &[u8],
    Served { core, stop, room, unanswered, .. }: &Served,
    by_path: &mut dyn FnMut(Ask) -> Result<Value, Refusal>,
    last: &mut Option<Stopped>,
) -> Result<Value, Refusal> {
    let value = value_of(line)?;
    // Until the answer is there; it may be lost on its way all the same.
    let _note = unanswered.begin_said(&value).map_err(|Fatal| {
        tracing::error!(
            "a request of the control socket that has ended two workers is answered EIO"
        );
        Refusal::new(libc::EIO, "this request has ended reservd's worker twice")
    })?;
    let command = match meant(value)? {
        Meant::Files(ask) => return by_path(ask),
        Meant::Command(command) => command,
    };
    Ok(match command {
        Command::Version {} => {
            let mount = core.mount().display().to_string();
            let (version, pid) = (env!("CARGO_PKG_VERSION").to_owned(), std::process::id());
            json!(Version { version, pid, mount, device: core.mounted() })
        }
        Command::Status {} => json!(core.status()?),
        Command::Up(Up { config, personality, count, .. })
            if usize::from(config.is_some())
                + usize::from(personality.is_some())
                + usize::from(count.is_some())
                > 1 =>
        {
            let text = "a configuration, a personality or counting resources: one at a time; the first holds all";
            return Err(Refusal::new(libc::EINVAL, text));
        }
        Command::Up(Up { count: Some(count), dry_run, .. }) => {
            json!(Changes { changes: core.bring_up_all(&count, dry_run)? })
        }
        Command::Up(Up { personality: Some(personality), dry_run, .. }) => {
            json!(Changes { changes: core.set_personality(personality, dry_run)? })
        }
        Command::Up(Up { config, rules_were, dry_run, mode, .. }) => {
            let mode = match mode {
                Mode::Refuse => DeleteMode::Refuse,
                Mode::Drain => DeleteMode::Drain,
                Mode::Flush => DeleteMode::Flush,
            };
            let changes = match config {
                Some(config) => {
                    let also = room.part(&config.containers);
                    core.apply_if(rules_were.as_deref(), &config, &also, dry_run, mode)?
                }
                None if dry_run => Vec::new(),
                None => {
                    core.try_again()?;
                    Vec::new()
                }
            };
            if !dry_run {
                core.scan();
            }
            json!(Changes { changes })
        }
        Command::Save {} => {
            let mut saved = core.save();
            saved.config.containers = match room.to_config() {
                // It is said to be missing, and containers' rights are in it.
                Err(_) if saved.missing.keys().any(|name| name.as_str() == "cpu") => {
                    room.look(Containers::to_config)
                }
                containers => containers?,
            };
            json!(saved)
        }
        Command::Rules {} => {
            let applied = core.applied_rules();
            let (rules, watch) = (core.rules(), core.watched());
            let (counts, busy) = core.arrivals();
            json!({
                "rules": *rules,
                "watch": watch,
                "applied": applied,
                "counts": counts,
                "busy": busy,
            })
        }
        Command::Upgrade { resource } => json!({"upgraded": core.upgrade(&resource)?}),
        Command::Down { resource: Some(name) } => {
            core.take_down(&name)?;
            json!(Down { stopped: true })
        }
        Command::Down { resource: None } => {
            let (done, wait) = channel();
            let gone = || Refusal::new(libc::ENODEV, "reservd is stopping");
            stop.send(done).map_err(|_| gone())?;
            let stopped = wait.recv().map_err(|_| gone())?;
            *last = Some(wait);
            stopped?;
            json!(Down { stopped: true })
        }
    })
}
