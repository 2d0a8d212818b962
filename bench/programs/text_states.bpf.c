/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A state machine over text: quoted strings with escapes, nesting, words and numbers are counted.
 * Memory: 1024 bytes, each made a printable character; read only.
 */
#include "bench.h"

PROGRAM(text_states)
{
	NEED(1024);
	u64 state = mem[0] & 3, depth = *(u64 *)mem, words = *(u64 *)(mem + 8), strings = *(u64 *)(mem + 16);

	for (int i = 0; i < 1024; i++) {
		u64 c = 32 + (mem[i] & 63);

		switch (state) {
		case 0:
			if (c == '"')
				state = 1;
			else if (c == '(')
				depth++;
			else if (c == ')')
				depth--;
			else if (c >= '0' && c <= '9')
				state = 3;
			break;
		case 1:
			if (c == '\\') {
				state = 2;
			} else if (c == '"') {
				state = 0;
				strings++;
			}
			break;
		case 2:
			state = 1;
			break;
		default:
			if (c < '0' || c > '9') {
				state = 0;
				words++;
			}
		}
		OPAQUE(state);
		OPAQUE(depth);
		OPAQUE(words);
		OPAQUE(strings);
	}
	return (depth << 48) ^ (words << 24) ^ (strings << 2) ^ state;
}
