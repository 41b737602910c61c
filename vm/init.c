// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * PID 1 of the guest. It makes the usual mounts, runs one command with the caller's environment in
 * the caller's directory, passes its output on as frames (frame.h) and says how it ended. The host
 * then stops the machine; nothing is shut down, because nothing here needs it: the root is the
 * host's own file tree and sync() has been called.
 *
 * The kernel command line ends in `-- RUNDIR`; RUNDIR/{argv,environ} hold NUL-terminated strings,
 * RUNDIR/{cwd,modules} one line each. Where there is a RUNDIR/init, that program becomes PID 1, and
 * all of this goes on in a child of it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"

static int port = -1;
static const char *rundir;

static void send_all(const uint8_t *bytes, size_t length)
{
	while (length > 0) {
		ssize_t sent = write(port, bytes, length);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return; /* The host has gone; it will stop us. */
		bytes += sent;
		length -= (size_t)sent;
	}
}

static void frame(enum frame_kind kind, const void *bytes, uint32_t length)
{
	/*
	 * Header and bytes in one write: every write to a virtio-serial port costs an exit from the
	 * guest.
	 */
	uint8_t out[FRAME_HEADER + FRAME_MAX] = { (uint8_t)kind, (uint8_t)length, (uint8_t)(length >> 8),
		(uint8_t)(length >> 16), (uint8_t)(length >> 24) };

	memcpy(out + FRAME_HEADER, bytes, length);
	send_all(out, FRAME_HEADER + length);
}

/*
 * The end: the host kills the machine when it has read the last frame. PID 1 must not return before
 * that.
 */
static void rest(void) __attribute__((noreturn));
static void rest(void)
{
	for (;;)
		pause();
}

static void broken(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void broken(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	int length = vsnprintf(text, sizeof(text), format, arguments);

	va_end(arguments);
	if (length >= (int)sizeof(text))
		length = sizeof(text) - 1;
	if (port < 0) {
		/* The console: this ends as a panic, whose end the host shows. */
		fprintf(stderr, "init: %s\n", text);
		exit(1);
	}
	frame(FRAME_BROKEN, text, (uint32_t)length);
	rest();
}

static void mount_at(const char *type, const char *where, const char *options, bool needed)
{
	mkdir(where, 0755);
	/*
	 * EBUSY: the kernel has mounted devtmpfs itself. A kernel without an optional file system
	 * goes on without it.
	 */
	if (mount(type, where, type, 0, options) < 0 && errno != EBUSY && needed)
		broken("mount %s at %s: %s", type, where, strerror(errno));
}

/* Writes a setting; a kernel without it keeps its own way. */
static bool setting(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	bool written = write(fd, value, strlen(value)) >= 0;

	close(fd);
	return written;
}

/* Reads RUNDIR/name whole, with a NUL added. */
static char *slurp(const char *name, size_t *length)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", rundir, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		broken("%s: %s", path, strerror(errno));
	struct stat status;

	if (fstat(fd, &status) < 0)
		broken("%s: %s", path, strerror(errno));
	char *text = calloc(1, (size_t)status.st_size + 1);
	size_t have = 0;
	ssize_t got;

	while ((got = read(fd, text + have, (size_t)status.st_size - have)) > 0)
		have += (size_t)got;
	close(fd);
	if (length)
		*length = have;
	return text;
}

static char *line(const char *name)
{
	char *text = slurp(name, NULL);

	text[strcspn(text, "\n")] = '\0';
	return text;
}

/* Splits RUNDIR/name at its NULs. */
static char **strings(const char *name)
{
	size_t length, count = 0, i = 0;
	char *text = slurp(name, &length);

	for (size_t at = 0; at < length; at++)
		count += text[at] == '\0';
	char **list = calloc(count + 1, sizeof(*list));

	for (size_t at = 0; i < count; at += strlen(text + at) + 1)
		list[i++] = text + at;
	return list;
}

/* The port is found by its name: its number depends on the order of QEMU's arguments. */
static void open_port(void)
{
	DIR *ports = opendir("/sys/class/virtio-ports");
	struct dirent *entry;

	while (ports && (entry = readdir(ports)) != NULL) {
		char path[512], name[64] = "";

		snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			continue;
		if (read(fd, name, sizeof(name) - 1) > 0 && strncmp(name, FRAME_PORT "\n", strlen(FRAME_PORT) + 1) == 0) {
			snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
			port = open(path, O_WRONLY | O_CLOEXEC);
		}
		close(fd);
	}
	if (ports)
		closedir(ports);
}

static void loopback_up(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		broken("lo up: %s", strerror(errno));
	close(fd);
}

static void prepare(void)
{
	mount_at("proc", "/proc", NULL, true);
	mount_at("sysfs", "/sys", NULL, true);
	mount_at("devtmpfs", "/dev", "mode=0755", true);
	open_port();
	if (port < 0)
		broken("no virtio-serial port named %s", FRAME_PORT);
	mount_at("devpts", "/dev/pts", "gid=5,mode=0620,ptmxmode=0666", true);
	mount_at("tmpfs", "/dev/shm", "mode=1777", true);
	/* The host's /run names the host's daemons; the guest's must be its own. */
	mount_at("tmpfs", "/run", "mode=0755", true);
	mkdir("/run/lock", 0755);
	chmod("/run/lock", 01777);
	mount_at("cgroup2", "/sys/fs/cgroup", "nsdelegate", true);
	mount_at("bpf", "/sys/fs/bpf", "mode=0700", true);
	mount_at("tracefs", "/sys/kernel/tracing", NULL, false);
	mount_at("debugfs", "/sys/kernel/debug", NULL, false);
	mount_at("securityfs", "/sys/kernel/security", NULL, false);
	mount_at("fusectl", "/sys/fs/fuse/connections", NULL, false);
	if (symlink("/proc/self/fd", "/dev/fd") < 0 || symlink("/proc/self/fd/0", "/dev/stdin") < 0 ||
	    symlink("/proc/self/fd/1", "/dev/stdout") < 0 || symlink("/proc/self/fd/2", "/dev/stderr") < 0)
		broken("links in /dev: %s", strerror(errno));

	/* One by one: a controller that the kernel lacks must not keep the others away. */
	static const char *const controllers[] = { "+cpu", "+cpuset", "+io", "+memory", "+pids", "+hugetlb", "+rdma", "+misc" };

	for (size_t i = 0; i < sizeof(controllers) / sizeof(*controllers); i++)
		setting("/sys/fs/cgroup/cgroup.subtree_control", controllers[i]);
	setting("/proc/sys/kernel/sysrq", "1");

	char *modules = line("modules");

	mkdir("/lib/modules", 0755);
	if (mount(modules, "/lib/modules", NULL, MS_BIND, NULL) < 0)
		broken("bind %s to /lib/modules: %s", modules, strerror(errno));
	loopback_up();
	sethostname("guest", strlen("guest"));

	struct rlimit files = { .rlim_cur = 1024, .rlim_max = 524288 };

	setrlimit(RLIMIT_NOFILE, &files);
}

static pid_t start(const int out[2], const int err[2], const sigset_t *usual)
{
	char **argv = strings("argv"), **environment = strings("environ"), *cwd = line("cwd");
	pid_t child = fork();

	if (child < 0)
		broken("fork: %s", strerror(errno));
	if (child > 0)
		return child;
	setsid();
	sigprocmask(SIG_SETMASK, usual, NULL);
	int null = open("/dev/null", O_RDONLY);

	dup2(null, 0);
	dup2(out[1], 1);
	dup2(err[1], 2);
	close(null);
	if (chdir(cwd) < 0) {
		dprintf(2, "vm/run: %s: %s in the guest\n", cwd, strerror(errno));
		_exit(126);
	}
	environ = environment;
	execvp(argv[0], argv);
	int why = errno;

	dprintf(2, "vm/run: %s: %s\n", argv[0], strerror(why));
	_exit(why == ENOENT ? 127 : 126);
}

/* Passes on what is in the pipe now; false when there is nothing, or nobody writes any more. */
static bool pass(int pipe_end, enum frame_kind kind)
{
	static uint8_t bytes[FRAME_MAX];
	ssize_t got = read(pipe_end, bytes, sizeof(bytes));

	if (got > 0)
		frame(kind, bytes, (uint32_t)got);
	return got > 0;
}

/*
 * Just after boot the kernel still has about a second of work of its own to do (measured on 7.2).
 * Where guest time is counted, wait for it: a sleeping guest costs the host next to nothing.
 * `settle_ms=` on the kernel command line reaches init as an environment variable.
 */
static void settle(void)
{
	const char *text = getenv("settle_ms");
	long ms = text ? strtol(text, NULL, 10) : 0;
	struct timespec pause_for = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&pause_for, NULL);
}

static void supervise(void)
{
	int out[2], err[2];
	sigset_t child_signal, usual;

	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		broken("pipe: %s", strerror(errno));
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	sigemptyset(&child_signal);
	sigaddset(&child_signal, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child_signal, &usual);
	int children = signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK);

	frame(FRAME_READY, "", 0);
	pid_t command = start(out, err, &usual);

	/*
	 * Init keeps the pipes' writing ends open, so a reader never sees an end and never spins.
	 */
	for (;;) {
		struct pollfd wait_for[] = { { out[0], POLLIN, 0 }, { err[0], POLLIN, 0 }, { children, POLLIN, 0 } };

		if (poll(wait_for, 3, -1) < 0 && errno != EINTR)
			broken("poll: %s", strerror(errno));
		pass(out[0], FRAME_STDOUT);
		pass(err[0], FRAME_STDERR);
		struct signalfd_siginfo info;
		int status;
		pid_t gone;

		while (read(children, &info, sizeof(info)) > 0)
			;
		while ((gone = waitpid(-1, &status, WNOHANG)) > 0) {
			if (gone != command)
				continue;
			uint8_t code = (uint8_t)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));

			/*
			 * What the command left in the pipes; what its descendants still write is
			 * not waited for.
			 */
			bool more;

			do {
				more = pass(out[0], FRAME_STDOUT);
				more = pass(err[0], FRAME_STDERR) || more;
			} while (more);
			sync();
			frame(FRAME_EXIT, &code, 1);
			rest();
		}
	}
}

/*
 * Gives PID 1 to another program and goes on as its child. A child that nobody expects is no
 * trouble to a service manager; it only gets a scope of its own. The program's words go to the
 * console.
 */
static void hand_over(void)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/init", rundir);
	if (access(path, F_OK) < 0)
		return;
	char **argv = strings("init"), **environment = strings("environ");
	pid_t child = fork();

	if (child < 0)
		broken("fork: %s", strerror(errno));
	if (child == 0) {
		setsid();
		return;
	}
	environ = environment;
	execv(argv[0], argv);
	broken("%s: %s", argv[0], strerror(errno));
}

int main(int argc, char **argv)
{
	if (argc < 2)
		broken("the kernel command line must end in `-- RUNDIR`");
	/* Parameters that the kernel does not know come first. */
	rundir = argv[argc - 1];
	umask(0);
	prepare();
	umask(022);
	settle();
	hand_over();
	supervise();
}
