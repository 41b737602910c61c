// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A kernel that refuses BPF programs, for tests: preloaded (LD_PRELOAD), it answers bpf(2)'s
 * BPF_PROG_LOAD in the kernel's stead where RESERV_TEST_REFUSE names the program or its kind, words
 * with a comma between. A kind is refused with EPERM, as kernels do; one program, by its name or a
 * copy's (NAME_2, NAME_3), with EACCES, as the verifier does. libbpf comes here by libc's
 * syscall(). What is to be loaded is written to the file RESERV_TEST_LOADS, a name a line, refused
 * or not.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const struct {
	const char *word;
	unsigned type;
	int attach; /* -1: any */
} kinds[] = {
	{ "iter", BPF_PROG_TYPE_TRACING, BPF_TRACE_ITER },
	{ "trampoline", BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY },
	{ "trampoline", BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT },
	{ "trampoline", BPF_PROG_TYPE_TRACING, BPF_MODIFY_RETURN },
	{ "tp_btf", BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP },
	{ "struct_ops", BPF_PROG_TYPE_STRUCT_OPS, -1 },
	{ "cgroup_sockopt", BPF_PROG_TYPE_CGROUP_SOCKOPT, -1 },
	{ "cgroup_sock_addr", BPF_PROG_TYPE_CGROUP_SOCK_ADDR, -1 },
	{ "cgroup_sock", BPF_PROG_TYPE_CGROUP_SOCK, -1 },
	{ "cgroup_skb", BPF_PROG_TYPE_CGROUP_SKB, -1 },
	{ "tcx", BPF_PROG_TYPE_SCHED_CLS, -1 },
	{ "syscall", BPF_PROG_TYPE_SYSCALL, -1 },
};

/* The kernel keeps 15 characters of a name; a copy's number may be cut off with its end. */
static int named(const char *word, size_t length, const char *name)
{
	size_t shown = strnlen(name, BPF_OBJ_NAME_LEN);
	size_t most = length < BPF_OBJ_NAME_LEN - 1 ? length : BPF_OBJ_NAME_LEN - 1;

	if (shown < most || strncmp(word, name, most))
		return 0;
	return shown == most || (shown == most + 2 && name[most] == '_') ||
	       (most + 2 > BPF_OBJ_NAME_LEN - 1 && shown > most && name[most] == '_');
}

/* 0, or the errno that a load is answered with. */
static int refusal(const union bpf_attr *attr)
{
	const char *at = getenv("RESERV_TEST_REFUSE");
	unsigned i;

	for (; at && *at; at += strcspn(at, ","), at += *at == ',') {
		size_t length = strcspn(at, ",");

		for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
			if (strlen(kinds[i].word) == length && !strncmp(kinds[i].word, at, length) &&
			    attr->prog_type == kinds[i].type &&
			    (kinds[i].attach < 0 || (int)attr->expected_attach_type == kinds[i].attach))
				return EPERM;
		if (length && named(at, length, attr->prog_name))
			return EACCES;
	}
	return 0;
}

static void note(const char *name)
{
	const char *path = getenv("RESERV_TEST_LOADS");
	struct iovec line[] = { { (void *)name, strnlen(name, BPF_OBJ_NAME_LEN) }, { "\n", 1 } };
	int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;

	if (fd >= 0) {
		if (writev(fd, line, 2) < 0)
			abort();
		close(fd);
	}
}

long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long a[6];
	va_list list;
	int i, refused;

	va_start(list, number);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_bpf && a[0] == BPF_PROG_LOAD) {
		note(((const union bpf_attr *)a[1])->prog_name);
		refused = refusal((const union bpf_attr *)a[1]);
		if (refused) {
			errno = refused;
			return -1;
		}
	}
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
