// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name space of `/reserv`: which files there are, their inode numbers, and what their texts
//! mean.
//!
//! Pure: no clock, file, thread or float; the daemon brings trees, samples and bytes.
//!
//! * [`TABLE`]: every file, one row. [`lookup`], [`list`], [`attributes`] answer what a file system
//!   asks.
//! * `container.rs`: the same for containers, a room of its own.
//! * [`Ino`] and [`Object`]: an inode number says what it is, and the kernel's programs can read
//!   it.
//! * [`parse_write`], [`parse_defaults`]: bytes written → a [`Command`].
//! * [`render_read`], [`render_defaults`], [`render_status`]: text read. Reads print what writes
//!   accept.
#![forbid(unsafe_code)]
#![deny(
    clippy::float_arithmetic,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

mod access;
mod container;
mod directory;
mod ino;
mod read;
mod table;
mod text;
mod write;

pub use access::{mode_allows, permit_open, render_domain, shown};
pub use container::{
    CONTAINERS, ContainerCommand, Counted, Owned, Told, Used, UsedBy, attributes_in_container,
    list_container, lookup_in_container, parse_container_write, render_container, render_nodes,
    render_usage, render_usage_of_all,
};
pub use directory::{
    Attributes, DirItem, FileType, attributes, list, list_processes, lookup, resource_name_taken,
    resource_named,
};
pub use ino::{ContainerFile, FileKind, Ino, Object, QUEUE_DIR_WORD, RESOURCES_MAX, Resource};
pub use read::{
    Health, Member, ResourceStatus, Survey, View, render_defaults, render_descriptors,
    render_missing, render_read, render_status,
};
pub use table::{Entry, Place, Read, TABLE, Write, entry};
pub use text::line;
pub use write::{
    Command, Named, PID_MAX, Who, parse_defaults, parse_descriptor, parse_listen, parse_write,
};
