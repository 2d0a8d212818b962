/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Programs that cannot be linked, each for a reason of its own, and one that can.
 */
#include "bpf.h"

char LICENSE[] SEC("license") = "Proprietary";

struct task {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

extern const int missing __ksym;
extern int LINUX_KERNEL_VERSION __kconfig;
extern int missing_function(int);
int odd SEC(".strange") = 3;
int target = 3;
int *pointer = &target;

SEC("xdp")
int fine(void *context)
{
	return 2;
}

SEC("xdp")
int core(struct task *task)
{
	return task->tgid;
}

SEC("xdp")
int ksym(void *context)
{
	return (long)&missing;
}

SEC("xdp")
int kconfig(void *context)
{
	return LINUX_KERNEL_VERSION;
}

SEC("xdp")
int function(void *context)
{
	return missing_function(3);
}

SEC("xdp")
int strange(void *context)
{
	return odd;
}

SEC("xdp")
int indirect(void *context)
{
	return *pointer;
}
