/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Sections that need more than a loader, beside a program that needs none of them.
 */
#include "bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct operations {
	int (*start)(void *);
	char name[8];
};

int in_arena SEC(".arena.1") = 3;

SEC("struct_ops/start")
int start(void *context)
{
	return 0;
}

SEC(".struct_ops.link")
struct operations operations = { .start = start, .name = "test" };

SEC(".struct_ops")
struct operations others = { .start = start };

SEC("xdp")
int fine(void *context)
{
	return 2;
}

SEC("xdp")
int uses_arena(void *context)
{
	return in_arena;
}
