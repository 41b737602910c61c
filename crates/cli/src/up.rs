// SPDX-License-Identifier: MIT OR Apache-2.0
//! `up`, `down`, `save`, `status`: the daemon's life, and whole configurations.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use reserv_control::{Changes, Command, Mode, Saved, Stopped, Up as Wish};
use reserv_facts::place;
use reserv_facts::time::STOP_MAX;
use reserv_model::{
    Config, Name, Personality, ResourceConfig, Rule, Source, Tree, Written, to_config,
};
use serde_json::Value;

use crate::args::{Driver, Front, Up};
use crate::control::{Control, run_dir};
use crate::delta::{self, Line};
use crate::error::{Error, Kind};
use crate::launch::{LOOK, Progress, start};
use crate::paint::amount;
use crate::signals::Held;

/// What `up` did.
pub(crate) struct Brought {
    /// What the configuration changed, or would change.
    pub(crate) difference: Option<Vec<Line>>,
    /// Whether reservd was started.
    pub(crate) started: bool,
    /// A daemon in the foreground, to wait for.
    pub(crate) child: Option<Child>,
    /// Of the configuration.
    pub(crate) rules: Vec<Rule>,
}

/// Read and check a configuration.
fn read_config(path: &Path) -> Result<Config, Error> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        io::stdin().read_to_string(&mut text).map_err(|e| Error::io("standard input", &e))?;
    } else {
        text = fs::read_to_string(path).map_err(|e| Error::of_file(path, &e))?;
    }
    let written: Written = toml::from_str(&text).map_err(|e| {
        // toml names line and column and shows the line.
        Error::refused(format!("{}: {}", path.display(), e.to_string().trim_end()))
            .hint("reserv(5) describes the format; 'reserv save' prints a valid file")
    })?;
    let checked = Config::try_from(written).and_then(|config| config.check().map(|()| config));
    checked.map_err(|e| {
        let error = Error::refused(format!("{}: {e}", path.display()));
        if e.hint.is_empty() { error } else { error.hint(e.hint) }
    })
}

/// The configuration of a tree that has nothing but q0.
fn nothing() -> Config {
    let tree = Name::new("cpu").ok().map(Tree::new);
    Config {
        cpu: tree.map(|tree| to_config(&tree, reserv_model::Driver::Auto)),
        ..Config::default()
    }
}

/// Start Reserv if it does not run, and apply a configuration.
pub(crate) fn up(args: &Up) -> Result<Brought, Error> {
    let mut config = args.config.as_deref().map(read_config).transpose()?;
    let mut personality = args.personality;
    let count: BTreeMap<Name, Source> = args
        .count
        .iter()
        .cloned()
        .map(Ok)
        .chain(args.net.iter().map(|net| link(net, args)))
        .chain(args.disk.iter().map(|(name, path)| {
            disk(name, path, args.depth, args.floor, args.front, args.model, args.disk_driver)
        }))
        .collect::<Result<_, _>>()?;
    if count.len() < args.count.len() + args.net.len() + args.disk.len() {
        return Err(Error::usage("one name for two resources"));
    }
    if let Some(cpu) = config.as_mut().and_then(|config| config.cpu.as_mut())
        && let Some(personality) = personality.take()
    {
        cpu.personality = personality;
        cpu_checked(cpu)?;
    }
    if config.is_some() && personality.is_some() {
        return Err(Error::usage("a personality, and a configuration that leaves the CPU alone"));
    }
    if let Some(config) = &mut config {
        // What is named on the command line is brought up with the file's resources, with nothing
        // but q0 if the file says nothing.
        for (name, on) in &count {
            let there = config.count.entry(name.clone()).or_insert_with(|| plain(name, on));
            if there.on.as_ref() != Some(on) {
                let was = there.on.as_ref().map_or_else(String::new, ToString::to_string);
                return Err(Error::usage(format!(
                    "{name} counts {on} here, and {was} in the configuration"
                )));
            }
        }
    }
    let rules = config.as_ref().map_or_else(Vec::new, |config| config.rules.clone());
    let running = Control::living()?;
    if running.is_none() {
        let wanted = config.clone().unwrap_or_else(|| with(&nothing(), personality, &count));
        crate::ahead::check(&with_policies(wanted, args), driver(args, config.as_ref()))?;
    }
    if args.dry_run {
        let mut done = Changes { changes: Vec::new() };
        let now = match running {
            Some(mut control) => {
                if let Some(config) = &config {
                    done = ask_up(&mut control, request(args, config))?;
                }
                if personality.is_some() {
                    ask_up(&mut control, Wish { personality, dry_run: true, ..Wish::default() })?;
                }
                if config.is_none() && !count.is_empty() {
                    let count = Some(count.clone());
                    ask_up(&mut control, Wish { count, dry_run: true, ..Wish::default() })?;
                }
                saved(&mut control)?
            }
            None => nothing(),
        };
        let difference = match (config, personality) {
            (Some(config), _) => Some(said(delta::difference(&now, &config), &done)),
            (None, None) if count.is_empty() => None,
            (None, personality) => Some(delta::difference(&now, &with(&now, personality, &count))),
        };
        return Ok(Brought { difference, started: false, child: None, rules });
    }
    let signals = Held::begin();
    let (mut control, child, started) = if let Some(mut control) = running {
        check_driver(&mut control, args.driver)?;
        if args.ignore_cgroup_weights {
            check_ignores(&mut control)?;
        }
        if config.is_none() && personality.is_none() && count.is_empty() {
            // A scheduler that was given up after too many ejections is tried again.
            ask_up(&mut control, Wish::default())?;
        }
        (control, None, false)
    } else {
        let child = start(args, config.as_ref(), &signals)?;
        (Control::need()?, Some(child), true)
    };
    let before = if args.policy.is_some() { Some(saved(&mut control)?) } else { None };
    let applied = match (&config, personality) {
        (None, None) if count.is_empty() => None,
        (Some(config), _) => Some(apply(&mut control, config, args)),
        (None, personality) => Some(set(&mut control, personality, &count)),
    };
    let applied = applied.map(|applied| {
        let lines = applied?;
        let Err(mut error) = policies(args) else { return Ok(lines) };
        // What was started anew goes as a whole.
        if let (Some(before), false) = (&before, started)
            && let Err(also) = put_back(&mut control, before, config.is_some(), &count)
        {
            error.add(&format!("and not all is as it was: {}", also.message));
        }
        Err(error)
    });
    let difference = match applied {
        None => None,
        Some(applied) => match applied {
            Ok(difference) => Some(difference),
            Err(error) if started => {
                // What this command started, it stops again: a failed `up` leaves the machine as it
                // was.
                let stopped = down_with(control);
                let error = match stopped {
                    Ok(()) => error,
                    Err(also) => {
                        let mut error = error;
                        error.add(&format!(
                            "and reservd could not be stopped again: {}",
                            also.message
                        ));
                        error
                    }
                };
                return Err(error);
            }
            Err(error) => return Err(error),
        },
    };
    Ok(Brought { difference, started, child: child.filter(|_| args.foreground), rules })
}

/// The same with the policy that is asked for the disks of the command line.
fn with_policies(mut wanted: Config, args: &Up) -> Config {
    for (name, _) in &args.disk {
        if let Some(disk) = wanted.count.get_mut(name) {
            disk.policy = args.policy.or(disk.policy);
        }
    }
    wanted
}

/// The driver that the CPU is to have.
pub(crate) fn driver(args: &Up, config: Option<&Config>) -> reserv_model::Driver {
    let configured = config.and_then(|config| config.cpu.as_ref()).map(|cpu| cpu.driver);
    match args.driver {
        Driver::Auto => configured.unwrap_or_default(),
        Driver::Full => reserv_model::Driver::Full,
        Driver::Stock => reserv_model::Driver::Stock,
    }
}

/// Takes down what of `count` was not there before; the trees as they were, if they were changed.
fn put_back(
    control: &mut Control,
    before: &Config,
    trees_too: bool,
    count: &BTreeMap<Name, Source>,
) -> Result<(), Error> {
    let mut done = Ok(());
    for name in count.keys().filter(|name| !before.count.contains_key(*name)) {
        let down = control.ask::<Stopped>(&Command::Down { resource: Some(name.clone()) });
        done = done.and(down.map(drop));
    }
    if trees_too {
        let config = Some(Box::new(before.clone()));
        done = done.and(ask_up(control, Wish { config, ..Wish::default() }).map(drop));
    }
    done
}

/// How a source ends that names its driver.
const fn suffix(driver: Driver) -> &'static str {
    match driver {
        Driver::Auto => "",
        Driver::Full => "/full",
        Driver::Stock => "/stock",
    }
}

/// An interface to be scheduled: a resource of its name.
fn link(interface: &str, args: &Up) -> Result<(Name, Source), Error> {
    let name = Name::new(interface)
        .map_err(|e| Error::usage(format!("--net {interface}: {e}")).hint(e.hint))?;
    let rate = args.rate.map_or_else(String::new, |rate| format!("@{}", rate.bare()));
    let mut receive = args.receive.map_or_else(String::new, |at| format!("+{at}"));
    if let Some(queue) = &args.receive_in {
        receive = format!("{receive}+in={queue}");
    }
    let text = format!("link{receive}:{interface}{rate}{}", suffix(args.net_driver));
    let on =
        text.parse().map_err(|e: reserv_model::Error| Error::usage(e.to_string()).hint(e.hint))?;
    Ok((name, on))
}

/// A disk to be scheduled.
pub(crate) fn disk(
    name: &Name,
    path: &str,
    depth: Option<u32>,
    floor: Option<reserv_model::Rate>,
    front: Front,
    model: Option<reserv_model::DiskModel>,
    driver: Driver,
) -> Result<(Name, Source), Error> {
    let depth = depth.map_or_else(String::new, |depth| format!("+{depth}"));
    let floor = floor.map_or_else(String::new, |floor| format!("@{}", floor.bare()));
    let front = match front {
        Front::Auto => "",
        Front::Ublk => "/ublk",
        Front::Fuse => "/fuse",
    };
    let model = model.map_or_else(String::new, |model| format!("/{model}"));
    let text = format!("disk{depth}{floor}{model}{front}{}:{path}", suffix(driver));
    let on =
        text.parse().map_err(|e: reserv_model::Error| Error::usage(e.to_string()).hint(e.hint))?;
    Ok((name.clone(), on))
}

/// `up --policy`: of the disks that it names.
fn policies(args: &Up) -> Result<(), Error> {
    let Some(policy) = args.policy else { return Ok(()) };
    args.disk.iter().try_for_each(|(name, _)| set_policy(name.as_str(), policy))
}

fn set_policy(name: &str, policy: reserv_model::Policy) -> Result<(), Error> {
    let words = [name.to_owned(), format!("policy={policy}")];
    crate::fs::open().and_then(|files| crate::edit::set(&*files, &words)).map(drop)
}

/// `reserv disk attach`: as `up --disk`, where Reserv runs; and with this policy, or not at all.
pub(crate) fn attach(
    on: (Name, Source),
    policy: Option<reserv_model::Policy>,
) -> Result<(), Error> {
    let mut control = Control::need()?;
    let name = on.0.as_str().to_owned();
    set(&mut control, None, &[on].into())?;
    let Some(policy) = policy else { return Ok(()) };
    set_policy(&name, policy).map_err(|mut error| {
        if let Err(also) = down_some(&[name]) {
            error.add(&format!("and it could not be detached again: {}", also.message));
        }
        error
    })
}

/// The flag may not fit what the file says.
fn cpu_checked(cpu: &ResourceConfig) -> Result<(), Error> {
    let config = Config { cpu: Some(cpu.clone()), ..Config::default() };
    config.check().map_err(|e| {
        Error::refused(format!("with personality {}: {e}", cpu.personality)).hint(e.hint)
    })
}

/// A counting resource with nothing but q0.
fn plain(name: &Name, on: &Source) -> ResourceConfig {
    ResourceConfig {
        on: Some(on.clone()),
        ..to_config(&Tree::new(name.clone()), reserv_model::Driver::Auto)
    }
}

/// The same trees with another personality (the roots' policies and tunables are its), and with
/// more counting resources.
fn with(now: &Config, personality: Option<Personality>, count: &BTreeMap<Name, Source>) -> Config {
    let mut then = now.clone();
    for (name, on) in count {
        let there = then.count.entry(name.clone()).or_insert_with(|| plain(name, on));
        // What is not told of one that runs stays.
        there.on = there.on.as_ref().map(|has| on.filled(has));
    }
    if let Some(personality) = personality {
        for tree in then.cpu.iter_mut().chain(then.count.values_mut()) {
            (tree.personality, tree.policy, tree.tune) =
                (personality, Some(personality.root_policy(tree.resource())), None);
        }
    }
    then
}

fn set(
    control: &mut Control,
    personality: Option<Personality>,
    count: &BTreeMap<Name, Source>,
) -> Result<Vec<Line>, Error> {
    let before = saved(control)?;
    let wish = |dry_run| Wish { personality, dry_run, ..Wish::default() };
    if personality.is_some() {
        // Nothing comes where it is refused.
        ask_up(control, wish(true))?;
    }
    if !count.is_empty() {
        ask_up(control, Wish { count: Some(count.clone()), ..Wish::default() })?;
    }
    if personality.is_some()
        && let Err(mut error) = ask_up(control, wish(false))
    {
        if let Err(also) = put_back(control, &before, false, count) {
            error.add(&format!("and not all is as it was: {}", also.message));
        }
        return Err(error);
    }
    Ok(delta::difference(&before, &with(&before, personality, count)))
}

fn request(args: &Up, config: &Config) -> Wish {
    let mode = match (args.drain, args.flush) {
        (true, _) => Mode::Drain,
        (_, true) => Mode::Flush,
        _ => Mode::Refuse,
    };
    Wish { config: Some(Box::new(config.clone())), dry_run: args.dry_run, mode, ..Wish::default() }
}

fn ask_up(control: &mut Control, wish: Wish) -> Result<Changes, Error> {
    control.ask::<Changes>(&Command::Up(wish))
}

fn apply(control: &mut Control, config: &Config, args: &Up) -> Result<Vec<Line>, Error> {
    let before = saved(control)?;
    let done = ask_up(control, request(args, config))?;
    Ok(said(delta::difference(&before, config), &done))
}

/// The difference; or, where configurations show none (queues that drain are in none), what the
/// daemon says that it does.
fn said(lines: Vec<Line>, done: &Changes) -> Vec<Line> {
    if !lines.is_empty() {
        return lines;
    }
    let line = |words: &String| Line { mark: '~', what: words.clone(), how: String::new() };
    done.changes.iter().map(line).collect()
}

/// Start Reserv with the full driver and nothing else.
pub(crate) fn start_plain() -> Result<(), Error> {
    let args = Up {
        config: None,
        driver: Driver::Full,
        personality: None,
        count: Vec::new(),
        net: Vec::new(),
        net_driver: Driver::Auto,
        front: Front::Auto,
        rate: None,
        receive: None,
        receive_in: None,
        disk: Vec::new(),
        depth: None,
        floor: None,
        model: None,
        disk_driver: Driver::Auto,
        policy: None,
        dry_run: false,
        drain: false,
        flush: false,
        ignore_cgroup_weights: false,
        foreground: false,
    };
    up(&args).map(drop)
}

/// Make the whole tree as a configuration says; members of queues that go move to q0.
pub(crate) fn apply_whole(config: &Config) -> Result<(), Error> {
    let config = Some(Box::new(config.clone()));
    ask_up(&mut Control::need()?, Wish { config, mode: Mode::Flush, ..Wish::default() }).map(drop)
}

/// The same, with a daemon that may have been stopped meanwhile.
pub(crate) fn restore(config: &Config) -> Result<(), Error> {
    if Control::connect()?.is_none() {
        start_plain()?;
    }
    apply_whole(config)
}

/// The running tree and rules.
pub(crate) fn saved(control: &mut Control) -> Result<Config, Error> {
    let Saved { config, missing } = control.ask(&Command::Save {})?;
    if missing.is_empty() { Ok(config) } else { Err(partly(&missing)) }
}

/// What is said of resources that gave no answer.
fn partly(missing: &BTreeMap<Name, String>) -> Error {
    let words: Vec<&str> = missing.values().map(String::as_str).collect();
    Error::new(Kind::Partly, words.join("; "))
        .hint("'reserv status' says which driver is waited for")
}

/// So long a CPU that has not told yet what it is may take: it comes up, or its worker has just
/// died.
const TOLD_MAX: Duration = Duration::from_secs(10);

/// What the CPU says of itself.
fn cpu(control: &mut Control) -> Result<Value, Error> {
    let end = Instant::now() + TOLD_MAX;
    loop {
        let mut status = control.ask::<Value>(&Command::Status {})?;
        let cpu = status.pointer_mut("/resources/cpu").map(Value::take).unwrap_or_default();
        if cpu["driver"] != "unknown" || Instant::now() > end {
            return Ok(cpu);
        }
        sleep(LOOK);
    }
}

/// A running daemon keeps its driver: saying so is better than pretending.
fn check_driver(control: &mut Control, wanted: Driver) -> Result<(), Error> {
    let wanted = match wanted {
        Driver::Auto => return Ok(()),
        Driver::Full => "full",
        Driver::Stock => "stock",
    };
    let cpu = cpu(control)?;
    let runs = cpu["driver"].as_str().unwrap_or("unknown");
    if runs == wanted {
        return Ok(());
    }
    Err(Error::refused(format!("Reserv runs with the {runs} driver"))
        .hint("the driver is chosen at the start: reserv save tree.toml; reserv down; reserv up --driver … --config tree.toml"))
}

/// The same for the mirror of cgroups.
fn check_ignores(control: &mut Control) -> Result<(), Error> {
    let cgroups = &cpu(control)?["cgroups"];
    if cgroups.is_null() || cgroups["ignored"] == true {
        return Ok(());
    }
    Err(Error::refused("Reserv runs, and mirrors the cgroups inside q0")
        .hint("that is chosen at the start: reserv save tree.toml; reserv down; reserv up --ignore-cgroup-weights --config tree.toml"))
}

fn resource(name: &str) -> Result<Name, Error> {
    Name::new(name)
        .map_err(|e| Error::usage(format!("no resource is called '{name}': {e}")).hint(e.hint))
}

/// Take counting resources down; the first that does not go ends it.
pub(crate) fn down_some(names: &[String]) -> Result<(), Error> {
    let mut control = Control::need()?;
    for name in names {
        let resource = Some(resource(name)?);
        control.ask::<Stopped>(&Command::Down { resource })?;
    }
    Ok(())
}

/// Put this version's programs in the place of another's; what that lost, by resource (null: they
/// are this version's).
pub(crate) fn upgrade(names: &[String]) -> Result<BTreeMap<String, Value>, Error> {
    let _signals = Held::begin();
    let mut control = Control::need()?;
    let mut done = BTreeMap::new();
    for name in names {
        let answer: Value = control.ask(&Command::Upgrade { resource: resource(name)? })?;
        done.insert(name.clone(), answer.get("upgraded").cloned().unwrap_or_default());
    }
    Ok(done)
}

/// The same in words.
pub(crate) fn upgraded(done: &BTreeMap<String, Value>) -> String {
    let mut text = String::new();
    for (name, lost) in done {
        let number = |key: &str| lost.get(key).and_then(Value::as_u64).unwrap_or_default();
        if lost.is_null() {
            let _ = writeln!(text, "{name}: its programs are this version's already");
            continue;
        }
        let bytes = match number("bytes") {
            0 => String::new(),
            bytes => format!(" ({})", amount((bytes, "bytes"))),
        };
        let _ = writeln!(
            text,
            "{name}: upgraded from ABI {} to {}; {} packets{bytes} that waited are lost, and {} that came meanwhile",
            number("from"),
            number("to"),
            number("packets"),
            number("meanwhile")
        );
        if lost.get("counters") != Some(&Value::Bool(true)) {
            let _ = writeln!(
                text,
                "{name}: counters begin anew; this version does not understand the other's"
            );
        }
    }
    text
}

/// Stop Reserv.
/// `unload`: what is put by goes too, also where nobody runs.
pub(crate) fn down(unload: bool) -> Result<(), Error> {
    let _signals = Held::begin();
    let done = Control::need().and_then(down_with);
    if unload {
        let had =
            reserv_plane::parked::clear().map_err(|error| Error::refused(error.to_string()))?;
        return if had { Ok(()) } else { done };
    }
    done
}

fn down_with(mut control: Control) -> Result<(), Error> {
    control.ask::<Stopped>(&Command::Down { resource: None })?;
    drop(control);
    // Keeper and worker hold the lock together: it is free when both are gone.
    let path = run_dir().join(place::LOCK);
    let start = Instant::now();
    let mut progress = Progress::new("stopping");
    loop {
        let Ok(file) = fs::File::open(&path) else { return Ok(()) };
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => return Ok(()),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) if start.elapsed() < STOP_MAX => {
                sleep(LOOK);
            }
            Err((_, errno)) => {
                return Err(Error::refused(format!(
                    "reservd has not ended after {} s ({errno})",
                    STOP_MAX.as_secs()
                )));
            }
        }
        progress.tick(start.elapsed());
    }
}

/// The running tree, as a file too; and what is missing in both, if anything is.
pub(crate) fn save() -> Result<(Config, String, Option<Error>), Error> {
    let Saved { config, missing } = Control::need()?.ask(&Command::Save {})?;
    let tree = toml::to_string(&Written::from(&config))
        .map_err(|e| Error::refused(format!("cannot write the tree as TOML: {e}")))?;
    let mut text = String::new();
    for (name, why) in &missing {
        let _ = writeln!(text, "# {name} is missing here: {why}");
    }
    let error = (!missing.is_empty()).then(|| {
        let mut error = partly(&missing);
        error.message.insert_str(0, "saved without what does not answer: ");
        error
    });
    Ok((config, text + &tree, error))
}

/// Refuses a node's name where a file's is meant: all trees are saved, whatever is named.
pub(crate) fn meant_as_file(path: &Path) -> Result<(), Error> {
    let Some(name) = path.to_str().filter(|_| !path.exists()) else { return Ok(()) };
    // What a node is called is not known without the mount; saving does not need it.
    let Ok(files) = crate::fs::open() else { return Ok(()) };
    match crate::path::NodePath::parse(name, files.place()) {
        Ok(node) if files.is_dir(node.as_str()) => {
            Err(Error::usage(format!("'{name}' is a node, and save writes all trees to a file"))
                .hint(format!("a file of that name: reserv save ./{name}")))
        }
        _ => Ok(()),
    }
}

/// What the daemon says about itself, as text. Everybody may read it.
pub(crate) fn status() -> Result<String, Error> {
    let text = crate::fs::open()?.read("status").map_err(|e| Error::io("status", &e))?;
    Ok(apart(&text))
}

/// The state, and then what is none: refusals of the past, without the ms of the daemon's life that
/// the file has.
fn apart(text: &str) -> String {
    let (past, state): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("refused "));
    let past = past.iter().map(|line| line.split_once(" ms: ").map_or(*line, |(_, said)| said));
    let past: Vec<&str> = past.collect();
    let heading = "\n# requests that were refused before, the last one last:";
    let past = if past.is_empty() { past } else { [vec![heading], past].concat() };
    [state, past].concat().join("\n") + "\n"
}

/// The same for programs.
pub(crate) fn status_json() -> Result<Value, Error> {
    Control::need()?.ask(&Command::Status {})
}

/// Refuses a resource that runs and is no disk.
pub(crate) fn is_disk(name: &str) -> Result<(), Error> {
    match status_json()?["resources"][name]["kind"].as_str() {
        Some(kind) if kind != "disk" => Err(Error::refused(format!("{name} is a {kind}, no disk"))
            .hint(format!("it goes with: reserv down {name}"))),
        _ => Ok(()),
    }
}

/// A disk that is scheduled, for `disk status`.
#[derive(serde::Serialize)]
pub(crate) struct DiskLine {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) mechanism: String,
    /// How its root orders its children; none where /reserv does not say.
    pub(crate) policy: Option<String>,
    /// What it cannot do, and what has happened to it.
    pub(crate) limits: Vec<String>,
}

/// All of them.
pub(crate) fn disks() -> Result<Vec<DiskLine>, Error> {
    let status = status_json()?;
    let files = crate::fs::open().ok();
    let policy = |name: &str| {
        Some(files.as_ref()?.read(&format!("{name}/policy")).ok()?.trim_end().to_owned())
    };
    let all = status["resources"].as_object().into_iter().flatten();
    let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    Ok(all
        .filter(|(_, value)| value["kind"] == "disk" && value["driver"] != "count")
        .map(|(name, value)| DiskLine {
            name: name.clone(),
            state: word(value, "state"),
            mechanism: word(value, "mechanism"),
            policy: policy(name),
            limits: value["limits"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|limit| limit.as_str().map(str::to_owned))
                .collect(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_no_state() {
        let text = "version 1\ncpu.health running\nrules 0\n";
        assert_eq!(apart(text), text);
        let said = apart(&format!("{text}refused 9150 ms: uid 0: write cpu/a cap: no\n"));
        assert!(said.starts_with(text), "{said}");
        let heading = "\n# requests that were refused before, the last one last:\n";
        assert!(said[text.len()..].starts_with(heading), "{said}");
        assert!(said.ends_with(":\nuid 0: write cpu/a cap: no\n"), "{said}");
    }

    #[test]
    fn an_empty_tree_is_q0() {
        assert_eq!(nothing().cpu.map(|cpu| cpu.nodes.len()), Some(1));
    }
}
