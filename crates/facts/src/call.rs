// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls by which programs tag threads, files and sockets: commands of fcntl(2), and options of
//! sockets. `bpf/abi.h` and `bpf/tag/abi.h` say what each does and when it is refused.

shared! {
    /// Commands of fcntl(2).
    "F_RESERV_" mod fcntl: i32 {
        CHCPURES = 0x5253_0001,
        GETCPURES = 0x5253_0002,
        SETPARAM = 0x5253_0003,
        GETPARAM = 0x5253_0004,
        SET_QUEUE = 0x5253_0005,
        GET_QUEUE = 0x5253_0006,
        BIND = 0x5253_0007,
        UNBIND = 0x5253_0008,
        BOUND = 0x5253_0009,
    }
}

shared! {
    /// The level of the options of sockets.
    SOL: i32 = 0x5253, "SOL_RESERV";
    /// As [`fcntl::SET_QUEUE`].
    SO_QUEUE: i32 = 5, "SO_RESERV_QUEUE";
    /// As [`fcntl::GET_QUEUE`], with the number of a resource added.
    SO_QUEUE_OF: i32 = 0x100, "SO_RESERV_QUEUE_OF";
}

/// `struct rc_thread_param`: the argument of [`fcntl::SETPARAM`] and [`fcntl::GETPARAM`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "named as in bpf/abi.h")]
pub struct ThreadParam {
    pub size: u32,
    pub weight: u32,
    pub priority: u32,
    pad: u32,
    pub period_ns: u64,
    pub budget_ns: u64,
    pub deadline_ns: u64,
}

impl ThreadParam {
    /// With its size, as the kernel wants it.
    #[expect(clippy::cast_possible_truncation, reason = "40")]
    pub fn new() -> Self {
        Self { size: size_of::<Self>() as u32, ..Self::default() }
    }
}
