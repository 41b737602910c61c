// SPDX-License-Identifier: MIT OR Apache-2.0
/* The workload of Eclipse/BSD §4: a CGI program that computes half a million random numbers and answers 1 KB.
 *
 * It says in a header how much CPU time the numbers took (X-Work-Us, logged by the server), so that a drift of the
 * machine's own speed between two measurements, as an emulated one has, can be seen and corrected for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANDOM_NUMBERS = 500000, REPLY_BYTES = 1024 };

static long cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

int main(void)
{
	char reply[REPLY_BYTES];
	unsigned int sum = 0;
	long begin = cpu_us();

	for (int i = 0; i < RANDOM_NUMBERS; i++)
		sum += (unsigned int)rand();

	/* The sum goes into the reply, so the compiler cannot leave the work out. */
	memset(reply, '.', sizeof(reply));
	memcpy(reply, &(char[2]){ (char)('A' + sum % 26), '\n' }, 2);
	reply[REPLY_BYTES - 1] = '\n';
	printf("Content-Type: text/plain\r\nContent-Length: %d\r\nX-Work-Us: %ld\r\n\r\n", REPLY_BYTES,
	       cpu_us() - begin);
	return fwrite(reply, 1, sizeof(reply), stdout) == sizeof(reply) ? 0 : 1;
}
