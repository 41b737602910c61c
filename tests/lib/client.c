// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * libreserv used from C, by tests/host/client_c and tests/guest/client_full.
 *
 *   client nothing ERRNO       every call that needs /reserv, where none is: this errno and a text
 *   client files               everything that goes through the files, as root; `cpu` holds nothing
 *                              but q0 before and after
 *   client files-hooked        as files, where the kernel's hooks are there (full driver)
 *   client hooks               what they do
 *   client threads             errors are the thread's own; no descriptor is left
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <reserv.h>

static int failed;

static void say(int good, const char *text)
{
	printf("%s - %s", good ? "ok" : "not ok", text);
	if (!good) {
		printf(": errno %d (%s): %s", errno, strerror(errno), reserv_error());
		failed++;
	}
	printf("\n");
}

#define GOOD(call) say((call) >= 0, #call)

/* The call fails with this errno, and its text has the word. */
static void refused(long got, int want, const char *has, const char *call)
{
	int error = errno;
	const char *text = reserv_error();

	if (got == -1 && error == want && strstr(text, has) && strlen(text) > 8 && !strchr(text, '\n')) {
		printf("ok - %s: %s\n", call, text);
		return;
	}
	printf("not ok - %s: answer %ld, errno %d, wanted %d and \"%s\": %s\n", call, got, error, want, has, text);
	failed++;
}

#define REFUSED(call, want, has) (errno = 0, refused((call), want, has, #call))

static void same(const char *got, const char *want, const char *what)
{
	printf("%s - %s: \"%s\"", strcmp(got, want) ? "not ok" : "ok", what, got);
	if (strcmp(got, want)) {
		printf(", wanted \"%s\"", want);
		failed++;
	}
	printf("\n");
}

static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void nothing(int want)
{
	char buf[256];
	struct reserv_stat stat;
	struct reserv_params params = { .weight = 1000 };
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const char *has = want == ENODEV ? "reserv up" : "reservd is not running";

	REFUSED(reserv_mount(buf, sizeof(buf)), want, has);
	REFUSED(reserv_open("cpu/a"), want, has);
	REFUSED(reserv_path(fd, buf, sizeof(buf)), want, has);
	REFUSED(reserv_chcpures(fd), want, has);
	REFUSED(reserv_chcpures_path("cpu/a"), want, has);
	REFUSED(reserv_cpures(buf, sizeof(buf)), want, has);
	REFUSED(reserv_open_container("web/a"), want, has);
	REFUSED(reserv_bind(fd), want, has);
	REFUSED(reserv_bind_path("web/a"), want, has);
	REFUSED(reserv_unbind(), want, has);
	REFUSED(reserv_bound(buf, sizeof(buf)), want, has);
	REFUSED(reserv_slot_path("web/a"), want, has);
	REFUSED(reserv_work(0), want, has);
	say(!reserv_page(), "and no page");
	REFUSED(reserv_pool_open("web", 2, NULL) ? 0 : -1, want, has);
	REFUSED(reserv_tag("cpu/a", getpid()), want, has);
	REFUSED(reserv_tag_thread("cpu/a", getpid()), want, has);
	REFUSED(reserv_set_params(&params), want, has);
	REFUSED(reserv_get_params(&params), want, has);
	REFUSED(reserv_set_queue(fd, fd), want, has);
	REFUSED(reserv_set_queue_path(fd, "cpu/a"), want, has);
	REFUSED(reserv_get_queue(fd, "cpu", buf, sizeof(buf)), want, has);
	REFUSED(reserv_get_queue(fd, NULL, buf, sizeof(buf)), want, has);
	REFUSED(reserv_listen_for(fd, "any"), want, has);
	REFUSED(reserv_listens_for(fd, buf, sizeof(buf)), want, has);
	REFUSED(reserv_get_default(0, "cpu", buf, sizeof(buf)), want, has);
	REFUSED(reserv_get_cdefault(0, NULL, buf, sizeof(buf)), want, has);
	REFUSED(reserv_set_default(0, "cpu/a"), want, has);
	REFUSED(reserv_set_cdefault(0, "cpu/a"), want, has);
	REFUSED(reserv_newqueue("cpu", buf, sizeof(buf)), want, has);
	REFUSED(reserv_newsched("cpu", NULL, 0), want, has);
	REFUSED(reserv_mkqueue("cpu/a", "10"), want, has);
	REFUSED(reserv_mksched("cpu/a", NULL), want, has);
	REFUSED(reserv_delete("cpu/a", RESERV_REFUSE), want, has);
	REFUSED(reserv_delete("cpu/a", RESERV_DRAIN), want, has);
	REFUSED(reserv_delete("cpu/a", RESERV_FLUSH), want, has);
	REFUSED(reserv_move("cpu/a", "cpu/b"), want, has);
	REFUSED(reserv_set("cpu/a", "cap", "none"), want, has);
	REFUSED(reserv_get("cpu/a", "cap", buf, sizeof(buf)), want, has);
	REFUSED(reserv_reweight("cpu/a", "5"), want, has);
	REFUSED(reserv_set_collect("cpu/a", 1), want, has);
	REFUSED(reserv_get_collect("cpu/a"), want, has);
	REFUSED(reserv_fset_collect(fd, 1), want, has);
	REFUSED(reserv_fget_collect(fd), want, has);
	REFUSED(reserv_stat("cpu/a", &stat), want, has);
	close(fd);
}

static void nodes(const char *mount)
{
	char buf[512], want[512];
	struct reserv_stat stat;
	int fd, share;
	FILE *file;

	GOOD(reserv_mksched("cpu/web", NULL));
	GOOD(reserv_mkqueue("/reserv/cpu/web/a", "10"));
	GOOD(reserv_get("cpu/web/a", "share", buf, sizeof(buf)));
	same(buf, "10 0", "its share");
	GOOD(reserv_get("cpu/web", "share", buf, sizeof(buf)));
	same(buf, "100 0", "the share where none is named");
	GOOD(reserv_reweight("cpu/web/a", "=25%"));
	GOOD(reserv_set("cpu/web/a", "class", "rr"));
	GOOD(reserv_set("cpu/web/a", "cap", "250ms/s"));
	GOOD(reserv_set("cpu/web", "policy", "eevdf"));
	GOOD(reserv_get("cpu/web", "policy", buf, sizeof(buf)));
	same(buf, "eevdf", "the policy");
	GOOD(reserv_stat("cpu/web/a", &stat));
	say(stat.members == 0 && stat.draining == 0, "an idle queue's counters");
	say(stat.weight_share_ppm > 0 && stat.guarantee_ns > 0 && stat.minimum_ns == 0, "with its share and guarantee");

	REFUSED(reserv_mkqueue("cpu/web/a", NULL), EEXIST, "a");
	REFUSED(reserv_mkqueue("cpu/web/a/x", NULL), ENOTDIR, "a queue");
	REFUSED(reserv_mkqueue("cpu/wbe/a", NULL), ENOENT, "cpu has no \"wbe\"");
	REFUSED(reserv_mkqueue("cpu", NULL), EINVAL, "is a resource");
	REFUSED(reserv_mkqueue("cpu/b b", NULL), EINVAL, "b");
	REFUSED(reserv_mkqueue("gpu/b", NULL), ENOENT, "there is cpu");
	REFUSED(reserv_reweight("cpu/web/a", "heavy"), EINVAL, "\"heavy\"");
	REFUSED(reserv_reweight("cpu/web/a", "1\n2"), EINVAL, "line");
	REFUSED(reserv_reweight("cpu/web/a", "5 1cpu"), ENOSPC, "cpu/web");
	REFUSED(reserv_set("cpu/web", "class", "ts"), ENOENT, "no such file; it has");
	REFUSED(reserv_set("cpu/web", "../share", "5"), EINVAL, "is no file of a node");
	REFUSED(reserv_set("cpu/web/a", "cap", "lots"), EINVAL, "\"lots\"");
	REFUSED(reserv_set("cpu", "share", "7"), EPERM, "share");
	REFUSED(reserv_get("cpu/../../etc", "passwd", buf, sizeof(buf)), EINVAL, "'..'");
	REFUSED(reserv_get("/etc", "passwd", buf, sizeof(buf)), EINVAL, "not below");
	REFUSED(reserv_get("cpu/web/a", "share", buf, 4), ERANGE, "7 are needed");
	REFUSED(reserv_get("cpu/web/a", "share", buf, 6), ERANGE, "7 are needed");
	say(reserv_get("cpu/web/a", "share", buf, 7) == 6, "and no more");
	say(reserv_get("cpu/web/a", "policy", buf, 0) == -1 && errno == ENOENT, "a queue has no policy");
	say(reserv_get("cpu/web", "policy", NULL, 0) == 5, "with size 0 the length is answered");
	REFUSED(reserv_get(NULL, "share", buf, sizeof(buf)), EFAULT, "NULL");
	REFUSED(reserv_get("cpu", NULL, buf, sizeof(buf)), EFAULT, "NULL");
	REFUSED(reserv_get("cpu", "share", NULL, 100), EFAULT, "NULL");
	REFUSED(reserv_get("cpu/\xff", "share", buf, sizeof(buf)), EILSEQ, "UTF-8");
	REFUSED(reserv_stat("cpu/web/nix", &stat), ENOENT, "has no \"nix\"; there is a");
	REFUSED(reserv_stat("cpu/web", NULL), EFAULT, "NULL");

	fd = reserv_open("cpu/web/a");
	say(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC, "a descriptor is closed at exec");
	GOOD(reserv_move("cpu/web/a", "cpu/b"));
	snprintf(want, sizeof(want), "%s/cpu/b", mount);
	GOOD(reserv_path(fd, buf, sizeof(buf)));
	same(buf, want, "a descriptor follows its node");
	GOOD(reserv_get_queue(fd, NULL, buf, sizeof(buf)));
	same(buf, want, "as the queue of a descriptor of /reserv");
	REFUSED(reserv_move("cpu/b", "cpu/q0"), EEXIST, "q0");
	REFUSED(reserv_move("cpu/b", "cpu/nix/b"), ENOENT, "no \"nix\"");
	REFUSED(reserv_move("cpu", "cpu/b"), EINVAL, "is a resource");

	GOOD(reserv_set_collect("cpu/b", 1));
	say(reserv_get_collect("cpu/b") == 1 && reserv_fget_collect(fd) == 1, "it is collected");
	GOOD(reserv_fset_collect(fd, 0));
	say(reserv_get_collect("cpu/b") == 0 && reserv_fget_collect(fd) == 0, "it is kept");
	REFUSED(reserv_set_collect("cpu/b", 2), EINVAL, "neither 0");

	REFUSED(reserv_delete("cpu/web/../b", RESERV_REFUSE), EINVAL, "'..'");
	REFUSED(reserv_delete("cpu/b", 9), EINVAL, "9 is no way");
	REFUSED(reserv_delete("cpu/web", RESERV_DRAIN), EINVAL, "is a scheduler node");
	GOOD(reserv_mkqueue("cpu/web/c", "1"));
	REFUSED(reserv_delete("cpu/web", RESERV_REFUSE), ENOTEMPTY, "cpu/web");
	GOOD(reserv_delete("cpu/web/c", RESERV_REFUSE));
	GOOD(reserv_delete("cpu/b", RESERV_REFUSE));
	REFUSED(reserv_path(fd, buf, sizeof(buf)), ESTALE, "gone");
	close(fd);
	REFUSED(reserv_path(fd, buf, sizeof(buf)), EBADF, "descriptor");
	REFUSED(reserv_path(0, buf, sizeof(buf)), EINVAL, "no node of");

	file = tmpfile();
	say(reserv_pwrite(fileno(file), "hello", 5, 0, 20000000) == 5 && reserv_pread(fileno(file), buf, 9, 1, 250000000) == 4 && !memcmp(buf, "ello", 4),
	    "a read and a write with deadlines");
	say(reserv_pread(fileno(file), buf, 9, 9, 0) == 0, "at the end, without one");
	REFUSED(reserv_pread(fileno(file), buf, 9, 0, 7999999), EINVAL, "7999999");
	REFUSED(reserv_pread(fileno(file), NULL, 9, 0, 20000000), EFAULT, "pread");
	REFUSED(reserv_pwrite(-1, buf, 1, 0, 20000000), EBADF, "pwrite");
	fclose(file);

	REFUSED(reserv_newqueue("cpu/web", buf, 8), ERANGE, "too small");
	share = reserv_newqueue("cpu/web", buf, sizeof(buf));
	snprintf(want, sizeof(want), "%s/cpu/web/q0", mount);
	same(buf, want, "a numbered queue");
	say(write(share, "7\n", 2) == 2, "its descriptor is its share");
	GOOD(reserv_get(want, "share", buf, sizeof(buf)));
	same(buf, "7 0", "as its file says");
	say(fcntl(share, F_GETFD) == FD_CLOEXEC, "it is closed at exec");
	close(share);
	share = reserv_newsched("cpu/web", NULL, 0);
	say(share >= 0, "a numbered scheduler node");
	GOOD(reserv_path(share, buf, sizeof(buf)));
	close(share);
	REFUSED(reserv_newqueue("cpu/q0", NULL, 0), ENOTDIR, "is a queue");
	/* Nodes of newqueue may be collected as soon as nothing refers to them. */
	reserv_delete("cpu/web/q0", RESERV_FLUSH);
	reserv_delete("cpu/web/r0", RESERV_REFUSE);
	GOOD(reserv_delete("cpu/web", RESERV_REFUSE));
}

static void processes(const char *mount, int hooked)
{
	struct reserv_pool_params overflow = { .flags = RESERV_POOL_OVERFLOW }, unknown = { .flags = 4 };
	static struct reserv_pool none;
	char buf[512], want[512];
	int ready[2], end[2], queue;
	pid_t child;

	GOOD(reserv_mkqueue("cpu/a", "1"));
	GOOD(reserv_mkqueue("cpu/b", "1"));
	snprintf(want, sizeof(want), "%s/cpu/q0", mount);
	GOOD(reserv_cpures(buf, sizeof(buf)));
	same(buf, want, "an untagged thread");
	GOOD(reserv_chcpures_path("cpu/a"));
	snprintf(want, sizeof(want), "%s/cpu/a", mount);
	GOOD(reserv_cpures(buf, sizeof(buf)));
	same(buf, want, "chcpures");
	usleep(1000); /* The thread becomes a member when its step in service ends. */
	REFUSED(reserv_delete("cpu/a", RESERV_REFUSE), EBUSY, "cpu/a");
	queue = reserv_open("cpu/b");
	GOOD(reserv_chcpures(queue));
	snprintf(want, sizeof(want), "%s/cpu/b", mount);
	GOOD(reserv_cpures(buf, sizeof(buf)));
	same(buf, want, "by a descriptor");
	close(queue);
	REFUSED(reserv_chcpures(queue), EBADF, "not open");
	queue = reserv_open("cpu");
	REFUSED(reserv_chcpures(queue), EINVAL, "scheduler node");
	close(queue);
	REFUSED(reserv_chcpures(0), EINVAL, "no node of");
	/* Without the kernel's hooks no thread is bound by itself. */
	REFUSED(reserv_bind(9999), EBADF, "not open");
	if (hooked) {
		GOOD(reserv_unbind());
		say(reserv_bound(buf, sizeof(buf)) == 0, "bound to no container");
	} else {
		REFUSED(reserv_unbind(), EOPNOTSUPP, "full driver");
		REFUSED(reserv_bound(buf, sizeof(buf)), EOPNOTSUPP, "full driver");
		REFUSED(reserv_work(0), EOPNOTSUPP, "full driver");
		REFUSED(reserv_pool_open(NULL, 2, NULL) ? 0 : -1, EOPNOTSUPP, "full driver");
	}
	REFUSED(reserv_pool_open("nix", 2, NULL) ? 0 : -1, ENOENT, "nix");
	REFUSED(reserv_pool_open(NULL, 0, NULL) ? 0 : -1, EINVAL, "not 0");
	REFUSED(reserv_pool_open(NULL, -5, NULL) ? 0 : -1, EINVAL, "-5");
	REFUSED(reserv_pool_open(NULL, 1023, &overflow) ? 0 : -1, EINVAL, "1 to 1022");
	REFUSED(reserv_pool_open(NULL, 2, &unknown) ? 0 : -1, EINVAL, "0x4");
	REFUSED(reserv_pool_open("\xff", 2, NULL) ? 0 : -1, EILSEQ, "UTF-8");
	REFUSED(reserv_pool_close(NULL), EFAULT, "NULL");
	REFUSED(reserv_pool_close(&none), EINVAL, "no pool");
	REFUSED(reserv_begin(NULL), EFAULT, "NULL");
	REFUSED(reserv_end(NULL, 1), EFAULT, "NULL");
	REFUSED(reserv_slot(9999), EBADF, "not open");
	REFUSED(reserv_slot_path("nix"), ENOENT, "nix");
	REFUSED(reserv_slot_free(5), EINVAL, "5 is no slot");
	REFUSED(reserv_work(1024), EINVAL, "1024 is no slot");
	REFUSED(reserv_work(-1), EINVAL, "-1 is no slot");
	REFUSED(reserv_bind_path("cpu/../x"), EINVAL, "names no container");
	REFUSED(reserv_bind_path("nix"), ENOENT, "nix");
	REFUSED(reserv_chcpures_path("cpu/nix"), ENOENT, "no \"nix\"");
	GOOD(reserv_chcpures_path("cpu/q0"));

	if (pipe(ready) || pipe(end))
		exit(1);
	child = fork();
	if (child == 0) {
		close(end[1]);
		close(ready[0]);
		(void)!write(ready[1], "r", 1);
		_exit(read(end[0], buf, 1) != 0);
	}
	close(end[0]);
	(void)!read(ready[0], buf, 1);
	snprintf(want, sizeof(want), "%s/cpu/a", mount);
	GOOD(reserv_tag("cpu/a", child));
	GOOD(reserv_get("cpu/a", "members", buf, sizeof(buf)));
	say(strstr(buf, "tid ") == buf, "another process is tagged");
	GOOD(reserv_tag_thread("cpu/q0", child));
	GOOD(reserv_set_default(child, "cpu/a"));
	GOOD(reserv_set_cdefault(child, want));
	GOOD(reserv_get_default(child, "cpu", buf, sizeof(buf)));
	same(buf, want, "another's default list");
	GOOD(reserv_get_cdefault(child, NULL, buf, sizeof(buf)));
	say(strstr(buf, want) != NULL, "its child default list, of all resources");
	GOOD(reserv_get_default(0, "cpu", buf, sizeof(buf)));
	snprintf(want, sizeof(want), "%s/cpu/q0", mount);
	same(buf, want, "the caller's own");
	REFUSED(reserv_get_default(0, "gpu", buf, sizeof(buf)), ENOENT, "no resource \"gpu\"; there ");
	REFUSED(reserv_set_default(0, "cpu/nix"), ENOENT, "nix");
	REFUSED(reserv_set_default(0, ""), EINVAL, "no queue is named");
	REFUSED(reserv_set_default(0, "cpu"), EINVAL, "cpu");
	REFUSED(reserv_set_default(-5, "cpu/a"), EINVAL, "-5 is no process");
	REFUSED(reserv_get_default(4194303, NULL, buf, sizeof(buf)), ESRCH, "no process 4194303");
	REFUSED(reserv_tag("cpu/a", 4194303), ESRCH, "4194303");
	REFUSED(reserv_tag("cpu/a", 0), EINVAL, "0 is no process");
	REFUSED(reserv_tag("cpu/nix", child), ENOENT, "no \"nix\"");
	REFUSED(reserv_tag("cpu", child), EINVAL, "scheduler node");
	close(end[1]);
	waitpid(child, NULL, 0);
	close(ready[0]);
	close(ready[1]);
	GOOD(reserv_delete("cpu/a", RESERV_FLUSH));
	GOOD(reserv_delete("cpu/b", RESERV_DRAIN));
	REFUSED(reserv_stat("cpu/b", NULL), EFAULT, "NULL");
}

static void nobody(void)
{
	pid_t child;
	char buf[64];
	int status = 0, a;

	GOOD(reserv_mkqueue("cpu/a", "1"));
	a = reserv_open("cpu/a");
	fflush(stdout);
	child = fork();
	if (child == 0) {
		failed = 0;
		if (setgid(65534) || setuid(65534))
			_exit(1);
		REFUSED(reserv_get("cpu/a", "share", buf, sizeof(buf)), EACCES, "cpu/a");
		REFUSED(reserv_path(a, buf, sizeof(buf)), ESTALE, "not shown");
		GOOD(reserv_get("cpu", "share", buf, sizeof(buf)));
		REFUSED(reserv_reweight("cpu/a", "9"), EACCES, "cpu/a");
		REFUSED(reserv_mkqueue("cpu/b", "9"), EACCES, "cpu");
		REFUSED(reserv_newqueue("cpu", NULL, 0), EACCES, "cpu");
		REFUSED(reserv_delete("cpu/a", RESERV_REFUSE), EACCES, "cpu/a");
		REFUSED(reserv_delete("cpu/a", RESERV_FLUSH), EACCES, "cpu/a");
		REFUSED(reserv_move("cpu/a", "cpu/b"), EACCES, "cpu/a");
		REFUSED(reserv_set_collect("cpu/a", 1), EACCES, "cpu/a");
		REFUSED(reserv_tag("cpu/a", 1), EACCES, "cpu/a");
		fflush(stdout);
		_exit(failed > 0);
	}
	waitpid(child, &status, 0);
	say(status == 0, "uid 65534 is refused in words");
	close(a);
	GOOD(reserv_delete("cpu/a", RESERV_REFUSE));
}

static void hooks(const char *mount)
{
	char buf[512], want[512];
	struct reserv_params p = { .weight = 2000 }, q;
	int a, fd, null;

	GOOD(reserv_mkqueue("cpu/a", "1"));
	a = reserv_open("cpu/a");
	snprintf(want, sizeof(want), "%s/cpu/a", mount);
	say(fcntl(a, F_RESERV_CHCPURES, 0) == 1, "the bare command");
	GOOD(reserv_cpures(buf, sizeof(buf)));
	same(buf, want, "is what the library reads");
	GOOD(reserv_chcpures_path("cpu/q0"));
	GOOD(reserv_chcpures(a));
	say(fcntl(a, F_RESERV_GETCPURES, 0) > 2, "and the other way round");

	/* Whoever has the descriptor needs nothing else. */
	fflush(stdout);
	fd = fork();
	if (fd == 0)
		_exit(setgid(65534) || setuid(65534) || reserv_chcpures(a));
	waitpid(fd, &fd, 0);
	say(fd == 0, "uid 65534 with a descriptor that it was given");

	GOOD(reserv_set_params(&p));
	GOOD(reserv_get_params(&q));
	say(q.weight == 2000 && q.period_ns == 0, "parameters as set");
	p.budget_ns = 5000000;
	REFUSED(reserv_set_params(&p), EINVAL, "budget_ns 5000000 without period_ns");
	p.period_ns = 20000000;
	p.deadline_ns = 21000000;
	REFUSED(reserv_set_params(&p), EINVAL, "deadline_ns 21000000");
	p.deadline_ns = 0;
	p.priority = 101;
	REFUSED(reserv_set_params(&p), EINVAL, "priority 101");
	GOOD(reserv_get_params(&q));
	say(q.weight == 2000 && q.period_ns == 0, "nothing has changed");
	REFUSED(reserv_set_params(NULL), EFAULT, "NULL");

	null = open(mount, O_PATH | O_CLOEXEC);
	REFUSED(reserv_chcpures(null), EINVAL, "another file");
	close(null);
	snprintf(buf, sizeof(buf), "%s/cpu/a", mount);
	null = open(buf, O_PATH | O_CLOEXEC);
	REFUSED(reserv_chcpures(null), EBADF, "O_PATH");
	close(null);
	GOOD(reserv_chcpures_path("cpu/q0"));
	usleep(1000);
	GOOD(reserv_delete("cpu/a", RESERV_REFUSE));
	REFUSED(reserv_chcpures(a), ESTALE, "gone");
	close(a);
}

static void *one_thread(void *number)
{
	long n = (long)number, i, bad = 0;
	char name[64], text[64];

	snprintf(name, sizeof(name), "cpu/none%ld", n);
	snprintf(text, sizeof(text), "\"none%ld\"", n);
	for (i = 0; i < 200; i++) {
		if (reserv_reweight(name, "5") != -1 || errno != ENOENT || !strstr(reserv_error(), text))
			bad++;
		if (reserv_cpures(name, 0) <= 0)
			bad++;
		snprintf(name, sizeof(name), "cpu/none%ld", n);
	}
	return (void *)bad;
}

static void threads(void)
{
	pthread_t thread[8];
	long i, bad = 0;
	void *got;
	int before = descriptors();

	for (i = 0; i < 8; i++)
		pthread_create(&thread[i], NULL, one_thread, (void *)i);
	for (i = 0; i < 8; i++) {
		pthread_join(thread[i], &got);
		bad += (long)got;
	}
	say(bad == 0, "eight threads at once have each their own errors");
	say(descriptors() == before, "no descriptor is left");
}

int main(int count, char **word)
{
	char mount[256] = "";
	int before = descriptors();

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count == 3 && !strcmp(word[1], "nothing")) {
		nothing(atoi(word[2]));
	} else if (count == 2 && reserv_mount(mount, sizeof(mount)) > 0) {
		same(reserv_version(), "0.1.0", "version");
		if (!strcmp(word[1], "files") || !strcmp(word[1], "files-hooked")) {
			nodes(mount);
			processes(mount, !strcmp(word[1], "files-hooked"));
			nobody();
		} else if (!strcmp(word[1], "hooks")) {
			hooks(mount);
		} else if (!strcmp(word[1], "threads")) {
			threads();
		} else {
			return 2;
		}
	} else {
		fprintf(stderr, "client: %s\n", reserv_error());
		return 2;
	}
	say(descriptors() == before, "descriptors are as they were");
	return failed > 0;
}
