// SPDX-License-Identifier: MIT OR Apache-2.0
//! libreserv: reservations for programs.
//!
//! Everything is done through the files of `/reserv` and Reserv's `fcntl` commands, so a program
//! needs nothing of Reserv's inside: descriptors that it was given work wherever it is, and what it
//! may do is decided where the files are. Root's calls reach the files by reservd's control socket
//! (`way.rs`), for a call each.
//!
//! * Nodes are named by paths: `/reserv/cpu/web/site1` or `cpu/web/site1`. Answers are with the
//!   mount point.
//! * An [`Error`] has an errno and a text that names the word that was wrong and, where that is
//!   known, what would be right. Nothing has changed then.
//! * Where the kernel's hooks are missing (the stock drivers), calls about threads go through the
//!   files instead, which needs the right to write them. Tags of sockets are options then
//!   (`setsockopt`), those of open files of disks are written to `/reserv/proc/self/fds`.
//! * There is no state: each call finds the mount anew ([`mount`]). Only a thread that binds itself
//!   without system calls ([`Slot`]) has a page, and its process slots. All calls may be used by
//!   several threads at once.
//! * Descriptors are whatever is [`AsFd`](std::os::fd::AsFd): a file, a socket, an `OwnedFd`. Where
//!   a path is wanted, anything of which one can be made will do.
//!
//! The C ABI (`include/reserv.h`) is these functions under the names `reserv_…`.

mod borrowed;
mod calls;
mod container;
mod descriptor;
mod error;
mod ffi;
mod files;
mod listen;
mod lists;
mod node;
mod page;
mod place;
mod pool;
mod request;
mod sized;
mod stat;
mod thread;
mod way;

pub use borrowed::{
    bind, chcpures, fget_collect, fset_collect, get_queue, listen_for, listens_for, path, pread,
    pwrite, set_queue, set_queue_path,
};
pub use container::{bind_path, bound, open_container, unbind};
pub use descriptor::open;
pub use error::{Error, Result};
pub use lists::{List, get_list, set_list};
pub use node::{
    Delete, delete, get, get_collect, mkqueue, mksched, move_node, newqueue, newsched, reweight,
    set, set_collect,
};
pub use page::{Slot, rest};
pub use place::mount;
pub use pool::{Activity, Pool, PoolParams};
pub use stat::{Stat, stat};
pub use thread::{Params, chcpures_path, cpures, get_params, set_params, tag, tag_thread};

/// Of this library.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
