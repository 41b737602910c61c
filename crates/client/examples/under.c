/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * under QUEUE COMMAND...: runs a command under a reservation, with all that it starts.
 *
 *   cc -o under under.c $(pkg-config --cflags --libs reserv)
 *   ./under cpu/web/site1 make -j8
 */
#include <stdio.h>
#include <unistd.h>

#include <reserv.h>

int main(int count, char **word)
{
	if (count < 3) {
		fprintf(stderr, "usage: under QUEUE COMMAND...\n");
		return 2;
	}
	/*
	 * This thread, which the command is going to be; what it opens from now on; and its
	 * children.
	 */
	if (reserv_chcpures_path(word[1]) || reserv_set_default(0, word[1]) || reserv_set_cdefault(0, word[1])) {
		fprintf(stderr, "under: %s\n", reserv_error());
		return 1;
	}
	execvp(word[2], word + 2);
	perror(word[2]);
	return 127;
}
