// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scheduler of sched_ext that is not ours (`tests/lib/other.bpf.c`), for whoever tests beside
//! it.

use std::io::{self, BufRead as _, Write as _};

use libbpf_rs::{MapCore as _, MapFlags, MapType, ObjectBuilder};

use crate::setup::Answer;

/// Loads the object file and says so. Prints what it counts for each line of the input, and goes
/// at the end of that.
pub(crate) fn run(object: &str) -> Answer {
    let mut object = ObjectBuilder::default().open_file(object)?.load()?;
    let mut link = None;
    for mut map in object.maps_mut() {
        if map.map_type() == MapType::StructOps {
            link = Some(map.attach_struct_ops()?);
        }
    }
    let _link = link.ok_or("it has no scheduler")?;
    let counts = object
        .maps()
        .find(|map| map.name().to_string_lossy().ends_with(".bss"))
        .ok_or("it counts nothing")?;
    println!("loaded");
    io::stdout().flush()?;
    for line in io::stdin().lock().lines() {
        line?;
        let bytes =
            counts.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?.ok_or("it has no counts")?;
        let numbers =
            bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
        println!("{}", numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        io::stdout().flush()?;
    }
    Ok(())
}
