// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker: everything but holding `/dev/fuse`. Killed at any instant, the next one goes on
//! where it was.
//!
//! | thread | does |
//! |---|---|
//! | main | starts, then waits for the end |
//! | fuse | answers requests, one at a time |
//! | link | hears the keeper; starts a new one when it dies |
//! | poll | one per resource (`core/polls.rs`) |
//! | watch | process events or scans, for the rules |
//! | control | one per connection |
//! | ask | asks a resource for who must not be lost over it |
//!
//! A thread that panics ends the process: the state of the others cannot be trusted then, the
//! journal's can.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reserv_model::{Config, DeleteMode, Driver, Name, Source};
use reserv_namespace::Resource;

use crate::aside::Asides;
use crate::begin;
use crate::container::{self, Room};
use crate::control::{self, Served};
use crate::core::Core;
use crate::drivers::{Choice, Wanted};
use crate::engine;
use crate::events::{Events, News};
use crate::forgetter::Forgetter;
use crate::fs::Fs;
use crate::fuse::{serve, session};
use crate::held::Held;
use crate::keeper;
use crate::link::{self, EXIT_REOPEN, Heard, Held as Descriptors, UnixSeq, Word};
use crate::log;
use crate::priority;
use crate::refusal::Refusal;
use crate::registry::{Known, Registry};
use crate::settings::Settings;
use crate::sync::lock;
use crate::unanswered::Unanswered;

/// Between tries to start a keeper.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest wait for the answer to a stop to be written. Everything is done by then, so it only
/// bounds a thread that hangs: one whose code must first be read from a slow disk takes seconds.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Between scans where the kernel gives no events.
const SCAN: Duration = Duration::from_secs(1);
/// Between scans for what there are no events of.
const SCAN_CGROUPS: Duration = Duration::from_secs(5);

/// Why the main thread wakes up.
enum Wake {
    /// A full stop is asked for; the answer goes there.
    Stop(Option<Sender<Result<(), Refusal>>>),
    /// The file system is mounted no more.
    Unmounted,
    /// The keeper is dead.
    KeeperDied,
}

/// What the worker was started with.
pub struct Inherited {
    /// Descriptors.
    pub held: Descriptors,
    /// To the keeper.
    pub link: UnixSeq,
    /// Only finish a stop that a dead worker began.
    pub finish_stop: bool,
}

/// Runs the worker. Its status means something to the keeper (`link::EXIT_REOPEN`).
pub fn run(settings: &Settings, inherited: Inherited) -> ExitCode {
    let hook = std::panic::take_hook(); // it tells the log
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        std::process::abort();
    }));
    let finish_stop = inherited.finish_stop;
    let keeper = inherited.link.try_clone();
    let result = if finish_stop {
        stop_what_is_left(settings, &inherited)
    } else {
        work(settings, inherited)
    };
    match result {
        Ok(code) => code,
        Err(refusal) => {
            let hint = if refusal.hint.is_empty() {
                String::new()
            } else {
                format!(" ({})", refusal.hint)
            };
            log::say(format_args!("{refusal}{hint}"));
            if let Ok(keeper) = keeper {
                link::say_why(&keeper, &format!("{refusal}{hint}"));
            }
            ExitCode::FAILURE
        }
    }
}

fn context(what: &str) -> impl Fn(io::Error) -> Refusal + '_ {
    move |error| Refusal::new(error.raw_os_error().unwrap_or(libc::EIO), format!("{what}: {error}"))
}

fn read_config(settings: &Settings) -> Result<Option<Config>, Refusal> {
    let path = &settings.config;
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let at = |refusal: Refusal| Refusal {
                text: format!("{}: {refusal}", path.display()),
                ..refusal
            };
            control::parse_config(&text).map(Some).map_err(at)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(context(&path.display().to_string())(error)),
    }
}

fn driver_of(settings: &Settings, config: Option<&Config>) -> Driver {
    match settings.driver.as_deref() {
        Some("full") => Driver::Full,
        Some("stock") => Driver::Stock,
        Some(_) => Driver::Auto,
        None => config.and_then(|c| c.cpu.as_ref()).map(|c| c.driver).unwrap_or_default(),
    }
}

/// The resources with their trees: adopted, or started and set up as configured. On error nothing
/// is left running that was not running before.
fn begin(settings: &Settings, new_mount: bool) -> Result<(Arc<Core>, Arc<Room>), Refusal> {
    let config = read_config(settings)?;
    let choice =
        Choice::of(settings, config.as_ref().and_then(|c| c.cpu.as_ref()).map(|c| c.driver))?;
    let driver = driver_of(settings, config.as_ref());
    readable(settings)?;
    let first = FirstStart::of(settings, config.is_some())?;
    let began = Held::begin(settings, &Wanted::Cpu(choice), &cpu_name()?, driver);
    if began.is_err() && !settings.journal(Resource::CPU).exists() {
        first.ends();
    }
    let cpu = began?;
    let fresh = cpu.is_fresh();
    let core = Core::new(settings, cpu, new_mount)?;
    let room = Room::open(core.clone(), settings, new_mount)?;
    if let (true, Some(config)) = (fresh || first.is_under_way(), config) {
        let done = core.apply(&config, &room.part(&config.containers), false, DeleteMode::Flush);
        if let Err(refusal) = done {
            return Err(given_back(settings, &core, refusal));
        }
    }
    first.ends();
    Ok((core, room))
}

/// All that another worker left is read before any of it is changed: what is of another version is
/// left to that one, whole.
fn readable(settings: &Settings) -> Result<(), Refusal> {
    let registry = Registry::open(&settings.run)?;
    engine::readable(&settings.journal(Resource::CPU))?;
    for resource in registry.known().iter().filter_map(Known::resource) {
        engine::readable(&settings.journal(resource))?;
    }
    container::readable(&settings.run)
}

/// A file that says that the configuration of a first start is not applied yet, all of it: whoever
/// takes over from a worker that died in it goes on there.
struct FirstStart(PathBuf);

impl FirstStart {
    fn at(run: &Path) -> Self {
        Self(run.join("first-start"))
    }

    /// Written where there is no tree yet, before there is one.
    fn of(settings: &Settings, configured: bool) -> Result<Self, Refusal> {
        let first = Self::at(&settings.run);
        if configured && !settings.journal(Resource::CPU).exists() {
            std::fs::write(&first.0, "").map_err(context(&first.0.display().to_string()))?;
        }
        Ok(first)
    }

    fn is_under_way(&self) -> bool {
        self.0.exists()
    }

    fn ends(&self) {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "{}", self.0.display());
            }
            _ => {}
        }
    }
}

/// A first start that cannot go on leaves nothing.
fn given_back(settings: &Settings, core: &Arc<Core>, refusal: Refusal) -> Refusal {
    match core.stop(true) {
        Ok(()) => {
            container::end(&settings.run);
            FirstStart::at(&settings.run).ends();
            refusal
        }
        Err(worse) => worse,
    }
}

fn cpu_name() -> Result<Name, Refusal> {
    Ok(Name::new("cpu")?)
}

/// Ends the other resources that a dead daemon left, but for disks that do not go: they are in use,
/// or their server is another version's.
fn end_others(settings: &Settings) -> Result<(), Refusal> {
    let mut registry = Registry::open(&settings.run)?;
    for known in registry.known().to_vec() {
        let Some(resource) = known.resource() else { continue };
        let wanted = Wanted::Count { name: known.name.clone(), resource, on: known.on.clone() };
        match Held::end_what_is_left(settings, &wanted) {
            Err(refusal) if matches!(known.on, Source::Disk { .. }) => {
                tracing::warn!(name = %known.name, %refusal, "left as it is: the next start finds it");
                registry.going(resource, false)?;
            }
            done => {
                done?;
                registry.remove(resource)?;
            }
        }
    }
    if registry.known().is_empty() {
        registry.end()?;
    }
    Ok(())
}

fn stop_what_is_left(settings: &Settings, inherited: &Inherited) -> Result<ExitCode, Refusal> {
    let choice = Choice::of(settings, None)?;
    Held::end_what_is_left(settings, &Wanted::Cpu(choice))?;
    end_others(settings)?;
    container::end(&settings.run);
    FirstStart::at(&settings.run).ends();
    let _ = std::fs::remove_file(settings.socket());
    if session::mounted(&settings.mount).map_err(context("mount table"))?.is_some() {
        session::unmount(&settings.mount).map_err(context("unmount"))?;
    }
    Word::Done.send(&inherited.link);
    Ok(ExitCode::SUCCESS)
}

fn work(settings: &Settings, inherited: Inherited) -> Result<ExitCode, Refusal> {
    let Inherited { held, link, .. } = inherited;
    // Before anything can fail: a death until then is no request's.
    let unanswered = Unanswered::open(&settings.unanswered());
    let found = session::mounted(&settings.mount).map_err(context("mount table"))?;
    let (core, room) = begin(settings, found.is_none())?;
    let fresh_start = core.is_fresh();
    // Before the mount: a start that fails leaves none.
    let listener = match control::bind(&settings.socket()) {
        Ok(listener) => Some(listener),
        Err(error) if fresh_start => {
            let refusal = context(&settings.socket().display().to_string())(error);
            return Err(given_back(settings, &core, refusal));
        }
        // Reservations hold, and /reserv goes on.
        Err(error) => {
            tracing::error!(%error, "no control socket: trying again");
            None
        }
    };
    let ready = match found {
        Some(dev) => Ok((dev, true)),
        None => make_mount(settings, &held).map(|dev| (dev, false)),
    };
    let (dev, takeover) = match ready {
        Ok(ready) => ready,
        Err(refusal) if fresh_start => return Err(given_back(settings, &core, refusal)),
        // Reservations hold; the keeper brings another descriptor.
        Err(refusal) => {
            tracing::error!(%refusal, "no mount");
            return Ok(exit_code(EXIT_REOPEN));
        }
    };
    core.set_mount(dev);
    let (news, hear) = channel();

    // Before anything is read here: what this worker has taken itself must not be sent again.
    if takeover && let Err(error) = session::resend(&held.fuse) {
        tracing::warn!(%error, "requests that the last worker took are lost (no resend before Linux 6.9)");
    }
    let asides = Asides::begin()?;
    let fs = Fs::new(core.clone(), room.clone(), &settings.mount, asides);
    let (asker, wishes) = channel();
    let news_ = news.clone();
    let forgetter = Arc::new(Forgetter::new(held.fuse.try_clone().map_err(context("/dev/fuse"))?));
    let served = Served {
        core: core.clone(),
        stop: asker,
        forgetter: forgetter.clone(),
        files: fs.clone(),
        room: room.clone(),
        unanswered: unanswered.clone(),
    };
    let socket = settings.socket();
    // Only root is heard there, and is heard however many threads of others wait.
    priority::with_floor(|| {
        spawn("control", move || {
            let listener = listener.unwrap_or_else(|| control::bind_at_last(&socket));
            control::serve(&listener, served);
        })
    })?;
    spawn("stop", move || {
        for answer in wishes {
            let _ = news_.send(Wake::Stop(Some(answer)));
        }
    })?;
    core.look_after_all(forgetter)?;
    let reads_memory = room.clone();
    spawn("containers", move || room.look_after())?;
    spawn("memory", move || reads_memory.read_memory_when_asked())?;
    let core_ = core.clone();
    let scan = settings.scan;
    spawn("watch", move || watch(&core_, scan))?;
    listen(&link, &news, None).map_err(context("link"))?;
    // Last: who has been answered once finds a worker that needs no more threads or descriptors to
    // go on, so that the lack of them from here on ends nobody.
    start_fuse(&held, fs, unanswered, news.clone())?;
    Word::Ready.send(&link);
    tracing::info!(mount = %settings.mount.display(), takeover, "serving");
    wait(settings, &core, &held, link, &news, &hear)
}

/// A thread with a name, to be told apart in `ps` and by tests.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
    begin::thread(name, body).map(drop).map_err(context(name))
}

fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn make_mount(settings: &Settings, held: &Descriptors) -> Result<u64, Refusal> {
    let at = format!("mount at {}", settings.mount.display());
    session::mount(&held.fuse, &settings.mount).map_err(context(&at))?;
    let dev = session::mounted(&settings.mount).map_err(context("mount table"))?;
    dev.ok_or_else(|| Refusal::new(libc::EIO, format!("{at}: it is not in the mount table")))
}

fn start_fuse(
    held: &Descriptors,
    fs: Fs,
    unanswered: Unanswered,
    news: Sender<Wake>,
) -> Result<(), Refusal> {
    let device = held.fuse.try_clone().map_err(context("/dev/fuse"))?;
    let ended = move |how: io::Result<()>| {
        match how {
            Ok(()) => tracing::info!("unmounted"),
            Err(error) => tracing::error!(%error, "/dev/fuse"),
        }
        let _ = news.send(Wake::Unmounted);
    };
    serve::serve(device, fs, unanswered, ended).map_err(context("fuse"))
}

/// One thread per life of the link: it ends when the keeper does, and takes the keeper's status if
/// that is a child of ours.
fn listen(link: &UnixSeq, news: &Sender<Wake>, keeper: Option<Child>) -> io::Result<()> {
    let link = link.try_clone()?;
    let news = news.clone();
    let keeper = Arc::new(Mutex::new(keeper));
    let hear = move || {
        while let Some(heard) = Word::receive(&link) {
            if heard == Heard::Word(Word::Stop) {
                let _ = news.send(Wake::Stop(None));
            }
        }
        if let Some(mut keeper) = lock(&keeper).take() {
            let _ = keeper.wait();
        }
        let _ = news.send(Wake::KeeperDied);
    };
    begin::thread("link", hear).map(drop)
}

fn wait(
    settings: &Settings,
    core: &Arc<Core>,
    held: &Descriptors,
    mut link: UnixSeq,
    news: &Sender<Wake>,
    hear: &Receiver<Wake>,
) -> Result<ExitCode, Refusal> {
    let mut keepers = 0_u32;
    loop {
        let Ok(what) = hear.recv() else { return Ok(ExitCode::FAILURE) };
        match what {
            Wake::Unmounted => {
                tracing::warn!("the file system was unmounted by somebody else; reservations hold");
                return Ok(exit_code(EXIT_REOPEN));
            }
            Wake::KeeperDied => {
                keepers += 1;
                tracing::warn!(keepers, "the keeper died; starting another");
                if keepers > 1 {
                    // Rate, not number: without a keeper descriptors are only as safe as this
                    // process.
                    std::thread::sleep(Duration::from_millis(50) * keepers.min(40));
                }
                match new_keeper(held, news) {
                    Ok(new) => (link, keepers) = (new, keepers.min(40)),
                    // No process, thread or descriptor: /reserv is served all the same, and it is
                    // tried again.
                    Err(error) => {
                        tracing::error!(%error, "no keeper can be started: trying again");
                        std::thread::sleep(AGAIN);
                        let _ = news.send(Wake::KeeperDied);
                    }
                }
            }
            Wake::Stop(answer) => {
                Word::Stopping.send(&link);
                // Asked for by its name, a stop of everything is refused while a disk is in use.
                // The service manager's is not to be: what is in use stays.
                let stopped = stop(settings, core, answer.is_none());
                match (&stopped, answer) {
                    (Ok(()), answer) => {
                        Word::Done.send(&link);
                        if let Some(answer) = answer {
                            // The connection's thread still has to write its line; it hangs up when
                            // it has.
                            let since = Instant::now();
                            while answer.send(Ok(())).is_ok() && since.elapsed() < ANSWER_MAX {
                                std::thread::sleep(Duration::from_millis(5));
                            }
                        }
                        return Ok(ExitCode::SUCCESS);
                    }
                    (Err(refusal), Some(answer)) => {
                        let _ = answer.send(Err(refusal.clone()));
                    }
                    (Err(refusal), None) => tracing::error!(%refusal, "the stop failed"),
                }
            }
        }
    }
}

fn stop(settings: &Settings, core: &Arc<Core>, leave: bool) -> Result<(), Refusal> {
    core.stop(leave)?;
    container::end(&settings.run);
    let _ = std::fs::remove_file(settings.socket());
    session::unmount(&settings.mount).map_err(context("unmount"))
}

fn new_keeper(held: &Descriptors, news: &Sender<Wake>) -> io::Result<UnixSeq> {
    let (ours, theirs) = UnixSeq::pair()?;
    let own = keeper::own_pidfd()?;
    let [fuse, lock, link] = held.fds(&theirs);
    let fds = [fuse, lock, link, ("worker-fd", own.as_raw_fd())];
    let (child, pidfd) = link::spawn_held("keeper", &fds, &[])?;
    // A keeper to whom nobody listens would be a second one beside the next.
    listen(&ours, news, Some(child)).inspect_err(|_| keeper::end(&pidfd))?;
    Ok(ours)
}

fn watch(core: &Arc<Core>, scan: bool) {
    let mut events = match Events::open() {
        Ok(events) => (!scan).then_some(events),
        Err(error) => {
            tracing::info!(%error, "no process events: scanning once a second while there are rules");
            None
        }
    };
    core.watch(events.as_ref().map(Events::subscription));
    core.scan();
    let mut scanned = std::time::Instant::now();
    loop {
        let every = if events.is_some() { SCAN_CGROUPS } else { SCAN };
        let news = if let Some(events) = &mut events {
            events.wait(500)
        } else {
            std::thread::sleep(SCAN);
            Ok(News::Quiet)
        };
        let (rules, need_scan) = core.has_rules();
        match news {
            Ok(News::Changed(pids)) if rules => core.consider(&pids),
            Ok(News::Lost) => core.scan(),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "process events ended; scanning");
                events = None;
                core.watch(None);
            }
        }
        if rules && need_scan && scanned.elapsed() >= every {
            core.scan();
            scanned = std::time::Instant::now();
        }
    }
}
