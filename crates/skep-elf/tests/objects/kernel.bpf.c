/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a kernel defines: configuration values, functions, variables. And what is only said about types: prototypes,
 * remarks, fields that are locks and lists.
 */
#include "bpf.h"

#define __decl_tag(text) __attribute__((btf_decl_tag(text)))
#define __kptr __attribute__((btf_type_tag("kptr")))

enum libbpf_tristate { TRI_NO, TRI_YES, TRI_MODULE };

struct task {
	int pid;
};

struct bpf_spin_lock {
	u32 value;
};

struct bpf_list_head {
	u64 words[2];
} __attribute__((aligned(8)));

struct bpf_list_node {
	u64 words[3];
} __attribute__((aligned(8)));

struct element {
	int number;
	struct bpf_list_node node;
};

struct value {
	int count;
	struct bpf_spin_lock lock;
	struct {
		struct task __kptr *kept[2];
	} nested;
	struct bpf_list_head list __decl_tag("contains:element:node");
};

struct {
	__uint(type, HASH);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct value);
} table SEC(".maps");

char LICENSE[] SEC("license") = "GPL";

extern int LINUX_KERNEL_VERSION __kconfig;
extern _Bool CONFIG_BPF __kconfig __weak;
extern enum libbpf_tristate CONFIG_MODULE __kconfig __weak;
extern unsigned long long CONFIG_HZ __kconfig __weak;
extern char CONFIG_LSM[8] __kconfig __weak;

extern struct task *task_acquire(struct task *task) __ksym;
extern void task_release(struct task *task) __ksym __weak;
extern void missing_function(void) __ksym __weak;
extern void strong_function(void) __ksym;
extern const struct task first_task __ksym;
extern const struct task missing_task __ksym __weak;
extern const void bare_symbol __ksym;

const volatile int limit = 5;
struct element first_element;

SEC("raw")
u64 configured(void *bytes)
{
	return LINUX_KERNEL_VERSION + CONFIG_HZ + CONFIG_LSM[1] + limit;
}

SEC("raw")
u64 optional(void *bytes)
{
	return CONFIG_BPF + CONFIG_MODULE;
}

SEC("raw")
u64 functions(struct task *task)
{
	struct task *own = task_acquire(task);
	if (task_release)
		task_release(own);
	if (missing_function)
		missing_function();
	return 0;
}

SEC("raw")
u64 strong(void *bytes)
{
	strong_function();
	return 0;
}

SEC("raw")
u64 variables(void *bytes)
{
	return (u64)&first_task + (u64)&missing_task;
}

SEC("raw")
u64 address(void *bytes)
{
	return (u64)&bare_symbol;
}

__noinline int described(void *context __decl_tag("arg:ctx"), struct task *task __decl_tag("arg:nonnull")
			 __decl_tag("arg:trusted"), u64 number)
{
	return number + task->pid + (u64)context;
}

SEC("raw")
u64 calls(void *bytes)
{
	struct task task = {};
	return described(bytes, &task, 3) + (u64)bpf_map_lookup_elem(&table, &task);
}
