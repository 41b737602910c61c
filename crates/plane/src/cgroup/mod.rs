// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups of either version, for the drivers that share by them: which hierarchies there are, our
//! directories and who is in them, where members came from, and weights in the kernel's numbers.

pub(crate) mod kernel;
pub(crate) mod mounts;
pub(crate) mod origin;
pub(crate) mod places;
pub(crate) mod weights;

#[cfg(test)]
pub(crate) mod fake;

use reserv_model::{NODES_MAX, NodeId};

/// The tree of the disk, beside the CPU's of this name. Where both are in one hierarchy a process
/// is in one of them only.
pub(crate) fn disk_tree(name: &str) -> String {
    format!("{name}-disk")
}

/// Name of a node's directory: kind and handle, so that the tree can be read back from cgroupfs.
pub(crate) fn component(id: NodeId, scheduler: bool) -> String {
    format!("{}{}.{}", if scheduler { 's' } else { 'q' }, id.index, id.generation)
}

/// The reverse: handle, and whether it is a scheduler node.
pub(crate) fn parse_component(name: &str) -> Option<(NodeId, bool)> {
    let scheduler = match name.as_bytes().first()? {
        b's' => true,
        b'q' => false,
        _ => return None,
    };
    let (index, generation) = name[1..].split_once('.')?;
    let id = NodeId { index: index.parse().ok()?, generation: generation.parse().ok()? };
    (component(id, scheduler) == name && id.index < NODES_MAX && id.generation > 0)
        .then_some((id, scheduler))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_read_back_and_nothing_else_is() {
        for scheduler in [true, false] {
            let id = NodeId { index: 41, generation: 3 };
            assert_eq!(parse_component(&component(id, scheduler)), Some((id, scheduler)));
        }
        for name in
            ["", "q", "q1", "q1.", "q01.1", "q+1.1", "x1.1", "q1.1.1", "q14336.1", "q5.0", "é1.1"]
        {
            assert_eq!(parse_component(name), None, "{name}");
        }
    }
}
