// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel that tests/lib/tagsim.c plays: its functions, found in the library that was
//! preloaded.

use std::ffi::CStr;
use std::mem::transmute_copy;

use reserv_facts::call::fcntl;

/// Commands of fcntl, as the kernel's function takes them.
pub(crate) const SET_QUEUE: u32 = fcntl::SET_QUEUE.cast_unsigned();
pub(crate) const GET_QUEUE: u32 = fcntl::GET_QUEUE.cast_unsigned();
pub(crate) const SET_CPU: u32 = fcntl::CHCPURES.cast_unsigned();
pub(crate) const GET_CPU: u32 = fcntl::GETCPURES.cast_unsigned();

macro_rules! kernel {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $of:ty),*) $(-> $answer:ty)?;)*) => {
        /// All of them. Calls by a thread are of the one that [`Kernel::as_thread`] chose.
        pub(crate) struct Kernel { $($name: extern "C" fn($($of),*) $(-> $answer)?,)* }

        impl Kernel {
            /// `None`: it was not preloaded.
            pub(crate) fn find() -> Option<Self> {
                Some(Self { $($name: function(concat!(stringify!($name), "\0"))?,)* })
            }

            $($(#[$doc])* pub(crate) fn $name(&self, $($arg: $of),*) $(-> $answer)? { (self.$name)($($arg),*) })*
        }
    };
}

/// A function of the preloaded library, of the type that tagsim.c gives it.
fn function<F: Copy>(name: &str) -> Option<F> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // SAFETY: a C string that outlives the call.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: the declarations below are those of tagsim.c, and a pointer to a function is as large
    // as any.
    (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
}

kernel! {
    fn k_begin(seed: u64, netns: u64);
    fn k_as(tid: i32) -> i32;
    fn k_first(pid: i32, start: u64, uid: u32, gid: u32);
    fn k_clone(tid: i32, tgid: i32, start: u64) -> i32;
    fn k_exit();
    fn k_exec(start: u64, uid: u32, gid: u32, groups: u32, group: *const u32);
    fn k_open(dev: u32, block: u32, ino: u64) -> i32;
    fn k_open_reserv(dev: u32, ino: u64, directory: u32, mode: u32, handle: u64) -> i32;
    fn k_known(fd: i32, ino: u64);
    fn k_socket(family: u16, kind: u16, elsewhere: u32) -> i32;
    fn k_bind_device(fd: i32, interface: i32) -> i32;
    fn k_connect(fd: i32, interface: i32) -> i32;
    fn k_incoming(fd: i32, interface: i32) -> i32;
    fn k_accept(fd: i32) -> i32;
    fn k_dup(fd: i32) -> i32;
    fn k_close(fd: i32) -> i32;
    fn k_send(fd: i32, at: u32) -> i32;
    fn k_receive(at: u32) -> i32;
    fn k_forget(at: u32);
    fn k_fcntl(fd: i32, command: u32, argument: u64) -> i32;
    fn k_setsockopt(fd: i32, qfd: i32) -> i32;
    fn k_getsockopt(fd: i32, resource: u32) -> i32;
    fn k_use(fd: i32, bytes: u64, write: u32) -> i32;
    fn k_packet(fd: i32, interface: u32, bytes: u32) -> i32;
    fn k_released(to: *mut u64) -> u32;
    fn k_left() -> u64;
}
