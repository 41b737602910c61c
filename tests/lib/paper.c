// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a program does that was written from the paper (Eclipse/BSD §2.5): a queue is made by
 * opening newqueue, and used through that descriptor. By bare system calls.
 *
 *   paper file NEWQUEUE FILE     FILE is opened and tagged
 *   paper socket NEWQUEUE        a socket is tagged
 *   paper process NEWQUEUE       the process goes there
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <reserv.h>

int main(int count, char **word)
{
	int q, fd, done;

	if (count < 3)
		return 2;
	q = open(word[2], O_RDWR);
	if (q < 0) {
		perror(word[2]);
		return 1;
	}
	if (!strcmp(word[1], "process")) {
		done = fcntl(q, F_RESERV_CHCPURES, 0);
	} else {
		fd = !strcmp(word[1], "file") ? open(word[3], O_RDWR) : socket(AF_INET, SOCK_DGRAM, 0);
		done = fcntl(fd, F_RESERV_SET_QUEUE, q);
	}
	if (done != 1)
		perror(word[1]);
	return done != 1;
}
