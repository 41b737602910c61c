/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * What the program that chooses a listener and the daemon say to each other. Rust's mirror is
 * crates/plane/src/listen/abi.rs; a table of sizes and offsets in the object file (listen.bpf.c:
 * rl_layout) is compared with it by a test.
 *
 * A door is where clients come to: a protocol, an IP version, an address of ours (or all) and a
 * port. Behind a door stand sets of sockets, each for some clients.
 */
#ifndef RESERV_LISTEN_ABI_H
#define RESERV_LISTEN_ABI_H

#define RL_ABI_VERSION 1
#define RL_SOCKETS_MAX 1024 /* that are for clients, on this machine */
#define RL_CLIENTS_MAX 16 /* prefixes of one socket */
#define RL_SET_MAX 64 /* sockets of one door */
#define RL_RESTS_MAX 9 /* complements of one door, and those for everybody */
#define RL_NESTED_MAX 8 /* prefixes of sockets that are gone, one in the other, that are passed */
#define RL_USERS_MAX 8 /* who may join a socket's door */

/* An address: of IPv4 its first four bytes; 0: all of ours. */
struct rl_address {
	u8 byte[16];
};

struct rl_door {
	u8 protocol, version;
	u16 port; /* in the order of this machine */
	struct rl_address local;
};

/* The key of the trie `clients`. */
struct rl_key {
	u32 bits; /* of all that follows */
	struct rl_door door;
	struct rl_address client;
};

#define RL_DOOR_BITS (8 * sizeof(struct rl_door))

/* Sockets for the same clients, by their cookies; one is chosen by who comes. */
struct rl_set {
	u32 count;
	u32 bits; /* how long their prefix is */
	/*
	 * Bit n: socket n is bound elsewhere and has joined, so it is chosen only while a socket of
	 * the door's own lives; or it needs none.
	 */
	u64 joined, free;
	u64 socket[RL_SET_MAX];
};

/* Whom no prefix fits: behind it, in this order, at (door, 0 to `rests`). */
struct rl_rest_key {
	struct rl_door door;
	u32 index;
};

struct rl_rest {
	struct rl_address but; /* not for these; where `but_bits` is 0, for everybody */
	u32 but_bits, pad;
	struct rl_set set;
};

/* The value of `doors`: the sockets that are bound there and have said for whom they are. */
struct rl_own {
	u32 rests, pad;
	struct rl_set set;
};

/* What a socket is for, as it was told. */
struct rl_client {
	struct rl_address address;
	u8 bits, version, complement, pad;
};

/* The value of `listeners`, by the socket's cookie: all else is made of these. */
struct rl_listener {
	u64 inode; /* as /proc/PID/fd has it */
	u32 user; /* who asked */
	u16 bound, port; /* where it is bound; where it listens for these */
	u8 protocol, versions; /* versions: bit 4, bit 6 */
	u8 free; /* root has asked: it needs no socket of the door's own */
	u8 clients, users;
	u8 pad[3];
	struct rl_address local;
	struct rl_client client[RL_CLIENTS_MAX];
	u32 allowed[RL_USERS_MAX]; /* users who may join it */
};

#endif
