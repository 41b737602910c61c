// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `up` can refuse before reservd is started: a configuration that no driver will take.
//! The daemon asks the same of it again, with the same functions.

use std::collections::BTreeMap;

use reserv_control::Refused;
use reserv_model::{
    Config, DeleteMode, Name, NodePath, Request, ResourceConfig, Source, diff, nodes_of, to_config,
};
use reserv_plane::ahead;

use crate::control::refusal;
use crate::error::Error;

fn refused(why: reserv_model::Error) -> Error {
    refusal(Refused { errno: why.errno().code(), text: why.context, hint: why.hint })
}

/// What makes a container's node, and of which.
type Node = (NodePath, Request);

/// Whether a tree can be made of nothing: what stands on its own, then containers' nodes, then what
/// is said of those.
fn resource(name: &Name, wanted: &ResourceConfig, containers: &[Node]) -> Result<(), Error> {
    let new = ahead::tree(name, wanted.on.as_ref()).map_err(|e| Error::refused(e.to_string()))?;
    let of =
        |path: &NodePath| containers.iter().any(|(at, _)| path.names().starts_with(at.names()));
    let mut first = wanted.clone();
    first.nodes.retain(|path, _| !of(path));
    let mut requests = diff(&new, &first, DeleteMode::Refuse).map_err(refused)?;
    for (path, request) in containers {
        requests.push(request.clone());
        new.plan_part(&requests).map_err(|e| refused(e.at(format_args!("container {path}"))))?;
    }
    if first.nodes.len() < wanted.nodes.len() {
        let mut there = new.clone();
        let plan = there.plan_part(&requests).map_err(refused)?;
        there.commit(&plan).map_err(refused)?;
        let mut all = to_config(&there, wanted.driver);
        all.nodes.extend(wanted.nodes.iter().map(|(path, node)| (path.clone(), node.clone())));
        requests.extend(diff(&there, &all, DeleteMode::Refuse).map_err(refused)?);
    }
    new.plan(&requests).map(drop).map_err(refused)
}

/// Whether all of it can be: where Reserv does not run.
pub(crate) fn check(config: Option<&Config>, count: &BTreeMap<Name, Source>) -> Result<(), Error> {
    let Some(config) = config else {
        return count.iter().try_for_each(|(name, on)| {
            ahead::tree(name, Some(on)).map(drop).map_err(|e| Error::refused(e.to_string()))
        });
    };
    config.check_resources(|_| false).map_err(refused)?;
    let containers = nodes_of(&config.containers).map_err(refused)?;
    let plain = ResourceConfig::default();
    let cpu = config.cpu.as_ref().unwrap_or(&plain);
    resource(&Name::new("cpu").map_err(refused)?, cpu, &containers)?;
    config.count.iter().try_for_each(|(name, wanted)| resource(name, wanted, &containers))
}
