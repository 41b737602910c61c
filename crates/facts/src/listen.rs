// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that chooses a listener by who comes (`bpf/listen/abi.h`): bounds. Its structures
//! are the plane's (crates/plane, listen/abi.rs).

shared! {
    /// Of `bpf/listen/abi.h`.
    ABI_VERSION: u32 = 1, "RL_ABI_VERSION";
    /// Most sockets that are for clients.
    SOCKETS_MAX: usize = 1024, "RL_SOCKETS_MAX";
    /// Most prefixes of one socket.
    CLIENTS_MAX: usize = 16, "RL_CLIENTS_MAX";
    /// Most sockets of one address and port.
    SET_MAX: usize = 64, "RL_SET_MAX";
    /// Most complements of one address and port, with those for everybody.
    RESTS_MAX: usize = 9, "RL_RESTS_MAX";
    /// Most users that may join one socket.
    USERS_MAX: usize = 8, "RL_USERS_MAX";
}
