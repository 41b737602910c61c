// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which driver: the one that runs already, else the one asked for, else the best that the kernel
//! can.

use reserv_model::{Driver, Name, ResourceKind, Source};
use reserv_namespace::Resource;
use reserv_plane::{Plane, PlaneError, count, cpu, disk, net};

use crate::fake::{Blocks, FakePlane};
use crate::link;
use crate::refusal::Refusal;
use crate::settings::Settings;

/// A driver's plane, and whether it was found running.
pub struct Opened {
    /// To be given to the engine.
    pub plane: Box<dyn Plane>,
    /// Left by an earlier daemon.
    pub adopted: bool,
}

/// A driver by its word; `fake` exists for tests only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// As the configuration names it.
    Real(Driver),
    /// [`FakePlane`].
    Fake,
}

impl Choice {
    /// From `RESERV_DRIVER`, else from the configuration.
    pub fn of(settings: &Settings, configured: Option<Driver>) -> Result<Self, Refusal> {
        Ok(match settings.driver.as_deref() {
            None => Self::Real(configured.unwrap_or_default()),
            Some("auto") => Self::Real(Driver::Auto),
            Some("full") => Self::Real(Driver::Full),
            Some("stock") => Self::Real(Driver::Stock),
            Some("fake") => Self::Fake,
            Some(other) => {
                let why = format!("RESERV_DRIVER: no driver \"{other}\"");
                return Err(Refusal {
                    errno: libc::EINVAL,
                    text: why,
                    hint: "auto, full or stock".into(),
                });
            }
        })
    }
}

/// A resource, and what it takes to find its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The CPU.
    Cpu(Choice),
    /// A counting resource, or a link or disk that is scheduled.
    Count {
        /// Its directory.
        name: Name,
        /// Its number.
        resource: Resource,
        /// What it counts or schedules.
        on: Source,
    },
}

impl Wanted {
    /// Its number.
    pub const fn resource(&self) -> Resource {
        match self {
            Self::Cpu(_) => Resource::CPU,
            Self::Count { resource, .. } => *resource,
        }
    }

    /// What it is.
    pub const fn kind(&self) -> ResourceKind {
        match self {
            Self::Cpu(_) => ResourceKind::Cpu,
            Self::Count { on, .. } => on.kind(),
        }
    }

    /// What it counts, if it only counts.
    pub fn on(&self) -> Option<Source> {
        match self {
            Self::Cpu(_) => None,
            Self::Count { on, .. } => Some(on.clone()),
        }
    }
}

type AnyPlane = Box<dyn Plane>;

/// A test may hold up what stands for a plane.
fn faked<P: Plane + 'static>(settings: &Settings, resource: Resource, plane: P) -> AnyPlane {
    if is_fake(settings) {
        boxed(Blocks::new(&settings.run, resource, plane))
    } else {
        boxed(plane)
    }
}

/// Whether fakes stand for all drivers.
pub(crate) fn is_fake(settings: &Settings) -> bool {
    settings.driver.as_deref() == Some("fake")
}

/// What tells a counting resource of tags.
fn meter(settings: &Settings, resource: Resource) -> Box<dyn count::Meter> {
    if is_fake(settings) {
        return Box::new(count::Fake::new(&settings.run, resource.number()));
    }
    Box::new(count::Tagged::new(resource.number()))
}

/// A driver that is built in.
struct Built {
    driver: Driver,
    probe: fn() -> Result<(), String>,
    /// With what is told of the better one that cannot be used here.
    start: fn(Option<String>) -> Result<AnyPlane, PlaneError>,
    adopt: fn() -> Result<Option<AnyPlane>, PlaneError>,
}

fn boxed<P: Plane + 'static>(plane: P) -> AnyPlane {
    Box::new(plane)
}

/// All of them, the best first. A driver finds its places (`RESERV_RUN`, `RESERV_BPFFS`,
/// `RESERV_CGROUP`) itself.
const BUILT: &[Built] = &[
    Built {
        driver: Driver::Full,
        probe: cpu::full::probe,
        start: |_| {
            link::notify(
                "STATUS=loading the scheduler into the kernel, whose verifier takes seconds the first time after a boot",
            );
            cpu::full::start().map(boxed)
        },
        adopt: || Ok(cpu::full::adopt()?.map(boxed)),
    },
    Built {
        driver: Driver::Stock,
        probe: cpu::stock::probe,
        start: |instead| cpu::stock::start_instead(instead).map(boxed),
        adopt: || Ok(cpu::stock::adopt()?.map(boxed)),
    },
];

/// Takes over what runs, or starts the driver that was chosen.
pub fn open(settings: &Settings, wanted: &Wanted) -> Result<Opened, Refusal> {
    if let Some(opened) = adopt(settings, wanted)? {
        return Ok(opened);
    }
    let plane = match wanted {
        Wanted::Cpu(Choice::Fake) => {
            faked(settings, Resource::CPU, FakePlane::start(&fake_path(settings))?)
        }
        Wanted::Cpu(Choice::Real(driver)) => start(*driver)?,
        Wanted::Count { resource, on: on @ Source::Link { .. }, .. } if !is_fake(settings) => {
            net::start(&settings.run, resource.number(), on)?
        }
        Wanted::Count { resource, on: on @ Source::Disk { .. }, name } if !is_fake(settings) => {
            disk::start(&settings.run, resource.number(), name, on)?
        }
        Wanted::Count { resource, on, .. } => {
            let meter = meter(settings, *resource);
            faked(settings, *resource, count::start(&settings.run, resource.number(), on, meter)?)
        }
    };
    Ok(Opened { plane, adopted: false })
}

/// Takes over what runs, if anything does; also another driver than the one chosen, for what holds
/// is not dropped.
pub fn adopt(settings: &Settings, wanted: &Wanted) -> Result<Option<Opened>, Refusal> {
    let adopted = |plane| Opened { plane, adopted: true };
    Ok(match wanted {
        Wanted::Cpu(Choice::Fake) => {
            let found = FakePlane::adopt(&fake_path(settings))?;
            found.map(|plane| faked(settings, Resource::CPU, plane)).map(adopted)
        }
        Wanted::Cpu(Choice::Real(driver)) => adopt_cpu(*driver)?.map(adopted),
        Wanted::Count { resource, on: on @ Source::Link { .. }, .. } if !is_fake(settings) => {
            net::adopt(&settings.run, resource.number(), on)?.map(adopted)
        }
        Wanted::Count { resource, on: on @ Source::Disk { .. }, name } if !is_fake(settings) => {
            disk::adopt(&settings.run, resource.number(), name, on)?.map(adopted)
        }
        Wanted::Count { resource, on, .. } => {
            let meter = meter(settings, *resource);
            let found = count::adopt(&settings.run, resource.number(), on, meter)?;
            found.map(|plane| faked(settings, *resource, plane)).map(adopted)
        }
    })
}

fn adopt_cpu(wanted: Driver) -> Result<Option<AnyPlane>, Refusal> {
    for built in BUILT {
        if let Some(plane) = (built.adopt)()? {
            if wanted != Driver::Auto && wanted != built.driver {
                tracing::warn!(?wanted, runs = ?built.driver, "another driver is running; it is kept until `reserv down`");
            }
            return Ok(Some(plane));
        }
    }
    Ok(None)
}

fn start(wanted: Driver) -> Result<AnyPlane, Refusal> {
    let mut missing = Vec::new();
    for built in BUILT.iter().filter(|b| wanted == Driver::Auto || wanted == b.driver) {
        match (built.probe)() {
            Ok(()) => match (built.start)(missing.first().cloned()) {
                Err(PlaneError::NotLoaded(why)) if wanted == Driver::Auto => {
                    tracing::warn!(driver = ?built.driver, why, "cannot be used here");
                    missing
                        .push(format!("{}: {why}", format!("{:?}", built.driver).to_lowercase()));
                }
                other => return Ok(other?),
            },
            Err(why) => {
                tracing::info!(driver = ?built.driver, why, "cannot be used here");
                missing.push(format!("{}: {why}", format!("{:?}", built.driver).to_lowercase()));
            }
        }
    }
    let why = if missing.is_empty() { "it is not built in".to_owned() } else { missing.join("; ") };
    Err(Refusal {
        errno: libc::EOPNOTSUPP,
        text: format!("no driver for the CPU: {why}"),
        hint: "`reserv doctor` looks at this machine".into(),
    })
}

fn fake_path(settings: &Settings) -> std::path::PathBuf {
    settings.run.join("fake-plane")
}
