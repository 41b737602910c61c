/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the guest's init says to vm/relay, over one virtio-serial port: frames of a five-byte header
 * (kind, length in little-endian order) and the bytes. One port for both streams and the exit
 * status keeps them in order, so whoever has seen the exit frame has seen all the output before it.
 */
#ifndef RESERV_VM_FRAME_H
#define RESERV_VM_FRAME_H

#define FRAME_PORT "reserv.out"
#define FRAME_HEADER 5
#define FRAME_MAX 16384

enum frame_kind {
	FRAME_STDOUT = 1,
	FRAME_STDERR = 2,
	FRAME_EXIT = 3,	/* one byte: the command's exit status, 128 + signal if a signal ended it */
	FRAME_READY = 4,	/* no bytes: the guest is up and the command starts now */
	FRAME_BROKEN = 5,	/* text: why the guest could not run the command */
};

#endif
