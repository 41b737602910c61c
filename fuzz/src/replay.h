/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A target as a program of its own: it is given each file that is named. Include this last, and
 * before it name the target: #define FUZZ_TARGET reserv_fuzz_...
 */
#ifdef FUZZ_REPLAY
#include <stdio.h>

int main(int count, char **words)
{
	static uint8_t input[1 << 16];

	for (int i = 1; i < count; i++) {
		FILE *file = fopen(words[i], "rb");

		if (!file)
			return 1;
		FUZZ_TARGET(input, fread(input, 1, sizeof(input), file));
		fclose(file);
	}
	printf("%d inputs\n", count - 1);
	return 0;
}
#endif
