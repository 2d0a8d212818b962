/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * No section, no map: the exported functions of .text are the programs.
 */
static __attribute__((noinline)) unsigned long half(unsigned long x)
{
	return x / 2;
}

unsigned long twice(unsigned char *memory, unsigned long length)
{
	return half(length) * 4;
}
