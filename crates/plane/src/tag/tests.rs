// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;

use libbpf_rs::{ObjectBuilder, ProgramType};

use super::{Mechanism, abi, kernel_dev, load};

/// The table that the compiler of the programs wrote, against ours.
#[test]
fn both_sides_agree_on_every_size_and_offset() {
    crate::layout::agrees(load::OBJECT, abi::LAYOUT, "bpf/tag/abi.h");
    const { assert!(abi::NODES_MAX >= reserv_model::NODES_MAX) };
}

#[test]
fn device_numbers_as_the_kernel_packs_them() {
    assert_eq!(kernel_dev(libc::makedev(8, 17)), 0x80_0011);
    assert_eq!(kernel_dev(libc::makedev(0, 0x1234)), 0x1234);
}

/// A program that the kernel refuses costs what the table says: so each has its row, or is
/// essential.
#[test]
fn each_program_is_essential_or_has_a_sentence() {
    let open = ObjectBuilder::default().open_memory(load::OBJECT).unwrap();
    let programs: BTreeSet<String> =
        open.progs().map(|p| load::original(&p.name().to_string_lossy()).to_owned()).collect();
    for name in &programs {
        let row = load::LOSSES.iter().any(|(other, _)| other == name);
        assert!(row != load::essential(Mechanism::Full, name), "{name}");
    }
    for (name, lost) in load::LOSSES {
        assert!(programs.contains(*name), "{name} is no program");
        assert!(!lost.is_empty() && !lost.ends_with('.'), "{lost}");
    }
}

/// A program of the kernel's events that nobody attaches would be no use, and nobody would notice.
#[test]
fn each_tracing_program_is_attached_by_somebody() {
    let open = ObjectBuilder::default().open_memory(load::OBJECT).unwrap();
    for program in open.progs().filter(|p| p.prog_type() == ProgramType::Tracing) {
        let name = program.name().to_string_lossy().into_owned();
        let name = load::original(&name);
        let on_demand =
            load::COUNT_FILES.contains(&name) || [load::ENDS, load::SENT].contains(&name);
        let of_disks = load::DISK.iter().any(|(other, _)| *other == name);
        let times =
            [load::HOOKS.contains(&name), on_demand, of_disks].iter().filter(|by| **by).count();
        assert_eq!(times, 1, "{name}");
    }
}

#[test]
fn the_refused_program_by_what_libbpf_says() {
    let said = "libbpf: prog 'rt_fds': BPF program load failed: -EPERM\n\
                libbpf: prog 'rt_fds': failed to load: -EPERM\n\
                libbpf: failed to load object 'reserv_tag'\n";
    assert_eq!(crate::libbpf::refused_program(said), Some(("rt_fds", "-EPERM")));
    let said = "libbpf: prog 'rt_read': failed to load: -13\n";
    assert_eq!(crate::libbpf::refused_program(said), Some(("rt_read", "-13")));
    assert_eq!(crate::libbpf::refused_program("libbpf: failed to load object\n"), None);
}
