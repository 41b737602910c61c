// SPDX-License-Identifier: MIT OR Apache-2.0
//! A resource before it is brought up: what it will be made of and what it will promise are known,
//! so a tree for it is refused before anything is loaded, by who only asks (`up --dry-run`) too.

use nix::unistd::{SysconfVar, sysconf};
use reserv_model::{
    Class, Driver, Edit, Error, ErrorKind, Kind, Name, Op, Plan, Policy, ResourceKind, Source, Tree,
};

use crate::{PlaneError, count, cpu, disk, net};

const DOCTOR: &str = "'reserv doctor' says what each driver can do";

/// The machine's CPU time, in ns per second.
pub fn cpu_capacity() -> u64 {
    // All CPUs that are online, whichever of them this process may use.
    let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    cpus.and_then(|n| u64::try_from(n).ok()).unwrap_or(1).max(1) * 1_000_000_000
}

/// Whether what a resource is to stand on is there, and is something that its driver can take.
pub fn probe(on: &Source) -> Result<(), PlaneError> {
    count::probe(on)?;
    match on {
        Source::Disk { path, driver: Driver::Stock, .. } => disk::stock::probe(path),
        _ => Ok(()),
    }
}

/// The tree that a resource begins with; `on` is none for the CPU. Refused where there is nothing
/// to bring up.
pub fn tree(name: &Name, on: Option<&Source>) -> Result<Tree, PlaneError> {
    let mut tree = Tree::new(name.clone());
    if let Some(on) = on {
        probe(on)?;
        tree.set_resource(on.kind());
    }
    tree.set_capacity(on.map_or_else(cpu_capacity, Source::promised));
    Ok(tree)
}

/// Whether a driver has the mechanisms that edits need; `driver` answers its name.
pub fn words(
    driver: impl Fn() -> &'static str,
    kind: ResourceKind,
    edits: &[Edit],
    has_class: impl Fn(Class) -> bool,
    has_policy: impl Fn(Policy) -> bool,
) -> Result<(), Error> {
    for edit in edits {
        let missing = match edit {
            Edit::Class { class, .. } | Edit::Create { kind: Kind::Queue(class), .. } => {
                (!has_class(*class)).then(|| format!("class {class}"))
            }
            Edit::Policy { policy, .. } | Edit::Create { kind: Kind::Scheduler(policy), .. } => {
                (!has_policy(*policy)).then(|| format!("policy {policy}"))
            }
            Edit::Personality { personality } => {
                let class = personality.class(kind);
                (!has_class(class))
                    .then(|| format!("class {class}, which the personality {personality} needs"))
            }
            _ => None,
        };
        if let Some(missing) = missing {
            let why = format!("the {} driver has no {missing}", driver());
            return Err(Error::new(ErrorKind::Unsupported, why).hint(DOCTOR));
        }
    }
    Ok(())
}

/// Whether a stock driver carries such ops out.
pub fn stock_ops(kind: ResourceKind, ops: &[Op]) -> Result<(), Error> {
    let refused: fn(&Op) -> Option<String> = match kind {
        ResourceKind::Cpu => cpu::stock::refused,
        ResourceKind::Link => net::stock::refused,
        ResourceKind::Disk => disk::stock::refused,
    };
    let why = ops.iter().find_map(refused);
    why.map_or(Ok(()), |why| Err(Error::new(ErrorKind::Unsupported, why).hint(DOCTOR)))
}

/// Whether a driver can order by it.
type Has<T> = fn(T) -> bool;

/// What a resource that is not up yet will be scheduled by.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    kind: ResourceKind,
    driver: Driver,
}

impl Ahead {
    /// The CPU by this driver.
    pub const fn cpu(driver: Driver) -> Self {
        Self { kind: ResourceKind::Cpu, driver }
    }

    /// What stands on a source; `None`: it is only counted, which takes every word.
    pub const fn of(on: &Source) -> Option<Self> {
        match on {
            Source::Link { driver, .. } => Some(Self { kind: ResourceKind::Link, driver: *driver }),
            // Where none is named it is the full one.
            Source::Disk { driver: Driver::Stock, .. } => {
                Some(Self { kind: ResourceKind::Disk, driver: Driver::Stock })
            }
            Source::Disk { .. } => Some(Self { kind: ResourceKind::Disk, driver: Driver::Full }),
            Source::File(_) | Source::Net(_) => None,
        }
    }

    /// Whether the driver will take a plan: its words, and of the stock drivers what they refuse.
    /// Where no driver is named and the stock one would refuse, the kernel is asked whether it can
    /// have the full one.
    pub fn check(self, plan: &Plan) -> Result<(), Error> {
        match self.driver {
            Driver::Full => self.full(plan),
            Driver::Stock => self.stock(plan),
            Driver::Auto => {
                let Err(why) = self.stock(plan) else { return Ok(()) };
                let full = match self.kind {
                    ResourceKind::Cpu => cpu::full::probe(),
                    ResourceKind::Link => net::survey().and_then(|(best, instead)| match best {
                        Driver::Full => Ok(()),
                        _ => Err(instead),
                    }),
                    ResourceKind::Disk => Ok(()),
                };
                match full {
                    Ok(()) => self.full(plan),
                    Err(instead) => {
                        let hint = format!("the full driver cannot be used here: {instead}");
                        Err(why.hint(hint))
                    }
                }
            }
        }
    }

    fn full(self, plan: &Plan) -> Result<(), Error> {
        let (class, policy): (Has<Class>, Has<Policy>) = match self.kind {
            ResourceKind::Cpu => (cpu::full::has_class, cpu::full::has_policy),
            ResourceKind::Link => (net::full::has_class, net::full::has_policy),
            ResourceKind::Disk => (disk::full::has_class, disk::full::has_policy),
        };
        words(|| "full", self.kind, plan.edits(), class, policy)
    }

    fn stock(self, plan: &Plan) -> Result<(), Error> {
        let (class, policy): (Has<Class>, Has<Policy>) = match self.kind {
            ResourceKind::Cpu => (cpu::stock::has_class, cpu::stock::has_policy),
            ResourceKind::Link => (net::stock::has_class, net::stock::has_policy),
            ResourceKind::Disk => (disk::stock::has_class, disk::stock::has_policy),
        };
        words(|| "stock", self.kind, plan.edits(), class, policy)?;
        stock_ops(self.kind, &plan.ops())
    }
}
