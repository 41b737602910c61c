// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * relay FIFO VERDICT QEMU-PID TIMEOUT-SECONDS: the host's end of frame.h. Copies the guest's output
 * to its own stdout and stderr and writes one line to VERDICT: `exit N`, `timeout`, `died` (QEMU
 * has ended without an exit frame), or `broken WHY`. TIMEOUT 0 means none. Its own exit status is 0
 * unless it could not do its work.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"

static void verdict(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (!file || fprintf(file, "%s\n", text) < 0 || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
	exit(0);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A closed stdout (`vm/run … | head`) must not end the guest before it has said how it ended. */
static void put(int fd, const uint8_t *bytes, size_t length)
{
	while (length > 0) {
		ssize_t done = write(fd, bytes, length);

		if (done < 0 && errno == EAGAIN) {
			struct pollfd room = { fd, POLLOUT, 0 };

			poll(&room, 1, -1);
		} else if (done < 0 && errno != EINTR) {
			return;
		} else if (done > 0) {
			bytes += done;
			length -= (size_t)done;
		}
	}
}

/*
 * Handles the frame at the start of the buffer; returns its size, or 0 if it is not complete yet.
 */
static size_t one_frame(uint8_t *buffer, size_t have, const char *verdict_path)
{
	if (have < FRAME_HEADER)
		return 0;
	size_t length = buffer[1] | (size_t)buffer[2] << 8 | (size_t)buffer[3] << 16 | (size_t)buffer[4] << 24;
	uint8_t *body = buffer + FRAME_HEADER;
	char text[FRAME_MAX + 16];

	if (length > FRAME_MAX)
		verdict(verdict_path, "broken the guest's init sent a frame that is too long");
	if (have < FRAME_HEADER + length)
		return 0;
	switch (buffer[0]) {
	case FRAME_STDOUT:
		put(STDOUT_FILENO, body, length);
		break;
	case FRAME_STDERR:
		put(STDERR_FILENO, body, length);
		break;
	case FRAME_READY:
		break;
	case FRAME_EXIT:
		snprintf(text, sizeof(text), "exit %u", length > 0 ? body[0] : 125);
		verdict(verdict_path, text);
		break;
	case FRAME_BROKEN:
		snprintf(text, sizeof(text), "broken %.*s", (int)length, (char *)body);
		verdict(verdict_path, text);
		break;
	default:
		verdict(verdict_path, "broken the guest's init sent an unknown frame");
	}
	return FRAME_HEADER + length;
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: relay FIFO VERDICT QEMU-PID TIMEOUT-SECONDS\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	long seconds = strtol(argv[4], NULL, 10);
	int64_t end = now_ms() + (int64_t)seconds * 1000;
	/*
	 * Without O_NONBLOCK the open would wait for ever for a QEMU that never got as far as
	 * opening its end.
	 */
	int fifo = open(argv[1], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	/*
	 * Inherited before QEMU started, so a QEMU that has already gone is a zombie of our parent
	 * and still found.
	 */
	int qemu = (int)syscall(SYS_pidfd_open, (pid_t)strtol(argv[3], NULL, 10), 0);
	static uint8_t buffer[2 * (FRAME_HEADER + FRAME_MAX)];
	size_t have = 0;

	if (fifo < 0) {
		perror(argv[1]);
		return 1;
	}
	for (;;) {
		int64_t left = end - now_ms();

		if (seconds > 0 && left <= 0)
			verdict(argv[2], "timeout");
		struct pollfd wait_for[] = { { fifo, POLLIN, 0 }, { qemu, POLLIN, 0 } };
		int ready = poll(wait_for, 2, seconds > 0 ? (int)(left < 60000 ? left : 60000) : 60000);

		if (ready < 0 && errno != EINTR) {
			perror("poll");
			return 1;
		}
		ssize_t got = read(fifo, buffer + have, sizeof(buffer) - have);

		if (got > 0) {
			have += (size_t)got;
			size_t used;

			while ((used = one_frame(buffer, have, argv[2])) > 0) {
				have -= used;
				memmove(buffer, buffer + used, have);
			}
			continue;
		}
		/* Everything in the FIFO has been read: only now is a dead QEMU the last word. */
		if (qemu < 0 || (wait_for[1].revents & POLLIN))
			verdict(argv[2], "died");
		/*
		 * A FIFO whose writer has closed polls as ready for ever; QEMU's end is then all
		 * that can come.
		 */
		if (wait_for[0].revents & POLLHUP) {
			struct pollfd only = { qemu, POLLIN, 0 };

			poll(&only, 1, 1000);
		}
	}
}
