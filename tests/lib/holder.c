// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A process that does to its descriptors what it is told over a connection
 * (tests/soak/descriptors_random).
 *
 *   holder SOCKET UID     connects, says "PID", becomes UID, and then does lines; each is answered by a number, which below 0 is an errno:
 *     fork                a child, which connects by itself
 *     exec                executes the program again, which connects again; no answer
 *     open PATH           the new descriptor
 *     dup FD              the new descriptor
 *     close FD            0
 *     give FD             0, and the descriptor beside it
 *     take                the new descriptor: the one that came with the line
 *     tag FD PATH         0: tagged with the queue whose directory PATH is
 *     get FD RESOURCE     what F_RESERV_GET_QUEUE answers
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <reserv.h>

static const char *where, *user;

static int meet(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char line[32];

	snprintf(name.sun_path, sizeof(name.sun_path), "%s", where);
	if (connect(s, (struct sockaddr *)&name, sizeof(name)))
		_exit(3);
	snprintf(line, sizeof(line), "%d", getpid());
	(void)!write(s, line, strlen(line));
	return s;
}

/* A line, and the descriptor that came with it or -1. */
static ssize_t hear(int s, char *line, size_t size, int *fd)
{
	char space[CMSG_SPACE(sizeof(int))];
	struct iovec text = { line, size - 1 };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
	ssize_t got = recvmsg(s, &message, 0);
	struct cmsghdr *with = CMSG_FIRSTHDR(&message);

	*fd = -1;
	if (got > 0 && with && with->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(with), sizeof(*fd));
	return got;
}

static void say(int s, long answer, int fd)
{
	char line[32], space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec text = { line, snprintf(line, sizeof(line), "%ld", answer) };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1 };
	struct cmsghdr *with;

	if (fd >= 0) {
		message.msg_control = space;
		message.msg_controllen = sizeof(space);
		with = CMSG_FIRSTHDR(&message);
		with->cmsg_level = SOL_SOCKET;
		with->cmsg_type = SCM_RIGHTS;
		with->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(with), &fd, sizeof(fd));
	}
	(void)!sendmsg(s, &message, 0);
}

static int tag(int fd, const char *path)
{
	int queue = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;

	if (queue < 0)
		return -errno;
	if (fcntl(fd, F_RESERV_SET_QUEUE, queue) != 1)
		error = -errno;
	close(queue);
	return error;
}

int main(int count, char **word)
{
	char line[512], path[400];
	int s, fd, with, number;
	long answer;
	pid_t child;

	if (count != 3)
		return 2;
	where = word[1];
	user = word[2];
	signal(SIGCHLD, SIG_IGN);
	s = meet();
	if (setresgid(atoi(user), atoi(user), atoi(user)) || setresuid(atoi(user), atoi(user), atoi(user)))
		return 4;
	for (ssize_t got; (got = hear(s, line, sizeof(line), &with)) > 0;) {
		line[got] = 0;
		answer = -EINVAL;
		if (!strcmp(line, "fork")) {
			child = fork();
			if (child == 0) {
				close(s);
				s = meet();
				continue;
			}
			answer = child < 0 ? -errno : child;
		} else if (!strcmp(line, "exec")) {
			execl("/proc/self/exe", "holder", where, user, NULL);
			answer = -errno;
		} else if (sscanf(line, "open %399s", path) == 1) {
			fd = open(path, O_RDWR);
			answer = fd < 0 ? -errno : fd;
		} else if (sscanf(line, "dup %d", &fd) == 1) {
			answer = dup(fd);
		} else if (sscanf(line, "close %d", &fd) == 1) {
			answer = close(fd);
		} else if (!strcmp(line, "take")) {
			answer = with;
		} else if (sscanf(line, "tag %d %399s", &fd, path) == 2) {
			answer = tag(fd, path);
		} else if (sscanf(line, "get %d %d", &fd, &number) == 2) {
			answer = fcntl(fd, F_RESERV_GET_QUEUE, number);
			if (answer < 0)
				answer = -errno;
		} else if (sscanf(line, "give %d", &fd) == 1) {
			say(s, 0, fd);
			continue;
		}
		say(s, answer, -1);
	}
	return 0;
}
