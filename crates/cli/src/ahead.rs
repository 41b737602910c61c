// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `up` can refuse before reservd is started: a configuration that no driver will take.
//! The daemon asks the same of it again, with the same functions.

use std::collections::BTreeMap;

use reserv_control::Refused;
use reserv_model::{Config, DeleteMode, Name, ResourceConfig, Source, diff};
use reserv_plane::ahead;

use crate::control::refusal;
use crate::error::Error;

fn refused(why: reserv_model::Error) -> Error {
    refusal(Refused { errno: why.errno().code(), text: why.context, hint: why.hint })
}

/// Whether a tree can be made of nothing.
fn resource(name: &Name, wanted: &ResourceConfig) -> Result<(), Error> {
    let new = ahead::tree(name, wanted.on.as_ref()).map_err(|e| Error::refused(e.to_string()))?;
    diff(&new, wanted, DeleteMode::Refuse)
        .and_then(|requests| new.plan(&requests).map(drop))
        .map_err(refused)
}

/// Whether all of it can be: where Reserv does not run.
pub(crate) fn check(config: Option<&Config>, count: &BTreeMap<Name, Source>) -> Result<(), Error> {
    let Some(config) = config else {
        return count.iter().try_for_each(|(name, on)| {
            ahead::tree(name, Some(on)).map(drop).map_err(|e| Error::refused(e.to_string()))
        });
    };
    config.check_resources(|_| false).map_err(refused)?;
    if let (Some(cpu), Ok(name)) = (&config.cpu, Name::new("cpu")) {
        resource(&name, cpu)?;
    }
    config.count.iter().try_for_each(|(name, wanted)| resource(name, wanted))
}
