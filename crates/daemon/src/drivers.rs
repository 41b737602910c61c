// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which driver: the one that runs already, else the one asked for, else the best that the kernel can.

use reserv_model::Driver;
use reserv_plane::Plane;

use crate::engine::Refusal;
use crate::fake::FakePlane;
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
                return Err(Refusal { errno: libc::EINVAL, text: why, hint: "auto, full or stock".into() });
            }
        })
    }
}

/// Takes over what runs, or starts the driver that was chosen.
pub fn open(settings: &Settings, choice: Choice) -> Result<Opened, Refusal> {
    if let Some(opened) = adopt(settings, choice)? {
        return Ok(opened);
    }
    let plane: Box<dyn Plane> = match choice {
        Choice::Fake => Box::new(FakePlane::start(&fake_path(settings))?),
        Choice::Real(driver) => start(settings, driver)?,
    };
    Ok(Opened { plane, adopted: false })
}

/// Takes over what runs, if anything does.
pub fn adopt(settings: &Settings, choice: Choice) -> Result<Option<Opened>, Refusal> {
    let found: Option<Box<dyn Plane>> = match choice {
        Choice::Fake => FakePlane::adopt(&fake_path(settings))?.map(|p| Box::new(p) as Box<dyn Plane>),
        Choice::Real(_) => None,
    };
    Ok(found.map(|plane| Opened { plane, adopted: true }))
}

fn start(_settings: &Settings, driver: Driver) -> Result<Box<dyn Plane>, Refusal> {
    Err(Refusal::new(libc::EOPNOTSUPP, format!("the {driver:?} driver is not built in")))
}

fn fake_path(settings: &Settings) -> std::path::PathBuf {
    settings.run.join("fake-plane")
}
