// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `up` can refuse before reservd is started: a configuration that no driver will take.
//! The daemon asks the same of it again, with the same functions.

use std::collections::BTreeMap;

use reserv_control::Refused;
use reserv_model::{
    Config, ContainerConfig, DeleteMode, Driver, Name, NodePath, Plan, ResourceConfig, diff,
    nodes_of, requests_of, split,
};
use reserv_plane::ahead::{self, Ahead};

use crate::control::refusal;
use crate::error::Error;
use crate::settings;

fn refused(why: reserv_model::Error) -> Error {
    refusal(Refused { errno: why.errno().code(), text: why.context, hint: why.hint })
}

type Containers = BTreeMap<NodePath, ContainerConfig>;

/// Whether a tree can be made of nothing: what stands on its own, then containers' nodes, then what
/// is said of those.
fn resource(
    name: &Name,
    wanted: &ResourceConfig,
    containers: &Containers,
    driver: Option<Ahead>,
) -> Result<(), Error> {
    let new = ahead::tree(name, wanted.on.as_ref()).map_err(|e| Error::refused(e.to_string()))?;
    let takes =
        |plan: &Plan| driver.map_or(Ok(()), |driver| driver.check(&new, plan)).map_err(refused);
    let (first, later) = split(wanted.clone(), containers);
    let first_alone = diff(&new, &first, DeleteMode::Refuse).map_err(refused)?;
    let nodes = nodes_of(containers).map_err(refused)?;
    let of_nodes = nodes.iter().map(|(_, request)| request.clone());
    let mut requests: Vec<_> = first_alone.iter().cloned().chain(of_nodes).collect();
    if let Err(why) = new.plan_part(&requests) {
        // Which of them it is: the first with which it fails.
        let fails = |n: &usize| new.plan_part(&requests[..*n]).is_err();
        let at = (first_alone.len()..=requests.len()).find(fails);
        let path = at.and_then(|n| nodes.get(n.checked_sub(first_alone.len() + 1)?));
        return Err(refused(match path {
            Some((path, _)) => why.at(format_args!("container {path}")),
            None => why,
        }));
    }
    if !later.is_empty() {
        let mut there = new.clone();
        let plan = there.plan_part(&requests).map_err(refused)?;
        there.commit(&plan).map_err(refused)?;
        requests.extend(requests_of(&there, &later, DeleteMode::Refuse).map_err(refused)?);
    }
    new.plan(&requests).map_err(refused).and_then(|plan| takes(&plan))
}

/// By which driver of the CPU reservd will start; none where a fake stands for all, which takes
/// everything.
fn cpu_driver(asked: Driver) -> Option<Driver> {
    match (asked, settings::driver().as_deref()) {
        (Driver::Auto, Some("full")) => Some(Driver::Full),
        (Driver::Auto, Some("stock")) => Some(Driver::Stock),
        (Driver::Auto, Some("fake")) => None,
        // A word that there is not is refused by who starts.
        (asked, _) => Some(asked),
    }
}

/// Whether all of it can be: where Reserv does not run. `asked`: the driver of the CPU, by word of
/// mouth or of the file.
pub(crate) fn check(config: &Config, asked: Driver) -> Result<(), Error> {
    config.check_resources(|_| false).map_err(refused)?;
    let driver = cpu_driver(asked);
    let containers = &config.containers;
    let plain = ResourceConfig::default();
    let cpu = config.cpu.as_ref().unwrap_or(&plain);
    let name = Name::new("cpu").map_err(refused)?;
    resource(&name, cpu, containers, driver.map(Ahead::cpu))?;
    config.count.iter().try_for_each(|(name, wanted)| {
        let driver = wanted.on.as_ref().map(Ahead::of).filter(|_| driver.is_some());
        resource(name, wanted, containers, driver)
    })
}
