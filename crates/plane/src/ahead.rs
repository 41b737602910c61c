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

/// Refuses ops for which a driver has no mechanism.
pub fn ops(ops: &[Op], lacks: impl Fn(&Op) -> Option<String>) -> Result<(), Error> {
    let why = ops.iter().find_map(lacks);
    why.map_or(Ok(()), |why| Err(Error::new(ErrorKind::Unsupported, why).hint(DOCTOR)))
}

/// Whether a stock driver can share as a tree says after a plan.
pub fn stock_tree(tree: &Tree, plan: &Plan) -> Result<(), Error> {
    let shares =
        |edit: &Edit| matches!(edit, Edit::Create { .. } | Edit::Share { .. } | Edit::Move { .. });
    if tree.resource() != ResourceKind::Link || !plan.edits().iter().any(shares) {
        return Ok(());
    }
    let mut then = tree.clone();
    then.replay(&plan.record())?;
    net::stock::fits(&then).map_err(|why| why.hint(DOCTOR))
}

/// Whether a driver can order by it.
type Has<T> = fn(T) -> bool;

/// What a resource that is not up yet will be scheduled by.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    kind: ResourceKind,
    driver: Driver,
    /// It is only counted.
    counted: bool,
    /// What comes in is told apart.
    receives: bool,
}

impl Ahead {
    /// The CPU by this driver.
    pub const fn cpu(driver: Driver) -> Self {
        Self { kind: ResourceKind::Cpu, driver, counted: false, receives: false }
    }

    /// What stands on a source.
    pub fn of(on: &Source) -> Self {
        let new = |kind, driver| Self { kind, driver, counted: false, receives: false };
        match on {
            Source::Link { driver, receive, .. } => {
                Self { receives: receive.is_some(), ..new(ResourceKind::Link, *driver) }
            }
            // Where none is named it is the full one.
            Source::Disk { driver: Driver::Stock, .. } => new(ResourceKind::Disk, Driver::Stock),
            Source::Disk { .. } => new(ResourceKind::Disk, Driver::Full),
            Source::File(_) | Source::Net(_) => {
                Self { counted: true, ..new(on.kind(), Driver::Full) }
            }
        }
    }

    /// Whether the driver will take a plan for a tree: its words, and of the stock drivers what
    /// they refuse.
    /// Where no driver is named and the stock one would refuse, the kernel is asked whether it can
    /// have the full one.
    pub fn check(self, tree: &Tree, plan: &Plan) -> Result<(), Error> {
        if self.counted {
            return ops(&plan.ops(), |op| count::refused(op).or_else(|| self.lacks_entrance(op)));
        }
        match self.driver {
            Driver::Full => self.full(plan),
            Driver::Stock => self.stock(tree, plan),
            Driver::Auto => {
                let Err(why) = self.stock(tree, plan) else { return Ok(()) };
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
        words(|| "full", self.kind, plan.edits(), class, policy)?;
        let refused: fn(&Op) -> Option<String> = match self.kind {
            ResourceKind::Cpu => |_| None,
            ResourceKind::Link => net::full::refused,
            ResourceKind::Disk => disk::full::refused,
        };
        ops(&plan.ops(), |op| refused(op).or_else(|| self.lacks_entrance(op)))
    }

    fn lacks_entrance(self, op: &Op) -> Option<String> {
        count::lacks_entrance(op, self.receives)
    }

    fn stock(self, tree: &Tree, plan: &Plan) -> Result<(), Error> {
        let (class, policy): (Has<Class>, Has<Policy>) = match self.kind {
            ResourceKind::Cpu => (cpu::stock::has_class, cpu::stock::has_policy),
            ResourceKind::Link => (net::stock::has_class, net::stock::has_policy),
            ResourceKind::Disk => (disk::stock::has_class, disk::stock::has_policy),
        };
        words(|| "stock", self.kind, plan.edits(), class, policy)?;
        let refused: fn(&Op) -> Option<String> = match self.kind {
            ResourceKind::Cpu => cpu::stock::refused,
            ResourceKind::Link => net::stock::refused,
            ResourceKind::Disk => disk::stock::refused,
        };
        ops(&plan.ops(), |op| refused(op).or_else(|| self.lacks_entrance(op)))?;
        stock_tree(tree, plan)
    }
}
