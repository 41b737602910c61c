/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One operation by io_uring, in a thread of the kernel's (IOSQE_ASYNC: a worker of io-wq), for
 * tests/guest/security_uring. Prints the errno of its answer, 0 where it was done.
 *
 *   uring write PATH TEXT        opens and writes, both by the ring
 *   uring writefd FD TEXT        writes what was opened before
 *   uring open PATH
 *   uring mkdir PATH | rmdir PATH | rename FROM TO
 *   uring setsockopt LEVEL NAME FD    of a fresh UDP socket, with FD as the value
 *   uring poll MS                a thread of the kernel's polls the ring for so long (SQPOLL)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Since Linux 6.7: enum io_uring_socket_op, and where the command's words are. */
#define OP_URING_CMD 46
#define SOCKET_SETSOCKOPT 3

static struct io_uring_params params;
static int ring;
static unsigned wake; /* IORING_ENTER_SQ_WAKEUP: of a thread that polls, which begins asleep */
static char *sq, *cq;
static struct io_uring_sqe *sqes;

static void setup(unsigned flags, unsigned idle_ms)
{
	params.flags = flags;
	params.sq_thread_idle = idle_ms;
	ring = syscall(SYS_io_uring_setup, 4, &params);
	if (ring < 0) {
		perror("io_uring_setup");
		exit(77);
	}
	sq = mmap(0, params.sq_off.array + 4 * params.sq_entries, PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	cq = mmap(0, params.cq_off.cqes + 16 * params.cq_entries, PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
	sqes = mmap(0, 64 * params.sq_entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
		    IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || sqes == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
}

/* Its answer. */
static int done(const struct io_uring_sqe *one)
{
	unsigned tail = *(unsigned *)(sq + params.sq_off.tail), mask = *(unsigned *)(sq + params.sq_off.ring_mask);
	unsigned *head = (unsigned *)(cq + params.cq_off.head);
	const struct io_uring_cqe *cqes = (const void *)(cq + params.cq_off.cqes);

	sqes[tail & mask] = *one;
	sqes[tail & mask].flags |= IOSQE_ASYNC;
	((unsigned *)(sq + params.sq_off.array))[tail & mask] = tail & mask;
	__atomic_store_n((unsigned *)(sq + params.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS | wake, 0, 0) < 0) {
		perror("io_uring_enter");
		exit(1);
	}
	tail = *head;
	*head = tail + 1;
	return cqes[tail & *(unsigned *)(cq + params.cq_off.ring_mask)].res;
}

static int said(int res)
{
	printf("%d\n", res < 0 ? -res : 0);
	return 0;
}

int main(int n, char **a)
{
	struct io_uring_sqe one = { .fd = AT_FDCWD };

	if (n < 3)
		return 2;
	if (!strcmp(a[1], "poll")) {
		setup(IORING_SETUP_SQPOLL, 1000000);
		wake = IORING_ENTER_SQ_WAKEUP;
		one.opcode = IORING_OP_NOP;
		done(&one);
		usleep(1000 * atoi(a[2]));
		return 0;
	}
	setup(0, 0);
	if (!strcmp(a[1], "open")) {
		one.opcode = IORING_OP_OPENAT;
		one.addr = (uintptr_t)a[2];
		one.open_flags = O_RDONLY;
		return said(done(&one));
	}
	if (!strcmp(a[1], "mkdir")) {
		one.opcode = IORING_OP_MKDIRAT;
		one.addr = (uintptr_t)a[2];
		one.len = 0755;
		return said(done(&one));
	}
	if (!strcmp(a[1], "rmdir")) {
		one.opcode = IORING_OP_UNLINKAT;
		one.addr = (uintptr_t)a[2];
		one.unlink_flags = AT_REMOVEDIR;
		return said(done(&one));
	}
	if (n < 4)
		return 2;
	if (!strcmp(a[1], "rename")) {
		one.opcode = IORING_OP_RENAMEAT;
		one.addr = (uintptr_t)a[2];
		one.addr2 = (uintptr_t)a[3];
		one.len = AT_FDCWD;
		return said(done(&one));
	}
	if (!strcmp(a[1], "setsockopt")) {
		int value = n > 4 ? atoi(a[4]) : 0;

		one.opcode = OP_URING_CMD;
		one.fd = socket(AF_INET, SOCK_DGRAM, 0);
		one.off = SOCKET_SETSOCKOPT; /* cmd_op */
		/* level, optname */
		one.addr = (uint64_t)(uint32_t)atoi(a[3]) << 32 | (uint32_t)strtol(a[2], 0, 0);
		one.splice_fd_in = sizeof(value); /* optlen */
		memcpy((char *)&one + 48, &(uint64_t){ (uintptr_t)&value }, 8); /* optval */
		return said(done(&one));
	}
	if (!strcmp(a[1], "write")) {
		int fd;

		one.opcode = IORING_OP_OPENAT;
		one.addr = (uintptr_t)a[2];
		one.open_flags = O_WRONLY;
		fd = done(&one);
		if (fd < 0)
			return said(fd);
		one = (struct io_uring_sqe){ .fd = fd };
	} else if (!strcmp(a[1], "writefd")) {
		one.fd = atoi(a[2]);
	} else {
		return 2;
	}
	one.opcode = IORING_OP_WRITE;
	one.addr = (uintptr_t)a[3];
	one.len = strlen(a[3]);
	return said(done(&one));
}
