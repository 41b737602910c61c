// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this kernel has of what the programs use, by its type information: what they cannot do
//! without, and what they have a fallback for (`bpf/compat.h`).

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

use libbpf_rs::btf::types::{Func, FuncProto, Linkage, Ptr, Struct};
use libbpf_rs::btf::{Btf, BtfType};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::load::OBJECT;
use crate::{PlaneError, settings};

/// The kernel's structure of a scheduler's operations.
const OPS: &str = "sched_ext_ops";

/// Operations that every kernel has which can tell of cgroups at all.
const OF_CGROUPS: &str = "cgroup_init";

/// One thing that a kernel may lack.
#[derive(Debug)]
pub struct Fallback {
    /// As `RESERV_FALLBACKS` calls it, and `bpf/compat.h` in capitals.
    pub name: &'static str,
    bit: u32,
    /// A function of the kernel; or an operation, behind the name of its structure and a dot.
    pub symbol: &'static str,
    /// The first release that has it.
    pub since: &'static str,
    /// A function that the fallback uses.
    uses: Option<&'static str>,
    /// What it costs to do without.
    pub cost: &'static str,
}

/// All of them, by their bits.
const FALLBACKS: &[Fallback] = &[
    Fallback {
        name: "insert",
        bit: 1 << 0,
        symbol: "scx_bpf_dsq_insert___v2",
        since: "6.19",
        uses: Some("scx_bpf_dsq_insert"),
        cost: "nothing but while a scheduler goes: a thread not taken is seen at the CPU's next choice",
    },
    Fallback {
        name: "slice",
        bit: 1 << 1,
        symbol: "scx_bpf_task_set_slice",
        since: "6.19",
        uses: None,
        cost: "nothing",
    },
    Fallback {
        name: "vtime",
        bit: 1 << 2,
        symbol: "scx_bpf_task_set_dsq_vtime",
        since: "6.19",
        uses: None,
        cost: "nothing",
    },
    Fallback {
        name: "dead",
        bit: 1 << 3,
        symbol: "sched_ext_dead",
        since: "6.19",
        uses: None,
        cost: "the call of one more program whenever a thread sleeps; and a thread that ended counts as one \
               until its parent has asked how it ended",
    },
    Fallback {
        name: "idle",
        bit: 1 << 4,
        symbol: "sched_ext_ops.cgroup_set_idle",
        since: "6.18",
        uses: Some("bpf_cgroup_from_id"),
        cost: "up to half a second until a change of cpu.idle holds; a timer looks at all cgroups that often",
    },
    Fallback {
        name: "bandwidth",
        bit: 1 << 5,
        symbol: "sched_ext_ops.cgroup_set_bandwidth",
        since: "6.17",
        uses: Some("bpf_cgroup_from_id"),
        cost: "up to half a second until a change of cpu.max holds; a timer looks at all cgroups that often",
    },
];

/// The bit of what has `quiescent` called, which else is not loaded.
const DEAD: &str = "dead";

/// What of the table this kernel lacks, or is to be taken as lacking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lacks(pub(super) u32);

impl Lacks {
    fn of(name: &str) -> Self {
        Self(FALLBACKS.iter().filter(|f| f.name == name).map(|f| f.bit).sum())
    }

    fn has(self, name: &str) -> bool {
        self.0 & Self::of(name).0 != 0
    }

    /// The operations that are not to be set, by name.
    pub(super) fn operations(self) -> Vec<&'static str> {
        let dot = format!("{OPS}.");
        let mut without: Vec<_> = FALLBACKS
            .iter()
            .filter(|f| self.0 & f.bit != 0)
            .filter_map(|f| f.symbol.strip_prefix(&dot))
            .collect();
        if !self.has(DEAD) {
            without.push("quiescent");
        }
        without
    }

    pub(super) fn fallbacks(self) -> Vec<&'static Fallback> {
        FALLBACKS.iter().filter(|f| self.0 & f.bit != 0).collect()
    }
}

/// The kernel, as far as it is asked here.
trait Kernel {
    /// Whether programs can call this function, or, if they do not, whether it is there.
    fn function(&self, name: &str) -> bool;
    /// Whether a scheduler may have this operation; `None`: there are no schedulers.
    fn operation(&self, name: &str) -> Option<bool>;
}

impl Kernel for Btf<'_> {
    /// Since 7.1 the kernel hands some functions an argument that programs do not see, and then
    /// looks for a twin with `_impl`. A build that lacks the twin refuses every program that calls
    /// it.
    fn function(&self, name: &str) -> bool {
        let Some(found) = self.type_by_name::<Func<'_>>(name) else { return false };
        if self.type_by_name::<Func<'_>>(&format!("{name}_impl")).is_some() {
            return true;
        }
        let last = found
            .next_type()
            .and_then(|proto| FuncProto::try_from(proto).ok())
            .and_then(|proto| proto.iter().last().map(|last| last.ty));
        let behind = last
            .and_then(|ty| self.type_by_id::<BtfType<'_>>(ty))
            .and_then(|ty| Ptr::try_from(ty.skip_mods_and_typedefs()).ok())
            .and_then(|pointer| pointer.next_type())
            .map(|ty| ty.skip_mods_and_typedefs());
        behind.and_then(|ty| ty.name()).is_none_or(|name| name != "bpf_prog_aux")
    }

    fn operation(&self, name: &str) -> Option<bool> {
        let ops = self.type_by_name::<Struct<'_>>(OPS)?;
        Some(ops.iter().any(|member| member.name.is_some_and(|found| found == name)))
    }
}

/// The programs' own type information, as the compiler wrote it: libbpf, when it opens programs,
/// changes which functions are others'.
fn types(object: &[u8]) -> Result<Btf<'static>, String> {
    let file = memfd_create(c"programs", MFdFlags::MFD_CLOEXEC).map_err(io::Error::from);
    let file = file.map(File::from).and_then(|mut file| file.write_all(object).map(|()| file));
    let file = file.map_err(|error| format!("a file in memory: {error}"))?;
    Btf::from_path(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_err(|error| format!("the programs' type information: {error:#}"))
}

/// Functions of the kernel that the programs call, as the kernel names them.
fn called(object: &[u8]) -> Result<Vec<String>, String> {
    let btf = types(object)?;
    let mut names: Vec<String> = btf
        .type_by_kind::<Func<'_>>()
        .filter(|found| found.linkage() == Linkage::Extern)
        .filter_map(|found| Some(found.name()?.to_str()?.to_owned()))
        .map(|name| name.strip_suffix("___reserv").map(str::to_owned).unwrap_or(name))
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// What the kernel lacks that has a fallback; `Err` says what it lacks that has none.
fn compare(kernel: &impl Kernel, called: &[String], forced: Lacks) -> Result<Lacks, String> {
    match kernel.operation(OF_CGROUPS) {
        None => return Err(format!("the kernel's type information has no {OPS}")),
        Some(false) => {
            return Err(format!(
                "sched_ext of this kernel does not tell of cgroups ({OF_CGROUPS}; CONFIG_EXT_GROUP_SCHED)"
            ));
        }
        Some(true) => {}
    }
    let mut lacks = forced;
    for fallback in FALLBACKS {
        let there = match fallback.symbol.split_once('.') {
            Some((_, operation)) => kernel.operation(operation).unwrap_or(false),
            None => kernel.function(fallback.symbol),
        };
        if !there {
            lacks.0 |= fallback.bit;
        }
    }
    let spare = |name: &str| {
        let mut table =
            FALLBACKS.iter().filter(|f| f.symbol == name || f.uses == Some(name)).peekable();
        table.peek().is_some() && !table.any(|f| lacks.0 & f.bit != 0 && f.uses == Some(name))
    };
    let missing: Vec<&str> = called
        .iter()
        .map(String::as_str)
        .filter(|name| !spare(name) && !kernel.function(name))
        .collect();
    if missing.is_empty() {
        return Ok(lacks);
    }
    Err(format!("sched_ext of this kernel lacks (in its type information): {}", missing.join(", ")))
}

/// What `RESERV_FALLBACKS` says: names with commas between, or `all`.
fn forced(text: &str) -> Result<Lacks, String> {
    if text == "all" {
        return Ok(Lacks(FALLBACKS.iter().map(|f| f.bit).sum()));
    }
    let mut bits = 0;
    for name in text.split(',') {
        let Lacks(bit) = Lacks::of(name);
        if bit == 0 {
            let names: Vec<&str> = FALLBACKS.iter().map(|f| f.name).collect();
            return Err(format!(
                "what RESERV_FALLBACKS says ({text}) is not 'all', nor some of {}",
                names.join(",")
            ));
        }
        bits |= bit;
    }
    Ok(Lacks(bits))
}

/// What this kernel lacks; `Err` says in words what it cannot be without.
pub(super) fn lacks() -> Result<Lacks, String> {
    let forced = settings::fallbacks().map_or(Ok(Lacks::default()), |text| forced(&text))?;
    let btf = Btf::from_vmlinux()
        .map_err(|error| format!("the kernel's type information (BTF): {error:#}"))?;
    compare(&btf, &called(OBJECT)?, forced)
}

/// The same for who loads.
pub(super) fn here() -> Result<Lacks, PlaneError> {
    lacks().map_err(PlaneError::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/compat.h"));

    /// A kernel that has everything but this.
    struct Without<'a>(&'a [&'a str]);

    impl Kernel for Without<'_> {
        fn function(&self, name: &str) -> bool {
            !self.0.contains(&name)
        }

        fn operation(&self, name: &str) -> Option<bool> {
            (!self.0.contains(&OPS)).then(|| !self.0.contains(&format!("{OPS}.{name}").as_str()))
        }
    }

    fn asked(without: &[&str]) -> Result<Lacks, String> {
        compare(&Without(without), &called(OBJECT).unwrap(), Lacks::default())
    }

    /// `COMPAT_NAME = 1 << N, /* RELEASE SYMBOL */`
    #[test]
    fn the_header_has_the_same_table() {
        let rows: Vec<(String, u32, &str, &str)> = HEADER
            .lines()
            .filter_map(|line| line.trim().strip_prefix("COMPAT_")?.split_once(" = 1 << "))
            .map(|(name, rest)| {
                let (bit, said) = rest.split_once(", /* ").expect("a bit and a comment");
                let (since, symbol) =
                    said.trim_end_matches(" */").split_once(' ').expect("two words");
                (name.to_lowercase(), 1 << bit.parse::<u32>().expect("a bit"), since, symbol)
            })
            .collect();
        let ours: Vec<_> =
            FALLBACKS.iter().map(|f| (f.name.to_owned(), f.bit, f.since, f.symbol)).collect();
        assert_eq!(rows, ours);
    }

    #[test]
    fn a_kernel_that_lacks_what_has_a_fallback_is_taken() {
        assert_eq!(asked(&[]), Ok(Lacks(0)));
        for fallback in FALLBACKS {
            assert_eq!(asked(&[fallback.symbol]), Ok(Lacks(fallback.bit)), "{}", fallback.name);
        }
        let all: Vec<&str> = FALLBACKS.iter().map(|f| f.symbol).collect();
        assert_eq!(asked(&all).as_ref(), forced("all").as_ref(), "Linux 6.14");
        // What only a fallback uses may go when it is not used, and not otherwise.
        assert_eq!(asked(&["scx_bpf_dsq_insert"]), Ok(Lacks(0)));
        let why = asked(&["scx_bpf_dsq_insert", "scx_bpf_dsq_insert___v2"]).unwrap_err();
        assert!(why.contains("scx_bpf_dsq_insert"), "{why}");
    }

    #[test]
    fn a_kernel_that_lacks_anything_else_is_not() {
        for name in called(OBJECT).unwrap() {
            if FALLBACKS.iter().any(|f| f.symbol == name || f.uses == Some(&name)) {
                continue;
            }
            assert!(asked(&[&name]).unwrap_err().contains(&name), "{name}");
        }
        assert!(asked(&[OPS]).unwrap_err().contains(OPS));
        assert!(asked(&["sched_ext_ops.cgroup_init"]).unwrap_err().contains("EXT_GROUP_SCHED"));
    }

    #[test]
    fn what_the_programs_call_is_read_out_of_them() {
        let called = called(OBJECT).unwrap();
        for name in
            ["scx_bpf_dsq_insert___v2", "scx_bpf_dsq_insert", "bpf_local_irq_save", "scx_bpf_now"]
        {
            assert!(called.iter().any(|found| found == name), "{name} in {called:?}");
        }
        assert!(called.iter().all(|name| !name.ends_with("___reserv")), "{called:?}");
    }

    /// Kernels before 7.1 verify by itself no function that answers nothing (`RS_FN_VOID`).
    #[test]
    fn each_function_that_is_verified_alone_answers_a_number() {
        let btf = types(OBJECT).unwrap();
        let silent: Vec<String> = btf
            .type_by_kind::<Func<'_>>()
            .filter(|found| found.linkage() == Linkage::Global)
            .filter(|found| {
                let proto =
                    FuncProto::try_from(found.next_type().expect("a prototype")).expect("one");
                let program = proto.iter().any(|one| one.name.is_some_and(|name| name == "ctx"));
                !program && proto.next_type().is_none()
            })
            .filter_map(|found| Some(found.name()?.to_string_lossy().into_owned()))
            .collect();
        assert_eq!(silent, Vec::<String>::new());
    }

    #[test]
    fn what_is_forced_is_named() {
        assert_eq!(forced("slice,vtime"), Ok(Lacks(6)));
        assert_eq!(forced("all").map(|all| all.fallbacks().len()), Ok(FALLBACKS.len()));
        assert!(forced("slices").unwrap_err().contains("insert,slice,vtime"));
        assert_eq!(Lacks(0).operations(), ["quiescent"]);
        assert_eq!(forced("dead,idle").unwrap().operations(), ["cgroup_set_idle"]);
    }
}
